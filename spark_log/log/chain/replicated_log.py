"""The log of a replicated partition: appends go through the chain, reads see what all have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from spark_log.clock import Clock
from spark_log.config import TopicConfig
from spark_log.errors import (
    LeaderNotAvailableError,
    NotFoundError,
    SparkLogError,
    StorageError,
    StorageUnavailableError,
    UnknownOutcomeError,
)
from spark_log.log.append import (
    EndTransactionMarker,
    LogAppendInfo,
    LogValidator,
    ProducerAppend,
    TransactionIndex,
)
from spark_log.log.chain.chain_start import move_chain_start
from spark_log.log.chain.committed_end import committed_end
from spark_log.log.chain.partition_state import NO_LEADER, PartitionState, PartitionStates
from spark_log.log.chain.replica_chain import ReplicaChain
from spark_log.log.chain.replica_fetcher import REPLICA_ERRORS
from spark_log.log.log_reader import IsolationLevel, NewerLeaderEpochError
from spark_log.log.partition_directory import LogView
from spark_log.log.partition_log import ALL, PartitionLog
from spark_log.log.replica import Replica
from spark_log.log.segment import LogBatch, SegmentWriter, StagedSegment
from spark_log.log.snapshot import SegmentSummary
from spark_log.storage import Store
from spark_log.suppressed import IN_PROCESS, SuppressedErrors

_LOOK_MS: Final = 500
"""A reader at the end of a replicated log looks this often whether the chain has changed."""

_MAX_READ_TRIES: Final = 10


class _StagedFileLostError(Exception):
    """The staged file of a segment cannot be read, which is not the new leader's fault."""


