"""Appends segments and markers to all replicas of a partition, through the chain."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from spark_log.config import TopicConfig
from spark_log.errors import SparkLogError, StorageError
from spark_log.log.append import AppendedBatches, LogAppendInfo
from spark_log.log.chain.failover import MAX_CHANGES, Failover, unknown_outcome
from spark_log.log.chain.partition_state import PartitionState
from spark_log.log.chain.replica_chain import ALL, ReplicaChain
from spark_log.log.chain.replica_failure import (
    ReplicaFailedError,
    StagingFailedError,
    blaming,
    is_replicas_fault,
)
from spark_log.log.local_log import LocalLog
from spark_log.log.segment import BatchAppend, SegmentWriter, StagedSegment
from spark_log.record import EndTransactionMarker, ProducerAppend


class ReplicatedAppender:
    """Stages segments on the leader's root, and appends them to all replicas of the partition."""

    def __init__(
        self,
        chain: ReplicaChain,
        *,
        name: str,
        config: TopicConfig,
    ) -> None:
        """Access no storage yet.

        Args:
            chain: the replicas.
            name: the partition's name, for messages.
            config: the topic's settings.
        """
        self._chain = chain
        self._followers = chain.followers
        self._name = name
        self._config = config

    def segment_writer(
        self, compression: str = "none", producer: ProducerAppend | None = None
    ) -> SegmentWriter:
        """Return a writer for a segment to be passed to `append_segment`.

        Args:
            compression: the codec to use if the topic's ``compression.type`` is ``producer``.
            producer: the identity that makes the append idempotent; None for an append that is not.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            StorageError: no replica can stage a segment. The writer's methods raise this, too; they
                raise `StagingFailedError` if the leader has failed and another replica leads.
        """
        failover = self._chain.failover(self._chain.states.current())
        for _ in range(MAX_CHANGES):
            state = failover.available()
            copies = self._followers.staged_copies(state, sync=self._config.flush_on_append)
            try:
                with blaming(state.leader):
                    leader = self._chain.replica(state, state.leader)
                return leader.stager.segment_writer(
                    compression,
                    producer,
                    leader_epoch=state.leader_epoch,
                    copies=copies,
                    on_failure=partial(self._on_staging_error, state, failover),
                )
            except ReplicaFailedError as failed:
                failover.move_to(failover.leave_out(state, failed))
            except StagingFailedError:  # the leader was left out just now
                failover.move_to(self._chain.states.current())
        raise self._staging_failed(f"its replicas changed {MAX_CHANGES} times")

    def _on_staging_error(
        self, state: PartitionState, failover: Failover, error: SparkLogError
    ) -> None:
        """Leave out the leader, on whose root a segment cannot be staged.

        Raises:
            StagingFailedError: another replica leads now.
            SparkLogError: See `Failover.leave_out`.
        """
        if not is_replicas_fault(error):
            return
        if self._chain.states.current().leader_epoch == state.leader_epoch:
            failover.leave_out(state, ReplicaFailedError(state.leader, error))
        raise self._staging_failed(error) from error

    def _staging_failed(self, why: object) -> StagingFailedError:
        return StagingFailedError(
            f"{self._name}: a segment was staged on a root that has failed since; send its records "
            f"again ({why})",
            path=self._name,
        )

    def append_segment(
        self, segment: StagedSegment, *, expected_end_offset: int | None = None, acks: int = ALL
    ) -> LogAppendInfo:
        """Append a staged segment at the log's end, on all in-sync replicas.

        If the chain changes meanwhile, the segment is searched for in the leader's log, and staged
        again for the new leader epoch if the log does not have it.

        Args:
            segment: the segment to append, from `segment_writer`.
            expected_end_offset: required log end offset of the leader; None appends at any offset.
            acks: -1 to return when all in-sync replicas have the segment; 1 to return when the
                leader has it, after which `catch_up` has to be called.

        Raises:
            StagingFailedError: the segment was staged on a root that has failed, and is not in the
                log: stage its records again.
            SparkLogError: See `ReplicaChain.append` and `Appender.append_segment`.
        """
        staged = [segment]
        put_to: tuple[str, LogAppendInfo] | None = None

        def put(leader: LocalLog, state: PartitionState, is_certain: bool) -> LogAppendInfo:
            nonlocal put_to
            self._followers.forget_put()
            latest = staged[-1]
            if put_to is not None:
                info = self._find_again(leader, latest, *put_to)
                if info is not None:
                    return info
            is_here = latest.staged_for == leader.files.url
            if latest.leader_epoch != state.leader_epoch or not is_here:
                self._check_is_there(latest)
                copies = self._followers.staged_copies(state, sync=self._config.flush_on_append)
                latest = leader.stager.stage_again(latest, state.leader_epoch, copies)
                staged.append(latest)
            info = leader.appender.append_segment(
                latest, expected_end_offset, is_epoch_certain=is_certain
            )
            put_to = leader.files.url, info
            self._remember_put(leader, state, latest, info)
            return info

        try:
            return self._chain.append(put, acks=acks, repeatable=segment.producer is not None)
        finally:
            if acks == ALL:
                self._followers.forget_put()
            for copy in staged[1:]:
                copy.discard()

    def _remember_put(
        self, leader: LocalLog, state: PartitionState, segment: StagedSegment, info: LogAppendInfo
    ) -> None:
        """Let followers copy a segment from memory, if it was put at the end of the leader's log.

        Args:
            leader: the leader's replica.
            state: the state that the segment was put under.
            segment: the segment.
            info: the segment's offsets.
        """
        is_last = info.last_offset + 1 == leader.appender.log_end_offset
        if len(state.chain) > 1 and is_last and not info.is_duplicate:
            with suppress(StorageError):  # it was put, and followers copy the leader's file
                self._followers.on_put(segment, info.base_offset)

    def _find_again(
        self, leader: LocalLog, segment: StagedSegment, url: str, info: LogAppendInfo
    ) -> LogAppendInfo | None:
        """Return the offsets of a segment that was put in an earlier leader epoch.

        Args:
            leader: the leader's replica in the present epoch.
            segment: the segment that was put.
            url: the URL of the log that it was put into.
            info: the result of the put.

        Returns:
            None if the leader's log does not have the segment, and it may be put again.

        Raises:
            UnknownOutcomeError: it could not be determined whether the leader's log has the
                segment; or another log may have it, and it has no producer.
        """
        offset = None
        if url == leader.files.url:
            offset = leader.appender.find_again(segment, info.base_offset)
        if offset == info.base_offset:
            return info
        if segment.producer is None:
            raise unknown_outcome(self._name, "it is not in the log of the leader that it was for")
        if offset is None:
            return None
        return LogAppendInfo(offset, offset + segment.record_count - 1, is_duplicate=True)

    def append_batches(
        self, batches: Sequence[BatchAppend], compression: str, *, acks: int = ALL
    ) -> list[LogAppendInfo | SparkLogError]:
        """Append batches of several producers on all in-sync replicas, by one put if they can.

        Args:
            batches: batches that have been validated (`validated_batch`).
            compression: the codec to use if the topic's ``compression.type`` is ``producer``.
            acks: -1 to return when all in-sync replicas have the batches; 1 to return when the
                leader has them, after which `catch_up` has to be called.

        Returns:
            The result of each batch: its offsets, or the error that concerns it.
        """
        results: list[LogAppendInfo | SparkLogError | None] = [None] * len(batches)
        while waiting := [index for index, result in enumerate(results) if result is None]:
            try:
                together = [batches[each] for each in waiting]
                decided = self._append_together(together, compression, acks)
            except SparkLogError as error:
                decided = [error] * len(waiting)
            for index, result in zip(waiting, decided, strict=True):
                results[index] = result
        return [result for result in results if result is not None]

    def _append_together(
        self, batches: Sequence[BatchAppend], compression: str, acks: int
    ) -> Sequence[LogAppendInfo | SparkLogError | None]:
        """Append those batches that one segment may hold; the results of the others are None.

        Raises:
            SparkLogError: See `ReplicaChain.append` and `Appender.append_batches`.
        """
        staged: list[StagedSegment] = []
        put_to: tuple[str, AppendedBatches] | None = None

        def put(leader: LocalLog, state: PartitionState, is_certain: bool) -> AppendedBatches:
            nonlocal put_to
            self._followers.forget_put()
            if put_to is not None and self._finds_batches_again(leader, *put_to):
                return put_to[1]

            def stage(chosen: Sequence[BatchAppend]) -> StagedSegment:
                copies = self._followers.staged_copies(state, sync=self._config.flush_on_append)
                epoch = state.leader_epoch
                staged.append(leader.stager.stage_batches(chosen, compression, epoch, copies))
                return staged[-1]

            appended = leader.appender.append_batches(batches, stage, is_epoch_certain=is_certain)
            if appended.put is not None:
                put_to = leader.files.url, appended
                self._remember_put(leader, state, *appended.put)
            return appended

        is_repeatable = all(batch.producer is not None for batch in batches)
        try:
            return self._chain.append(put, acks=acks, repeatable=is_repeatable).results
        finally:
            if acks == ALL:
                self._followers.forget_put()
            for segment in staged:
                segment.discard()

    def _finds_batches_again(self, leader: LocalLog, url: str, appended: AppendedBatches) -> bool:
        """Return whether the leader's log has a segment that was put in an earlier leader epoch.

        Args:
            leader: the leader's replica in the present epoch.
            url: the URL of the log that the segment was put into.
            appended: the result of the put.

        Returns:
            False if each batch of the segment is to be decided, and perhaps put, again.

        Raises:
            UnknownOutcomeError: it could not be determined whether the leader's log has the
                segment; or another log may have it, and a batch of it has no producer.
        """
        assert appended.put is not None
        segment, info = appended.put
        if url == leader.files.url:
            found = leader.appender.find_again(segment, info.base_offset)
            if found is not None:
                return True
        if None in segment.producers:
            raise unknown_outcome(self._name, "it is not in the log of the leader that it was for")
        return False

    def append_markers(self, markers: Sequence[EndTransactionMarker]) -> LogAppendInfo | None:
        """Append the markers at the end of transactions, on all in-sync replicas.

        Args:
            markers: the markers to append, each of a different producer. Markers that are in the
                log already are left out.

        Returns:
            The offsets of the appended markers; None if nothing was left to append.

        Raises:
            SparkLogError: See `ReplicaChain.append` and `Appender.append_markers`.
        """

        def put(leader: LocalLog, state: PartitionState, is_certain: bool) -> LogAppendInfo | None:
            self._followers.forget_put()
            return leader.appender.append_markers(
                markers,
                lambda missing: leader.stager.stage_markers(missing, state.leader_epoch),
                is_epoch_certain=is_certain,
            )

        return self._chain.append(put)

    def catch_up(self) -> None:
        """Bring the in-sync replicas up to the records that were appended with ``acks=1``.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            StorageError: the replicas, or the metadata, cannot be reached.
        """
        try:
            self._chain.catch_up()
        finally:
            self._followers.forget_put()

    def _check_is_there(self, segment: StagedSegment) -> None:
        """Check that a segment's file, staged on an earlier leader's root, can be read.

        Raises:
            StagingFailedError: it cannot be read, which is not the new leader's fault.
        """
        try:
            segment.load()
        except (StorageError, OSError) as error:
            raise self._staging_failed(error) from error
