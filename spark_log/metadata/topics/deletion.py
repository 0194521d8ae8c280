"""Removing the data of deleted topics: begun by who deletes a topic, finished by whoever cleans.

On storage: ``__deleted_topics/<the topic's directory>``, an empty file, made *before* the topic's
record is taken out of the metadata log. A directory is removed only when there is such a marker for
it and the metadata no longer know its topic: so neither a crash at any point nor metadata that were
restored from a copy can take a topic's data away. The marker stays for a day longer, by
the storage's time: a writer that has not heard of it may append to the old directory, which nobody
reads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from spark_log.errors import StorageError
from spark_log.log.clean.file_deletion import ABANDONED_US
from spark_log.log.witness import delete_witnesses
from spark_log.metadata.cluster import Cluster
from spark_log.metadata.image import TopicImage
from spark_log.storage import FileInfo, Store, check_clock_skew, storage_time_us

MARKERS: Final = "__deleted_topics"
"""The directory of the markers, relative to a root."""

_KEPT_US: Final = 86_400_000_000
"""How long a marker is kept: longer than any writer goes without looking at the metadata."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic that was deleted, and whose marker is still there.

    Attributes:
        directory: where its data lay.
        files: how many files are left of it.
        size_bytes: what they take up.
    """

    directory: str
    files: int
    size_bytes: int


def mark_deleted(store: Store, topics: Iterable[TopicImage]) -> None:
    """Have the data of topics removed once the metadata know them no more.

    Raises:
        StorageError: not all are marked.
    """
    for topic in topics:
        store.put(f"{MARKERS}/{topic.directory}", b"")


def remove_data(store: Store, topics: Iterable[TopicImage]) -> None:
    """Remove the data of topics that are deleted; what fails is left to a cleaner."""
    for topic in topics:
        try:
            store.delete_directory(topic.directory)
            delete_witnesses(store, topic.directory)
        except StorageError as error:
            _log.warning("%s: not all was removed, a cleaner will: %s", topic.directory, error)


def finish_deletions(cluster: Cluster, *, dry_run: bool = False) -> Iterator[DeletedTopic]:
    """Remove what is left of deleted topics, and yield those of which something was.

    May be repeated, and done by several at once.

    Args:
        cluster: the root.
        dry_run: remove nothing.

    Raises:
        ClockSkewError: this process's clock is too far from the storage's; nothing was removed.
        StorageError: the storage does not answer; what is left is found again.
    """
    store = cluster.store
    markers = list(store.list(MARKERS))
    if not markers:
        return
    # Afterwards, so that whatever was marked and is known now was not deleted.
    image = cluster.image()
    known = {topic.directory for topic in image.topics()}
    now_us = storage_time_us(store, MARKERS)
    check_clock_skew(cluster.clock, now_us, image.cluster_config().max_clock_skew_ms)
    for marker in markers:
        if marker.name in known:
            continue  # whoever was about to delete it has not done so
        files = list(_files_of(store, marker.name))
        if not dry_run:
            store.delete_directory(marker.name)
            delete_witnesses(store, marker.name)
            if now_us - marker.modified_us > _KEPT_US:
                store.delete(marker.path)
        if files:
            size_bytes = sum(file.size_bytes for file in files)
            yield DeletedTopic(marker.name, len(files), size_bytes)
    if not dry_run:
        for file in store.list_hidden(MARKERS):  # of a cleaner that died as it asked for the time
            if now_us - file.modified_us > ABANDONED_US:
                store.delete(file.path)


def _files_of(store: Store, directory: str) -> Iterator[FileInfo]:
    for partition in store.list_directories(directory):
        yield from store.list(f"{directory}/{partition}")
