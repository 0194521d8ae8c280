"""Deletes files that no reader needs, ``file.delete.delay.ms`` after they became unneeded.

A file is deleted only if another durable file shows that it is not needed: a segment that a
rewritten segment covers or that is below a start marker (`spent_segments`); a start marker,
generation or snapshot below newer ones. An index without its segment is deleted, too, and a
temporary file of a crashed writer. Any number of processes may delete at once, and be killed: the
next one finds the remaining files. Indexes are deleted before their segment, so that a crash leaves
no orphaned index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from spark_log.errors import NotFoundError
from spark_log.log.directory import PartitionDirectory
from spark_log.log.files import (
    LiveLog,
    SegmentName,
    StartMarker,
    live_log,
    parse_generation_name,
    parse_snapshot_name,
    spent_segments,
)
from spark_log.storage import FileInfo, Store, map_requests, storage_time_us

ABANDONED_US: Final = 3_600_000_000
"""Age at which a temporary file is abandoned. A writer whose input pauses may pause for less."""

_KEPT_SNAPSHOTS: Final = 2
"""Number of snapshots that are kept: the newest, and the one before it for a reader that listed the
log before the newest appeared."""


TableAllows = Callable[[SegmentName], bool]
"""Function of the name of a spent Parquet segment: whether the topic's table does not need it."""


@dataclass(frozen=True, slots=True)
class DeletableFiles:
    """Files of one partition that may be deleted now.

    Attributes:
        derived: indexes of spent segments, indexes without a segment, superseded snapshots, and
            superseded generations.
        segments: spent segments.
        markers: start markers below one that has existed for ``file.delete.delay.ms``.
        unfinished: temporary files of crashed writers.
        waiting: number of spent segments that wait for ``file.delete.delay.ms``.
    """

    derived: tuple[FileInfo, ...] = ()
    segments: tuple[FileInfo, ...] = ()
    markers: tuple[FileInfo, ...] = ()
    unfinished: tuple[FileInfo, ...] = ()
    waiting: int = 0

    @property
    def all(self) -> tuple[FileInfo, ...]:
        """All files, in the order in which they are deleted."""
        return (*self.derived, *self.segments, *self.markers, *self.unfinished)

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(file.size_bytes for file in self.all)


def find_deletable(
    directory: PartitionDirectory,
    delete_delay_ms: int,
    *,
    now_us: int | None = None,
    listed: tuple[Sequence[FileInfo], Sequence[FileInfo]] | None = None,
    table_allows: TableAllows = lambda name: True,
) -> DeletableFiles:
    """Return the files of a partition that may be deleted, by one listing and the storage's time.

    Args:
        directory: the partition's directory.
        delete_delay_ms: ``file.delete.delay.ms``.
        now_us: the storage's time, or earlier; None reads it from the storage.
        listed: the files and the hidden files of the directory; None lists them. To delete the
            files, the listing must be made after ``now_us``.
        table_allows: function that is asked for each Parquet segment that the log does not need
            any more, after the listing (protocol B9, B10).

    Raises:
        StorageError: the storage does not answer.
    """
    # Read the time before the listing: a file must never seem older than it is.
    if now_us is None:
        now_us = storage_time_us(directory.store, directory.path)
    old_us = now_us - delete_delay_ms * 1000 - directory.store.time_resolution_us
    if listed is None:
        path = directory.path
        listed = directory.store.list_with_hidden(path)
    files, hidden = listed
    by_name = {file.name: file for file in files}
    live = live_log(files)
    # A marker that may be another log's frees nothing.
    is_start_right = live.last_before_start is None
    spent = spent_segments(files, old_us) if is_start_right else ()
    free = [name for name in spent if not name.is_parquet or table_allows(name)]
    derived = [by_name[index] for name in free for index in name.index_names if index in by_name]
    taken = {file.name for file in derived}
    orphans = [
        file
        for file in files
        if file.modified_us <= old_us
        and file.name not in taken
        and (segment := SegmentName.parse_index(file.name)) is not None
        and segment.file_name not in by_name
        and not is_evidence_of_truncation(file.name, live)
        and not _exists(directory, segment.file_name)
    ]
    abandoned_us = now_us - max(now_us - old_us, ABANDONED_US)
    return DeletableFiles(
        derived=(
            *derived,
            *orphans,
            *_superseded_snapshots(files, old_us),
            *_superseded_generations(files, old_us),
        ),
        segments=tuple(by_name[name.file_name] for name in free),
        markers=tuple(_superseded_markers(files, old_us)),
        unfinished=tuple(file for file in hidden if file.modified_us <= abandoned_us),
        waiting=sum(1 for _ in spent_segments(files)) - len(free),
    )


def delete_files(store: Store, paths: Sequence[str]) -> None:
    """Delete files, on an object store several at once. Missing files do no harm.

    Raises:
        StorageError: a file could not be deleted; other files may have been deleted.
    """
    map_requests(store, store.delete, paths)


def delete_found(store: Store, found: DeletableFiles) -> None:
    """Delete files that `find_deletable` found, in the right order.

    Raises:
        StorageError: a file could not be deleted; the next cleaning finds it again.
    """
    for files in (found.derived, found.segments, found.markers, found.unfinished):
        delete_files(store, [file.path for file in files])


def delete_segments(
    directory: PartitionDirectory, names: Iterable[tuple[SegmentName, bool]]
) -> None:
    """Delete segments whose names may be freed, and their indexes.

    Args:
        directory: the partition's directory.
        names: each segment's name, and whether the segment may have indexes.
    """
    names = list(names)
    for paths in (
        [each for name, is_indexed in names if is_indexed for each in name.index_names],
        [name.file_name for name, _ in names],
    ):
        delete_files(directory.store, [directory.file_path(path) for path in paths])


def is_evidence_of_truncation(name: str, live: LiveLog) -> bool:
    """Return whether an index without its segment shows that the log's end was lost (ADR 19)."""
    segment = SegmentName.parse_index(name)
    return segment is not None and segment.base_offset >= live.chain_end_offset


def _superseded_markers(files: Iterable[FileInfo], old_us: int) -> Iterator[FileInfo]:
    """Yield start markers below one that has existed for ``file.delete.delay.ms``.

    Every listing shows this older one, or a higher one (ADR 9).
    """
    found = [(file, marker) for file in files if (marker := StartMarker.parse(file.name))]
    highest = max(
        (marker.log_start_offset for file, marker in found if file.modified_us <= old_us), default=0
    )
    yield from (file for file, marker in found if marker.log_start_offset < highest)


def _superseded_snapshots(files: Iterable[FileInfo], old_us: int) -> Iterator[FileInfo]:
    found = [file for file in files if parse_snapshot_name(file.name) is not None]
    kept = [file for file in found if file.modified_us <= old_us][-_KEPT_SNAPSHOTS:]
    if kept:
        yield from (file for file in found if file.name < kept[0].name)


def _superseded_generations(files: Iterable[FileInfo], old_us: int) -> Iterator[FileInfo]:
    """Yield generation files below one that has existed for ``file.delete.delay.ms``.

    Every listing shows this older one, or a higher one.
    """
    found = [(file, number) for file in files if (number := parse_generation_name(file.name))]
    highest = max((number for file, number in found if file.modified_us <= old_us), default=0)
    yield from (file for file, number in found if number < highest)


def _exists(directory: PartitionDirectory, name: str) -> bool:
    try:
        directory.store.head(directory.file_path(name))
    except NotFoundError:
        return False
    return True
