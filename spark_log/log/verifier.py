"""Verifies the log of one partition: every file in its directory, and that together they are a log.

Runs beside writers, mergers and cleaners. What vanishes or appears meanwhile is no finding: a fault
counts only when a second listing shows it too. Memory is bounded by the directory's listing and one
record batch.

With ``repair`` derived files are made anew, and names are freed under the rules that a cleaner has:
only where something durable says that a name is spent (a rewritten segment that covers it, or a
start marker above it), and only ``file.delete.delay.ms`` after that appeared, by the storage's own
clock. Nothing that holds a record of the log is ever touched.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

from spark_log.errors import CorruptRecordError, NotFoundError, StorageError
from spark_log.log.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    SegmentName,
    StartMarker,
    parse_snapshot_name,
)
from spark_log.log.finding import Finding, FindingKind, Severity
from spark_log.log.live_log import LiveLog, LiveSegment, live_log
from spark_log.log.partition_log import PartitionLog
from spark_log.log.segment_check import SegmentCheck
from spark_log.log.snapshot import Snapshot
from spark_log.log.spent_segments import spent_segments
from spark_log.storage import FileInfo

_KNOWN_FILES = ("leader-epoch-checkpoint",)

Progress = Callable[[int], None]


class Verifier:
    """One partition's log, verified once.

    Attributes:
        segments: how many live segments were looked at.
        records: how many records they hold.
        size_bytes: of all files in the directory.
    """

    def __init__(self, log: PartitionLog, *, repair: bool = False) -> None:
        """Touches nothing yet.

        Args:
            log: of the partition.
            repair: whether to set right what can be, as it is found.
        """
        self._log = log
        self._directory = log.files
        self._store = log.files.store
        self._repair = repair
        self._checks: dict[SegmentName, SegmentCheck] = {}
        self.segments = 0
        self.records = 0
        self.size_bytes = 0

    def findings(self, progress: Progress = lambda done_bytes: None) -> Iterator[Finding]:
        """Yield what is not as it should be.

        Args:
            progress: called with numbers of bytes that were looked at; they add up to about the
                size of the directory.

        Raises:
            StorageError: the storage does not answer.
        """
        files = list(self._store.list(self._directory.path))
        self.size_bytes = sum(file.size_bytes for file in files)
        live = live_log(files)
        names = {file.name for file in files}
        spent = set(spent_segments(files))
        free = set(spent_segments(files, self._now_us - self._delay_us)) if spent else set()
        for file in files:
            name = SegmentName.parse(file.name)
            if name is not None:
                if name in spent:
                    progress(file.size_bytes)
                    yield self._spent(name, file, name in free)
                else:
                    yield from self._segment(name, file, live, progress)
                continue
            progress(file.size_bytes)
            if (offset := parse_snapshot_name(file.name)) is not None:
                yield from self._snapshot(offset, file)
            elif (marker := StartMarker.parse(file.name)) is not None:
                yield from self._start(marker, file, files)
            elif file.name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)):
                yield from self._index(file, names)
            elif file.name not in _KNOWN_FILES:
                message = "is nothing that belongs here. Look at it, and remove it by hand"
                yield _warning(file.path, FindingKind.UNKNOWN_FILE, message)
        yield from self._chain(live)
        yield from self._unfinished()

    # --- segments --------------------------------------------------------------------------------

    def _segment(
        self, name: SegmentName, file: FileInfo, live: LiveLog, progress: Progress
    ) -> Iterator[Finding]:
        check = SegmentCheck(
            self._directory,
            name,
            file.size_bytes,
            index_interval_bytes=self._log.config.index_interval_bytes,
            is_settled=self._is_old(file),
            repair=self._repair,
        )
        try:
            found = list(check.findings(progress))
        except NotFoundError:
            return  # rewritten and freed meanwhile; if not, the chain has a hole now
        yield from found
        self._checks[name] = check
        if any(segment.name == name for segment in live.segments):
            self.segments += 1
            self.records += check.record_count

    def _spent(self, name: SegmentName, file: FileInfo, is_free: bool) -> Finding:
        """A file that the chain does not reach, and never will."""
        if not is_free:
            message = "is rewritten, or behind the log's start; it is kept for who still reads it"
            return Finding(file.path, FindingKind.SPENT_SEGMENT, Severity.NOTE, message)
        message = "is not part of the log any more"
        paths = [self._directory.file_path(each) for each in (name.index, name.time_index)]
        finding = _warning(file.path, FindingKind.SPENT_SEGMENT, message)
        return self._removed(finding, file.path, *paths)

    def _index(self, file: FileInfo, names: set[str]) -> Iterator[Finding]:
        log = file.name.rpartition(".")[0] + LOG_SUFFIX
        if SegmentName.parse(log) is None:
            message = "is nothing that belongs here. Look at it, and remove it by hand"
            yield _warning(file.path, FindingKind.UNKNOWN_FILE, message)
        elif log not in names and not self._is_there(self._directory.file_path(log)):
            message = "its segment is not there"
            finding = _warning(file.path, FindingKind.ORPHANED_FILE, message)
            yield self._removed(finding, file.path) if self._is_old(file) else finding

    # --- the chain -------------------------------------------------------------------------------

    def _chain(self, live: LiveLog) -> Iterator[Finding]:
        """Yield where the live segments do not follow each other."""
        for segment, finding in self._breaks(live):
            # What appeared during a listing may be left out of it although a later one is not.
            if segment in self._directory.live_log().segments:
                yield finding
        if live.beyond is not None:
            again = self._directory.live_log()
            if (again.end_of_chain, again.beyond) == (live.end_of_chain, live.beyond):
                yield Finding(
                    self._directory.path,
                    FindingKind.MISSING_SEGMENT,
                    Severity.ERROR,
                    f"the log ends at offset {live.end_of_chain}, but there is a segment at "
                    f"{live.beyond}: what lies between them is missing. Restore it from a copy",
                )

    def _breaks(self, live: LiveLog) -> Iterator[tuple[LiveSegment, Finding]]:
        for segment in live.segments:
            check = self._checks.get(segment.name)
            end, following = None if check is None else check.end_offset, segment.end_offset
            if end is None:
                continue
            if following is not None and end < following:
                kind = FindingKind.MISSING_SEGMENT
                what = "what lies between them is missing. Restore it from a copy"
            elif following is not None and end > following:
                kind = FindingKind.OVERLAPPING_SEGMENT
                what = "records are there twice. Find out which of the two is right"
            elif end <= segment.start_offset:
                kind, following = FindingKind.WRONG_START, segment.start_offset
                what = "a start marker says that the log starts there, in this segment"
            else:
                continue
            message = f"ends at offset {end}, and the log goes on at {following}: {what}"
            path = self._directory.file_path(segment.name.log)
            yield segment, Finding(path, kind, Severity.ERROR, message)

    def _start(
        self, marker: StartMarker, file: FileInfo, files: list[FileInfo]
    ) -> Iterator[Finding]:
        """A marker counts until there is a higher one."""
        above = [
            other
            for other in files
            if (found := StartMarker.parse(other.name))
            and found.log_start_offset > marker.log_start_offset
        ]
        if not above:
            return
        message = "the log's start is beyond it"
        if any(map(self._is_old, above)):
            finding = _warning(
                file.path,
                FindingKind.SPENT_START,
                f"{message}",
            )
            yield self._removed(finding, file.path)
        else:
            yield Finding(file.path, FindingKind.SPENT_START, Severity.NOTE, message)

    # --- snapshots -------------------------------------------------------------------------------

    def _snapshot(self, offset: int, file: FileInfo) -> Iterator[Finding]:
        try:
            snapshot = Snapshot.from_buffer(
                self._store.open_buffer(file.path),
                topic_id=self._directory.topic_id,
                partition=self._directory.partition,
            )
            if snapshot.offset != offset:
                raise ValueError(f"it is of offset {snapshot.offset}")
        except NotFoundError:
            return
        except ValueError as error:
            message = f"{error}. Readers do without"
            finding = _warning(file.path, FindingKind.DAMAGED_SNAPSHOT, message)
            yield self._rewritten(finding, offset)
            return
        end_offset = self._log_end_offset()
        if end_offset is not None and offset > end_offset:
            yield Finding(
                file.path,
                FindingKind.MISSING_SEGMENT,
                Severity.ERROR,
                f"there was a log up to offset {offset}, and there is none behind {end_offset}: "
                f"its last segments are missing. Restore them from a copy",
            )
        for summary in snapshot.segments:
            check = self._checks.get(summary.name)
            if check is None or not check.is_sound or check.reader is None:
                continue
            said = (summary.end_offset, summary.record_count, summary.size_bytes)
            true = (check.end_offset, check.record_count, check.reader.size_bytes)
            if said != true or summary.max_timestamp_us != check.max_timestamp_us:
                message = f"what it says of {summary.name.log} is not so"
                finding = _warning(file.path, FindingKind.WRONG_SNAPSHOT, message)
                yield self._rewritten(finding, offset)
                return

    def _rewritten(self, finding: Finding, offset: int) -> Finding:
        if not self._repair:
            return finding
        try:
            # Away with it first: what is written next must not be taken from it.
            self._store.delete(finding.path)
            self._log.write_snapshot()
        except (StorageError, CorruptRecordError):
            return replace(finding, repaired=not self._is_there(finding.path))
        return replace(finding, repaired=True)

    def _log_end_offset(self) -> int | None:
        try:
            return self._log.log_end_offset()
        except CorruptRecordError:
            return None  # that is a finding of its own

    # --- what writers left -----------------------------------------------------------------------

    def _unfinished(self) -> Iterator[Finding]:
        for file in self._store.list_hidden(self._directory.path):
            if not self._is_old(file):
                continue  # its writer may well be at work
            finding = _warning(
                file.path,
                FindingKind.UNFINISHED_WRITE,
                "a writer began it and has gone",
            )
            yield self._removed(finding, file.path)

    def _removed(self, finding: Finding, *paths: str) -> Finding:
        if not self._repair:
            return finding
        try:
            for path in paths:
                self._store.delete(path)
        except StorageError:
            return finding
        return replace(finding, repaired=True)

    # --- time ------------------------------------------------------------------------------------

    @property
    def _delay_us(self) -> int:
        return self._log.config.file_delete_delay_ms * 1000

    def _is_old(self, file: FileInfo) -> bool:
        return file.modified_us <= self._now_us - self._delay_us

    @cached_property
    def _now_us(self) -> int:
        """The storage's time where something depends on it: no two clocks are compared then.

        Where nothing is removed, this machine's is good enough.
        """
        if self._repair:
            probe = self._directory.file_path(f".{uuid.uuid4().hex}.tmp")
            self._store.put(probe, b"")
            try:
                return self._store.head(probe).modified_us
            finally:
                self._store.delete(probe)
        return self._directory.clock.time_us()

    def _is_there(self, path: str) -> bool:
        try:
            self._store.head(path)
        except NotFoundError:
            return False
        return True


def _warning(path: str, kind: FindingKind, message: str) -> Finding:
    return Finding(path, kind, Severity.WARNING, message)
