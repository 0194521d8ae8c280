"""The log of a replicated partition: all replicas of a chain get its appends, one is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa

from spark_log.config import TopicConfig
from spark_log.errors import NotFoundError
from spark_log.log.append import LogAppendInfo
from spark_log.log.chain.chain_appender import ChainAppender
from spark_log.log.chain.chain_start import move_chain_start
from spark_log.log.chain.committed_end import committed_end
from spark_log.log.chain.partition_state import PartitionState, PartitionStates
from spark_log.log.chain.replica_chain import MAX_CHANGES, ReplicaChain
from spark_log.log.chain.replica_failure import ReplicaFailedError, StagingFailedError, blaming
from spark_log.log.chain.replica_selection import MAX_REWRITES, ReplicaSelection
from spark_log.log.directory import DirectoryListing, LogView, OpenedSegments
from spark_log.log.partition_log import ALL, PartitionLog
from spark_log.log.producers import (
    EndTransactionMarker,
    ProducerAppend,
    ProducerState,
    TransactionIndex,
)
from spark_log.log.read import IsolationLevel, NewerLeaderEpochError
from spark_log.log.replica import Replica
from spark_log.log.segment import (
    LogBatch,
    SegmentReader,
    SegmentSummary,
    SegmentWriter,
    StagedSegment,
)
from spark_log.storage import Store
from spark_log.util import IN_PROCESS, Clock, SuppressedErrors

_Answer = TypeVar("_Answer")


class ReplicatedLog(PartitionLog):
    """The log of a partition whose replicas are on several brokers, or may be in future.

    Reads use the last replica of the chain, which may be joining: all in-sync replicas, and those
    that will be in sync next, have the records that this one has. The high watermark is its log end
    offset. A reader uses a replica only if it has the barrier of the present leader epoch. While
    fewer than ``min.insync.replicas`` are in sync, and a replica that left in this time may be
    elected, the high watermark is the offset of the first barrier of this time (KIP-966).
    """

    def __init__(
        self,
        states: PartitionStates,
        open_replica: Callable[[int, int], Replica],
        store_of: Callable[[int], Store],
        *,
        name: str,
        config: TopicConfig,
        clock: Clock,
        suppressed: SuppressedErrors = IN_PROCESS,
        is_near: Callable[[int], bool] | None = None,
        check_root: Callable[[int], None] = lambda broker_id: None,
    ) -> None:
        """Open a log. Accesses no storage yet.

        Args:
            states: source of the partition's state.
            open_replica: returns the replica of a broker id and a number of its directory.
            store_of: returns the store of a broker id.
            name: the partition's directory, relative to a root, for messages.
            config: the topic's settings.
            clock: the clock whose monotonic time decides how long a listing is valid.
            suppressed: counter of the errors of this log.
            is_near: tells whether a broker is in the reader's rack. `read_on` then reads an in-sync
                replica in this rack, up to the high watermark that the last replica shows
                (KIP-392). None reads the last replica.
            check_root: raises a `StorageError` if the root of a broker id does not exist any more:
                a mount point whose file system is not mounted looks like a log without records.
        """
        self.suppressed = suppressed
        self.directory = name
        self.config = config
        self.clock = clock
        self._states = states
        self._chain = ReplicaChain(
            states,
            open_replica,
            store_of,
            name=name,
            suppressed=suppressed,
            check_root=check_root,
        )
        self._check_root = check_root
        self._selection = ReplicaSelection(
            self._chain, name=name, clock=clock, suppressed=suppressed, is_near=is_near
        )
        self._appender = ChainAppender(self._chain, name=name, config=config, clock=clock)

    def __repr__(self) -> str:
        replicas = list(self._states.current().replicas)
        return f"<ReplicatedLog directory={self.directory!r} replicas={replicas}>"

    @property
    def _replica(self) -> Replica:  # type: ignore[override]
        """The replica that is read."""
        return self._selection.replica

    @property
    def states(self) -> PartitionStates:
        """Source of the partition's state."""
        return self._states

    @property
    def read_state(self) -> PartitionState:
        """The state that the log was read under last; the high watermark is of this state."""
        return self._selection.known_state

    def replica_of(self, broker_id: int, number: int) -> Replica:
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
        expected_leo: int | None = None,
        producer: ProducerAppend | None = None,
    ) -> LogAppendInfo:
        """Append records as one segment (`PartitionLog.append`).

        If the leader's root fails while a single record batch is staged on it, the batch is staged
        again. The batches of an iterable cannot be read a second time: then the error is raised.
        """
        for _ in range(MAX_CHANGES if isinstance(records, pa.RecordBatch) else 0):
            try:
                return super().append(
                    records, compression=compression, expected_leo=expected_leo, producer=producer
                )
            except StagingFailedError:
                continue
        return super().append(
            records, compression=compression, expected_leo=expected_leo, producer=producer
        )

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
        self, segment: StagedSegment, *, expected_leo: int | None = None, acks: int = ALL
    ) -> LogAppendInfo:
        """Append a staged segment at the log's end, on all in-sync replicas.

        Args:
            segment: the segment to append, from `segment_writer`.
            expected_leo: required log end offset of the leader; None appends at any offset.
            acks: -1 to return when all in-sync replicas have the segment; 1 to return when the
                leader has it, after which `catch_up` has to be called.

        Raises:
            NotEnoughReplicasError: fewer replicas are in sync than ``min.insync.replicas``; nothing
                was appended.
            NotEnoughReplicasAfterAppendError: the segment was appended, but afterwards fewer
                replicas are in sync.
            LeaderNotAvailableError: the partition has no leader; nothing was appended.
            UnknownOutcomeError: it could not be determined whether the segment is in the log.
            SparkLogError: See `PartitionLog.append_segment`.
        """
        return self._appender.append_segment(segment, expected_leo=expected_leo, acks=acks)

    def append_markers(self, markers: Sequence[EndTransactionMarker]) -> LogAppendInfo | None:
        """Append the markers at the end of transactions, on all in-sync replicas.

        Args:
            markers: the markers to append, each of a different producer. Markers that are in the
                log already are left out.

        Returns:
            The offsets of the appended markers; None if nothing was left to append.

        Raises:
            NotEnoughReplicasError, NotEnoughReplicasAfterAppendError, LeaderNotAvailableError: See
                `append_segment`.
            SparkLogError: See `PartitionLog.append_markers`.
        """
        return self._appender.append_markers(markers)

    def catch_up(self) -> None:
        """Bring the in-sync replicas up to the records that were appended with ``acks=1``.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            StorageError: the replicas, or the metadata, cannot be reached.
        """
        self._appender.catch_up()

    def replicate(self) -> PartitionState:
        """Bring all replicas of the chain up to the leader, and put a missing barrier first.

        Returns:
            The state whose barrier is on all replicas of its chain now.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
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
        state = self._states.current()
        # A root that was emptied since must not get a start marker: its log would look whole.
        # Therefore replicas, whose records others have, and mounts, which come and go, are listed.
        if state.is_replicated or self._replica.files.store.is_mapped:
            view = None
        return move_chain_start(self._chain, offset, view)

    def on_log_end(self, end_offset: int) -> None:
        """Record an offset that the log has reached, if the partition has only one replica."""
        if not self._states.current().is_replicated:
            super().on_log_end(end_offset)

    # --- which replica is read -------------------------------------------------------------------

    def observe_replicas(self) -> tuple[LogView, PartitionState, DirectoryListing]:
        """Return the log up to the high watermark, and the replicas as they were then or later.

        The metadata are read after the log, also for a partition that had one replica so far.
        Therefore all in-sync replicas of the state have the records that the view shows.

        Returns:
            The view, the partition state, and the listing of the replica that was read, from which
            the view was made.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted.
            SparkLogError: See `observe`.
        """
        while True:
            listing = self._observe(self._list_replica)
            read, state = self._selection.state, self._states.refresh()
            if read is not None and read.leader_epoch == state.leader_epoch:
                return self._visible(listing.view), state, listing

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
        end_offset = committed_end(self._chain.replica(state, broker_id), self._replica)
        return int(min(end_offset, self._selection.hidden_from))

    # --- reading ---------------------------------------------------------------------------------

    def observe(self, *, reads_on: bool = False) -> LogView:
        """Return the log as it is now, up to the high watermark.

        Args:
            reads_on: whether the next read begins with this listing.

        Raises:
            LeaderNotAvailableError: no replica can be read.
            CorruptRecordError: the last segment is damaged, or a segment before it is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
            StorageTimeoutError: each listing took longer than it is valid.
        """
        observe = partial(super().observe, reads_on=reads_on)
        return self._visible(self._observe(lambda: DirectoryListing(observe())).view)

    def _list_replica(self) -> DirectoryListing:
        return self._replica.files.observe_files()

    def _observe(self, look: Callable[[], DirectoryListing]) -> DirectoryListing:
        """List the replica to be read, at a leader epoch that the metadata have."""
        self._selection.look(max_age_ms=0)
        attempt, rewrites = self._selection.attempt(), 0
        while True:
            state = self._selection.known_state
            try:
                with blaming(state.chain[-1]):
                    listing = look()
                    if not listing.view.log_end_offset:
                        self._check_is_there()
                    if not self._selection.is_newer(listing.view):
                        return listing
            except ReplicaFailedError as failed:
                rewrites += 1
                if isinstance(failed.error, NotFoundError) and rewrites <= MAX_REWRITES:
                    continue  # rewritten since it was listed
                self._selection.leave_out(state, failed, attempt)
                self._selection.look(max_age_ms=0)
            else:
                self._selection.look_for_newer()

    def _reading(self, view: LogView | None, read: Callable[[LogView], _Answer]) -> _Answer:
        """Call a function that reads the chosen replica; if it fails, continue with the next one.

        Args:
            view: a view of the log. The log is listed if this is None, or a view of another
                replica.
            read: reads from the replica, given a view of it.
        """
        attempt = self._selection.attempt()
        while True:
            here = self.observe() if view is None else self._here(view)
            state = self._selection.known_state
            try:
                with blaming(state.chain[-1]):
                    return read(here)
            except NewerLeaderEpochError:
                self._selection.look_for_newer()
            except ReplicaFailedError as failed:
                self._selection.leave_out(state, failed, attempt)
                self._selection.look()

    def _check_is_there(self) -> None:
        """Check that the root of the replica that is read, which has no records, exists."""
        state = self._selection.state
        if state is not None and state.is_replicated:
            self._check_root(state.chain[-1])

    def _visible(self, view: LogView) -> LogView:
        """Return the part of a view that readers see."""
        end_offset = self._selection.hidden_from
        if view.log_end_offset <= end_offset:
            return view
        segments = (each for each in view.live.segments if each.start_offset < end_offset)
        return replace(
            view,
            live=replace(view.live, segments=tuple(segments)),
            log_end_offset=max(int(end_offset), view.log_start_offset),
            leader_epoch=None,
        )

    @property
    def reached_offset(self) -> int:
        """The highest offset up to which this object knows that the log can be read."""
        return int(min(self.files.reached_offset, self._selection.hidden_from))

    def segments(
        self,
        view: LogView,
        last: SegmentReader | None = None,
        opened: OpenedSegments | None = None,
    ) -> tuple[list[SegmentSummary], LogView]:
        """Return the summaries of a view's live segments, and the view that they belong to."""
        read = super().segments
        return self._reading(view, lambda here: read(here, last if here is view else None, opened))

    def producers(
        self, view: LogView | None = None, opened: OpenedSegments | None = None
    ) -> ProducerState:
        """Return the state of the log's idempotent producers at the end of a view, or later."""
        read = super().producers
        return self._reading(view, lambda here: read(here, opened))

    def transactions(self, view: LogView | None = None) -> TransactionIndex:
        """Return the log's open and aborted transactions at the end of a view."""
        return self._reading(view, super().transactions)

    def load_segment_ids(self, view: LogView) -> None:
        """Load the segments' append ids from the newest snapshot, where this costs no request."""
        if view.origin == self._replica.files.url:
            super().load_segment_ids(view)

    def offset_for_time(
        self,
        timestamp_us: int,
        view: LogView | None = None,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after a time; None without one."""
        look = partial(super().offset_for_time, timestamp_us, isolation_level=isolation_level)
        found = self._reading(self.observe(reads_on=True) if view is None else view, look)
        return None if found is None or found[0] >= self._selection.hidden_from else found

    def _here(self, view: LogView) -> LogView:
        """Return the view if it is of the replica that is read now; else list this replica."""
        return view if view.origin in ("", self._replica.files.url) else self.observe()

    def ends_at(self, offset: int) -> bool:
        """Return whether the log still ends at the offset that a ``read_uncommitted`` read reached.

        Returns:
            False also if only a new listing, or a read of the metadata, could tell.
        """
        if self._selection.is_look_due():
            return False
        if offset >= self._selection.hidden_from:
            return True
        try:
            with blaming(self._selection.known_state.chain[-1]):
                return super().ends_at(offset)
        except ReplicaFailedError:
            return False  # the next read leaves the replica out

    def read_on(
        self,
        offset: int,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Iterator[tuple[LogBatch | None, int]]:
        """Yield batches from ``offset`` to the high watermark, each with the offset after it."""
        attempt = self._selection.attempt()
        while True:
            self._selection.look_if_due()
            near, state = self._selection.near, self._selection.known_state
            if offset >= self._selection.hidden_from:
                return
            try:
                with blaming(state.chain[-1]):
                    if near is not None:
                        if self._is_at_end(offset):
                            return
                        begin = offset
                        with self._selection.leaving_near():
                            for batch, next_offset in near.reader.read_on(
                                offset,
                                columns,
                                check_crcs=check_crcs,
                                isolation_level=isolation_level,
                            ):
                                if next_offset > self.reached_offset:
                                    break
                                yield batch, next_offset
                                offset = next_offset
                        if offset > begin:
                            return
                    for batch, next_offset in super().read_on(
                        offset,
                        columns=columns,
                        check_crcs=check_crcs,
                        isolation_level=isolation_level,
                    ):
                        if next_offset > self._selection.hidden_from:
                            return
                        yield batch, next_offset
                        offset = next_offset
                    return
            except NewerLeaderEpochError:
                self._selection.look_for_newer()
            except ReplicaFailedError as failed:
                self._selection.leave_out(state, failed, attempt)

    def _is_at_end(self, offset: int) -> bool:
        """Return whether the last replica ends at an offset; if not, list it to learn its end."""
        if offset < self._replica.files.reached_offset:
            return False
        if super().ends_at(offset):
            return True
        super().observe()
        return False

    def scan(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Iterator[LogBatch]:
        """Yield batches from ``start_offset`` to before ``end_offset``, without control batches."""
        attempt = self._selection.attempt()
        while True:
            self._selection.look_if_due()
            end, state = self._selection.hidden_from, self._selection.known_state
            if end_offset is not None:
                end = min(end_offset, end)
            try:
                with blaming(state.chain[-1]):
                    for batch in super().scan(
                        start_offset,
                        None if end == math.inf else int(end),
                        columns=columns,
                        check_crcs=check_crcs,
                        isolation_level=isolation_level,
                    ):
                        yield batch
                        start_offset = batch.end_offset
                    return
            except NewerLeaderEpochError:
                self._selection.look_for_newer()
            except ReplicaFailedError as failed:
                self._selection.leave_out(state, failed, attempt)
