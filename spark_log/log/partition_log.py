"""The log of one partition: all replicas of its chain get the appends, one of them is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_log.config import TopicConfig
from spark_log.errors import SparkLogError, StripesChangedError
from spark_log.log.append import LogAppendInfo
from spark_log.log.chain import (
    ALL,
    MAX_CHANGES,
    OpenReplica,
    PartitionState,
    PartitionStates,
    ReplicaChain,
    ReplicaSelection,
    ReplicatedAppender,
    ReplicatedReader,
    StagingFailedError,
)
from spark_log.log.directory import DirectoryListing, LogView, OpenedSegments, PartitionDirectory
from spark_log.log.local_log import LocalLog
from spark_log.log.producers import OpenTransaction, ProducerState, TransactionIndex
from spark_log.log.read import (
    MAX_READ_BYTES,
    Batches,
    IsolationLevel,
    read_batches,
)
from spark_log.log.segment import (
    BatchAppend,
    LogBatch,
    LogValidator,
    SegmentReader,
    SegmentSummary,
    SegmentWriter,
    StagedSegment,
    validated_batch,
)
from spark_log.record import EndTransactionMarker, ProducerAppend
from spark_log.storage import Store
from spark_log.util import IN_PROCESS, Clock, SuppressedErrors

if TYPE_CHECKING:
    from spark_log.log.stripe import Stripe, StripedAppender, StripeReader


class PartitionLog:
    """The log of one partition, with a replica on one broker or on several.

    Appends are atomic: one append writes one segment file, which is visible whole or not at all.
    Any number of processes append and read at once without knowing each other. No cached state can
    change an answer. One `PartitionLog` is for one thread at a time.

    Reads use the last replica of the chain, which may be a joining one. Every replica before it in
    the chain has the records that it has: these are all in-sync replicas, and the other joining
    ones. The high watermark is its log end offset. A reader uses a replica only if it has the
    barrier of the present leader epoch. While fewer than ``min.insync.replicas`` are in sync, and a
    replica that left in this time may be elected, the high watermark is the offset of the first
    barrier of this time (KIP-966).

    Not only appends, reads too may change the metadata: a replica that fails is taken out of the
    in-sync replicas, and the read continues with the next one. `tail_ends_at` alone does not.

    Attributes:
        directory: the partition's first directory, relative to a root. It names the partition in
            messages, and is its key where partitions are watched. A replica that was copied anew is
            in another directory (`LocalLog.directory`).
        config: the topic's settings.
        clock: the clock whose monotonic time decides how long a listing is valid.
        suppressed: counter of errors that fail no append and no read.
        states: source of the partition's state.
    """

    def __init__(
        self,
        states: PartitionStates,
        open_replica: OpenReplica,
        store_of: Callable[[int], Store],
        *,
        name: str,
        config: TopicConfig,
        clock: Clock,
        suppressed: SuppressedErrors = IN_PROCESS,
        is_near: Callable[[int], bool] | None = None,
        check_root: Callable[[int], None] = lambda broker_id: None,
        striped: StripedAppender | None = None,
    ) -> None:
        """Open a log. Accesses no storage yet.

        Args:
            states: source of the partition's state.
            open_replica: opens a replica.
            store_of: returns the store of a broker id.
            name: the partition's directory, relative to a root, for messages.
            config: the topic's settings.
            clock: the clock whose monotonic time decides how long a listing is valid.
            suppressed: counter of the errors of this log.
            is_near: tells whether a broker is in the reader's rack. `stream` then reads an in-sync
                replica in this rack, up to the high watermark that the last replica shows
                (KIP-392). None reads the last replica.
            check_root: raises a `StorageError` if the root of a broker id does not exist any more:
                a mount point whose file system is not mounted looks like a log without records.
            striped: appends to the stripe of a striped partition, whose replica is a `StripedLog`;
                None for a partition log.
        """
        self.suppressed = suppressed
        self.directory = name
        self.config = config
        self.clock = clock
        self.states = states
        self._chain = ReplicaChain(
            states,
            open_replica,
            store_of,
            name=name,
            suppressed=suppressed,
            check_root=check_root,
        )
        self._selection = ReplicaSelection(
            self._chain, name=name, clock=clock, suppressed=suppressed, is_near=is_near
        )
        self._reader = ReplicatedReader(self._selection, check_root)
        self._striped = striped
        self._appender = ReplicatedAppender(self._chain, name=name, config=config)

    def __repr__(self) -> str:
        replicas = list(self.states.current().replicas)
        return f"<PartitionLog directory={self.directory!r} replicas={replicas}>"

    @property
    def is_quick(self) -> bool:
        """Whether an append waits for nothing but the processor.

        The partition's only replica lies on a local file system, and appends are not synced.
        """
        if self.config.flush_on_append or self.states.current().is_replicated:
            return False
        if self._striped is not None:
            return False  # it waits for the appends of other threads
        return self.files.store.is_local

    @property
    def stripe(self) -> Stripe | None:
        """The stripe that orders appends of this partition and of others; None without one.

        Partitions of one stripe share the requests at its end, and the puts of their appends.
        """
        return None if self._striped is None else self._striped.stripe

    @property
    def max_append_bytes(self) -> float:
        """Maximum size in memory of the records of one append; infinite for a partition log."""
        if self._striped is None:
            return math.inf
        from spark_log.log.stripe import MAX_GROUP_BYTES  # late: few topics have stripes

        return MAX_GROUP_BYTES

    @property
    def replica(self) -> LocalLog:
        """The replica that is read."""
        return self._selection.replica

    @property
    def files(self) -> PartitionDirectory:
        """The directory of the replica that is read."""
        return self.replica.files

    @property
    def read_state(self) -> PartitionState:
        """The state that the log was read under last; the high watermark is of this state."""
        return self._selection.known_state

    def replica_of(self, broker_id: int, number: int) -> LocalLog:
        """Return a replica of the partition, or a directory that may become one.

        Args:
            broker_id: the id of the replica's broker.
            number: the number of the replica's directory.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
            StorageError: its root cannot be opened.
        """
        return self._chain.open_replica(broker_id, number)

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
                streamed in constant memory and become visible together. The records are staged on
                the leader's root first. If this root fails meanwhile, a single batch is staged
                again on that of the new leader. An iterable cannot be read a second time: then the
                error is raised.
            compression: ``none``, ``lz4`` or ``zstd``; used if the topic's ``compression.type`` is
                ``producer``.
            expected_end_offset: append only if this is the log end offset.
            producer: the identity that makes the append idempotent (KIP-98). After any error the
                call may be repeated with the same records and the same ``producer``. The log then
                has the records once, and the call returns their offsets, also if an earlier call
                has put them. An error that says that nothing was appended speaks of its own call:
                after an `UnknownOutcomeError`, only a later call that succeeds shows that the
                records are in the log.

        Raises:
            InvalidRecordError: the topic does not accept the records; nothing was appended.
            SparkLogError: See `append_segment`.
        """
        is_repeatable = isinstance(records, pa.RecordBatch)
        batches = [records] if isinstance(records, pa.RecordBatch) else records
        changes = 0
        while True:
            writer = self.segment_writer(compression, producer)
            try:
                for batch in batches:
                    writer.write(batch)
                return self.append_segment(writer.finish(), expected_end_offset=expected_end_offset)
            except StagingFailedError:
                changes += 1
                if not is_repeatable or changes > MAX_CHANGES:
                    raise
            finally:
                writer.discard()

    def segment_writer(
        self, compression: str = "none", producer: ProducerAppend | None = None
    ) -> SegmentWriter:
        """Return a writer for a segment to be passed to `append_segment`.

        Args:
            compression: the codec to use if the topic's ``compression.type`` is ``producer``.
            producer: the identity that makes the append idempotent; None for an append that is not.
        """
        return self._appender.segment_writer(compression, producer)

    def append_segment(
        self,
        segment: StagedSegment,
        *,
        expected_end_offset: int | None = None,
        acks: int = ALL,
    ) -> LogAppendInfo:
        """Append a staged segment at the log's end, on all in-sync replicas.

        Args:
            segment: the segment to append, from `segment_writer`.
            expected_end_offset: required log end offset of the leader; None appends at any offset.
            acks: -1 to return when all in-sync replicas have the segment; 1 to return when the
                leader has it, after which `catch_up` has to be called.

        Raises:
            NotEnoughReplicasError: fewer replicas are in sync than ``min.insync.replicas``; nothing
                was appended.
            NotEnoughReplicasAfterAppendError: the segment was appended, but afterwards fewer
                replicas are in sync.
            LeaderNotAvailableError: the partition has no leader; nothing was appended.
            UnknownOutcomeError: it could not be determined whether the segment is in the log.
            SparkLogError: See `Appender.append_segment`.
        """
        if self._striped is not None:
            return self._striped.append_segment(segment, expected_end_offset=expected_end_offset)
        return self._appender.append_segment(
            segment, expected_end_offset=expected_end_offset, acks=acks
        )

    def append_batches(
        self, batches: Sequence[BatchAppend], *, compression: str = "none", acks: int = ALL
    ) -> list[LogAppendInfo | SparkLogError]:
        """Append batches of several producers, as one segment by one put if they can share it.

        Each batch is decided alone: one that the log has already gets its first offsets
        (``is_duplicate``), and one that is fenced, out of order or not accepted by the topic gets
        its error, and is left out. When the call returns, the batches with offsets are durable on
        all in-sync replicas, and visible; with ``acks`` 1 they are durable on the leader alone.
        Batches that do not follow their producer's earlier one of the same call in sequence are
        appended after it, by another put.

        After any other error the batch may be passed again. Without a producer its records may then
        be in the log twice, if the error is an `UnknownOutcomeError` or a
        `NotEnoughReplicasAfterAppendError`.

        Args:
            batches: the batches, in the order in which they get offsets. They may hold as many
                records and bytes together as one segment (`MAX_SEGMENT_BYTES`).
            compression: ``none``, ``lz4`` or ``zstd``; used if the topic's ``compression.type`` is
                ``producer``.
            acks: -1 to return when all in-sync replicas have the batches; 1 to return when the
                leader has them, after which `catch_up` has to be called.

        Returns:
            The result of each batch: its offsets, or the error that concerns it. See
            `append_segment` for the errors.
        """
        if self._striped is not None:
            return self._striped.append_batches(batches, compression)
        results: list[LogAppendInfo | SparkLogError | None] = [None] * len(batches)
        validator = LogValidator(self.config, self.clock)
        accepted: list[tuple[int, BatchAppend]] = []
        for index, batch in enumerate(batches):
            try:
                accepted.append((index, validated_batch(batch, validator)))
            except SparkLogError as error:
                results[index] = error
        appended = self._appender.append_batches(
            [batch for _, batch in accepted], compression, acks=acks
        )
        for (index, _), result in zip(accepted, appended, strict=True):
            results[index] = result
        return [result for result in results if result is not None]

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
            NotEnoughReplicasError, NotEnoughReplicasAfterAppendError, LeaderNotAvailableError: See
                `append_segment`.
            SparkLogError: See `Appender.append_markers`.
        """
        if self._striped is not None:
            return self._striped.append_markers(markers)
        return self._appender.append_markers(markers)

    @property
    def appended_stable_offset(self) -> tuple[int, int] | None:
        """The last stable offset after an append of this object, and the end that it belongs to.

        None if it is not known: no producer has appended, or the partition has several replicas.
        """
        if self.states.current().is_replicated:
            return None
        appender = self.replica.appender
        stable_offset = appender.last_stable_offset
        return None if stable_offset is None else (stable_offset, appender.log_end_offset)

    def catch_up(self) -> None:
        """Bring the in-sync replicas up to the records that were appended with ``acks=1``.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            StorageError: the replicas, or the metadata, cannot be reached.
        """
        if self._striped is None:
            self._appender.catch_up()

    def replicate(self) -> PartitionState:
        """Bring all replicas of the chain up to the leader, and put a missing barrier first.

        Returns:
            The state whose barrier is on all replicas of its chain now.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            UnknownOutcomeError: the chain has changed too often.
            StorageError: the replicas, or the metadata, cannot be reached.
        """
        return self._chain.replicate()

    def move_start(self, offset: int, view: LogView | None = None) -> int:
        """Delete the records before an offset: move the log start of all in-sync replicas.

        The call may be repeated, also after an error.

        Args:
            offset: the offset of the first record that is kept, at most the high watermark.
            view: a view that `observe` returned a moment ago, so that a partition of one replica on
                an object store need not be listed again; None without one.

        Returns:
            The lowest log start offset of the in-sync replicas.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            OffsetOutOfRangeError: a replica ends before the offset.
            UnknownOutcomeError: it could not be determined whether the start was moved everywhere.
            StorageError: the replicas, or the metadata, cannot be reached.
        """
        if self._striped is not None:
            self._striped.take_home(offset)  # a start marker lies inside of a segment at home
        state = self.states.current()
        # A root that was emptied since must not get a start marker: its log would look whole.
        # Therefore replicas, whose records others have, and mounts, which come and go, are listed.
        if state.is_replicated or self.replica.files.store.is_local:
            view = None
        elif self._striped is not None:
            view, _ = self.files.observe_from(None, 0)  # the one that was passed is of objects
        return self._chain.move_start(offset, view)

    def on_appended(self, base_offset: int, end_offset: int) -> None:
        """Record a segment that this process appended through another `PartitionLog`.

        The next read at the log's end need not find it by a request. Ignored if the partition has
        several replicas: reads then use another one than the leader.

        Args:
            base_offset: the segment's first offset.
            end_offset: the offset after its last record.
        """
        if not self.states.current().is_replicated:
            self.replica.on_appended(base_offset, end_offset)

    def on_log_end(self, end_offset: int) -> None:
        """Record an offset that the log has reached, if the partition has only one replica.

        A log that ends before it has lost files.
        """
        if not self.states.current().is_replicated:
            self.files.on_log_end(end_offset)

    # --- which replica is read -------------------------------------------------------------------

    def observe_replicas(self) -> tuple[LogView, PartitionState, DirectoryListing]:
        """Return the log up to the high watermark, and the replicas as they were then or later.

        The metadata are read after the log, also for a partition that had one replica so far.
        Therefore all in-sync replicas of the state have the records that the view shows.

        This is for work on the files of replicas. Of a striped partition it has what is at home.

        Returns:
            The view, the partition state, and the listing of the replica that was read, from which
            the view was made.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted.
            SparkLogError: See `observe`.
        """
        if self._striped is not None:
            striped = self._striped
            listing = striped.stripe.files_at_home(striped.partition).observe_files()
            return listing.view, self.states.refresh(), listing
        while True:
            view, read, listing = self._reader.observe_files()
            state = self.states.refresh()
            if read is not None and read.leader_epoch == state.leader_epoch:
                return view, state, listing

    def committed_end(self, state: PartitionState, broker_id: int) -> int:
        """Return an offset up to which a replica has only records that all in-sync replicas have.

        Args:
            state: the partition state, from `observe_replicas`.
            broker_id: the broker id of a replica that is not in sync. The replica may have records
                that were never acknowledged.

        Returns:
            The offset; 0 if it is not known.

        Raises:
            StorageError, CorruptRecordError: the replica cannot be read.
        """
        return self._selection.committed_end(state, broker_id)

    # --- reading ---------------------------------------------------------------------------------

    def observe(self, *, keeps_for_next_read: bool = False) -> LogView:
        """Return the log as it is now, up to the high watermark.

        A replica that cannot be listed is taken out of the in-sync replicas.

        Args:
            keeps_for_next_read: whether the listing, and what was read of the last segment, are
                kept, so that the next read begins with them.

        Raises:
            LeaderNotAvailableError: no replica can be read.
            CorruptRecordError: the last segment is damaged, or a segment before it is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
            StorageTimeoutError: each listing took longer than it is valid.
        """
        return self._reader.observe(keeps_for_next_read=keeps_for_next_read)

    def observe_polled(self, start_offset: int | None = None) -> LogView:
        """Return the log as `observe` does; of a stripe, as the last poll has shown it.

        So the observations of all partitions of a stripe share one poll, which the caller makes. Of
        a partition log this is `observe`.

        Args:
            start_offset: the first offset that is needed; None for all of the log. If the stripe
                has the records from it on, no request is sent, and the view begins there.

        Raises:
            SparkLogError: See `observe`.
        """
        if self._striped is None:
            return self.observe()
        return self.files.observe_from(start_offset, 0)[0]

    def leave_polls(self) -> StripeReader | None:
        """Leave it to the caller to poll the stripe for all of its partitions that it reads.

        Reads then look for no next entries at the known end, so that they send no request there.

        Returns:
            What the process has read of the stripe; None if the partition has a log of its own.
        """
        if self._striped is None:
            return None
        # The stripes may have changed again: then nothing is read by this log any more.
        with suppress(StripesChangedError):
            self.replica.leave_polls()
        return self._striped.stripe.reader

    def forget_last(self) -> None:
        """Release the last segment that `observe` has kept for the next read; the listing stays.

        For a log whose end is only watched (`tail_ends_at`). A small segment is in memory as a
        whole, on an object store one of up to 1 MiB.
        """
        self.replica.forget_last()

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

    @property
    def reached_offset(self) -> int:
        """The highest offset up to which this object knows that the log can be read."""
        return self._reader.reached_offset

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
        return self._reader.call(
            view,
            lambda log, here: log.segments(here, last if here is view else None, opened),
        )

    def producers(
        self, view: LogView | None = None, opened: OpenedSegments | None = None
    ) -> ProducerState:
        """Return the state of the log's idempotent producers at the end of a view, or later.

        Args:
            view: the log's view from `observe`; None lists the log.
            opened: the open segments, which are not opened again.
        """
        return self._reader.call(view, lambda log, here: log.producers(here, opened))

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
        return self._reader.call(view, LocalLog.transactions)

    def offset_for_time(
        self,
        timestamp_us: int,
        view: LogView | None = None,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after a time; None without one.

        The first such record in offset order is returned, also if timestamps are not in order
        (``KafkaConsumer.offsetsForTimes``). A replica that cannot be read is taken out of the
        in-sync replicas.

        Args:
            timestamp_us: microseconds since the epoch.
            view: the log's view from `observe`, so that several lookups cost one listing; None
                lists the log.
            isolation_level: ``read_committed`` returns no offset from the last stable offset on. A
                record of an aborted transaction counts, as in Kafka.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        found = self._reader.call(
            self.observe(keeps_for_next_read=True) if view is None else view,
            lambda log, here: log.offset_for_time(
                timestamp_us, here, isolation_level=isolation_level
            ),
        )
        return None if found is None or found[0] >= self._selection.high_watermark_cap else found

    def find_key(
        self,
        key: bytes,
        *,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> LogBatch | None:
        """Return the newest record of a key up to the high watermark; None if there is none.

        The first call reads the keys of all segments that have no key index. What it has read is
        kept in memory, so later calls read only what was appended since, and the record.

        As for any reader, records that were deleted are gone when the log is listed next, at most
        half of ``file.delete.delay.ms`` later.

        Args:
            key: the key's bytes.
            check_crcs: whether to check the checksums of batches (``check.crcs``).
            isolation_level: ``read_committed`` leaves out records of aborted transactions, and
                those from the last stable offset on.

        Returns:
            A batch of one row. A tombstone is a record without a value.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        return self._reader.find(
            lambda log, end_offset: log.find_key(
                key, end_offset, check_crcs=check_crcs, isolation_level=isolation_level
            )
        )

    def tail_ends_at(self, offset: int) -> bool:
        """Return whether the log still ends at the offset that a ``read_uncommitted`` read reached.

        This costs one request, for the next segment. Any thread may call it, also while another one
        reads.

        Args:
            offset: the offset at which a read ended.

        Returns:
            False also if only a new listing, or a read of the metadata, could tell. The next read
            makes it.

        Raises:
            CorruptRecordError: the next segment is damaged.
            StorageError: the storage does not answer.
        """
        return self._reader.tail_ends_at(offset)

    @property
    def blocking_transaction(self) -> OpenTransaction | None:
        """The transaction that held up the last read with ``read_committed``.

        None if this read reached the requested end, or the log's end.
        """
        return self.replica.blocking_transaction

    def read(
        self,
        offset: int,
        max_bytes: int = MAX_READ_BYTES,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> tuple[list[LogBatch], int]:
        """Return batches from ``offset`` on, and the offset to read from next.

        The list is empty at the log's end, which costs one request, for the next segment. Control
        batches are left out. The next offset is the one after the last record, or after the control
        batches, aborted batches and gaps that follow it. A replica that cannot be read is taken out
        of the in-sync replicas.

        Args:
            offset: the first record's offset.
            max_bytes: approximate size of the answer; the first batch may be larger, as in Kafka
                (``fetch.max.bytes``, 50 MiB).
            columns: names of columns of `RECORD_SCHEMA`, in this order; None for all.
            check_crcs: whether to check the checksums of batches (``check.crcs``).
            isolation_level: ``read_committed`` leaves out records of aborted transactions, and ends
                at the last stable offset.

        Raises:
            SparkLogError: See `stream`.
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
        """Yield batches from ``offset`` to the high watermark, each with the offset after it.

        The caller may pause between two batches for any time. At the log's end this costs one
        request, for the next segment. A replica that cannot be read is taken out of the in-sync
        replicas.

        With ``read_committed`` the read ends at the last stable offset, where
        `blocking_transaction` begins. Call the method again with the next offset to read the
        records behind it, once the transaction's marker is in the log.

        The arguments are those of `read`.

        Yields:
            Batches, control batches included; None in place of an aborted batch, and at the end of
            a segment, whose end offset may lie behind its last record.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
        """
        return self._reader.stream(
            offset,
            lambda replica, offset: replica.stream(
                offset, columns=columns, check_crcs=check_crcs, isolation_level=isolation_level
            ),
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

        If a segment is rewritten and deleted meanwhile, the read continues in its replacement. A
        replica that cannot be read is taken out of the in-sync replicas.

        Records at and after ``end_offset`` are left out; None reads to the current log end. The
        other arguments are those of `read`.

        Raises:
            OffsetOutOfRangeError: ``start_offset`` is not in the log; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
        """
        return self._reader.scan(
            start_offset,
            end_offset,
            lambda replica, start_offset, end_offset: replica.scan(
                start_offset,
                end_offset,
                columns=columns,
                check_crcs=check_crcs,
                isolation_level=isolation_level,
            ),
        )
