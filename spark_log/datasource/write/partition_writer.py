"""Writes a task's records of one partition: into staged segments, then into the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyarrow import ipc

from spark_log.datasource.write.columns import to_records
from spark_log.datasource.write.commit_message import WriteResult
from spark_log.datasource.write.records_digest import RecordsDigest, digest_appended_records
from spark_log.datasource.write.task_transaction import TaskTransaction
from spark_log.errors import (
    InvalidRecordError,
    LeaderNotAvailableError,
    NotRepeatableError,
    OutOfOrderSequenceError,
    SparkLogError,
    UnknownOutcomeError,
)
from spark_log.log import (
    ALL,
    REPLICA_ERRORS,
    LogAppendInfo,
    PartitionLog,
    SegmentWriter,
    StagedSegment,
)
from spark_log.log.files import SegmentName
from spark_log.record import RECORD_SCHEMA, ProducerAppend
from spark_log.storage import is_unavailable

_MAX_BATCH_BYTES: Final = 8_388_608
"""Larger record batches are split."""

_FRAME_BYTES: Final = 4096
"""Upper limit for an Arrow file's schema, footer frame and one message."""

_BLOCK_BYTES: Final = 32
"""Upper limit for a record batch's entry in the footer."""

_SEQUENCES: Final = 2**31
_MAX_RECORDS: Final = 2**30
"""Maximum number of records that sequence numbers can tell apart."""


