"""Appends segments and markers to a partition through the chain of its replicas."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from spark_log.clock import Clock
from spark_log.config import TopicConfig
from spark_log.errors import (
    LeaderNotAvailableError,
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
)
from spark_log.log.chain.partition_state import NO_LEADER, PartitionState
from spark_log.log.chain.replica_chain import ReplicaChain
from spark_log.log.partition_log import ALL
from spark_log.log.replica import Replica
from spark_log.log.segment import SegmentWriter, StagedSegment
from spark_log.suppressed import SuppressedErrors


class _StagedFileLostError(Exception):
    """The staged file of a segment cannot be read, which is not the new leader's fault."""


class ChainAppender:
    """Stages segments on the leader's root, and puts them: what `ReplicatedLog` appends."""

    def __init__(
        self,
        chain: ReplicaChain,
        *,
        name: str,
        config: TopicConfig,
        clock: Clock,
        suppressed: SuppressedErrors,
    ) -> None:
        """Access no storage yet.

        Args:
            chain: the replicas.
            name: of the partition, for messages.
            config: the topic's settings.
            clock: dates records.
            suppressed: counts failures of replicas that were left out.
        """
        self._chain = chain
        self._followers = chain.followers
        self._name = name
        self._config = config
        self._clock = clock
        self._suppressed = suppressed

    def segment_writer(
        self, compression: str = "none", producer: ProducerAppend | None = None
    ) -> SegmentWriter:
        """Return a writer for a segment to be passed to `append_segment`.

        Args:
            compression: used if the topic's ``compression.type`` is ``producer``.
            producer: makes the append idempotent.
        """
        topics = self._config.compression_type
        while True:
            state = self._chain.states.current()
            try:
                return self._leader(state).segment_writer(
                    compression if topics == "producer" else topics,
                    producer,
                    leader_epoch=state.leader_epoch,
                    validator=LogValidator(self._config, self._clock),
                    copies=self._followers.staged_copies(state, sync=self._config.flush_on_append),
                    on_failure=partial(self._on_staging_error, state),
                )
            except StorageError as error:
                is_same = self._chain.states.current().leader_epoch == state.leader_epoch
                if is_same and not self._chain.leave_out(state, state.leader, error):
                    raise

    def _on_staging_error(self, state: PartitionState, error: StorageError) -> None:
        """Leave out the leader, on whose root a segment cannot be staged."""
        with self._suppressed.suppress("replica", self._name, SparkLogError):
            self._chain.leave_out(state, state.leader, error)

    def append_segment(
        self, segment: StagedSegment, *, expected_leo: int | None = None, acks: int = ALL
    ) -> LogAppendInfo:
        """Append a staged segment at the log's end, on all in-sync replicas.

        If the chain changes meanwhile, it is looked for in the leader's log, and staged again for a
        new leader epoch if it is not there.

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
            self._followers.forget_put()
            latest = staged[-1]
            if put_to is not None:
                info = self._find_again(leader, latest, *put_to)
                if info is not None:
                    return info
            is_here = latest.staged_for == leader.files.url
            if latest.leader_epoch != state.leader_epoch or not is_here:
                _check_is_there(latest)
                copies = self._followers.staged_copies(state, sync=self._config.flush_on_append)
                latest = leader.stage_again(latest, state.leader_epoch, copies)
                staged.append(latest)
            is_tried = True
            info = leader.appender.append_segment(latest, expected_leo, is_epoch_certain=is_certain)
            put_to = leader.files.url, info
            is_last = info.last_offset + 1 == leader.appender.log_end_offset
            if len(state.chain) > 1 and is_last and not info.is_duplicate:
                self._followers.on_put(latest, info.base_offset)
            return info

        try:
            return self._chain.append(put, acks=acks, repeatable=segment.producer is not None)
        except _StagedFileLostError as lost:
            kind = UnknownOutcomeError if is_tried else StorageUnavailableError
            raise kind(
                f"{self._name}: a segment was staged on a root that is lost; send its records "
                f"again ({lost})",
                path=self._name,
            ) from lost
        finally:
            if acks == ALL:
                self._followers.forget_put()
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
            self._followers.forget_put()
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
            self._followers.forget_put()

    def _leader(self, state: PartitionState) -> Replica:
        if state.leader == NO_LEADER:
            state = self._chain.states.refresh()
        if state.leader == NO_LEADER:
            raise LeaderNotAvailableError(f"{self._name} has no leader", topic=self._name)
        return self._chain.replica(state, state.leader)


def _check_is_there(segment: StagedSegment) -> None:
    """Check that the file of a segment can be read: it lies on the root of an earlier leader."""
    try:
        segment.data  # noqa: B018 - read now, and kept
    except StorageError as error:
        raise _StagedFileLostError(str(error)) from error
