"""Verification of one snapshot, against the segments and batch headers of the live log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from spark_log.errors import CorruptRecordError, NotFoundError, StorageError
from spark_log.log.files import LiveSegment, SegmentName
from spark_log.log.local_log import LocalLog
from spark_log.log.producers import TransactionIndex
from spark_log.log.segment import SegmentSummary
from spark_log.log.snapshot import Snapshot
from spark_log.log.verify.finding import LogFinding, LogFindingKind, LogSeverity
from spark_log.log.verify.producers import ProducerCheck
from spark_log.log.verify.transactions import transactions_problem
from spark_log.record import BatchHeader
from spark_log.storage import FileInfo


class SnapshotCheck:
    """Checks one snapshot, and corrects it in a repair.

    A snapshot is corrected, not deleted: the state of producers whose records are deleted exists
    only in snapshots. It is replaced by a single put, so that a crash leaves the old or the new
    snapshot.
    """

    def __init__(self, log: LocalLog, offset: int, file: FileInfo, log_start_offset: int) -> None:
        """Read the snapshot.

        Args:
            log: the partition's log.
            offset: the offset in the file's name.
            file: the snapshot's file in a listing.
            log_start_offset: the log start offset in that listing.

        Raises:
            NotFoundError: the file was deleted.
            StorageError: the storage does not answer.
        """
        self._log = log
        self._file = file
        self._offset = offset
        self._log_start_offset = log_start_offset
        self._damage: str | None = None
        self._append_ids: dict[SegmentName, str] = {}
        try:
            self._snapshot = Snapshot.from_buffer(
                log.files.store.open_buffer(file.path),
                topic_id=log.files.topic_id,
                partition=log.files.partition,
            )
            self._snapshot.check_name(offset)
        except ValueError as error:
            self._damage = str(error)
            return
        self._append_ids = {each.name: each.append_id for each in self._snapshot.segments}
        self._producers = ProducerCheck(
            self._snapshot.producers,
            written_us=file.modified_us,
            first_offset=log_start_offset,
            expiration_ms=log.config.producer_id_expiration_ms,
        )
        self._transactions = TransactionIndex(log_start_offset)
        self._compacted_until = log_start_offset
        self._has_all_headers = False

    @property
    def offset(self) -> int:
        """The end of the part of the log that the snapshot describes."""
        return self._offset

    @property
    def has_all_producers(self) -> bool:
        """Whether the snapshot is readable, and has producers from before the log start offset."""
        return self._damage is None and self._offset >= self._log_start_offset

    def append_id_of(self, name: SegmentName) -> str:
        """Return the append id that the snapshot has for a segment; empty if it has none."""
        return self._append_ids.get(name, "")

    def replay(
        self, segment: LiveSegment, base_offset: int, headers: Iterable[BatchHeader]
    ) -> None:
        """Replay headers of a live segment, in offset order."""
        if self._damage is None:
            headers = list(headers)
            self._producers.replay(segment, base_offset, headers)
            if segment.name.is_compacted and segment.end_offset is not None:
                self._compacted_until = max(self._compacted_until, segment.end_offset)
            if segment.start_offset < self._offset:
                # Earlier batches are in the compacted segment that comes first, or were removed.
                replayed_to = max(self._transactions.offset, segment.start_offset)
                self._transactions.offset = replayed_to
                before = self._offset - base_offset
                known = [each for each in headers if each.last_offset_delta < before]
                self._transactions.replay(base_offset, known)

    def findings(
        self,
        summaries: Mapping[SegmentName, SegmentSummary],
        log_end_offset: int | None,
        *,
        has_all_headers: bool,
    ) -> Iterator[LogFinding]:
        """Yield the problems of the snapshot. Call it after all headers were replayed.

        Args:
            summaries: the true summaries of the sound segments.
            log_end_offset: the log end offset, read after the snapshot; None if it is not known.
            has_all_headers: whether every segment of the log is sound.
        """
        self._has_all_headers = has_all_headers
        if not self._is_unchanged():
            return
        if self._damage is not None:
            if log_end_offset is not None and self._offset > log_end_offset:
                yield self._beyond_end(self._damage, log_end_offset)
            else:
                yield self._damaged(self._damage)
            return
        if log_end_offset is not None and self._offset > log_end_offset:
            yield LogFinding(
                self._file.path,
                LogFindingKind.MISSING_SEGMENT,
                LogSeverity.ERROR,
                f"the log ended at offset {self._offset} or later, and ends at {log_end_offset} "
                f"now: its last segments are missing. Restore them from a copy",
            )
        wrong = [
            f"its entry for {said.name.file_name} is wrong"
            for said in self._snapshot.segments
            if said.name in summaries and not _is_right(said, summaries[said.name])
        ]
        problems = sorted(self._producers.problems().items())
        wrong += [f"its producer {producer_id}: {problem}" for producer_id, problem in problems]
        if self._transactions_problem is not None:
            wrong.append(f"its transactions: {self._transactions_problem}")
        if wrong:
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            message = f"{wrong[0]}{more}"
            yield self._warning(LogFindingKind.WRONG_SNAPSHOT, message)

    # --- repairs ---------------------------------------------------------------------------------

    def repair(
        self,
        finding: LogFinding,
        summaries: Mapping[SegmentName, SegmentSummary],
        *,
        has_all_producers: bool,
    ) -> LogFinding:
        """Replace the snapshot, and return the finding with the result of the repair.

        Args:
            finding: the snapshot's finding.
            summaries: the true summaries of all segments, none of which is damaged or missing.
            has_all_producers: whether any readable snapshot has the producers whose records are
                before the log start offset.
        """
        if finding.kind is LogFindingKind.DAMAGED_SNAPSHOT:
            return self._replaced(finding, has_all_producers)
        return replace(finding, repaired=self._correct(summaries))

    def _correct(self, summaries: Mapping[SegmentName, SegmentSummary]) -> bool:
        snapshot = Snapshot(
            self._offset,
            tuple(
                said if _is_right(said, true := summaries.get(said.name, said)) else true
                for said in self._snapshot.segments
            ),
            self._producers.corrected(),
        )
        transactions = self._snapshot.producers.transactions
        if self._transactions_problem is not None:
            # The new snapshot has no transactions: readers find them in the headers.
            transactions = TransactionIndex(self._offset, is_complete=False)
        snapshot.producers.transactions = transactions
        files = self._log.files
        data = snapshot.to_buffer(topic_id=files.topic_id, partition=files.partition)
        try:
            files.store.put(self._file.path, data)
        except StorageError as error:
            files.suppressed.add("repair", files.path, error)
            return False
        return True

    def _replaced(self, finding: LogFinding, has_all_producers: bool) -> LogFinding:
        try:
            # The new snapshot is built from headers, and an older snapshot if any, not this one.
            offset = self._log.snapshots.write().offset
            if offset != self._offset:
                self._log.files.store.delete(self._file.path)
        except (StorageError, CorruptRecordError) as error:
            self._log.suppressed.add("repair", self._log.directory, error)
            return finding
        message = f"{self._damage}; a new snapshot of offset {offset} replaces it"
        if self._had_deleted_producers and not has_all_producers:
            message += (
                f", without the producers whose records are before the log start "
                f"{self._log_start_offset}: they are forgotten"
            )
        return replace(finding, message=message, repaired=True)

    # --- helpers ---------------------------------------------------------------------------------

    def _damaged(self, damage: str) -> LogFinding:
        message = f"{damage}. Readers work without it"
        if self._had_deleted_producers:
            message += (
                f", but unless another snapshot is sound, the producers whose records are before "
                f"the log start {self._log_start_offset} are forgotten: restore it from a copy "
                f"before a repair"
            )
        return self._warning(LogFindingKind.DAMAGED_SNAPSHOT, message)

    def _beyond_end(self, damage: str, log_end_offset: int) -> LogFinding:
        message = (
            f"{damage}. Its name says that the log had reached offset {self._offset}, but it ends "
            f"at {log_end_offset}, so nothing is read or appended. Remove the snapshot if it is "
            f"another log's; else restore the missing segments from a copy"
        )
        return LogFinding(
            self._file.path, LogFindingKind.DAMAGED_SNAPSHOT, LogSeverity.ERROR, message
        )

    @property
    def _transactions_problem(self) -> str | None:
        """The problem of the snapshot's transactions; None also if this cannot be known."""
        said = self._snapshot.producers.transactions
        is_known = self._has_all_headers and self._transactions.offset == self._offset
        if not (is_known and said.is_complete):
            return None
        return transactions_problem(
            said, self._transactions, self._log_start_offset, self._compacted_until
        )

    @property
    def _had_deleted_producers(self) -> bool:
        return 0 < self._log_start_offset <= self._offset

    def _is_unchanged(self) -> bool:
        """Return whether the file is unchanged: other processes write and delete snapshots."""
        try:
            return self._log.files.store.head(self._file.path) == self._file
        except NotFoundError:
            return False

    def _warning(self, kind: LogFindingKind, message: str) -> LogFinding:
        return LogFinding(self._file.path, kind, LogSeverity.WARNING, message)


def _is_right(said: SegmentSummary, true: SegmentSummary) -> bool:
    """Return whether a summary is right; smallest timestamp and delete horizon may be missing."""
    if said.min_timestamp_us is None:
        true = replace(true, min_timestamp_us=None)
    if said.delete_horizon_us is None:
        true = replace(true, delete_horizon_us=None)
    return said == true
