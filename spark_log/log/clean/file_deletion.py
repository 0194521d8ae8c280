"""Deleting files that no reader needs any more, ``file.delete.delay.ms`` after that became so.

Only what something durable says is spent: segments that a rewritten one covers or that lie behind
a start marker (`spent_segments`), void files among them; markers below a higher one; snapshots
below the newest; indexes without their segment; and what writers that died had begun. Any number
may delete at once, and die at any point: what is left is found again. Indexes go before their
segment, so that a crash leaves nothing that looks like an orphan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from spark_log.errors import NotFoundError
from spark_log.log.clean.spent_segments import spent_segments
from spark_log.log.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    SegmentName,
    StartMarker,
    parse_generation_name,
    parse_snapshot_name,
)
from spark_log.log.live_log import LiveLog, live_log
from spark_log.log.partition_directory import PartitionDirectory
from spark_log.storage import FileInfo, Store, storage_time_us

COARSE_US: Final = 1_000_000
"""Some storages tell the time in whole seconds."""

ABANDONED_US: Final = 3_600_000_000
"""A writer whose input pauses may not touch its unfinished file for long."""

_KEPT_SNAPSHOTS: Final = 2
"""The newest, and one for whoever listed before it came."""

_REQUESTS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class DeletableFiles:
    """Files of one partition that may be deleted now.

    Attributes:
        derived: indexes of spent segments, indexes without a segment, superseded snapshots, and
            generations below one that is taken.
        segments: whose names are spent.
        markers: start markers below one that counts for long enough.
        unfinished: temporary files of writers that are gone.
        waiting: how many segments are spent and wait for their time.
    """

    derived: tuple[FileInfo, ...] = ()
    segments: tuple[FileInfo, ...] = ()
    markers: tuple[FileInfo, ...] = ()
    unfinished: tuple[FileInfo, ...] = ()
    waiting: int = 0

    @property
    def all(self) -> tuple[FileInfo, ...]:
        """All of them, in the order in which they are deleted."""
        return (*self.derived, *self.segments, *self.markers, *self.unfinished)

    @property
    def size_bytes(self) -> int:
        """What they take up."""
        return sum(file.size_bytes for file in self.all)


def find_deletable(
    directory: PartitionDirectory, delete_delay_ms: int, *, now_us: int | None = None
) -> DeletableFiles:
    """Return what may be deleted of a partition, by one listing and the storage's own time.

    Args:
        directory: the partition's.
        delete_delay_ms: ``file.delete.delay.ms``.
        now_us: the storage's time, or earlier; None asks for it.

    Raises:
        StorageError: the storage does not answer.
    """
    # The time first: what appears after it is younger than it is taken for, never older.
    if now_us is None:
        now_us = storage_time_us(directory.store, directory.path)
    old_us = now_us - delete_delay_ms * 1000 - COARSE_US
    files = list(directory.store.list(directory.path))
    by_name = {file.name: file for file in files}
    live = live_log(files)
    free = list(spent_segments(files, old_us))
    derived = [
        by_name[index]
        for name in free
        for index in (name.index, name.time_index)
        if index in by_name
    ]
    taken = {file.name for file in derived}
    orphans = [
        file
        for file in files
        if file.modified_us <= old_us
        and file.name not in taken
        and (log := log_of_index(file.name)) is not None
        and log not in by_name
        and not tells_of_more(file.name, live)
        and not _is_there(directory, log)
    ]
    abandoned_us = now_us - max(now_us - old_us, ABANDONED_US)
    return DeletableFiles(
        derived=(
            *derived,
            *orphans,
            *_superseded_snapshots(files, old_us),
            *_spent_generations(files, old_us),
        ),
        segments=tuple(by_name[name.log] for name in free),
        markers=tuple(_overtaken_markers(files, old_us)),
        unfinished=tuple(
            file
            for file in directory.store.list_hidden(directory.path)
            if file.modified_us <= abandoned_us
        ),
        waiting=sum(1 for _ in spent_segments(files)) - len(free),
    )


def delete_files(store: Store, paths: Sequence[str]) -> None:
    """Delete files, on an object store several at a time; those that are gone do no harm.

    Raises:
        StorageError: one could not be deleted; others may have been.
    """
    if store.is_mapped or len(paths) < 2:
        for path in paths:
            store.delete(path)
        return
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE, "spark-log-delete") as pool:
        for _ in pool.map(store.delete, paths):
            pass


def delete_found(store: Store, found: DeletableFiles) -> None:
    """Delete what was found, kind by kind.

    Raises:
        StorageError: something could not be deleted; it is found again.
    """
    for files in (found.derived, found.segments, found.markers, found.unfinished):
        delete_files(store, [file.path for file in files])


def delete_segments(
    directory: PartitionDirectory, names: Iterable[tuple[SegmentName, bool]]
) -> None:
    """Delete segments whose names may be freed.

    Args:
        directory: the partition's.
        names: which, and whether they may have indexes.
    """
    names = list(names)
    for paths in (
        [
            each
            for name, is_indexed in names
            if is_indexed
            for each in (name.index, name.time_index)
        ],
        [name.log for name, _ in names],
    ):
        delete_files(directory.store, [directory.file_path(path) for path in paths])


def log_of_index(name: str) -> str | None:
    """Return the name of the segment file that an index is of, None if it is no index."""
    if not name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)):
        return None
    log = name.rpartition(".")[0] + LOG_SUFFIX
    return None if SegmentName.parse(log) is None else log


def tells_of_more(name: str, live: LiveLog) -> bool:
    """Whether an index without its segment is all that tells of the log's lost end (ADR 19)."""
    log = log_of_index(name)
    segment = None if log is None else SegmentName.parse(log)
    return segment is not None and segment.base_offset >= live.chain_end_offset


def _overtaken_markers(files: Iterable[FileInfo], old_us: int) -> Iterator[FileInfo]:
    """Yield markers below one that has stood for the delay: a listing shows one of both (ADR 9)."""
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


def _spent_generations(files: Iterable[FileInfo], old_us: int) -> Iterator[FileInfo]:
    """Yield what says that a generation is taken, below one that has stood for the delay.

    As with start markers, every listing shows the highest or the one before it.
    """
    found = [(file, number) for file in files if (number := parse_generation_name(file.name))]
    highest = max((number for file, number in found if file.modified_us <= old_us), default=0)
    yield from (file for file, number in found if number < highest)


def _is_there(directory: PartitionDirectory, name: str) -> bool:
    try:
        directory.store.head(directory.file_path(name))
    except NotFoundError:
        return False
    return True
