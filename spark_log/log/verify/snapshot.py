"""One snapshot, held against the segments and batch headers of the live log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from spark_log.errors import CorruptRecordError, NotFoundError, StorageError
from spark_log.log.file_names import SegmentName
from spark_log.log.live_log import LiveSegment
from spark_log.log.partition_log import PartitionLog
from spark_log.log.snapshot.snapshot import SegmentSummary, Snapshot
from spark_log.log.verify.finding import Finding, FindingKind, Severity
from spark_log.log.verify.producers import ProducerCheck
from spark_log.record.batch_header import BatchHeader
from spark_log.storage import FileInfo


class SnapshotCheck:
    """A snapshot that is being verified, and written anew where it is wrong.

    It is corrected, not thrown away: what it remembers of producers whose records are deleted
    stands nowhere else. What is wrong is replaced in one put, so that a crash leaves the one or
    the other.
    """

    def __init__(
        self, log: PartitionLog, offset: int, file: FileInfo, log_start_offset: int
    ) -> None:
        """Read the file.

        Args:
            log: the partition's.
            offset: that the file's name says.
            file: as a listing showed it.
            log_start_offset: as that listing showed it.

        Raises:
            NotFoundError: it is gone.
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

    @property
    def offset(self) -> int:
        """Up to where the snapshot tells of the log."""
        return self._offset

    def append_id_of(self, name: SegmentName) -> str:
        """Return the append id that it tells of a segment, empty where it tells none."""
        return self._append_ids.get(name, "")

    def replay(
        self, segment: LiveSegment, base_offset: int, headers: Iterable[BatchHeader]
    ) -> None:
        """See `ProducerCheck.replay`."""
        if self._damage is None:
            self._producers.replay(segment, base_offset, headers)

    def findings(
        self,
        summaries: Mapping[SegmentName, SegmentSummary],
        log_end_offset: int | None,
        *,
        repair: bool,
    ) -> Iterator[Finding]:
        """Yield what is wrong, after all headers were taken in.

        Args:
            summaries: of the sound segments, as they are.
            log_end_offset: observed after the snapshot was; None where that cannot be told.
            repair: write it anew. Only where no segment is damaged or missing.
        """
        if not self._is_still_there():
            return
        if self._damage is not None:
            yield self._damaged(repair)
            return
        if log_end_offset is not None and self._offset > log_end_offset:
            yield Finding(
                self._file.path,
                FindingKind.MISSING_SEGMENT,
                Severity.ERROR,
                f"there was a log up to offset {self._offset}, and there is none behind "
                f"{log_end_offset}: its last segments are missing. Restore them from a copy",
            )
        wrong = [
            f"what it says of {said.name.log} is not so"
            for said in self._snapshot.segments
            if said.name in summaries and not _is_so(said, summaries[said.name])
        ]
        problems = sorted(self._producers.problems().items())
        wrong += [f"of producer {producer_id}: {problem}" for producer_id, problem in problems]
        if wrong:
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            message = f"{wrong[0]}{more}"
            finding = self._warning(FindingKind.WRONG_SNAPSHOT, message)
            yield replace(finding, repaired=repair and self._correct(summaries))

    # --- repairs ---------------------------------------------------------------------------------

    def _correct(self, summaries: Mapping[SegmentName, SegmentSummary]) -> bool:
        snapshot = Snapshot(
            self._offset,
            tuple(
                said if _is_so(said, true := summaries.get(said.name, said)) else true
                for said in self._snapshot.segments
            ),
            self._producers.corrected(),
        )
        files = self._log.files
        data = snapshot.to_buffer(topic_id=files.topic_id, partition=files.partition)
        try:
            files.store.put(self._file.path, data)
        except StorageError as error:
            files.suppressed.add("repair", files.path, error)
            return False
        return True

    def _damaged(self, repair: bool) -> Finding:
        message = f"{self._damage}. Readers do without"
        if 0 < self._log_start_offset <= self._offset:
            message += (
                f"; but unless another is sound, producers are forgotten whose records lie before "
                f"the log start {self._log_start_offset}: restore it from a copy before a repair"
            )
        finding = self._warning(FindingKind.DAMAGED_SNAPSHOT, message)
        if not repair:
            return finding
        try:
            # The new one is made of an older one, if any, and headers: nothing is taken from this.
            if self._log.write_snapshot().offset != self._offset:
                self._log.files.store.delete(self._file.path)
        except (StorageError, CorruptRecordError) as error:
            self._log.suppressed.add("repair", self._log.directory, error)
            return finding
        return replace(finding, repaired=True)

    # --- helpers ---------------------------------------------------------------------------------

    def _is_still_there(self) -> bool:
        """Whether it is the same file: others write and remove snapshots meanwhile."""
        try:
            return self._log.files.store.head(self._file.path) == self._file
        except NotFoundError:
            return False

    def _warning(self, kind: FindingKind, message: str) -> Finding:
        return Finding(self._file.path, kind, Severity.WARNING, message)


def _is_so(said: SegmentSummary, true: SegmentSummary) -> bool:
    """Whether a summary is right; the least timestamp may be left out."""
    if said.min_timestamp_us is None:
        true = replace(true, min_timestamp_us=None)
    return said == true