class PartitionWriter:
    """Streams a task's records of one partition into staged segments, and settles their appends.

    `append_all` appends the segments; before it nothing is visible. With a producer, another writer
    with the same records and the same producer may append again, at the same time or after any
    crash: it detects the records that are in the log, and appends only the others. In a transaction
    each attempt appends all of its records, and the driver commits one attempt of each task.

    Attributes:
        log: the partition's log.
        acks: -1 to wait for all in-sync replicas; 1 for the leader alone.
    """

    def __init__(
        self,
        log: PartitionLog,
        *,
        compression: str,
        acks: int = ALL,
        producer: tuple[int, int] | None = None,
        transaction: TaskTransaction | None = None,
        now_us: int,
    ) -> None:
        """Start without a record.

        Args:
            log: the partition's log.
            compression: codec if the topic's ``compression.type`` is ``producer``.
            acks: -1 to wait for all in-sync replicas; 1 for the leader alone, then call `catch_up`.
            producer: producer id and epoch of an idempotent write (`WriteIdentity`); None if it is
                not idempotent, or has a transaction.
            transaction: the task attempt's transaction; None without one.
            now_us: timestamp of records without one, microseconds since the epoch.
        """
        self.log = log
        self._compression = compression
        self.acks = acks
        self._producer = producer
        self._transaction = transaction
        self._now_us = now_us
        self._segment_bytes = log.config.segment_bytes
        self._batches_written = self._bytes_written = 0
        self._writer: SegmentWriter | None = None
        self._staged: list[StagedSegment] = []
        self._remainders: list[StagedSegment] = []
        self._waiting: deque[tuple[StagedSegment, int]] = deque()
        self._record_count = 0
        self._appended: list[LogAppendInfo] = []
        self._repeated = 0
        self._is_compared = False

    @property
    def is_open(self) -> bool:
        """Whether a segment is being written."""
        return self._writer is not None

    def write(self, records: pa.RecordBatch) -> None:
        """Add records after those written before.

        Args:
            records: columns of `given_columns`, at least one row; no reference is kept.

        Raises:
            InvalidRecordError: the topic refuses the records, or there are too many for the
                sequence numbers.
            StorageFullError: the storage is full; nothing is visible.
        """
        most_bytes = min(_MAX_BATCH_BYTES, self._segment_bytes // 2, self.log.max_append_bytes)
        for piece in _pieces(to_records(records, self._now_us), most_bytes):
            has_sequence = self._producer or self._transaction
            if has_sequence and self._record_count + piece.num_rows > _MAX_RECORDS:
                raise InvalidRecordError(
                    f"{self.log.directory}: a task has more than {_MAX_RECORDS} records for one "
                    f"partition; repartition into more tasks, or set idempotent=false"
                )
            if self._writer is not None and self._is_full(self._writer, piece):
                self.finish()
            if self._writer is None:
                self._writer = self._new_segment(self._record_count)
            self._writer.write(piece)
            self._batches_written += 1
            self._bytes_written += piece.nbytes
            self._record_count += piece.num_rows

    def finish(self) -> None:
        """Finish the open segment, if one is open."""
        if self._writer is not None:
            segment = self._writer.finish()
            self._staged.append(segment)
            self._waiting.append((segment, self._bytes_written))
            self._writer = None
            self._batches_written = self._bytes_written = 0

    def result(self) -> WriteResult:
        """Return where the records are in the log; call it when `next_segment` is None."""
        placed = self._appended
        return WriteResult(
            first_offset=placed[0].base_offset if placed else -1,
            last_offset=placed[-1].last_offset if placed else -1,
            records=self._record_count,
            repeated=self._repeated,
            size_bytes=sum(segment.size_bytes for segment in self._staged),
        )

    def catch_up(self) -> None:
        """Copy appends with ``acks=1`` to the other replicas, if they can be reached.

        A failure is only counted: ``acks=1`` promises nothing about these replicas.
        """
        if self.acks != ALL:
            with self.log.suppressed.suppress("replica", self.log.directory, SparkLogError):
                self.log.catch_up()

    def discard(self) -> None:
        """Remove the staged segments; appended records stay."""
        if self._writer is not None:
            self._writer.discard()
        for segment in (*self._staged, *self._remainders):
            segment.discard()

    # --- writing ---------------------------------------------------------------------------------

    def _new_segment(self, base_sequence: int) -> SegmentWriter:
        producer = None
        if self._transaction is not None:
            producer = self._transaction.producer_append(base_sequence)
        elif self._producer is not None:
            producer = ProducerAppend(*self._producer, base_sequence)
        return self.log.segment_writer(self._compression, producer)

    def _is_full(self, writer: SegmentWriter, piece: pa.RecordBatch) -> bool:
        footer_bytes = _FRAME_BYTES + _BLOCK_BYTES * (self._batches_written + 1)
        needed: float = writer.size_bytes + 1.01 * piece.nbytes + footer_bytes
        if self._bytes_written + piece.nbytes > self.log.max_append_bytes:
            return True
        return needed > self._segment_bytes

    # --- appending -------------------------------------------------------------------------------

    @property
    def next_segment(self) -> StagedSegment | None:
        """The segment that is appended next; None when all are in the log. Call `finish` before."""
        return self._waiting[0][0] if self._waiting else None

    @property
    def next_bytes(self) -> int:
        """Size in memory of the records of `next_segment`."""
        return self._waiting[0][1] if self._waiting else 0

    def settle(self, result: Sequence[LogAppendInfo] | SparkLogError) -> None:
        """Settle the append of `next_segment`.

        Args:
            result: the offsets of its batches, or of all of it; or the error of the append.

        Raises:
            NotRepeatableError: an earlier attempt has appended other records.
            InvalidProducerEpochError: a later micro-batch of the query has written.
            SparkLogError: any other error that an earlier attempt does not explain.
        """
        segment, size_bytes = self._waiting.popleft()
        if not isinstance(result, SparkLogError):
            self._appended += result
            if self._producer is not None:  # else no other attempt appends these as this producer
                self._count_repeated(segment, result)
            return
        if self._producer is None or not isinstance(result, OutOfOrderSequenceError):
            raise result
        count = self._count_appended(segment, result)
        self._check_same_records()
        self._repeated += count
        if count < segment.record_count:
            self._waiting.appendleft((self._drop_first(segment, count), size_bytes))

    def may_append_again(self, error: SparkLogError) -> bool:
        """Return whether the segment may be appended again when some time has passed."""
        if isinstance(error, UnknownOutcomeError):
            # By their sequence numbers, the log detects records that it has already.
            has_sequence = self._producer is not None or self._transaction is not None
            return has_sequence and not error.is_visible
        return isinstance(error, LeaderNotAvailableError) or is_unavailable(error)

    def _count_repeated(self, segment: StagedSegment, placed: Sequence[LogAppendInfo]) -> None:
        """Count the records that an earlier attempt has appended, and compare them."""
        repeated = [each for each in placed if each.is_duplicate]
        if repeated and not self._is_own_append(segment, repeated[0]):
            self._check_same_records()
            self._repeated += sum(each.last_offset + 1 - each.base_offset for each in repeated)

    def _count_appended(self, segment: StagedSegment, error: OutOfOrderSequenceError) -> int:
        """Return the number of a segment's records that are already in the log.

        Raises:
            OutOfOrderSequenceError: the given error: records before the segment are missing.
        """
        assert segment.producer is not None
        ahead = (error.expected_sequence - segment.producer.base_sequence) % _SEQUENCES
        if not 0 < ahead <= _MAX_RECORDS:
            raise error
        return min(ahead, segment.record_count)

    def _is_own_append(self, segment: StagedSegment, placed: LogAppendInfo) -> bool:
        """Whether what an earlier try put is this segment, and not that of an earlier attempt."""
        if self.log.stripe is not None:
            return False  # an object has an id of its own: compare the records instead
        try:
            appended = self.log.files.open(SegmentName(placed.base_offset))
            return appended.append_id == segment.append_id
        except REPLICA_ERRORS:
            return False  # it was rewritten, or its replica fails: compare the records instead

    def _drop_first(self, segment: StagedSegment, count: int) -> StagedSegment:
        """Return a segment with the records after the first ``count``."""
        assert segment.producer is not None
        writer = self._new_segment(segment.producer.base_sequence + count)
        try:
            for batch in _batches(segment):
                if batch.num_rows > count:
                    writer.write(batch.slice(count))
                count = max(0, count - batch.num_rows)
            rest = writer.finish()
        except BaseException:
            writer.discard()
            raise
        self._remainders.append(rest)
        return rest

    def _check_same_records(self) -> None:
        """Check once that an earlier attempt has appended the same records.

        Raises:
            NotRepeatableError: the records are different.
        """
        if self._is_compared or self._producer is None:
            return
        self._is_compared = True
        earlier = digest_appended_records(self.log, *self._producer, max_records=self._record_count)
        if earlier is None:
            return
        ours = RecordsDigest()
        for segment in self._staged:
            for batch in _batches(segment):
                ours.add(batch.slice(0, earlier.count - ours.count))
        if ours != earlier:
            raise NotRepeatableError(
                f"{self.log.directory}: an earlier attempt at this write appended "
                f"{earlier.count} records that differ from the first {earlier.count} of this "
                f"attempt, so records would be lost or duplicated. The plan returns other rows, or "
                f"rows in another order, when it runs again. Make it deterministic (sort within "
                f"partitions, set a key or a partition), or set idempotent=false and accept "
                f"duplicates"
            )


def _batches(segment: StagedSegment) -> Iterator[pa.RecordBatch]:
    """Yield a staged segment's record batches."""
    reader = ipc.open_file(segment.staged.read_back())
    for ordinal in range(reader.num_record_batches):
        yield reader.get_batch(ordinal).replace_schema_metadata(RECORD_SCHEMA.metadata)


def _pieces(records: pa.RecordBatch, most_bytes: float) -> Iterator[pa.RecordBatch]:
    """Split records into batches of at most ``most_bytes``; a single record stays whole."""
    if records.num_rows == 1 or records.nbytes <= most_bytes:
        yield records
        return
    half = records.num_rows // 2
    yield from _pieces(records.slice(0, half), most_bytes)
    yield from _pieces(records.slice(half), most_bytes)
