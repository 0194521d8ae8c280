"""The log in one directory: appends by put-if-absent, reads by offset and by time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from spark_log.config import TopicConfig
from spark_log.log.append import (
    Appender,
    FollowerAppender,
    LogAppendInfo,
    MergeExecutor,
    SegmentStager,
)
from spark_log.log.directory import LogView, OpenedSegments, PartitionDirectory
from spark_log.log.files import ExistenceMarker
from spark_log.log.producers import OpenTransaction, ProducerState, TransactionIndex
from spark_log.log.read import (
    MAX_READ_BYTES,
    Batches,
    IsolationLevel,
    LeaderEpochs,
    LogReader,
    SeekResult,
    Selection,
    read_batches,
)
from spark_log.log.segment import (
    LogBatch,
    SegmentReader,
    SegmentSummary,
    StagedSegment,
)
from spark_log.log.snapshot import Snapshots
from spark_log.record import (
    EndTransactionMarker,
    ProducerAppend,
)
from spark_log.storage import Store, listing_validity_ms
from spark_log.util import IN_PROCESS, SYSTEM_CLOCK, Clock, SuppressedErrors


class LocalLog:
    """The log in one directory of one root: of a replica, of the metadata, of a group.

    Appends are atomic: one append writes one segment file, which is visible whole or not at all.
    Any number of processes append and read at once without knowing each other. No cached state can
    change an answer. One `LocalLog` is for one thread at a time.

    The methods read this log, also if it is one of several replicas. `append` and `append_markers`
    are for a log that has no other replica: a chain appends to its replicas through `stager`,
    `appender` and `follower`. Cleaning and verifying use `files` and `snapshots`.

    Attributes:
        directory: the log's directory, relative to the store's root.
        config: the topic's settings.
        clock: the clock whose monotonic time decides how long a listing is valid.
        suppressed: counter of errors of indexes, snapshots and tail merges, which fail no append
            and no read.
        files: the directory's files.
        snapshots: the snapshots of the log's state.
        stager: stages segments for `appender`.
        appender: puts staged segments at the log's end, if this replica is the leader's.
        follower: puts copies of the leader's segments at the leader's offsets.
        leader_epochs: lookups of leader epochs.
    """

    directory_class: Callable[..., PartitionDirectory] = PartitionDirectory
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
        check_root: Callable[[], None] | None = None,
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
            check_root: called before a put into a log without records; it raises a `StorageError`
                if the root was emptied. None checks nothing.
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
            check_root=check_root,
        )
        self.stager = SegmentStager(files, config)
        self.follower = FollowerAppender(files, config, self.appender.derived)
        self.leader_epochs = LeaderEpochs(files)
        self._reader = LogReader(files, self.snapshots)

    def __repr__(self) -> str:
        return f"<LocalLog url={self.files.url!r}>"

    # --- appending -------------------------------------------------------------------------------

    def append(
        self,
        records: pa.RecordBatch | Iterable[pa.RecordBatch],
        *,
        compression: str = "none",
        expected_end_offset: int | None = None,
        producer: ProducerAppend | None = None,
    ) -> LogAppendInfo:
        """Append records as one segment. When the call returns, they are durable and visible.

        Args:
            records: one record batch with the columns of `RECORD_SCHEMA`, or several. Several are
                streamed in constant memory and become visible together.
            compression: the codec to use if the topic's ``compression.type`` is ``producer``.
            expected_end_offset: append only if this is the log end offset.
            producer: the identity that makes the append idempotent (KIP-98); None for an append
                that is not.

        Raises:
            SparkLogError: See `Appender.append_segment`.
            InvalidRecordError: the topic does not accept the records; nothing was appended.
        """
        writer = self.stager.segment_writer(compression, producer)
        try:
            for batch in [records] if isinstance(records, pa.RecordBatch) else records:
                writer.write(batch)
            return self._append_segment(writer.finish(), expected_end_offset)
        finally:
            writer.discard()

    def _append_segment(
        self, segment: StagedSegment, expected_end_offset: int | None
    ) -> LogAppendInfo:
        info = self.appender.append_segment(segment, expected_end_offset)
        self.on_appended(info.base_offset, info.last_offset + 1)
        return info

    def on_appended(self, base_offset: int, end_offset: int) -> None:
        """Record a segment that this process appended: the next read need not probe for it.

        Args:
            base_offset: the segment's first offset.
            end_offset: the offset after its last record.
        """
        self._reader.on_appended(base_offset, end_offset)

    def append_markers(self, markers: Sequence[EndTransactionMarker]) -> LogAppendInfo | None:
        """Append the end markers of transactions that the log does not have yet, as one segment.

        Args:
            markers: the markers, each of another producer.

        Returns:
            The offsets of the appended markers; None if nothing was left to append.

        Raises:
            SparkLogError: See `Appender.append_markers`.
        """
        return self.appender.append_markers(
            markers, partial(self.stager.stage_markers, leader_epoch=0)
        )

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
        barrier = self.stager.stage_barrier(leader_epoch, isr, joining)
        try:
            self.appender.append_barrier(barrier)
        finally:
            barrier.discard()

    # --- state of the log ------------------------------------------------------------------------

    def observe(self, *, keeps_for_next_read: bool = False) -> LogView:
        """Return the log as it is now: one listing, and the last header of the last segment.

        Args:
            keeps_for_next_read: whether the listing, and what was read of the last segment, are
                kept, so that the next read begins with them.

        Raises:
            CorruptRecordError: the last segment is damaged, or a segment before it is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
            StorageTimeoutError: each listing took longer than it is valid.
        """
        return self._reader.observe() if keeps_for_next_read else self.files.observe()

    def forget_last(self) -> None:
        """Release the last segment that `observe` has kept for the next read; the listing stays."""
        self._reader.forget_last()

    @property
    def reached_offset(self) -> int:
        """The highest offset up to which this object knows that the log can be read."""
        return self.files.reached_offset

    def end_offset(
        self, view: LogView | None = None, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> int:
        """Return the log end offset of a view; with ``read_committed`` the last stable offset."""
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
        """Return the log's open and aborted transactions at the end of a view, or later.

        Args:
            view: the log's view from `observe`; None lists the log.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        return self._reader.transactions(view or self.observe())[0]

    # --- reading ---------------------------------------------------------------------------------

    @property
    def blocking_transaction(self) -> OpenTransaction | None:
        """The transaction that held up the last read with ``read_committed``; None without one."""
        return self._reader.blocking_transaction

    def read(
        self,
        offset: int,
        max_bytes: int = MAX_READ_BYTES,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> tuple[list[LogBatch], int]:
        """Return batches of records from an offset on, and the offset to read next.

        Args:
            offset: the first record's offset.
            max_bytes: approximate size of the answer; the first batch may be larger.
            columns: names of columns of `RECORD_SCHEMA`, in this order; None for all.
            check_crcs: whether to check the checksums of batches.
            isolation_level: ``read_committed`` ends at the last stable offset, and leaves out
                aborted batches.

        Raises:
            SparkLogError: See `LogReader.stream`.
        """
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
    ) -> Batches:
        """Yield batches from an offset to the log's end (`LogReader.stream`).

        At the log's end this costs one request, for the next segment. The arguments are those of
        `read`.
        """
        return self._reader.stream(offset, Selection(columns, check_crcs), isolation_level)

    def scan(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Iterator[LogBatch]:
        """Yield the batches of records between two offsets (`LogReader.scan`).

        None for ``end_offset`` reads to the log's end. The other arguments are those of `read`.
        """
        selection = Selection(columns, check_crcs)
        return self._reader.scan(start_offset, end_offset, selection, isolation_level)

    def offset_for_time(
        self,
        timestamp_us: int,
        view: LogView | None = None,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> tuple[int, int] | None:
        """Return the first record at or after a time (`LogReader.offset_for_time`)."""
        return self._reader.offset_for_time(timestamp_us, view, isolation_level=isolation_level)

    def find_key(
        self,
        key: bytes,
        end_offset: float = math.inf,
        *,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> LogBatch | None:
        """Return the newest record of a key before an offset (`LogReader.find_key`)."""
        is_committed = isolation_level == "read_committed"
        from spark_log.log.read import KeyQuery  # most readers look up no key

        return self._reader.find_key(KeyQuery(key, end_offset, is_committed, check_crcs))

    def leave_polls(self) -> Any:
        """Return None: no stripe has the end of this log (`PartitionLog.leave_polls`)."""
        return None

    def tail_ends_at(self, offset: int) -> bool:
        """Return whether the log still ends where a ``read_uncommitted`` read ended.

        This costs one request, for the next segment. Any thread may call it, also while another
        one reads. False also if only a new listing could tell.
        """
        return self._reader.tail_ends_at(offset)

    def scan_view(
        self,
        view: LogView,
        offset: int,
        end_offset: int,
        selection: Selection,
        last: SegmentReader | None = None,
    ) -> Batches:
        """Yield the batches of a view between two offsets (`LogReader.scan_view`)."""
        return self._reader.scan_view(view, offset, end_offset, selection, last)

    def begin_epoch(self, leader_epoch: int) -> None:
        """Read from now on under a leader epoch, in which this log is a replica that may be read.

        The log is listed again before the next read. A read raises `NewerLeaderEpochError` before a
        batch of a newer leader epoch.
        """
        self._reader.max_leader_epoch = leader_epoch
        self._reader.forget()

    # --- reading a log that is never merged ------------------------------------------------------

    def read_last(self) -> tuple[list[LogBatch], LogView]:
        """Return the batches of the log's last segment, and the listing that showed it.

        This costs one listing, and one request for the segment if it is small. If the appender does
        not know the log's end yet, it learns it from this listing: an append then lists the log
        only when the listing is not valid any more.

        Raises:
            CorruptRecordError: the segment is damaged, or one before it is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
        """
        batches, view = self._reader.read_last()
        self.appender.on_listed(view)
        return batches, view

    def read_to_end(self, offset: int) -> tuple[list[LogBatch], int]:
        """Return all batches of records from an offset on, and the log end offset.

        At the log's end this costs one request, for the next segment. An appender that has listed
        the log a moment ago, and needs no producer state, learns the new end from this read: an
        append then does not try the names of the segments that were read.

        Args:
            offset: the first record's offset.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
            LogTruncatedError: the log ends before an offset that it had reached.
        """
        batches, offset = read_batches(self.stream(offset), offset)
        if batches and (end := self._reader.end_after(self.appender.log_end_offset)):
            self.appender.on_read(*end)
        return batches, offset

    def seek_past_segment(self, base_offset: int, end_offset: int) -> SeekResult:
        """Begin to read behind a segment that is known (`LogReader.seek_past_segment`)."""
        return self._reader.seek_past_segment(base_offset, end_offset)
