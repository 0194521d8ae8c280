"""One partition's log: append by put-if-absent, read by offset and by time (DESIGN.md, 5 and 7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from spark_log.clock import SYSTEM_CLOCK, Clock
from spark_log.config import TopicConfig
from spark_log.errors import CorruptRecordError, NotFoundError, StorageError
from spark_log.log.append.appender import Appender, LogAppendInfo
from spark_log.log.append.producer_state import ProducerAppend, ProducerState
from spark_log.log.append.validator import LogValidator
from spark_log.log.partition_directory import LogView, PartitionDirectory
from spark_log.log.segment.log_batch import LogBatch
from spark_log.log.segment.reader import SegmentReader
from spark_log.log.segment.times import SegmentTimes
from spark_log.log.segment.writer import SegmentWriter, StagedSegment
from spark_log.log.snapshot.snapshot import SegmentSummary, Snapshot
from spark_log.log.snapshot.snapshots import Snapshots
from spark_log.log.tail_view import TailView
from spark_log.log.witness import Witness
from spark_log.storage import Store, valid_ms_of
from spark_log.suppressed import IN_PROCESS, SuppressedErrors


class PartitionLog:
    """The log of one partition in one directory.

    Appends are atomic: one append is one segment file, visible whole or not at all. Any number of
    processes append and read at once without knowing of each other. Nothing is cached that could
    change an answer. One handle is for one thread at a time.

    Attributes:
        directory: the partition's, relative to the store's root.
        config: the topic's settings.
        clock: for the rule on late success.
        suppressed: counts failures that kept nothing from being done: of indexes, snapshots and
            merges of the tail, all of which readers and writers can do without.
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
    ) -> None:
        """Open a log; touches nothing.

        Args:
            store: where it lies.
            directory: the partition's directory, relative to the store's root.
            topic_id: of the topic; checked against every segment.
            partition: its number; likewise.
            config: the topic's settings.
            clock: for the rule on late success.
            suppressed: is told of all that this log's `suppressed` counts.
            has_witness: whether a file beside the logs tells that this one was begun: then it is
                noticed when all of its files are gone (`log.witness`).
        """
        self.suppressed = SuppressedErrors(suppressed)
        self.directory = directory
        self.config = config or TopicConfig()
        self.clock = clock
        self._files = PartitionDirectory(
            store,
            directory,
            topic_id=topic_id,
            partition=partition,
            clock=clock,
            valid_ms=valid_ms_of(self.config.file_delete_delay_ms),
            suppressed=self.suppressed,
            witness=Witness(directory) if has_witness else None,
        )
        self._snapshots = Snapshots(self._files, self.config)
        self._appender = Appender(self._files, self._snapshots, self.config)
        self._tail: TailView | None = None
        self._times: SegmentTimes | None = None

    @property
    def files(self) -> PartitionDirectory:
        """The partition's directory: for tools that look at its files."""
        return self._files

    # --- appending -------------------------------------------------------------------------------

    def append(
        self,
        records: pa.RecordBatch | Iterable[pa.RecordBatch],
        *,
        compression: str = "none",
        expected_leo: int | None = None,
        producer: ProducerAppend | None = None,
    ) -> LogAppendInfo:
        """Append records as one segment; on return they are durable and visible.

        Args:
            records: one record batch with the columns of `RECORD_SCHEMA`, or several, which are
                streamed in constant memory and become visible together.
            compression: the writer's choice, where the topic's is ``producer``.
            expected_leo: append only at exactly this offset.
            producer: of an idempotent append: it may be tried again after any error, with the same
                records and the same ``producer``, and is in the log once; a repeat answers with the
                first one's offsets (KIP-98). What one try raises tells of that try only: after an
                unknown outcome, an append is known to have failed or not when a later try returns.

        Raises:
            LogEndOffsetMismatchError: the log's end is not ``expected_leo``; nothing was appended.
            UnknownOutcomeError: whether the records are in the log could not be found out.
            OutOfOrderSequenceError: the producer's append before this one is missing; nothing was
                appended.
            InvalidProducerEpochError: a newer epoch of the producer has written; nothing was
                appended.
            StorageFullError: nothing was appended.
            InvalidRecordError: the records do not fit; nothing was appended.
        """
        writer = self.segment_writer(compression, producer)
        try:
            for batch in [records] if isinstance(records, pa.RecordBatch) else records:
                writer.write(batch)
            return self.append_segment(writer.finish(), expected_leo=expected_leo)
        finally:
            writer.discard()

    def segment_writer(
        self, compression: str = "none", producer: ProducerAppend | None = None
    ) -> SegmentWriter:
        """Return a writer for a segment that `append_segment` will take."""
        topics = self.config.compression_type
        return SegmentWriter(
            self._files.store,
            self.directory,
            topic_id=self._files.topic_id,
            partition=self._files.partition,
            compression=compression if topics == "producer" else topics,
            index_interval_bytes=self.config.index_interval_bytes,
            producer=producer,
            validator=LogValidator(self.config, self.clock),
        )

    def append_segment(
        self, segment: StagedSegment, *, expected_leo: int | None = None
    ) -> LogAppendInfo:
        """Give a staged segment its place at the log's end.

        Raises:
            LogEndOffsetMismatchError: the log's end is not ``expected_leo``; nothing was appended.
            UnknownOutcomeError: whether the segment is in the log could not be found out.
            OutOfOrderSequenceError, InvalidProducerEpochError: see `append`.
            StorageError: nothing was appended.
        """
        return self._appender.append_segment(segment, expected_leo)

    # --- looking ---------------------------------------------------------------------------------

    def observe(self) -> LogView:
        """Return what the log is now: one listing, and the last file's last header.

        Raises:
            CorruptRecordError: the last file is damaged, or a segment before others is missing.
        """
        return self._files.observe()

    def log_start_offset(self) -> int:
        """Return the first offset that can be read."""
        return self.observe().log_start_offset

    def log_end_offset(self) -> int:
        """Return the next offset to be written."""
        return self.observe().log_end_offset

    def segments(self, view: LogView) -> tuple[list[SegmentSummary], LogView]:
        """Return what each live segment of a view holds, and the view. See `Snapshots.segments`."""
        return self._snapshots.segments(view)

    def producers(self) -> ProducerState:
        """Return what the log remembers of its idempotent producers now."""
        return self._snapshots.producers(self.observe())[0]

    def expect_segments(self, view: LogView) -> None:
        """Learn of the newest snapshot which segments a view must have, where no request is made.

        Then one that was copied to another's name is told (`SegmentIdentities`).
        """
        if self._files.store.is_mapped:
            with self.suppressed.suppress("snapshot", self.directory, StorageError):
                self._snapshots.newest(view)

    def learn(self, summary: SegmentSummary) -> None:
        """Remember what a segment holds that was merged, so that it need not be opened."""
        self._snapshots.learn(summary)

    def write_snapshot(self) -> Snapshot:
        """Write a snapshot of the log as it is now. See `Snapshots.write`."""
        return self._snapshots.write()

    # --- reading ---------------------------------------------------------------------------------

    def fetch(
        self,
        offset: int,
        max_bytes: int = 52_428_800,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
    ) -> list[LogBatch]:
        """Return batches from ``offset`` on, up to about ``max_bytes``, at least one if there is.

        Empty at the log's end. Control batches are left out. At the tail this costs one look for
        the next segment's name.

        Args:
            offset: of the first record.
            max_bytes: as in Kafka (``fetch.max.bytes``, 50 MiB): the first batch may be larger.
            columns: see `SegmentReader.read`.
            check_crcs: see `SegmentReader.read`.

        Raises:
            OffsetOutOfRangeError: with the valid range.
            CorruptRecordError: with file and position.
        """
        return self.fetch_from(offset, max_bytes, columns=columns, check_crcs=check_crcs)[0]

    def fetch_from(
        self,
        offset: int,
        max_bytes: int = 52_428_800,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
    ) -> tuple[list[LogBatch], int]:
        """Return what `fetch` returns, and the offset to fetch from next.

        That is the last record's and one, and lies behind control batches and gaps that follow it.
        """
        batches: list[LogBatch] = []
        total_bytes = 0
        for batch, next_offset in self.read_on(offset, columns=columns, check_crcs=check_crcs):
            if batch is not None and not batch.is_control:
                if batches and total_bytes + batch.stored_bytes > max_bytes:
                    break
                batches.append(batch)
                total_bytes += batch.stored_bytes
            offset = next_offset
        return batches, offset

    def read_on(
        self, offset: int, *, columns: Sequence[str] | None = None, check_crcs: bool = True
    ) -> Iterator[tuple[LogBatch | None, int]]:
        """Yield batches from ``offset`` on until the log ends, each with the offset after it.

        Control batches are among them. None stands for the end of what was to be read of a
        segment, which may lie behind its last record. It may be left waiting between two batches
        for any time. At the tail it costs one look for the next segment's name.

        Raises:
            OffsetOutOfRangeError: with the valid range.
            CorruptRecordError: with file and position.
        """
        while True:
            tail, is_new = self._tail, False
            if tail is None or not tail.is_valid or not tail.holds(offset):
                view, is_new = self.observe(), True
                tail = self._tail = TailView(self._files, view)
                for batch, next_offset in self._read(
                    view, offset, view.log_end_offset, columns, check_crcs
                ):
                    yield batch, next_offset
                    offset = next_offset
            found = tail.open_at(offset) if tail.holds(offset) else None
            if found is not None:
                try:
                    for batch, next_offset in self._read_segment(
                        found, offset, None, tail.observed_ms, columns, check_crcs
                    ):
                        yield batch, next_offset
                        offset = next_offset
                except NotFoundError:
                    self._tail = None
            elif offset == tail.log_end_offset and (tail.is_valid or is_new):
                return
            else:
                self._tail = None

    def scan(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
    ) -> Iterator[LogBatch]:
        """Yield batches from ``start_offset`` to before ``end_offset``, or the end observed now.

        Files that a rewrite replaces meanwhile are read from their replacement. Control batches
        are left out.

        Raises:
            OffsetOutOfRangeError: with the valid range.
            CorruptRecordError: with file and position.
        """
        view = self.observe()
        end = view.log_end_offset if end_offset is None else end_offset
        for batch, _ in self._read(view, start_offset, end, columns, check_crcs):
            if batch is not None and not batch.is_control:
                yield batch

    def offset_for_time(
        self, timestamp_us: int, view: LogView | None = None
    ) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after a time, or None.

        Exactly the first in offset order, also where timestamps go backwards
        (``KafkaConsumer.offsetsForTimes``).

        Args:
            timestamp_us: microseconds since the epoch.
            view: what to look in, from `observe`; None observes anew. Several lookups in one view
                cost one listing.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        view = view or self.observe()
        while True:
            try:
                return self._offset_for_time(timestamp_us, view)
            except NotFoundError:  # rewritten, or behind the log's start, since
                _, view = self.segments(self.observe())

    def _offset_for_time(self, timestamp_us: int, view: LogView) -> tuple[int, int] | None:
        if self._times is None or self._times.view is not view:
            self._times = SegmentTimes(self._snapshots, view)
        for segment in self._times.segments_reaching(timestamp_us):
            reader = self._files.open_listed(segment, view.observed_ms)
            found = reader.offset_for_time(timestamp_us, segment.start_offset)
            self._files.check_unchanged(reader, view.observed_ms)
            if found is not None:
                return found
        return None

    def _read(
        self,
        view: LogView,
        offset: int,
        end_offset: int,
        columns: Sequence[str] | None,
        check_crcs: bool,
    ) -> Iterator[tuple[LogBatch | None, int]]:
        """Yield the batches of a view between two offsets; see `_from_tail`.

        What is rewritten and freed while it is read is read on from its replacement.
        """
        view.check_offset(offset, self.directory)
        while offset < min(end_offset, view.log_end_offset):
            self.expect_segments(view)
            try:
                for begin, _, reader in self._files.walk(view, offset, end_offset):
                    stop = min(end_offset, reader.end_offset)
                    for batch, next_offset in self._read_segment(
                        reader, begin, stop, view.observed_ms, columns, check_crcs
                    ):
                        yield batch, next_offset
                        offset = next_offset
            except NotFoundError:
                view = self.observe()
                view.check_offset(offset, self.directory)

    def _read_segment(
        self,
        reader: SegmentReader,
        begin: int,
        end_offset: int | None,
        observed_ms: float,
        columns: Sequence[str] | None,
        check_crcs: bool,
    ) -> Iterator[tuple[LogBatch | None, int]]:
        """Yield one segment's batches; see `_from_tail`.

        Raises:
            NotFoundError: on an object store, it was freed meanwhile, or may have been.
        """
        try:
            for batch in reader.read(begin, end_offset, columns=columns, check_crcs=check_crcs):
                self._files.check_unchanged(reader, observed_ms)
                yield batch, batch.end_offset
        except CorruptRecordError:
            self._files.check_unchanged(reader, observed_ms)
            raise
        yield None, reader.end_offset if end_offset is None else end_offset