class ReplicatedLog(PartitionLog):
    """The log of a partition whose replicas lie on several brokers, or may in future.

    It is read at the last replica of the chain, which may be joining: what this one has, all have,
    also those that are in sync next (the high watermark is its log end offset). A reader uses a
    replica only if the barrier of the present leader epoch stands on it. While fewer than
    ``min.insync.replicas`` are in sync, and a replica that left then may be elected, the high
    watermark is the offset of the first barrier since (KIP-966).
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
            states: tells of the partition's state.
            open_replica: returns the replica of a broker id and a number of its directory.
            store_of: returns the store of a broker id.
            name: directory of the partition, relative to a root, for messages.
            config: the topic's settings.
            clock: its monotonic time decides how long a listing is valid.
            suppressed: counts the errors of this log.
            is_near: whether a broker is in the reader's rack. `read_on` then reads an in-sync
                replica there, up to the high watermark that the last one shows (KIP-392).
            check_root: raises a `StorageError` if the root of a broker id is not there any more:
                a path without its file system looks like a log without records.
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
        self._read: PartitionState | None = None
        self._hidden_from: float = math.inf
        self._looked_ms = 0.0
        self._is_near = is_near
        self._check_root = check_root
        self._near: Replica | None = None

    def __repr__(self) -> str:
        replicas = list(self._states.current().replicas)
        return f"<ReplicatedLog directory={self.directory!r} replicas={replicas}>"

    @property
    def _replica(self) -> Replica:  # type: ignore[override]
        """The replica that is read."""
        state = self._read or self._states.current()
        return self._chain.replica(state, state.chain[-1])

    @property
    def states(self) -> PartitionStates:
        """Where this log learns of the state of its partition."""
        return self._states

    @property
    def read_state(self) -> PartitionState:
        """The state by which the log was read last: its high watermark is of this state."""
        return self._read or self._states.current()

    def replica_of(self, broker_id: int, number: int) -> Replica:
        """Return a replica of the partition, or what may become one.

        Args:
            broker_id: the broker that has it.
            number: of its directory.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
            StorageError: its root cannot be opened.
        """
        return self._chain.open_replica(broker_id, number)

    # --- appending -------------------------------------------------------------------------------

    def segment_writer(
        self, compression: str = "none", producer: ProducerAppend | None = None
    ) -> SegmentWriter:
        """Return a writer for a segment to be passed to `append_segment`.

        Args:
            compression: used if the topic's ``compression.type`` is ``producer``.
            producer: makes the append idempotent.
        """
        topics = self.config.compression_type
        while True:
            state = self._states.current()
            try:
                return self._leader(state).segment_writer(
                    compression if topics == "producer" else topics,
                    producer,
                    leader_epoch=state.leader_epoch,
                    validator=LogValidator(self.config, self.clock),
                    copies=self._chain.staged_copies(state, sync=self.config.flush_on_append),
                    on_failure=partial(self._on_staging_error, state),
                )
            except StorageError as error:
                is_same = self._states.current().leader_epoch == state.leader_epoch
                if is_same and not self._chain.leave_out(state, state.leader, error):
                    raise

    def _on_staging_error(self, state: PartitionState, error: StorageError) -> None:
        """Leave out the leader, on whose root a segment cannot be staged."""
        with self.suppressed.suppress("replica", self.directory, SparkLogError):
            self._chain.leave_out(state, state.leader, error)

    def append_segment(
        self, segment: StagedSegment, *, expected_leo: int | None = None, acks: int = ALL
    ) -> LogAppendInfo:
        """Append a staged segment at the log's end, on all in-sync replicas.

        Args:
            segment: from `segment_writer`.
            expected_leo: append only if this is the leader's log end offset.
            acks: -1 to return when all in-sync replicas have it; 1 when the leader has it. Then
                call `catch_up`.

        Raises:
            NotEnoughReplicasError: fewer replicas are in sync than ``min.insync.replicas``; nothing
                was appended.
            NotEnoughReplicasAfterAppendError: it was appended, and fewer replicas are in sync.
            LeaderNotAvailableError: the partition has no leader; nothing was appended.
            UnknownOutcomeError: it could not be determined whether the segment is in the log.
            SparkLogError: as of `PartitionLog.append_segment`.
        """
        staged = [segment]
        is_tried = False
        put_to: tuple[str, LogAppendInfo] | None = None

        def put(leader: Replica, state: PartitionState, is_certain: bool) -> LogAppendInfo:
            nonlocal is_tried, put_to
            self._chain.forget_put()
            latest = staged[-1]
            if put_to is not None:
                info = self._find_again(leader, latest, *put_to)
                if info is not None:
                    return info
            is_here = latest.staged_for == leader.files.url
            if latest.leader_epoch != state.leader_epoch or not is_here:
                _check_is_there(latest)
                copies = self._chain.staged_copies(state, sync=self.config.flush_on_append)
                latest = leader.stage_again(latest, state.leader_epoch, copies)
                staged.append(latest)
            is_tried = True
            info = leader.appender.append_segment(latest, expected_leo, is_epoch_certain=is_certain)
            put_to = leader.files.url, info
            is_last = info.last_offset + 1 == leader.appender.log_end_offset
            if len(state.chain) > 1 and is_last and not info.is_duplicate:
                self._chain.on_put(latest, info.base_offset)
            return info

        try:
            return self._chain.append(put, acks=acks, repeatable=segment.producer is not None)
        except _StagedFileLostError as lost:
            kind = UnknownOutcomeError if is_tried else StorageUnavailableError
            raise kind(
                f"{self.directory}: a segment was staged on a root that is lost; send its records "
                f"again ({lost})",
                path=self.directory,
            ) from lost
        finally:
            if acks == ALL:
                self._chain.forget_put()
            for copy in staged[1:]:
                copy.discard()

    def _find_again(
        self, leader: Replica, segment: StagedSegment, url: str, info: LogAppendInfo
    ) -> LogAppendInfo | None:
        """Return where a segment is that was put in an earlier leader epoch.

        Args:
            leader: of the present epoch.
            segment: that was put.
            url: of the log that it was put into.
            info: the result of the put.

        Returns:
            None if the leader's log does not have it, and it may be put again.

        Raises:
            UnknownOutcomeError: it could not be determined; or another log may have the segment,
                which has no producer.
        """
        offset = None
        if url == leader.files.url:
            offset = leader.appender.find_again(segment, info.base_offset)
        if offset == info.base_offset:
            return info
        if segment.producer is None:
            raise self._chain.unknown_outcome("it is not in the log of the leader that it was for")
        if offset is None:
            return None
        return LogAppendInfo(offset, offset + segment.record_count - 1, is_duplicate=True)

    def append_markers(self, markers: Sequence[EndTransactionMarker]) -> LogAppendInfo | None:
        """Append the markers at the end of transactions, on all in-sync replicas.

        Args:
            markers: of different producers. Those that are in the log are left out.

        Returns:
            The offsets of the appended markers; None if nothing was left to append.

        Raises:
            NotEnoughReplicasError, NotEnoughReplicasAfterAppendError, LeaderNotAvailableError: as
                of `append_segment`.
            SparkLogError: as of `PartitionLog.append_markers`.
        """

        def put(leader: Replica, state: PartitionState, is_certain: bool) -> LogAppendInfo | None:
            self._chain.forget_put()
            return leader.appender.append_markers(
                markers,
                lambda missing: leader.stage_markers(missing, state.leader_epoch),
                is_epoch_certain=is_certain,
            )

        return self._chain.append(put)

    def catch_up(self) -> None:
        """Bring the in-sync replicas up to what was appended with ``acks=1``.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            StorageError: the replicas, or the metadata, cannot be reached.
        """
        try:
            self._chain.catch_up()
        finally:
            self._chain.forget_put()

    def replicate(self) -> PartitionState:
        """Bring all replicas of the chain up to the leader, and put a missing barrier first.

        Returns:
            The state whose barrier stands on all replicas of its chain now.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            StorageError: the replicas, or the metadata, cannot be reached.
        """
        return self._chain.replicate()

    def move_start(self, offset: int) -> int:
        """Delete the records before an offset: move the log start of all in-sync replicas.

        The call may be repeated, also after an error.

        Args:
            offset: of the first record that is kept, up to the high watermark.

        Returns:
            The lowest log start offset of the in-sync replicas.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            OffsetOutOfRangeError: a replica ends before the offset.
            UnknownOutcomeError: it could not be determined whether the start was moved everywhere.
            StorageError: the replicas, or the metadata, cannot be reached.
        """
        return move_chain_start(self._chain, offset)

    def _leader(self, state: PartitionState) -> Replica:
        if state.leader == NO_LEADER:
            state = self._states.refresh()
        if state.leader == NO_LEADER:
            raise LeaderNotAvailableError(f"{self.directory} has no leader", topic=self.directory)
        return self._chain.replica(state, state.leader)

    def on_log_end(self, end_offset: int) -> None:
        """Record an offset that the log has reached, if it has one replica: all of it is there."""
        if not self._states.current().is_replicated:
            super().on_log_end(end_offset)

    # --- which replica is read -------------------------------------------------------------------

    def observe_replicas(self) -> tuple[LogView, PartitionState]:
        """Return the log up to the high watermark, and the replicas as they were then or later.

        The metadata are read after the log, also of a partition that had one replica so far. So
        all in-sync replicas of the state have what the view shows.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted.
            SparkLogError: as of `observe`.
        """
        while True:
            view, read = self.observe(), self._read
            state = self._states.refresh()
            if read is not None and read.leader_epoch == state.leader_epoch:
                return view, state

    def committed_end(self, state: PartitionState, broker_id: int) -> int:
        """Return an offset up to which a replica has only what all in-sync replicas have.

        Args:
            state: from `observe_replicas`.
            broker_id: of a replica that is not in sync. It may have records that were never
                acknowledged.

        Returns:
            The offset; 0 if it is not known.

        Raises:
            StorageError, CorruptRecordError: the replica cannot be read.
        """
        end_offset = committed_end(self._chain.replica(state, broker_id), self._replica)
        return int(min(end_offset, self._hidden_from))

    def _look(self, *, is_fresh: bool) -> None:
        """Choose the replica to be read.

        Args:
            is_fresh: whether to read the metadata, where the partition may have several replicas.

        Raises:
            LeaderNotAvailableError: no replica can be read.
            StorageError: the storage does not answer.
        """
        state = self._states.current()
        if is_fresh and state.is_replicated:
            state = self._states.refresh()
        if self._read == state:
            return
        for _ in range(_MAX_READ_TRIES):
            try:
                if self._can_read(state):
                    return
            except REPLICA_ERRORS as error:
                if not self._chain.leave_out(state, state.chain[-1], error):
                    raise
            else:
                # Whoever changed the chain did not bring its barrier to all replicas.
                self._chain.replicate()
            state = self._states.refresh()
        raise StorageUnavailableError(
            f"{self.directory}: its replicas change all the time", path=self.directory
        )

    def _can_read(self, state: PartitionState) -> bool:
        """Read by a state from now on, if its barrier stands on the last replica of its chain."""
        replica = self._chain.replica(state, state.chain[-1])
        if state.leader_epoch > 0 and not self._has_barrier(state, replica):
            return False
        hidden_from = math.inf
        if state.hidden_from_epoch:
            view = replica.files.observe()
            hidden_from = replica.offset_of_epoch(state.hidden_from_epoch, view)
        self._hidden_from = hidden_from
        self._read = state
        self._near = self._find_near(state)
        # In later epochs the chain may not end with this replica.
        replica.reader.max_leader_epoch = state.leader_epoch
        return True

    def _find_near(self, state: PartitionState) -> Replica | None:
        """Return an in-sync replica in the reader's rack; None if the last one is to be read."""
        if self._is_near is None or self._is_near(state.chain[-1]):
            return None
        for broker_id in filter(self._is_near, reversed(state.isr)):
            with self.suppressed.suppress("near replica", self.directory, *REPLICA_ERRORS):
                replica = self._chain.replica(state, broker_id)
                replica.reader.max_leader_epoch = state.leader_epoch
                return replica
        return None

    @staticmethod
    def _has_barrier(state: PartitionState, replica: Replica) -> bool:
        """Whether the barrier of a state stands on the last replica of its chain."""
        while True:
            try:
                return replica.leader_epoch(replica.files.observe()) == state.leader_epoch
            except NotFoundError:  # rewritten since it was listed
                continue

    def _look_for_newer(self) -> None:
        """Read the metadata, since the log has a newer leader epoch than the state that is read.

        Raises:
            StorageError: the metadata do not have this epoch.
        """
        before = self._read
        state = self._states.refresh()
        if before is not None and state.leader_epoch <= before.leader_epoch:
            raise self._chain.unknown_epoch(state)
        self._look(is_fresh=False)

    def _is_look_due(self) -> bool:
        state = self._states.current()
        if self._read != state:
            return True
        age_ms = self.clock.monotonic_ms() - self._looked_ms
        return state.is_replicated and age_ms >= _LOOK_MS

    def _look_if_due(self) -> None:
        if self._is_look_due():
            self._looked_ms = self.clock.monotonic_ms()
            self._look(is_fresh=True)

    def _on_read_error(self, error: SparkLogError) -> bool:
        """Leave out a replica that cannot be read; return whether another one can be."""
        state = self._read
        if state is None or not state.is_replicated or len(state.chain) < 2:
            return False
        return self._chain.leave_out(state, state.chain[-1], error)

    # --- reading ---------------------------------------------------------------------------------

    def observe(self) -> LogView:
        """Return the log as it is now, up to the high watermark.

        Raises:
            LeaderNotAvailableError: no replica can be read.
            CorruptRecordError: the last segment is damaged, or a segment before it is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
            StorageTimeoutError: each listing took longer than it is valid.
        """
        self._look(is_fresh=True)
        while True:
            try:
                view = super().observe()
                if not view.log_end_offset:
                    self._check_is_there()
                if not self._is_newer(view):
                    return self._visible(view)
            except NotFoundError:  # rewritten since it was listed
                continue
            except REPLICA_ERRORS as error:
                if not self._on_read_error(error):
                    raise
                self._look(is_fresh=True)
            else:
                self._look_for_newer()

    def _check_is_there(self) -> None:
        """Check the root of the replica that is read, which has no records."""
        state = self._read
        if state is not None and state.is_replicated:
            self._check_root(state.chain[-1])

    def _visible(self, view: LogView) -> LogView:
        """Return the part of a view that readers see."""
        end_offset = self._hidden_from
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
        return int(min(self.files.reached_offset, self._hidden_from))

    def _is_newer(self, view: LogView) -> bool:
        """Whether a view has a newer leader epoch than the state that is read."""
        state = self._read
        assert state is not None
        epoch = self._replica.leader_epoch(view) if state.is_replicated else view.leader_epoch
        return epoch is not None and epoch > state.leader_epoch

    def segments(self, view: LogView) -> tuple[list[SegmentSummary], LogView]:
        """Return the summaries of a view's live segments, and the view that they belong to."""
        return super().segments(self._here(view))

    def transactions(self, view: LogView | None = None) -> TransactionIndex:
        """Return the log's open and aborted transactions at the end of a view."""
        return super().transactions(None if view is None else self._here(view))

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
        view = self.observe() if view is None else self._here(view)
        found = super().offset_for_time(timestamp_us, view, isolation_level=isolation_level)
        return None if found is None or found[0] >= self._hidden_from else found

    def _here(self, view: LogView) -> LogView:
        """Return a view of the replica that is read now: a newer one if it is another's."""
        return view if view.origin in ("", self._replica.files.url) else self.observe()

    def ends_at(self, offset: int) -> bool:
        """Whether the log still ends at the offset to which a read without transactions has come.

        Returns:
            False also if the answer needs a new listing, or a look at the metadata.
        """
        if self._is_look_due():
            return False
        return offset >= self._hidden_from or super().ends_at(offset)

    def read_on(
        self,
        offset: int,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Iterator[tuple[LogBatch | None, int]]:
        """Yield batches from ``offset`` to the high watermark, each with the offset after it."""
        while True:
            self._look_if_due()
            near = self._near
            if offset >= self._hidden_from:
                return
            try:
                if near is not None:
                    if self._is_at_end(offset):
                        return
                    begin = offset
                    with self._leaving_near():
                        for batch, next_offset in near.reader.read_on(
                            offset, columns, check_crcs=check_crcs, isolation_level=isolation_level
                        ):
                            if next_offset > self.reached_offset:
                                break
                            yield batch, next_offset
                            offset = next_offset
                    if offset > begin:
                        return
                for batch, next_offset in super().read_on(
                    offset, columns=columns, check_crcs=check_crcs, isolation_level=isolation_level
                ):
                    if next_offset > self._hidden_from:
                        return
                    yield batch, next_offset
                    offset = next_offset
                return
            except NewerLeaderEpochError:
                self._look_for_newer()
            except REPLICA_ERRORS as error:
                if not self._on_read_error(error):
                    raise

    def _is_at_end(self, offset: int) -> bool:
        """Whether the last replica ends at an offset; where it does not, learn how far it goes."""
        if offset < self._replica.files.reached_offset:
            return False
        if super().ends_at(offset):
            return True
        super().observe()
        return False

    @contextmanager
    def _leaving_near(self) -> Iterator[None]:
        """Read the last replica from now on if the near one cannot be read."""
        try:
            yield
        except REPLICA_ERRORS as error:
            self._near = None
            self.suppressed.add("near replica", self.directory, error)

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
        while True:
            self._look_if_due()
            end = self._hidden_from if end_offset is None else min(end_offset, self._hidden_from)
            try:
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
                self._look_for_newer()
            except REPLICA_ERRORS as error:
                if not self._on_read_error(error):
                    raise


def _check_is_there(segment: StagedSegment) -> None:
    """Check that the file of a segment can be read: it lies on the root of an earlier leader."""
    try:
        segment.data  # noqa: B018 - read now, and kept
    except StorageError as error:
        raise _StagedFileLostError(str(error)) from error
