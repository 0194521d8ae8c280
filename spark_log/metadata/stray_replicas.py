"""Removes directories of replicas that a partition does not have any more (stray replicas).

A replica that diverged comes back in a directory with a higher number, and a reassignment takes
replicas from brokers. A cleaner deletes what they leave.

On storage: a marker ``__stray_replicas/<the replica's directory>``, an empty file in the root of
the replica's broker, dated by this root's clock. A cleaner creates it after it read metadata in
which the directory is no replica's. When the marker is ``file.delete.delay.ms`` old, a cleaner
reads the metadata again, and deletes the directory if it is still no replica's.

The marker stays until the topic is deleted: the number of a directory with a marker is never used
again. Otherwise a cleaner that was paused could delete files of a new replica. So whoever chooses
a directory for a replica reads the markers after the metadata that have the replica
(`next_directory_number`): either it sees the marker, or the cleaner sees the replica.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from spark_log.errors import (
    AlreadyExistsError,
    BrokerIdNotRegisteredError,
    ClockSkewError,
    SparkLogError,
    StorageError,
)
from spark_log.log import Witness
from spark_log.metadata.cluster import Cluster
from spark_log.metadata.image import ROOT_BROKER_ID
from spark_log.metadata.topic_image import TopicImage
from spark_log.storage import Store, check_clock_skew, storage_time_us

STRAY_REPLICAS: Final = "__stray_replicas"
"""The directory of the markers, relative to a broker's root."""


@dataclass(frozen=True, slots=True)
class StrayReplica:
    """A directory that is no replica's any more.

    Attributes:
        broker_id: of the root with the directory.
        directory: relative to this root; empty if the root could not be searched.
        files: number of deleted files; 0 while the directory waits for ``file.delete.delay.ms``.
        size_bytes: their size.
        error: why the directory was not deleted, or the root not searched; None if it did not fail.
    """

    broker_id: int
    directory: str
    files: int = 0
    size_bytes: int = 0
    error: SparkLogError | None = None


def next_directory_number(store: Store, topic: TopicImage, partition: int, broker_id: int) -> int:
    """Return the lowest number that the directory of a replica may have on its broker.

    Args:
        store: the broker's.
        topic: with the broker among the partition's replicas, read from the metadata before this
            call.
        partition: its number.
        broker_id: of the replica.

    Returns:
        The number of the replica's directory, or a higher one if that was given up.

    Raises:
        StorageError: the storage does not answer.
    """
    marked = (
        _number_of(topic, partition, file.name)
        for file in store.list(f"{STRAY_REPLICAS}/{topic.directory}")
    )
    present = topic.partitions[partition].directory_of(broker_id)
    return max([present, *(number + 1 for number in marked if number is not None)])


def remove_stray_replicas(cluster: Cluster, *, dry_run: bool = False) -> Iterator[StrayReplica]:
    """Delete the directories that are no replica's any more, and yield them.

    Any number of processes may do so at once, and may be killed at any point. A broker that cannot
    be reached stops no other.

    Args:
        cluster: the opened root.
        dry_run: change nothing.

    Raises:
        ClockSkewError: this process's clock is too far from that of the cluster's root.
        StorageError: the metadata cannot be read.
    """
    image = cluster.image()
    topics = [topic for topic in image.topics() if _had_other_replicas(topic)]
    for broker in image.brokers() if topics else ():
        broker_id = broker.broker_id
        for topic in topics:
            try:
                yield from _clean_topic(cluster, topic, broker_id, dry_run=dry_run)
            except (StorageError, ClockSkewError, BrokerIdNotRegisteredError) as error:
                if broker_id == ROOT_BROKER_ID:
                    raise
                yield StrayReplica(broker_id, "", error=error)
                break


def _had_other_replicas(topic: TopicImage) -> bool:
    """Whether a partition has, or may have had, replicas outside of the cluster's root."""
    return any(
        state.replicas != (ROOT_BROKER_ID,) or state.partition_epoch > 0
        for state in topic.partitions.values()
    )


def _clean_topic(
    cluster: Cluster, known: TopicImage, broker_id: int, *, dry_run: bool
) -> Iterator[StrayReplica]:
    store = cluster.broker_store(broker_id)
    names = set(store.list_directories(known.directory))
    # Read the metadata after the listing: a directory that is listed may be that of a new replica.
    stray = _stray_directories(cluster, known, broker_id, names)
    if not stray:
        return
    markers = f"{STRAY_REPLICAS}/{known.directory}"
    for name in () if dry_run else stray:
        with suppress(AlreadyExistsError):
            store.put_if_absent(f"{markers}/{name}", b"")
    # Read the time before the markers: a marker must never be taken for older than it is.
    now_us = storage_time_us(store, markers)
    image = cluster.image()
    check_clock_skew(cluster.clock, now_us, image.cluster_config().max_clock_skew_ms)
    delay_us = known.config().file_delete_delay_ms * 1000 + store.time_resolution_us
    old = {file.name for file in store.list(markers) if file.modified_us <= now_us - delay_us}
    # Read the metadata after the markers: whoever uses a directory since reads its marker.
    still_stray = _stray_directories(cluster, known, broker_id, names)
    for name in sorted(stray & still_stray):
        directory = f"{known.directory}/{name}"
        if name not in old:
            yield StrayReplica(broker_id, directory)
            continue
        sizes = [file.size_bytes for file in store.list(directory)]
        if not dry_run:
            store.delete_directory(directory)
            store.delete(Witness(directory).path)
        yield StrayReplica(broker_id, directory, len(sizes), sum(sizes))


def _stray_directories(
    cluster: Cluster, known: TopicImage, broker_id: int, names: set[str]
) -> set[str]:
    """Return those of the names that are no directory of a replica, by the present metadata.

    A higher number than the present one is not stray: a replica may be copied there before the
    metadata have it.
    """
    topic = cluster.image().find_by_id(known.topic_id)
    if topic is None:  # deleted
        return set()
    return {
        name
        for name in names
        for partition, state in topic.partitions.items()
        if (number := _number_of(topic, partition, name)) is not None
        and (broker_id not in state.replicas or number < state.directory_of(broker_id))
    }


def _number_of(topic: TopicImage, partition: int, name: str) -> int | None:
    """Return the number of a directory of the partition; None if the name is not of one."""
    suffix = re.search(r"\.([1-9][0-9]*)$", name)
    for number in (0, int(suffix[1]) if suffix else 0):
        if topic.numbered_directory(partition, number) == f"{topic.directory}/{name}":
            return number
    return None
