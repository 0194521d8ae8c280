"""Removes directories of replicas that no partition has any more: stray replicas, as in Kafka.

A reassignment leaves the directories of the old replicas behind. A replica that diverged is copied
anew into a new directory, and leaves the old one behind. Directories of topics that are not in the
metadata stay: only the marker of a deletion removes those (`finish_deletions`).

On storage: a marker ``__stray_replicas/<the replica's directory>``, an empty file in the root of
the replica's broker, dated by this root's clock. A cleaner creates it after it read metadata in
which no replica uses the directory. When the marker is ``file.delete.delay.ms`` old, a cleaner
reads the metadata again, and removes the directory if still no replica uses it.

The marker stays until the topic is deleted: the number of a directory with a marker is never used
again, or a cleaner that was paused could delete files of a new replica. A process that chooses a
directory for a replica first reads metadata with this replica, and then the markers
(`next_directory_number`): either the process sees the marker, or the cleaner sees the replica.

The rules: (protocol W15).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from spark_log.cluster.cluster import Cluster
from spark_log.errors import AlreadyExistsError, BrokerIdNotRegisteredError, StorageError
from spark_log.log.files import ExistenceMarker
from spark_log.metadata import ROOT_BROKER_ID, TopicImage
from spark_log.storage import STRAY_REPLICAS, Store, check_clock_skew, storage_time_us

_REPLICA: Final = re.compile(r".+-(\d+)(?:\.(\d+))?")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StrayReplica:
    """A directory of a replica that its partition does not have any more.

    Attributes:
        broker_id: the id of the broker that has the directory.
        directory: the directory's path, relative to the broker's root.
        files: the number of files in the directory.
        size_bytes: the size of these files.
    """

    broker_id: int
    directory: str
    files: int
    size_bytes: int


def next_directory_number(store: Store, topic: TopicImage, partition: int) -> int:
    """Return the lowest number that a new directory of a partition's replica may have.

    Call this after reading metadata in which the partition has the replica.

    Raises:
        StorageError: the storage does not answer.
    """
    markers = store.list(f"{STRAY_REPLICAS}/{topic.directory}")
    marked = (parse_replica_directory(file.name) for file in markers)
    return max((each[1] + 1 for each in marked if each and each[0] == partition), default=0)


def remove_stray_replicas(cluster: Cluster, *, dry_run: bool = False) -> Iterator[StrayReplica]:
    """Remove stray replicas of all brokers, and yield them.

    Several processes may do this at the same time, and repeat it. A broker that cannot be reached
    is skipped with a warning.

    Args:
        cluster: the opened root.
        dry_run: remove nothing.

    Raises:
        ClockSkewError: this process's clock is too far from the clock of a broker's storage.
        StorageError: the metadata cannot be read.
    """
    image = cluster.image()
    topics = [topic for topic in image.topics() if _was_changed(topic)]
    for broker in image.brokers() if topics else ():
        try:
            store = cluster.broker_store(broker.broker_id)
            for topic in topics:
                yield from _remove_of_topic(cluster, store, topic, broker.broker_id, dry_run)
        except (BrokerIdNotRegisteredError, StorageError) as error:
            if broker.broker_id == ROOT_BROKER_ID:
                raise
            _log.warning(
                "broker %d: stray replicas are left; clean again when its root can be reached: %s",
                broker.broker_id,
                error,
            )


def _was_changed(topic: TopicImage) -> bool:
    """Return whether the replicas of any partition were ever changed."""
    return any(state.partition_epoch > 0 for state in topic.partitions.values())


def _remove_of_topic(
    cluster: Cluster, store: Store, known: TopicImage, broker_id: int, dry_run: bool
) -> Iterator[StrayReplica]:
    names = set(store.list_directories(known.directory))
    # Read the metadata after the listing: a new replica may use a new directory.
    strays = _strays(cluster, known, broker_id, names)
    if not strays:
        return
    markers = f"{STRAY_REPLICAS}/{known.directory}"
    for name in () if dry_run else strays:
        with suppress(AlreadyExistsError):
            store.put_if_absent(f"{markers}/{name}", b"")
    now_us = storage_time_us(store, markers)
    skew_ms = cluster.image().cluster_config().max_clock_skew_ms
    check_clock_skew(cluster.clock, now_us, skew_ms)
    old_us = now_us - known.config().file_delete_delay_ms * 1000 - store.time_resolution_us
    old = {file.name for file in store.list(markers) if file.modified_us <= old_us}
    # Read the metadata after the markers: a process that chooses a directory later sees its marker.
    for name in _strays(cluster, known, broker_id, old & set(strays)):
        directory = f"{known.directory}/{name}"
        sizes = [file.size_bytes for file in store.list(directory)]
        if not dry_run:
            store.delete_directory(directory)
            store.delete(ExistenceMarker(directory).path)
            _log.info(
                "broker %d: removed the stray replica %s: %d files, %d bytes",
                broker_id,
                directory,
                len(sizes),
                sum(sizes),
            )
        yield StrayReplica(broker_id, directory, len(sizes), sum(sizes))


def _strays(
    cluster: Cluster, known: TopicImage, broker_id: int, names: Collection[str]
) -> list[str]:
    """Return the names of directories that no replica uses, by the present metadata."""
    topic = cluster.image().find_by_id(known.topic_id)
    return [] if topic is None else [each for each in names if _is_stray(topic, each, broker_id)]


def _is_stray(topic: TopicImage, name: str, broker_id: int) -> bool:
    """Return whether no replica uses a directory, or will use it.

    The numbers of a replica's directories only grow. A replica that rejoins is copied into its new
    directory before the metadata have the directory's number.
    """
    found = parse_replica_directory(name)
    partition = topic.partitions.get(found[0]) if found else None
    if found is None or partition is None:
        return False
    return broker_id not in partition.replicas or found[1] < partition.directory_of(broker_id)


def parse_replica_directory(name: str) -> tuple[int, int] | None:
    """Return the partition and the number of a replica's directory; None for another name."""
    found = _REPLICA.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2] or 0))
