"""The log in one directory: appends by put-if-absent, reads by offset and by time."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import pyarrow as pa
from pyarrow import ipc

from spark_log.config import TopicConfig
from spark_log.errors import LogTruncatedError, NotFoundError, SparkLogError
from spark_log.log.append import Appender, FollowerAppender, LogAppendInfo, MergeExecutor
from spark_log.log.directory import LogView, OpenedSegments, PartitionDirectory
from spark_log.log.files import ExistenceMarker, LiveSegment
from spark_log.log.producers import OpenTransaction, ProducerState, TransactionIndex
from spark_log.log.read import (
    MAX_READ_BYTES,
    IsolationLevel,
    KeyQuery,
    LogReader,
    Selection,
    read_batches,
)
from spark_log.log.segment import (
    LogBatch,
    LogValidator,
    SegmentReader,
    SegmentSummary,
    SegmentWriter,
    StagedCopies,
    StagedSegment,
)
from spark_log.log.snapshot import Snapshots
from spark_log.record import (
    METADATA_KEY,
    BatchHeader,
    EndTransactionMarker,
    ProducerAppend,
    batch_crc32c,
    decode_headers,
    leader_change_records,
)
from spark_log.storage import Store, listing_validity_ms
from spark_log.util import IN_PROCESS, SYSTEM_CLOCK, Clock, SuppressedErrors


class LocalLog:
    """The log in one directory of one root: of a replica, of the metadata, of a group.

    Appends are atomic: one append writes one segment file, which is visible whole or not at all.
    Any number of processes append and read at once without knowing each other. No cached state can
    change an answer. One `LocalLog` is for one thread at a time.

    Attributes:
        directory: the log's directory, relative to the store's root.
        config: the topic's settings.
        clock: the clock whose monotonic time decides how long a listing is valid.
        suppressed: counter of errors of indexes, snapshots and tail merges, which fail no append
            and no read.
        files: the directory's files.
        snapshots: the snapshots of the log's state.
        appender: the appender of a leader, which appends at the log's end.
        follower: the appender of a follower, which puts copies of the leader's segments at the
            leader's offsets.
        reader: the reader of the log.
    """

    directory_class: ClassVar[type[PartitionDirectory]] = PartitionDirectory
    snapshots_class: ClassVar[type[Snapshots]] = Snapshots
    appender_class: ClassVar[type[Appender]] = Appender
    """The classes of the log's parts. A subclass may have others."""

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
        has_existence_marker: bool = False,
        has_leader_epochs: bool = False,
        merge_executor: MergeExecutor | None = None,
    ) -> None:
        """Open a log. Accesses no storage yet.

        Args:
            store: the store that holds the log.
            directory: the log's directory, relative to the store's root.
            topic_id: the topic's id; checked against every segment.
            partition: number of the partition; checked against every segment.
            config: the topic's settings; None for the defaults.
            clock: the clock whose monotonic time decides how long a listing is valid.
            suppressed: parent of this log's counter; it counts the log's errors, too.
            has_existence_marker: whether a file outside of the log's directory shows that the log
                has had records, so that the removal of all of its files is noticed.
            has_leader_epochs: whether appends are checked against the leader epoch of the log.
            merge_executor: runner of tail merges on another thread. If it is None, the append that
                makes a merge due waits for the merge.
        """
        self.directory = directory
        self.config = config = config or TopicConfig()
        self.clock = clock
        self.suppressed = SuppressedErrors(suppressed)
        self.files = files = self.directory_class(
            store,
            directory,
            topic_id=topic_id,
            partition=partition,
            clock=clock,
            valid_ms=listing_validity_ms(config.file_delete_delay_ms),
            suppressed=self.suppressed,
            existence_marker=ExistenceMarker(directory) if has_existence_marker else None,
        )
        self.snapshots = self.snapshots_class(files, config)
        self.appender = self.appender_class(
            files,
            self.snapshots,
            config,
            has_leader_epochs=has_leader_epochs,
            merge_executor=merge_executor,
        )
        self.follower = FollowerAppender(files, config, self.appender.derived)
        self.reader = LogReader(files, self.snapshots)

    def __repr__(self) -> str:
        return f"<LocalLog url={self.files.url!r}>"

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
            compression: the codec to use if the topic's ``compression.type`` is ``producer``.
            expected_leo: append only if this is the log end offset.
            producer: the identity that makes the append idempotent (`PartitionLog.append`).

        Raises:
            SparkLogError: See `Appender.append_segment`.
            InvalidRecordError: the topic does not accept the records; nothing was appended.
        """
        writer = self.segment_writer(compression, producer)
        try:
            for batch in [records] if isinstance(records, pa.RecordBatch) else records:
                writer.write(batch)
            return self.append_segment(writer.finish(), expected_leo=expected_leo)
        finally:
            writer.discard()

    def append_segment(
        self, segment: StagedSegment, *, expected_leo: int | None = None
    ) -> LogAppendInfo:
        """Append a staged segment at the log's end.

        Args:
            segment: the segment to append, finished by a writer of `segment_writer`.
            expected_leo: append only if this is the log end offset.

        Raises:
            SparkLogError: See `Appender.append_segment`.
        """
        info = self.appender.append_segment(segment, expected_leo)
        self.reader.on_appended(info.base_offset, info.last_offset + 1)
        return info

    def append_markers(self, markers: Sequence[EndTransactionMarker]) -> LogAppendInfo | None:
        """Append the end markers of transactions that the log does not have yet, as one segment.

        Args:
            markers: the markers, each of another producer.

        Returns:
            The offsets of the appended markers; None if nothing was left to append.

        Raises:
            SparkLogError: See `Appender.append_markers`.
        """
        return self.appender.append_markers(markers, partial(self.stage_markers, leader_epoch=0))

    def append_barrier(self, leader_epoch: int, isr: Sequence[int], joining: Sequence[int]) -> None:
        """Append the barrier of a leader epoch at the log's end, unless the log has it.

        Args:
            leader_epoch: the leader epoch that begins.
            isr: ids of the in-sync replicas, this one first.
            joining: ids of the replicas that will join them.

        Raises:
            FencedLeaderEpochError: the log has a newer leader epoch; nothing was appended.
            UnknownOutcomeError: it could not be determined whether the barrier is in the log.
            CorruptRecordError: the end of the log is damaged; nothing was appended.
            StorageError: nothing was appended.
        """
        now_us = self.clock.time_us()
        writer = self._writer(leader_epoch=leader_epoch)
        try:
            writer.write_barrier(leader_change_records(leader_epoch, isr, joining, now_us), now_us)
            self.appender.append_barrier(writer.finish())
        finally:
            writer.discard()

    # --- staging ---------------------------------------------------------------------------------

    def segment_writer(
        self,
        compression: str = "none",
        producer: ProducerAppend | None = None,
        *,
        leader_epoch: int = 0,
        copies: StagedCopies | None = None,
        on_failure: Callable[[SparkLogError], None] | None = None,
    ) -> SegmentWriter:
        """Return a writer for a segment of records that are checked by the topic's settings.

        Args:
            compression: the codec to use if the topic's ``compression.type`` is ``producer``:
                ``none``, ``lz4`` or ``zstd``.
            producer: the producer of an idempotent append; None for another append.
            leader_epoch: the leader epoch in the batch headers.
            copies: the segment's copies on the roots of followers, made while it is staged; None
                makes none.
            on_failure: function that is called with the error, before it is raised, if the segment
                cannot be staged.

        Raises:
            LogTruncatedError: the directory was removed.
            StorageError: the segment cannot be staged.
        """
        of_topic = self.config.compression_type
        return self._writer(
            compression if of_topic == "producer" else of_topic,
            producer,
            leader_epoch=leader_epoch,
            validator=LogValidator(self.config, self.clock),
            copies=copies,
            on_failure=on_failure,
        )

    def _writer(
        self,
        compression: str = "none",
        producer: ProducerAppend | None = None,
        *,
        leader_epoch: int,
        validator: LogValidator | None = None,
        copies: StagedCopies | None = None,
        on_failure: Callable[[SparkLogError], None] | None = None,
    ) -> SegmentWriter:
        try:
            self.files.check_not_removed()
        except LogTruncatedError as error:
            if on_failure is not None:
                on_failure(error)
            raise
        try:
            return SegmentWriter(
                self.files.store,
                self.files.path,
                topic_id=self.files.topic_id,
                partition=self.files.partition,
                compression=compression,
                index_interval_bytes=self.config.index_interval_bytes,
                leader_epoch=leader_epoch,
                producer=producer,
                validator=validator,
                copies=copies,
                on_failure=on_failure,
            )
        except NotFoundError:
            self.files.observe()  # raises if the directory was removed
            raise

    def stage_again(
        self, segment: StagedSegment, leader_epoch: int, copies: StagedCopies | None = None
    ) -> StagedSegment:
        """Return a staged segment of the same records for this replica and another leader epoch.

        Args:
            segment: the staged segment, of records, not of markers; it stays unchanged.
            leader_epoch: the leader epoch in the batch headers.
            copies: the segment's copies on the roots of followers, made while it is staged; None
                makes none.

        Raises:
            StorageError: the segment cannot be staged.
        """
        writer = self._writer(
            segment.compression, segment.producer, leader_epoch=leader_epoch, copies=copies
        )
        try:
            with ipc.open_file(segment.load()) as file:
                for number in range(file.num_record_batches):
                    records, metadata = file.get_batch_with_custom_metadata(number)
                    writer.write_rewritten(
                        records,
                        [_in_epoch(leader_epoch, records, metadata)],
                    )
            return writer.finish()
        except BaseException:
            writer.discard()
            raise

    def stage_markers(
        self, markers: Sequence[EndTransactionMarker], leader_epoch: int
    ) -> StagedSegment:
        """Return a staged segment of transaction markers.

        Raises:
            StorageError: the segment cannot be staged.
        """
        writer = self._writer(leader_epoch=leader_epoch)
        try:
            writer.write_markers(markers, self.clock.time_us())
            return writer.finish()
        except BaseException:
            writer.discard()
            raise

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
        return self.reader.observe() if reads_on else self.files.observe()

    @property
    def reached_offset(self) -> int:
        """The highest offset up to which this object knows that the log can be read."""
        return self.files.reached_offset

    def end_offset(
        self, view: LogView | None = None, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> int:
        """Return the offset at which a read of a view ends (`PartitionLog.end_offset`)."""
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
        return self.snapshots.segments(view, last, opened)

    def producers(
        self, view: LogView | None = None, opened: OpenedSegments | None = None
    ) -> ProducerState:
        """Return the state of the log's idempotent producers at the end of a view, or later.

        Args:
            view: the log's view from `observe`; None lists the log.
            opened: the open segments, which are not opened again.
        """
        return self.snapshots.producers(view or self.observe(), opened=opened)[0]

    def transactions(self, view: LogView | None = None) -> TransactionIndex:
        """Return the log's open and aborted transactions (`PartitionLog.transactions`)."""
        return self.reader.transactions(view or self.observe())[0]

    # --- reading ---------------------------------------------------------------------------------

    @property
    def blocking_transaction(self) -> OpenTransaction | None:
        """The transaction that held up the last read with ``read_committed``; None without one."""
        return self.reader.blocking_transaction

    def read(
        self,
        offset: int,
        max_bytes: int = MAX_READ_BYTES,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> tuple[list[LogBatch], int]:
        """Return batches from an offset on, and the offset to read next (`PartitionLog.read`)."""
        batches = self.stream(
            offset, columns=columns, check_crcs=check_crcs, isolation_level=isolation_level
        )
        return read_batches(batches, offset, max_bytes)

    def stream(
        self,
        offset: int,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Iterator[tuple[LogBatch | None, int]]:
        """Yield batches from an offset to the log's end (`PartitionLog.stream`)."""
        return self.reader.stream(offset, Selection(columns, check_crcs), isolation_level)

    def scan(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Iterator[LogBatch]:
        """Yield the batches of records between two offsets (`PartitionLog.scan`)."""
        selection = Selection(columns, check_crcs)
        return self.reader.scan(start_offset, end_offset, selection, isolation_level)

    def offset_for_time(
        self,
        timestamp_us: int,
        view: LogView | None = None,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> tuple[int, int] | None:
        """Return the first record at or after a time (`PartitionLog.offset_for_time`)."""
        return self.reader.offset_for_time(timestamp_us, view, isolation_level=isolation_level)

    def find_key(
        self,
        key: bytes,
        *,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> LogBatch | None:
        """Return the newest record of a key (`PartitionLog.find_key`)."""
        is_committed = isolation_level == "read_committed"
        return self.reader.find_key(KeyQuery(key, math.inf, is_committed, check_crcs))

    def tail_ends_at(self, offset: int) -> bool:
        """Return whether the log still ends where a read ended (`PartitionLog.tail_ends_at`)."""
        return self.reader.tail_ends_at(offset)

    # --- reading a log that is never merged ------------------------------------------------------

    def read_last(self) -> tuple[list[LogBatch], LogView]:
        """Return the batches of the log's last segment, and the listing that showed it.

        This costs one listing, and one request for the segment if it is small. The next append does
        not list the log.

        Raises:
            CorruptRecordError: the segment is damaged, or one before it is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
        """
        batches, view = self.reader.read_last()
        self.appender.on_listed(view)
        return batches, view

    def read_to_end(self, offset: int) -> tuple[list[LogBatch], int]:
        """Return all batches of records from an offset on, and the log end offset.

        At the log's end this costs one request, for the next segment. The next append does not list
        the log.

        Args:
            offset: the first record's offset.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
            LogTruncatedError: the log ends before an offset that it had reached.
        """
        batches, offset = read_batches(self.stream(offset), offset)
        if batches and (end := self.reader.end_after(self.appender.log_end_offset)):
            self.appender.on_read(*end)
        return batches, offset

    def seek_past_segment(self, base_offset: int, end_offset: int) -> bool | None:
        """Begin to read behind a segment that is known to end at an offset.

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
        return self.reader.seek_past_segment(base_offset, end_offset)

    # --- leader epochs ---------------------------------------------------------------------------

    def leader_epoch(self, view: LogView) -> int | None:
        """Return the leader epoch of the last batch of a view.

        Returns:
            -1 for a log that never had a batch; None for an emptied log whose start marker does not
            contain it.

        Raises:
            NotFoundError: the last segment was rewritten and deleted meanwhile.
            CorruptRecordError: the last segment is damaged.
        """
        if view.leader_epoch is not None:
            return view.leader_epoch
        if not view.live.segments:
            return self.files.leader_epoch_at_start(view.log_start_offset)
        return self.files.open_listed(view.live.segments[-1], view.observed_ms).leader_epoch

    def leader_epoch_at(self, offset: int, view: LogView) -> int:
        """Return the leader epoch of the batch that contains an offset of a view.

        Raises:
            OffsetOutOfRangeError: the log starts behind the offset now.
            CorruptRecordError: the segment is damaged or missing.
            StorageError: the storage does not answer.
        """
        while True:
            segment, reader = self._segment_at(offset, view)
            headers = reader.header_array()
            is_before = headers["base_offset_delta"] <= offset - reader.base_offset
            if is_before.any():
                return int(headers["leader_epoch"][is_before][-1])
            # A compaction has removed the batch, and the ones before it in its segment.
            if segment.start_offset <= view.log_start_offset:
                return int(headers["leader_epoch"][0])
            offset = segment.start_offset - 1

    def _segment_at(self, offset: int, view: LogView) -> tuple[LiveSegment, SegmentReader]:
        """Open the segment that contains an offset of a view.

        The listing may lack a segment that appeared during it. The segment before it has records of
        the same epoch, or of an older one.
        """
        _, segment, reader = next(self.files.walk(view, offset, offset + 1))
        return segment, reader

    def offset_of_epoch(self, leader_epoch: int, view: LogView) -> int:
        """Return the offset at which a leader epoch, or else a later one, begins in a view.

        Returns:
            The log end offset if the log has no such batch.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
            StorageError: the storage does not answer.
        """
        doubted: LiveSegment | None = None
        while True:
            try:
                segments = view.live.segments
                epochs_of = partial(self._first_epoch, view)
                index = bisect_left(segments, leader_epoch, key=epochs_of)
                if index:
                    segment = segments[index - 1]
                    before = self.files.open_listed(segment, view.observed_ms)
                    if segment.end_offset not in (None, before.end_offset):
                        if segment == doubted:
                            raise self.files.missing(segment, before.end_offset)
                        doubted = segment  # the listing may lack one that appeared during it
                        view = self.files.observe()
                        continue
                    headers = before.header_array()
                    deltas = headers["base_offset_delta"][headers["leader_epoch"] >= leader_epoch]
                    if len(deltas):
                        return before.base_offset + int(deltas[0])
                if index == len(segments):
                    return view.log_end_offset
                return segments[index].start_offset
            except NotFoundError:  # rewritten since
                view = self.files.observe()

    def _first_epoch(self, view: LogView, segment: LiveSegment) -> int:
        headers = self.files.open_listed(segment, view.observed_ms).header_array()
        return int(headers["leader_epoch"][0])


def _in_epoch(
    leader_epoch: int, records: pa.RecordBatch, metadata: Mapping[bytes, bytes]
) -> BatchHeader:
    """Return the header of an appended batch, with another leader epoch."""
    (header,) = decode_headers(metadata[METADATA_KEY])
    header = replace(header, leader_epoch=leader_epoch)
    return replace(header, crc32c=batch_crc32c(header, records))
