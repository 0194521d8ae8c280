"""Finds files in a partition's directory that are not part of the log; a repair removes them.

A repair frees names by the rules of a cleaner, and leaves Parquet segments to the cleaner, since
the topic's table may need them: only if a durable file shows that the name is spent
(a rewritten segment that covers it, or a start marker above it), and only ``file.delete.delay.ms``
after that file appeared, by the storage's clock. A process whose clock differs too much from the
storage's removes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from spark_log.errors import NotFoundError, StorageError
from spark_log.log.directory import PartitionDirectory
from spark_log.log.files import (
    SegmentName,
    StartMarker,
    live_log,
    parse_generation_name,
    parse_snapshot_name,
    spent_segments,
)
from spark_log.log.rewrite import ABANDONED_US, is_evidence_of_truncation
from spark_log.log.verify.finding import LogFinding, LogFindingKind, LogSeverity
from spark_log.storage import (
    FileInfo,
    check_clock_skew,
    newest_modified_us,
    storage_time_us,
)

_KNOWN_FILES = ("leader-epoch-checkpoint",)


class StrayFiles:
    """The files of one listing that no reader needs: spent, orphaned, unfinished or unknown."""

    def __init__(
        self,
        directory: PartitionDirectory,
        files: list[FileInfo],
        *,
        delete_delay_ms: int,
        repair: bool,
        max_clock_skew_ms: int,
    ) -> None:
        """Read the storage's time: from a probe file for a repair, else from the listing.

        The newest file of the listing may be old. Then fewer files are reported as removable.

        Args:
            directory: the partition's directory.
            files: the files of a listing of the directory.
            delete_delay_ms: ``file.delete.delay.ms``.
            repair: whether to remove files that may be removed.
            max_clock_skew_ms: the cluster's ``max.clock.skew.ms``.

        Raises:
            ClockSkewError: ``repair``, and the clocks of this process and the storage differ too
                much.
            StorageError: the storage does not answer.
        """
        self._directory = directory
        self._store = directory.store
        self._files = files
        self._live = live_log(files)
        self._delay_us = delete_delay_ms * 1000 + self._store.time_resolution_us
        self._repair = repair
        self._names = {file.name for file in files}
        self._now_us = newest_modified_us(files)
        if repair:
            self._now_us = storage_time_us(self._store, directory.path)
            check_clock_skew(directory.clock, self._now_us, max_clock_skew_ms)
        self._spent = set(spent_segments(files))
        spent = spent_segments(files, self._now_us - self._delay_us)
        self._free = {name for name in spent if not name.is_parquet}
        if self._live.last_before_start is not None:
            self._free.clear()  # the start marker may be another log's

    def is_spent(self, name: SegmentName) -> bool:
        """Return whether a segment is spent: not part of the log, now or later."""
        return name in self._spent

    def is_old(self, file: FileInfo) -> bool:
        """Return whether a file has existed for ``file.delete.delay.ms``.

        The writer of such a file has finished or crashed.
        """
        return file.modified_us <= self._now_us - self._delay_us

    def findings(self, file: FileInfo) -> Iterator[LogFinding]:
        """Yield the findings of a file that is neither a live segment nor a snapshot."""
        if (name := SegmentName.parse(file.name)) is not None:
            yield self._spent_segment(name, file)
        elif (marker := StartMarker.parse(file.name)) is not None:
            yield from self._start_marker(marker, file)
        elif not is_partition_file(file.name):
            yield _unknown(file)

    def abandoned(self) -> Iterator[LogFinding]:
        """Yield orphaned indexes and abandoned temporary files.

        Call this last: a writer that was running at first may have finished since.
        """
        for file in self._files:
            segment = SegmentName.parse_index(file.name)
            if segment is not None and segment.file_name not in self._names:
                yield from self._orphan(segment.file_name, file)
        for file in self._store.list_hidden(self._directory.path):
            if file.modified_us <= self._now_us - max(self._delay_us, ABANDONED_US):
                message = "is a temporary file of a writer that is not running any more"
                yield self._removed(_warning(file, LogFindingKind.UNFINISHED_WRITE, message))

    def _spent_segment(self, name: SegmentName, file: FileInfo) -> LogFinding:
        if name not in self._free:
            message = (
                "is rewritten, or before the log's start; it is kept for readers that still use it"
            )
            return LogFinding(file.path, LogFindingKind.SPENT_SEGMENT, LogSeverity.NOTE, message)
        paths = [self._directory.file_path(each) for each in name.index_names]
        finding = _warning(file, LogFindingKind.SPENT_SEGMENT, "is not part of the log any more")
        return self._removed(finding, *paths)

    def _start_marker(self, marker: StartMarker, file: FileInfo) -> Iterator[LogFinding]:
        """Yield a finding if a higher start marker exists."""
        above = [
            other
            for other in self._files
            if (found := StartMarker.parse(other.name))
            and found.log_start_offset > marker.log_start_offset
        ]
        message = "the log starts at a higher offset"
        if any(map(self.is_old, above)):
            yield self._removed(_warning(file, LogFindingKind.SPENT_START, message))
        elif above:
            yield LogFinding(file.path, LogFindingKind.SPENT_START, LogSeverity.NOTE, message)

    def _orphan(self, log: str, file: FileInfo) -> Iterator[LogFinding]:
        if not self._exists(self._directory.file_path(log)) and self._exists(file.path):
            finding = _warning(file, LogFindingKind.ORPHANED_FILE, "its segment does not exist")
            is_needless = self.is_old(file) and not is_evidence_of_truncation(file.name, self._live)
            yield self._removed(finding) if is_needless else finding

    def _removed(self, finding: LogFinding, *derived: str) -> LogFinding:
        if not self._repair:
            return finding
        try:
            # Indexes first: a crash leaves a spent segment, which the next repair removes.
            for path in (*derived, finding.path):
                self._store.delete(path)
        except StorageError as error:
            self._directory.suppressed.add("repair", self._directory.path, error)
            return finding
        return replace(finding, repaired=True)

    def _exists(self, path: str) -> bool:
        try:
            self._store.head(path)
        except NotFoundError:
            return False
        return True


def is_partition_file(name: str) -> bool:
    """Return whether a file with this name belongs to a log."""
    parsers = (
        SegmentName.parse,
        SegmentName.parse_index,
        StartMarker.parse,
        parse_snapshot_name,
        parse_generation_name,
    )
    return name in _KNOWN_FILES or any(parse(name) is not None for parse in parsers)


def _warning(file: FileInfo, kind: LogFindingKind, message: str) -> LogFinding:
    return LogFinding(file.path, kind, LogSeverity.WARNING, message)


def _unknown(file: FileInfo) -> LogFinding:
    message = "does not belong to the log. Look at it, and remove it by hand"
    return _warning(file, LogFindingKind.UNKNOWN_FILE, message)
