"""The log of one partition: appends by put-if-absent, reads by offset and by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from spark_log.config import TopicConfig
from spark_log.log.append import Beside, LogAppendInfo
from spark_log.log.directory import LogView, OpenedSegments, PartitionDirectory
from spark_log.log.files import LiveSegment, Witness
from spark_log.log.producers import (
    EndTransactionMarker,
    OpenTransaction,
    ProducerAppend,
    ProducerState,
    TransactionIndex,
)
from spark_log.log.read import IsolationLevel
from spark_log.log.replica import Replica
from spark_log.log.segment import (
    LogBatch,
    LogValidator,
    SegmentReader,
    SegmentSummary,
    SegmentWriter,
    StagedSegment,
)
from spark_log.log.snapshot import Snapshot
from spark_log.storage import Store, listing_validity_ms
from spark_log.util import IN_PROCESS, SYSTEM_CLOCK, Clock, SuppressedErrors

ALL: Final = -1
"""``acks=all``: an append is acknowledged when all in-sync replicas have it."""


class PartitionLog:
    """The log of one partition, in one directory.

    Appends are atomic: one append writes one segment file, which is visible whole or not at all.
    Any number of processes append and read at once without knowing each other. No cached state can
    change an answer. One `PartitionLog` is for one thread at a time.

    Attributes:
        directory: the partition's directory, relative to the store's root.
        config: the topic's settings.
        clock: the clock whose monotonic time decides how long a listing is valid.
        suppressed: counter of errors of indexes, snapshots and tail merges, which fail no append
            and no read.
    """

    def __init__(
        self,
        store: Store,
        directory: str,
        *,
        topic_id: str,
        partition: int,
        config: TopicConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        suppressed: SuppressedErrors = IN_PROCESS,
        has_witness: bool = False,
        beside: Beside | None = None,
    ) -> None:
        """Open a log. Accesses no storage yet.

        Args:
            store: the store that holds the log.
            directory: the partition's directory, relative to the store's root.
            topic_id: the topic's id; checked against every segment.
            partition: number of the partition; checked against every segment.
            config: the topic's settings; None for the defaults.
            clock: the clock whose monotonic time decides how long a listing is valid.
            suppressed: parent of this log's counter; it counts the log's errors, too.
            has_witness: whether a file outside of the log's directory shows that the log has had
                records, so that the removal of all of its files is noticed (`log.witness`).
            beside: runner of tail merges on another thread. If it is None, the append that makes a
                merge due waits for the merge.
        """
        self.suppressed = SuppressedErrors(suppressed)
        self.directory = directory
        self.config = config or TopicConfig()
        self.clock = clock
        self._replica = Replica(
            PartitionDirectory(
                store,
                directory,
                topic_id=topic_id,
                partition=partition,
                clock=clock,
                valid_ms=listing_validity_ms(self.config.file_delete_delay_ms),
                suppressed=self.suppressed,
                witness=Witness(directory) if has_witness else None,
            ),
            self.config,
            beside=beside,
        )

    def __repr__(self) -> str:
        return f"<PartitionLog root={self._replica.files.store.url!r} directory={self.directory!r}>"

    @property
    def files(self) -> PartitionDirectory:
        """The partition's directory, for tools that access its files."""
        return self._replica.files

    @property
    def reached_offset(self) -> int:
        """The highest offset up to which this object knows that the log can be read."""
        return self.files.reached_offset

    @property
    def replica(self) -> Replica:
        """The replica that is read."""
        return self._replica

    def on_log_end(self, end_offset: int) -> None:
        """Record an offset that the log has reached. A log that ends before it has lost files."""
        self._replica.files.on_log_end(end_offset)

    # --- appending -------------------------------------------------------------------------------

    def append(
        self,
        records: pa.RecordBatch | Iterable[pa.RecordBatch],
        *,
        compression: str = "none",
        expected_leo: int | None = None,
        producer: ProducerAppend | None = None,
    ) -> LogAppendInfo:
        """Append records as one segment. When the call returns, they are durable and visible.

        Args:
            records: one record batch with the columns of `RECORD_SCHEMA`, or several. Several are
                streamed in constant memory and become visible together.
            compression: ``none``, ``lz4`` or ``zstd``; used if the topic's ``compression.type`` is
                ``producer``.
            expected_leo: append only if this is the log end offset.
            producer: makes the append idempotent (KIP-98). It may be retried after any error, with
                the same records and the same ``producer``: the log then has the records once, and a
                retry returns the offsets of the first append. An error concerns this try alone, not
                an earlier one. After an unknown outcome, only a later try shows whether the append
                succeeded.

        Raises:
            LogEndOffsetMismatchError: the log end offset is not ``expected_leo``; nothing was
                appended.
            UnknownOutcomeError: it could not be determined whether the records are in the log.
            OutOfOrderSequenceError: the producer's append before this one is missing; nothing was
                appended.
            InvalidProducerEpochError: a newer epoch of the producer has written; nothing was
                appended.
            InvalidTxnStateError: the producer's transaction is open, and the append does not belong
                to it; nothing was appended.
            StorageFullError: nothing was appended.
            InvalidRecordError: the topic does not accept the records; nothing was appended.
        """
        writer = self.segment_writer(compression, producer)
        try:
            for batch in [records] if isinstance(records, pa.RecordBatch) else records:
                writer.write(batch)
            return self.append_segment(writer.finish(), expected_leo=expected_leo)
        finally:
            writer.discard()

    def append_markers(self, markers: Sequence[EndTransactionMarker]) -> LogAppendInfo | None:
        """Append the end markers of transactions that the log does not have yet, as one segment.

        A marker is left out if its producer has the marker's epoch, or a later one, in the log.
        Therefore any number of processes may append the markers of a decided transaction, any
        number of times and at any later time, and the log has each marker once. Afterwards older
        epochs are refused.

        Args:
            markers: the markers, each of another producer.

        Returns:
            The offsets of the appended markers; None if nothing was left to append.

        Raises:
            UnknownOutcomeError: it could not be determined whether the markers are in the log.
            CorruptRecordError: the end of the log is damaged; nothing was appended.
            StorageError: nothing was appended.
        """
        return self._replica.appender.append_markers(
            markers, lambda missing: self._replica.stage_markers(missing, 0)
        )

    def segment_writer(
        self, compression: str = "none", producer: ProducerAppend | None = None
    ) -> SegmentWriter:
        """Return a writer for a segment to be passed to `append_segment`.

        Args:
            compression: used if the topic's ``compression.type`` is ``producer``.
            producer: makes the append idempotent.
        """
        topics = self.config.compression_type
        return self._replica.segment_writer(
            compression if topics == "producer" else topics,
            producer,
            validator=LogValidator(self.config, self.clock),
        )

    def append_segment(
        self, segment: StagedSegment, *, expected_leo: int | None = None, acks: int = ALL
    ) -> LogAppendInfo:
        """Append a staged segment at the log's end.

        Args:
            segment: the staged segment, finished by a writer of `segment_writer`.
            expected_leo: append only if this is the log end offset.
            acks: ignored in a log of one replica.

        Raises:
            LogEndOffsetMismatchError: the log end offset is not ``expected_leo``; nothing was
                appended.
            UnknownOutcomeError: it could not be determined whether the segment is in the log.
            OutOfOrderSequenceError: the producer's append before this one is missing; nothing was
                appended.
            InvalidProducerEpochError: a newer epoch of the producer has written; nothing was
                appended.
            InvalidTxnStateError: the producer's transaction is open, and the append does not belong
                to it; nothing was appended.
            StorageError: nothing was appended.
        """
        info = self._replica.appender.append_segment(segment, expected_leo)
        self._replica.reader.on_appended(info.base_offset, info.last_offset + 1)
        return info

    def catch_up(self) -> None:
        """Copy appends with ``acks=1`` to other replicas; a log of one replica has none."""

    # --- state of the log ------------------------------------------------------------------------

    def observe(self, *, reads_on: bool = False) -> LogView:
        """Return the log as it is now: one listing, and the last header of the last segment.

        Args:
            reads_on: whether the next read begins with this listing. The listing, and what was read
                of the last segment, are kept until then.

        Raises:
            CorruptRecordError: the last segment is damaged, or a segment before it is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
            StorageTimeoutError: each listing took longer than it is valid.
        """
        return self._replica.reader.observe() if reads_on else self._replica.files.observe()

    def log_start_offset(self) -> int:
        """Return the first offset that can be read."""
        return self.observe().log_start_offset

    def log_end_offset(self) -> int:
        """Return the next offset to be written."""
        return self.observe().log_end_offset

    def end_offset(
        self, view: LogView | None = None, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> int:
        """Return the offset at which a read of a view ends.

        Args:
            view: the log's view from `observe`; None lists the log.
            isolation_level: ``read_uncommitted`` for the log end offset, ``read_committed`` for the
                last stable offset.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        view = view or self.observe()
        if isolation_level == "read_uncommitted":
            return view.log_end_offset
        return min(view.log_end_offset, self.transactions(view).last_stable_offset)

    def segments(
        self,
        view: LogView,
        last: SegmentReader | None = None,
        opened: OpenedSegments | None = None,
    ) -> tuple[list[SegmentSummary], LogView]:
        """Return the summaries of a view's live segments, and the view that they belong to.

        The returned view is newer than the given one if the log was rewritten meanwhile.

        Args:
            view: the log's view from `observe`.
            last: reader of the view's last segment if it is open, so that it is not opened again.
            opened: the open segments; small ones that this call opens are added to it.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        return self._replica.snapshots.segments(view, last, opened)

    def producers(
        self, view: LogView | None = None, opened: OpenedSegments | None = None
    ) -> ProducerState:
        """Return the state of the log's idempotent producers at the end of a view, or later.

        Args:
            view: the log's view from `observe`; None lists the log.
            opened: the open segments, which are not opened again.
        """
        return self._replica.snapshots.producers(view or self.observe(), opened=opened)[0]

    def transactions(self, view: LogView | None = None) -> TransactionIndex:
        """Return the log's open and aborted transactions at the end of a view.

        This costs the requests of `producers`; a later call reads only new segments. If the newest
        snapshot was written by a version without transactions, the headers of all segments are
        read.

        Args:
            view: the log's view from `observe`; None lists it. The index belongs to a newer view if
                the log was rewritten meanwhile, or if this object has read further since.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        return self._replica.reader.transactions(view or self.observe())[0]

    def load_segment_ids(self, view: LogView) -> None:
        """Load the segments' append ids from the newest snapshot if this costs no request.

        With these ids, a segment that was copied to the name of another one is detected.
        """
        self._replica.snapshots.load_segment_ids(view)

    def observe_segments(self) -> tuple[list[SegmentSummary], LogView]:
        """Return the summaries of the live segments as they are now, and the view of the log.

        Raises:
            SparkLogError: `observe` failed.
        """
        return self._replica.snapshots.segments(*self._replica.files.observe_and_open())

    def read_delete_horizon(self, segment: LiveSegment, view: LogView) -> int:
        """Return a segment's delete horizon from its headers, for a snapshot without it.

        Args:
            segment: a segment of the view; its summary is known.
            view: the log's view from `observe`.

        Returns:
            Microseconds since the epoch; -1 if the segment has no tombstones or markers.

        Raises:
            NotFoundError: the segment was freed.
            CorruptRecordError: the segment is damaged.
        """
        return self._replica.snapshots.summaries.read_delete_horizon(segment, view.observed_ms)

    def on_rewritten(self, summary: SegmentSummary) -> None:
        """Record the summary of a merged segment, so that the segment need not be opened."""
        self._replica.snapshots.summaries.on_rewritten(summary)

    def write_snapshot(self, view: LogView | None = None) -> Snapshot:
        """Write a snapshot of the log as it is now, and delete older ones.

        Args:
            view: the view that `observe` returned just now; None lists the log.

        Raises:
            StorageError: the snapshot was not written.
            CorruptRecordError: a segment is damaged or missing.
        """
        return self._replica.snapshots.write(view)

    # --- reading ---------------------------------------------------------------------------------

    @property
    def blocking_transaction(self) -> OpenTransaction | None:
        """The transaction that held up the last read with ``read_committed``.

        None if this read reached the requested end, or the log's end.
        """
        return self._replica.reader.blocking_transaction

    def fetch(
        self,
        offset: int,
        max_bytes: int = 52_428_800,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> list[LogBatch]:
        """Return batches from ``offset`` on; none at the log's end. Control batches are left out.

        At the log's end this costs one request, for the next segment.

        Args:
            offset: the first record's offset.
            max_bytes: approximate size of the answer; the first batch may be larger, as in Kafka
                (``fetch.max.bytes``, 50 MiB).
            columns: names of columns of `RECORD_SCHEMA`, in this order; None for all.
            check_crcs: whether to check the checksums of batches (``check.crcs``).
            isolation_level: ``read_committed`` leaves out records of aborted transactions, and ends
                at the last stable offset.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
        """
        return self.fetch_from(
            offset,
            max_bytes,
            columns=columns,
            check_crcs=check_crcs,
            isolation_level=isolation_level,
        )[0]

    def fetch_from(
        self,
        offset: int,
        max_bytes: int = 52_428_800,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> tuple[list[LogBatch], int]:
        """Return the batches of `fetch`, and the offset to fetch from next.

        The offset is the one after the last record, or after the control batches, aborted batches
        and gaps that follow it.

        Args:
            offset: the first record's offset.
            max_bytes: approximate size of the answer; the first batch may be larger.
            columns: names of columns of `RECORD_SCHEMA`, in this order; None for all.
            check_crcs: whether to check the checksums of batches (``check.crcs``).
            isolation_level: ``read_committed`` leaves out records of aborted transactions, and ends
                at the last stable offset.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
        """
        batches: list[LogBatch] = []
        total_bytes = 0
        for batch, next_offset in self.read_on(
            offset, columns=columns, check_crcs=check_crcs, isolation_level=isolation_level
        ):
            if batch is not None and not batch.is_control:
                if batches and total_bytes + batch.stored_bytes > max_bytes:
                    break
                batches.append(batch)
                total_bytes += batch.stored_bytes
            offset = next_offset
            if batches and total_bytes >= max_bytes:
                break  # nothing more fits: the next segment is not opened
        return batches, offset

    def fetch_last(self) -> tuple[list[LogBatch], int]:
        """Return the batches of the log's last segment, and the offset to fetch from next.

        This costs one listing, and one request for the segment if it is small.

        Raises:
            CorruptRecordError: the segment is damaged, or one before it is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
        """
        batches, view = self.read_last()
        self._replica.appender.on_listed(view)
        return batches, view.log_end_offset

    def read_last(self) -> tuple[list[LogBatch], LogView]:
        """Return the batches of the log's last segment, and the listing that showed it.

        This costs one listing, and one request for the segment if it is small.

        Raises:
            CorruptRecordError: the segment is damaged, or one before it is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
        """
        return self._replica.reader.read_last()

    def fetch_to_end(self, offset: int) -> tuple[list[LogBatch], int]:
        """Return all batches from ``offset`` on, and the log end offset, in a log without merges.

        At the log's end this costs one request, for the next segment. The next append does not list
        the log.

        Args:
            offset: the first record's offset.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
            LogTruncatedError: the log ends before an offset that it had reached.
        """
        batches: list[LogBatch] = []
        for batch, next_offset in self.read_on(offset):
            if batch is not None and not batch.is_control:
                batches.append(batch)
            offset = next_offset
        appender = self._replica.appender
        if batches and (found := self._replica.reader.end_behind(appender.log_end_offset)):
            appender.on_read(*found)
        return batches, offset

    def ends_at(self, offset: int) -> bool:
        """Whether the log still ends at ``offset``, the end of a read with ``read_uncommitted``.

        This costs one request, for the next segment. Any thread may call it, also while another one
        reads.

        Returns:
            False also if the answer needs a new listing, which the next read makes.

        Raises:
            CorruptRecordError: the next segment is damaged.
            StorageError: the storage does not answer.
        """
        return self._replica.reader.ends_at(offset)

    def begin_behind(self, base_offset: int, end_offset: int) -> bool | None:
        """Begin to read behind a known segment, in a log that is never merged or compacted.

        Args:
            base_offset: the segment's base offset.
            end_offset: the segment's end offset, at which the next read begins.

        Returns:
            Whether one listing of the names from this segment on shows that the log ends there.
            False without a listing if the next read needs none. None if the listing does not
            decide it: the next read then lists the whole log.

        Raises:
            StorageError: the storage does not answer.
        """
        return self._replica.reader.begin_behind(base_offset, end_offset)

    def read_on(
        self,
        offset: int,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Iterator[tuple[LogBatch | None, int]]:
        """Yield batches from ``offset`` to the log's end, each with the offset after it.

        The caller may pause between two batches for any time. At the log's end this costs one
        request, for the next segment.

        With ``read_committed`` the read ends at the last stable offset, where
        `blocking_transaction` begins. Call the method again with the next offset to read the
        records behind it, once the transaction's marker is in the log.

        Args:
            offset: the first record's offset.
            columns: names of columns of `RECORD_SCHEMA`, in this order; None for all.
            check_crcs: whether to check the checksums of batches (``check.crcs``).
            isolation_level: ``read_committed`` leaves out records of aborted transactions, and ends
                at the last stable offset.

        Yields:
            Batches, control batches included; None in place of an aborted batch, and at the end of
            a segment, whose end offset may lie behind its last record.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
        """
        return self._replica.reader.read_on(
            offset, columns, check_crcs=check_crcs, isolation_level=isolation_level
        )

    def scan(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Iterator[LogBatch]:
        """Yield batches from ``start_offset`` to before ``end_offset``, without control batches.

        If a segment is rewritten and deleted meanwhile, the read continues in its replacement.

        Args:
            start_offset: the first record's offset.
            end_offset: records at and after it are left out. None reads to the current log end.
            columns: names of columns of `RECORD_SCHEMA`, in this order; None for all.
            check_crcs: whether to check the checksums of batches (``check.crcs``).
            isolation_level: ``read_committed`` leaves out records of aborted transactions, and ends
                at the last stable offset.

        Raises:
            OffsetOutOfRangeError: ``start_offset`` is not in the log; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
        """
        return self._replica.reader.scan(
            start_offset,
            end_offset,
            columns,
            check_crcs=check_crcs,
            isolation_level=isolation_level,
        )

    def offset_for_time(
        self,
        timestamp_us: int,
        view: LogView | None = None,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after a time; None without one.

        The first such record in offset order is returned, also if timestamps are not in order
        (``KafkaConsumer.offsetsForTimes``).

        Args:
            timestamp_us: microseconds since the epoch.
            view: the log's view from `observe`, so that several lookups cost one listing; None
                lists the log.
            isolation_level: ``read_committed`` returns no offset from the last stable offset on. A
                record of an aborted transaction counts, as in Kafka.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        return self._replica.reader.offset_for_time(
            timestamp_us, view, isolation_level=isolation_level
        )
