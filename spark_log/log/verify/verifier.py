"""Verifies the log of one partition: every file in its directory, and that together they are a log.

Runs beside writers, mergers and cleaners. What vanishes or appears meanwhile is no finding: a fault
counts only when a second look shows it too. Memory is bounded by the directory's listing, its
snapshots, one record batch, and the positions of one segment's batches.

With ``repair`` derived files are made anew, and names are freed under the rules that a cleaner has
(see `leftovers`). Nothing that holds a record of the log is ever touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from spark_log.config import DEFAULT_MAX_CLOCK_SKEW_MS
from spark_log.errors import CorruptRecordError, LogTruncatedError, NotFoundError
from spark_log.log.file_names import SegmentName, parse_snapshot_name
from spark_log.log.live_log import LiveLog, LiveSegment, live_log
from spark_log.log.partition_log import PartitionLog
from spark_log.log.snapshot.snapshot import SegmentSummary
from spark_log.log.verify.finding import Finding, FindingKind, Severity
from spark_log.log.verify.leftovers import Leftovers
from spark_log.log.verify.segment import SegmentCheck
from spark_log.log.verify.snapshot import SnapshotCheck
from spark_log.record.batch_header import BatchHeader
from spark_log.storage import FileInfo

Progress = Callable[[int], None]


class Verifier:
    """One partition's log, verified once.

    Attributes:
        segments: how many live segments were looked at.
        records: how many records they hold.
        size_bytes: of all files in the directory.
    """

    def __init__(
        self,
        log: PartitionLog,
        *,
        repair: bool = False,
        max_clock_skew_ms: int = DEFAULT_MAX_CLOCK_SKEW_MS,
    ) -> None:
        """Touches nothing yet.

        Args:
            log: of the partition.
            repair: whether to set right what can be, as it is found.
            max_clock_skew_ms: the cluster's ``max.clock.skew.ms``.
        """
        self._log = log
        self._max_clock_skew_ms = max_clock_skew_ms
        self._directory = log.files
        self._repair = repair
        self._ends: dict[SegmentName, int | None] = {}
        self._summaries: dict[SegmentName, SegmentSummary] = {}
        self._owners: dict[str, SegmentName] = {}
        self.segments = 0
        self.records = 0
        self.size_bytes = 0

    def findings(self, progress: Progress = lambda done_bytes: None) -> Iterator[Finding]:
        """Yield what is not as it should be.

        Args:
            progress: called with numbers of bytes that were looked at; they add up to about the
                size of the directory.

        Raises:
            ClockSkewError: something is to be repaired, and this process's clock is too far from
                the storage's to remove anything.
            StorageError: the storage does not answer.
        """
        has_errors = False
        for finding in self._findings(progress):
            has_errors = has_errors or finding.severity is Severity.ERROR
            yield finding
        # Last: only where every segment is sound, headers tell what snapshots must say.
        for snapshot in self._snapshots:
            end_offset = self._log_end_offset()
            is_repaired = self._repair and not has_errors and end_offset is not None
            yield from snapshot.findings(self._summaries, end_offset, repair=is_repaired)

    def _findings(self, progress: Progress) -> Iterator[Finding]:
        files = list(self._directory.store.list(self._directory.path))
        self.size_bytes = sum(file.size_bytes for file in files)
        live = live_log(files)
        self._live = {segment.name: segment for segment in live.segments}
        self._snapshots = list(self._open_snapshots(files, live))
        leftovers = Leftovers(
            self._directory,
            files,
            delete_delay_ms=self._log.config.file_delete_delay_ms,
            repair=self._repair,
            max_clock_skew_ms=self._max_clock_skew_ms,
        )
        for file in files:
            name = SegmentName.parse(file.name)
            if name is not None and not leftovers.is_spent(name):
                yield from self._segment(name, file, leftovers.is_old(file), progress)
                continue
            progress(file.size_bytes)
            if parse_snapshot_name(file.name) is None:
                yield from leftovers.findings(file)
        yield from self._chain(live)
        yield from self._truncated()
        yield from leftovers.abandoned()

    # --- segments --------------------------------------------------------------------------------

    def _segment(
        self, name: SegmentName, file: FileInfo, is_old: bool, progress: Progress
    ) -> Iterator[Finding]:
        check = SegmentCheck(
            self._directory,
            name,
            file.size_bytes,
            index_interval_bytes=self._log.config.index_interval_bytes,
            is_settled=is_old,
            on_headers=lambda headers: self._replay(name, headers),
            repair=self._repair,
        )
        try:
            found = list(check.findings(progress))
        except NotFoundError:
            return  # rewritten and freed meanwhile; if not, the chain has a hole now
        yield from found
        self._ends[name] = check.end_offset
        summary = check.summary()
        if summary is not None:
            self._summaries[name] = summary
        if name in self._live:
            self.segments += 1
            self.records += check.record_count
            if summary is not None and summary.append_id and name.last_offset is None:
                yield from self._identity(summary)

    def _identity(self, summary: SegmentSummary) -> Iterator[Finding]:
        """Yield that a live segment is another than the one that got its name."""
        name, append_id = summary.name, summary.append_id
        first = self._owners.setdefault(append_id, name)
        told = {snapshot.append_id_of(name) for snapshot in self._snapshots} - {"", append_id}
        if first != name:
            what = f"holds the same append as {first.log}: one of the two is a copy"
        elif told:
            what = f"holds the append {append_id}, and a snapshot tells of {told.pop()} at its name"
        else:
            return
        message = f"{what}. Restore the segment that was there from a copy"
        path = self._directory.file_path(name.log)
        yield Finding(path, FindingKind.DAMAGED_SEGMENT, Severity.ERROR, message)

    def _replay(self, name: SegmentName, headers: tuple[BatchHeader, ...]) -> None:
        """Hand sound headers on: files are looked at in the order of the chain."""
        segment = self._live.get(name)
        if segment is not None:
            for snapshot in self._snapshots:
                snapshot.take_in(segment, name.base_offset, headers)

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

    def _truncated(self) -> Iterator[Finding]:
        """Yield that the log had reached further, as other files than snapshots tell."""
        try:
            self._log.observe()
        except LogTruncatedError as error:
            told = max((snapshot.offset for snapshot in self._snapshots), default=0)
            if error.witnessed_offset > told:
                kind = FindingKind.MISSING_SEGMENT
                yield Finding(self._directory.path, kind, Severity.ERROR, error.message)
        except CorruptRecordError:
            pass  # that is a finding of its own

    def _breaks(self, live: LiveLog) -> Iterator[tuple[LiveSegment, Finding]]:
        for segment in live.segments:
            end, following = self._ends.get(segment.name), segment.end_offset
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

    # --- snapshots -------------------------------------------------------------------------------

    def _open_snapshots(self, files: Iterable[FileInfo], live: LiveLog) -> Iterator[SnapshotCheck]:
        for file in files:
            offset = parse_snapshot_name(file.name)
            if offset is not None:
                with suppress(NotFoundError):  # a newer one took its place meanwhile
                    yield SnapshotCheck(self._log, offset, file, live.log_start_offset)

    def _log_end_offset(self) -> int | None:
        try:
            return self._log.log_end_offset()
        except LogTruncatedError as error:
            return error.log_end_offset
        except CorruptRecordError:
            return None  # that is a finding of its own
