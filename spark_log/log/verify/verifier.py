"""Verifies the log of one partition: every file of its directory, and that they make up a log.

It may run at the same time as writers, mergers and cleaners. A file that appears or vanishes during
the run is not a finding: a gap or an overlap is reported only if a second listing shows it too.
Memory: the directory's listing, its snapshots, one record batch, and the positions of one segment's
batches.

With ``repair`` derived files are rebuilt, and names are freed by the rules of a cleaner
(`stray_files`). A file with records of the log is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from spark_log.config import DEFAULT_MAX_CLOCK_SKEW_MS
from spark_log.errors import CorruptRecordError, LogTruncatedError, NotFoundError
from spark_log.log.files import (
    LiveLog,
    LiveSegment,
    SegmentName,
    StartMarker,
    live_log,
    parse_snapshot_name,
)
from spark_log.log.local_log import LocalLog
from spark_log.log.segment import SegmentSummary
from spark_log.log.verify.finding import LogFinding, LogFindingKind, LogSeverity
from spark_log.log.verify.index_owners import IndexOwners
from spark_log.log.verify.leader_epochs import LeaderEpochs
from spark_log.log.verify.segment import SegmentCheck
from spark_log.log.verify.sequences import Sequences
from spark_log.log.verify.snapshot import SnapshotCheck
from spark_log.log.verify.stray_files import StrayFiles
from spark_log.log.verify.transactions import LateBatches
from spark_log.record import BatchHeader
from spark_log.storage import FileInfo

OnProgress = Callable[[int], None]


class Verifier:
    """Verifies one partition's log. Use it once.

    Attributes:
        segments: number of live segments that were checked.
        records: number of records in these segments.
        size_bytes: the size of all files in the directory.
    """

    def __init__(
        self,
        log: LocalLog,
        *,
        repair: bool = False,
        max_clock_skew_ms: int = DEFAULT_MAX_CLOCK_SKEW_MS,
    ) -> None:
        """Prepare the verification; touches nothing.

        Args:
            log: the partition's log.
            repair: whether to repair problems as they are found.
            max_clock_skew_ms: the cluster's ``max.clock.skew.ms``.
        """
        self._log = log
        self._max_clock_skew_ms = max_clock_skew_ms
        self._directory = log.files
        self._repair = repair
        self._ends: dict[SegmentName, int | None] = {}
        self._summaries: dict[SegmentName, SegmentSummary] = {}
        self._owners: dict[str, SegmentName] = {}
        self._late = LateBatches()
        self._late_problems: list[str] = []
        self._leader_epochs = LeaderEpochs()
        self._epoch_problems: list[str] = []
        self._sequences = Sequences(log.config.producer_id_expiration_ms)
        self._sequence_problems: list[str] = []
        self.segments = 0
        self.records = 0
        self.size_bytes = 0

    def findings(self, on_progress: OnProgress = lambda done_bytes: None) -> Iterator[LogFinding]:
        """Yield problems and notes as they are found.

        Args:
            on_progress: called with numbers of bytes that were checked; their sum is approximately
                the size of the directory.

        Raises:
            ClockSkewError: ``repair``, and the clocks of this process and the storage differ too
                much to remove anything.
            StorageError: the storage does not answer.
        """
        has_errors = False
        for finding in self._findings(on_progress):
            has_errors = has_errors or finding.severity is LogSeverity.ERROR
            yield finding
        # Last: the true content of snapshots is known only if every segment is sound. All of them
        # are checked before the first is repaired: a repair writes the newest, and may delete the
        # oldest.
        end_offset = self._log_end_offset()
        found = [
            (snapshot, finding)
            for snapshot in self._snapshots
            for finding in snapshot.findings(
                self._summaries, end_offset, has_all_headers=not has_errors
            )
        ]
        has_all_producers = any(snapshot.has_all_producers for snapshot in self._snapshots)
        # A snapshot that shows a lost end is evidence, and no repair brings the segments back.
        has_errors = has_errors or any(
            finding.severity is LogSeverity.ERROR for _, finding in found
        )
        for snapshot, finding in found:
            if self._repair and not has_errors and end_offset is not None:
                yield snapshot.repair(finding, self._summaries, has_all_producers=has_all_producers)
            else:
                yield finding

    def _findings(self, on_progress: OnProgress) -> Iterator[LogFinding]:
        files = list(self._directory.store.list(self._directory.path))
        self.size_bytes = sum(file.size_bytes for file in files)
        live = live_log(files)
        self._live = {segment.name: segment for segment in live.segments}
        self._index_owners = IndexOwners(self._directory, self._live)
        self._snapshots = list(self._open_snapshots(files, live))
        stray = StrayFiles(
            self._directory,
            files,
            delete_delay_ms=self._log.config.file_delete_delay_ms,
            repair=self._repair,
            max_clock_skew_ms=self._max_clock_skew_ms,
        )
        for file in files:
            name = SegmentName.parse(file.name)
            if name is not None and not stray.is_spent(name):
                yield from self._segment(name, file, stray.is_old(file), on_progress)
                continue
            on_progress(file.size_bytes)
            if parse_snapshot_name(file.name) is None:
                yield from stray.findings(file)
        yield from self._chain(live)
        yield from self._truncated()
        yield from stray.abandoned()

    # --- segments --------------------------------------------------------------------------------

    def _segment(
        self, name: SegmentName, file: FileInfo, is_old: bool, on_progress: OnProgress
    ) -> Iterator[LogFinding]:
        check = SegmentCheck(
            self._directory,
            name,
            file.size_bytes,
            index_interval_bytes=self._log.config.index_interval_bytes,
            is_settled=is_old,
            on_headers=lambda headers: self._replay(name, headers),
            index_owners=self._index_owners,
            repair=self._repair,
        )
        try:
            found = list(check.findings(on_progress))
        except NotFoundError:
            return  # rewritten and deleted meanwhile; if not, `_chain` reports a gap
        yield from found
        for problem in self._late_problems:
            yield LogFinding(
                self._directory.file_path(name.file_name),
                LogFindingKind.LATE_BATCH,
                LogSeverity.ERROR,
                problem,
            )
        self._late_problems = []
        path = self._directory.file_path(name.file_name)
        for problem in self._epoch_problems:
            yield LogFinding(path, LogFindingKind.WRONG_LEADER_EPOCH, LogSeverity.ERROR, problem)
        self._epoch_problems = []
        for problem in self._sequence_problems[:1]:
            yield LogFinding(path, LogFindingKind.REPEATED_SEQUENCE, LogSeverity.WARNING, problem)
        self._sequence_problems = []
        self._ends[name] = check.end_offset
        summary = check.summary()
        if summary is not None:
            self._summaries[name] = summary
        if name in self._live:
            self.segments += 1
            self.records += check.record_count
            if summary is not None and summary.append_id and name.last_offset is None:
                yield from self._identity(summary)

    def _identity(self, summary: SegmentSummary) -> Iterator[LogFinding]:
        """Yield a finding if another file has taken the place of a live segment."""
        name, append_id = summary.name, summary.append_id
        first = self._owners.setdefault(append_id, name)
        told = {snapshot.append_id_of(name) for snapshot in self._snapshots} - {"", append_id}
        if first != name:
            what = f"holds the same append as {first.file_name}: one of the two is a copy"
        elif told:
            what = f"holds the append {append_id}, but a snapshot has {told.pop()} for its name"
        else:
            return
        message = f"{what}. Restore the original segment from a copy"
        path = self._directory.file_path(name.file_name)
        yield LogFinding(path, LogFindingKind.DAMAGED_SEGMENT, LogSeverity.ERROR, message)

    def _replay(self, name: SegmentName, headers: tuple[BatchHeader, ...]) -> None:
        """Pass the headers of a live segment to the snapshots; segments are read in order."""
        segment = self._live.get(name)
        if segment is not None:
            self._late_problems += self._late.replay(name.base_offset, headers)
            self._epoch_problems += self._leader_epochs.replay(name.base_offset, headers)
            self._sequence_problems += self._sequences.replay(segment, headers)
            for snapshot in self._snapshots:
                snapshot.replay(segment, name.base_offset, headers)

    # --- the chain -------------------------------------------------------------------------------

    def _chain(self, live: LiveLog) -> Iterator[LogFinding]:
        """Yield gaps and overlaps between the live segments."""
        for segment, finding in self._breaks(live):
            # A listing may lack a file that appeared during it, but show a later one.
            if segment in self._directory.live_log().segments:
                yield finding
        if live.base_after_gap is not None:
            again = self._directory.live_log()
            if (again.chain_end_offset, again.base_after_gap) == (
                live.chain_end_offset,
                live.base_after_gap,
            ):
                yield LogFinding(
                    self._directory.path,
                    LogFindingKind.MISSING_SEGMENT,
                    LogSeverity.ERROR,
                    f"the log ends at offset {live.chain_end_offset}, but a segment begins at "
                    f"{live.base_after_gap}: the segments between are missing. Restore them from a "
                    f"copy",
                )

    def _truncated(self) -> Iterator[LogFinding]:
        """Yield a finding if a file other than a snapshot shows that the log's end was lost.

        Yield a finding, too, if a start marker is found to be another log's.
        """
        try:
            self._log.observe()
        except LogTruncatedError as error:
            told = max((snapshot.offset for snapshot in self._snapshots), default=0)
            if error.witnessed_offset > told:
                kind = LogFindingKind.MISSING_SEGMENT
                yield LogFinding(self._directory.path, kind, LogSeverity.ERROR, error.message)
        except CorruptRecordError as error:
            marker = StartMarker.parse(error.path.rpartition("/")[2])
            if marker is not None:  # others are reported as other findings
                message = error.message.removeprefix(f"{error.path}: ")
                yield LogFinding(error.path, LogFindingKind.WRONG_START, LogSeverity.ERROR, message)

    def _breaks(self, live: LiveLog) -> Iterator[tuple[LiveSegment, LogFinding]]:
        for segment in live.segments:
            end, following = self._ends.get(segment.name), segment.end_offset
            if end is None:
                continue
            if following is not None and end < following:
                kind = LogFindingKind.MISSING_SEGMENT
                what = "the segments between are missing. Restore them from a copy"
            elif following is not None and end > following:
                kind = LogFindingKind.OVERLAPPING_SEGMENT
                what = "both have the offsets between. Find out which of the two is right"
            elif end <= segment.start_offset:
                kind, following = LogFindingKind.WRONG_START, segment.start_offset
                what = "a start marker says that the log starts in this segment"
            else:
                continue
            message = f"ends at offset {end}, but the log continues at {following}: {what}"
            path = self._directory.file_path(segment.name.file_name)
            yield segment, LogFinding(path, kind, LogSeverity.ERROR, message)

    # --- snapshots -------------------------------------------------------------------------------

    def _open_snapshots(self, files: Iterable[FileInfo], live: LiveLog) -> Iterator[SnapshotCheck]:
        for file in files:
            offset = parse_snapshot_name(file.name)
            if offset is not None:
                with suppress(NotFoundError):  # a newer snapshot has replaced it meanwhile
                    yield SnapshotCheck(self._log, offset, file, live.log_start_offset)

    def _log_end_offset(self) -> int | None:
        try:
            return self._log.observe().log_end_offset
        except LogTruncatedError as error:
            return error.log_end_offset
        except CorruptRecordError:
            return None  # reported as another finding
