"""Removes the data of deleted topics on all brokers. Deletion starts it; a cleaner finishes it.

On storage: a marker ``__deleted_topics/<the topic's directory>`` in the cluster's root, an empty
file, created *before* the record that deletes the topic is appended to the metadata log. A
directory is removed, on any broker, only if it has a marker and its topic is not in the metadata.
No topic loses data after a crash, or after the metadata were restored from a backup. The marker
stays for another day, by the storage's time, because a writer that does not know of the deletion
may still append to the old directory, which nobody reads. The marker also stays while a registered
broker cannot be reached.

The rules: (protocol M5).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from spark_log.cluster.cluster import Cluster
from spark_log.errors import BrokerIdNotRegisteredError, StorageError
from spark_log.log import ABANDONED_US
from spark_log.log.files import ExistenceMarker
from spark_log.metadata import METADATA_LEASE_MS, ROOT_BROKER_ID, TopicImage
from spark_log.storage import (
    DELETION_MARKERS,
    STRAY_REPLICAS,
    STRIPES_DIRECTORY,
    FileInfo,
    Store,
    check_clock_skew,
    is_topic_directory,
    storage_time_us,
)

_KEPT_US: Final = 86_400_000_000
"""Time for which a marker is kept: longer than a writer works without reading the metadata."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A deleted topic that has files left.

    Attributes:
        directory: the topic's directory, relative to the broker's root.
        files: the number of files that are left.
        size_bytes: the size of these files.
        broker_id: the id of the broker that has the files.
    """

    directory: str
    files: int
    size_bytes: int
    broker_id: int = ROOT_BROKER_ID


def mark_deleted(store: Store, topics: Iterable[TopicImage]) -> None:
    """Create the markers of topics. A marker has no effect while its topic is in the metadata.

    Raises:
        StorageError: not all markers were created.
    """
    for topic in topics:
        store.put(f"{DELETION_MARKERS}/{topic.directory}", b"")


def remove_data(cluster: Cluster, topics: Iterable[TopicImage]) -> None:
    """Remove the data of deleted topics; after a failure a cleaner removes the rest.

    On an object store this first waits until no producer acknowledges appends to the topics.
    """
    if not cluster.store.is_local:
        cluster.clock.sleep_ms(METADATA_LEASE_MS)
    for topic in topics:
        for broker_id in sorted(
            {broker for each in topic.partitions.values() for broker in each.replicas}
        ):
            try:
                _remove(cluster.broker_store(broker_id), topic.directory)
            except (BrokerIdNotRegisteredError, StorageError) as error:
                _log.warning(
                    "%s: not all files of broker %d were removed; a cleaner will remove the rest: "
                    "%s",
                    topic.directory,
                    broker_id,
                    error,
                )


def finish_deletions(cluster: Cluster, *, dry_run: bool = False) -> Iterator[DeletedTopic]:
    """Remove the files of deleted topics, and yield the topics that had files left.

    Several processes may do this at the same time, and repeat it. If a broker cannot be reached, a
    warning is logged, the markers stay, and a later call removes its files.

    Args:
        cluster: the opened root.
        dry_run: remove nothing.

    Raises:
        ClockSkewError: this process's clock is too far from the storage's; nothing was removed.
        StorageError: the storage of the cluster's root does not answer; the next call continues.
    """
    store = cluster.store
    markers = list(store.list(DELETION_MARKERS))
    if not markers:
        return
    # Read the metadata after the markers: a topic that has a marker and is known is not deleted.
    image = cluster.image()
    known = {topic.directory for topic in image.topics()}
    now_us = storage_time_us(store, DELETION_MARKERS)
    check_clock_skew(cluster.clock, now_us, image.cluster_config().max_clock_skew_ms)
    # Users may put files here, too: a name without a topic's id would delete an internal log.
    deleted = [
        marker for marker in markers if marker.name not in known and is_topic_directory(marker.name)
    ]
    are_all_reached = True
    for broker in image.brokers():
        try:
            for marker in deleted:
                left = _finish(cluster.broker_store(broker.broker_id), marker.name, dry_run)
                if left is not None:
                    if not dry_run:
                        _log.info(
                            "broker %d: removed the deleted topic %s: %d files, %d bytes",
                            broker.broker_id,
                            left.directory,
                            left.files,
                            left.size_bytes,
                        )
                    yield replace(left, broker_id=broker.broker_id)
        except (BrokerIdNotRegisteredError, StorageError) as error:
            if broker.broker_id == ROOT_BROKER_ID:
                raise
            are_all_reached = False
            _log.warning(
                "broker %d: files of deleted topics are left; clean again when it can be reached: "
                "%s",
                broker.broker_id,
                error,
            )
    if dry_run:
        return
    for marker in deleted if are_all_reached else ():
        if now_us - marker.modified_us > _KEPT_US:
            store.delete(marker.path)
    for file in store.list_hidden(DELETION_MARKERS):  # left by a cleaner that died
        if now_us - file.modified_us > ABANDONED_US:
            store.delete(file.path)


def _finish(store: Store, directory: str, dry_run: bool) -> DeletedTopic | None:
    """Remove a deleted topic from a root; return the files that were left, or None."""
    files = list(_files_of(store, directory))
    if not dry_run:
        _remove(store, directory)
    if not files:
        return None
    return DeletedTopic(directory, len(files), sum(file.size_bytes for file in files))


def _remove(store: Store, directory: str) -> None:
    store.delete_directory(directory)
    store.delete_directory(f"{STRAY_REPLICAS}/{directory}")
    ExistenceMarker(directory).delete_all_below(store)


def _files_of(store: Store, directory: str) -> Iterator[FileInfo]:
    for name in store.list_directories(directory):
        folder = f"{directory}/{name}"
        yield from store.list(folder)
        if name == STRIPES_DIRECTORY:
            for stripe in store.list_directories(folder):
                yield from store.list(f"{folder}/{stripe}")
