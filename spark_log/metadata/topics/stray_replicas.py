"""Removes directories of replicas that no partition has any more: stray replicas, as in Kafka.

A reassignment leaves the replicas that it moved away, and a replica that diverged comes back in a
new directory, which leaves the old one. Such a directory is removed when it got no file for a day,
by the time of its storage. Directories of topics that are not in the metadata stay: only the marker
of a deletion removes those (`finish_deletions`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from spark_log.errors import BrokerIdNotRegisteredError, StorageError
from spark_log.log import Witness
from spark_log.metadata.cluster import Cluster
from spark_log.metadata.image import ROOT_BROKER_ID, MetadataImage
from spark_log.metadata.topic_image import TopicImage
from spark_log.storage import Store, check_clock_skew, newest_modified_us, storage_time_us

_KEPT_US: Final = 86_400_000_000
"""How long a directory is kept after its newest file: a copy that goes on writes more often."""

_REPLICA: Final = re.compile(r".+-(\d+)(?:\.(\d+))?")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StrayReplica:
    """A directory of a replica that its partition does not have any more.

    Attributes:
        broker_id: the broker that has it.
        directory: relative to the broker's root.
        files: number of its files.
        size_bytes: their size.
    """

    broker_id: int
    directory: str
    files: int
    size_bytes: int


def remove_stray_replicas(cluster: Cluster, *, dry_run: bool = False) -> Iterator[StrayReplica]:
    """Remove stray replicas of all brokers, and yield them.

    Several processes may do this at the same time, and repeat it. A broker that cannot be reached
    is told in a warning, and passed over.

    Args:
        cluster: the opened root.
        dry_run: remove nothing.

    Raises:
        ClockSkewError: this process's clock is too far from the clock of a broker's storage.
        StorageError: the metadata cannot be read.
    """
    image = cluster.image()
    brokers = [broker.broker_id for broker in image.brokers()]
    if brokers == [ROOT_BROKER_ID]:
        return  # nothing was ever moved
    for broker_id in brokers:
        try:
            store = cluster.broker_store(broker_id)
            strays = list(_strays(store, image, broker_id))
            if strays:
                now_us = storage_time_us(store, strays[0][0].directory)
                skew_ms = image.cluster_config().max_clock_skew_ms
                check_clock_skew(cluster.clock, now_us, skew_ms)
            for topic, name in strays:
                files = list(store.list(f"{topic.directory}/{name}"))
                if now_us - newest_modified_us(files) < _KEPT_US:
                    continue
                # It may have become a replica again since.
                if not dry_run and not _remove(cluster, store, topic, name, broker_id):
                    continue
                size_bytes = sum(file.size_bytes for file in files)
                yield StrayReplica(broker_id, f"{topic.directory}/{name}", len(files), size_bytes)
        except (BrokerIdNotRegisteredError, StorageError) as error:
            if broker_id == ROOT_BROKER_ID:
                raise
            _log.warning("broker %d: stray replicas are left: %s", broker_id, error)


def _strays(store: Store, image: MetadataImage, broker_id: int) -> Iterator[tuple[TopicImage, str]]:
    """Yield the directories of a broker that are no replica, by topic and name."""
    for topic in image.topics():
        for name in store.list_directories(topic.directory):
            if _is_stray(topic, name, broker_id):
                yield topic, name


def _is_stray(topic: TopicImage, name: str, broker_id: int) -> bool:
    """Return whether no replica is, or will be, in a directory.

    Numbers of a replica's directories only grow, and the copy that a replica joins with is made
    before the metadata have its number.
    """
    found = _REPLICA.fullmatch(name)
    partition = topic.partitions.get(int(found[1])) if found else None
    if found is None or partition is None:
        return False
    if broker_id not in partition.replicas:
        return True
    return int(found[2] or 0) < partition.directory_of(broker_id)


def _remove(cluster: Cluster, store: Store, topic: TopicImage, name: str, broker_id: int) -> bool:
    """Remove a directory; return False if it is no stray replica any more."""
    present = cluster.image().find_by_id(topic.topic_id)
    if present is None or not _is_stray(present, name, broker_id):
        return False
    directory = f"{topic.directory}/{name}"
    store.delete_directory(directory)
    store.delete(Witness(directory).path)
    return True
