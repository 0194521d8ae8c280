"""Removes the data of deleted topics. Deletion starts this; a cleaner finishes it.

On storage: a marker ``__deleted_topics/<the topic's directory>``, an empty file, created *before*
the record that deletes the topic is appended to the metadata log. A directory is removed only if it
has a marker and its topic is not in the metadata. So no topic loses data by a crash, or by metadata
that were restored from a backup. The marker stays for another day, by the storage's time, because a
writer that does not know of the deletion may still append to the old directory, which nobody reads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from spark_log.errors import BrokerIdNotRegisteredError, StorageError
from spark_log.log import ABANDONED_US, delete_witnesses
from spark_log.metadata.cluster import Cluster
from spark_log.metadata.image import ROOT_BROKER_ID, MetadataImage
from spark_log.metadata.stray_replicas import STRAY_REPLICAS
from spark_log.metadata.topic_image import TopicImage
from spark_log.storage import FileInfo, Store, check_clock_skew, storage_time_us

DELETION_MARKERS: Final = "__deleted_topics"
"""The directory of the markers, relative to a root."""

_KEPT_US: Final = 86_400_000_000
"""How long a marker is kept: longer than a writer works without refreshing the metadata."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A deleted topic that has files left.

    Attributes:
        directory: the topic's directory, relative to the root.
        files: number of files that are left.
        size_bytes: their size.
    """

    directory: str
    files: int
    size_bytes: int


def mark_deleted(store: Store, topics: Iterable[TopicImage]) -> None:
    """Create the markers of topics. Without effect while the topics are in the metadata.

    Raises:
        StorageError: not all markers were created.
    """
    for topic in topics:
        store.put(f"{DELETION_MARKERS}/{topic.directory}", b"")


def remove_data(cluster: Cluster, topics: Iterable[TopicImage]) -> None:
    """Remove the data of deleted topics; after a failure a cleaner removes the rest."""
    for topic in topics:
        for broker_id in sorted({ROOT_BROKER_ID, *topic.brokers}):
            try:
                _delete(cluster.broker_store(broker_id), topic.directory)
            except (StorageError, BrokerIdNotRegisteredError) as error:
                _log.warning(
                    "%s: not all files were removed; a cleaner will remove the rest: %s",
                    topic.directory,
                    error,
                )


def finish_deletions(cluster: Cluster, *, dry_run: bool = False) -> Iterator[DeletedTopic]:
    """Remove the files of deleted topics, and yield the topics that had files left.

    Several processes may do this at the same time, and repeat it.

    Args:
        cluster: the opened root.
        dry_run: remove nothing.

    Raises:
        ClockSkewError: this process's clock is too far from the storage's; nothing was removed.
        StorageError: the storage does not answer; the next call continues.
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
    for marker in markers:
        if marker.name in known:
            continue  # its deletion was never appended to the metadata log
        stores = list(_reachable_stores(cluster, image))
        files = [file for each in stores for file in _files_of(each, marker.name)]
        if not dry_run:
            for each in stores:
                _delete(each, marker.name)
            is_complete = len(stores) == len(list(image.brokers()))
            if is_complete and now_us - marker.modified_us > _KEPT_US:
                store.delete(marker.path)
        if files:
            size_bytes = sum(file.size_bytes for file in files)
            yield DeletedTopic(marker.name, len(files), size_bytes)
    if not dry_run:
        for file in store.list_hidden(DELETION_MARKERS):  # left by a cleaner that died
            if now_us - file.modified_us > ABANDONED_US:
                store.delete(file.path)


def _reachable_stores(cluster: Cluster, image: MetadataImage) -> Iterator[Store]:
    for broker in image.brokers():
        with cluster.suppressed.suppress(
            "deletion of topics",
            f"broker {broker.broker_id}",
            StorageError,
            BrokerIdNotRegisteredError,
        ):
            yield cluster.broker_store(broker.broker_id)


def _delete(store: Store, directory: str) -> None:
    store.delete_directory(directory)
    store.delete_directory(f"{STRAY_REPLICAS}/{directory}")
    delete_witnesses(store, directory)


def _files_of(store: Store, directory: str) -> Iterator[FileInfo]:
    for partition in store.list_directories(directory):
        yield from store.list(f"{directory}/{partition}")
