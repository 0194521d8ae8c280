"""Brings the other replicas of a chain up to the leader, in their order."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from spark_log.errors import SparkLogError
from spark_log.log.append import DivergedReplicaError
from spark_log.log.chain.partition_state import PartitionState
from spark_log.log.chain.replica_failure import ReplicaFailedError, blaming
from spark_log.log.local_log import LocalLog
from spark_log.log.segment import StagedCopies, StagedSegment


@dataclass(frozen=True, slots=True)
class _Own:
    """The segment that this process has put into the leader's log last.

    Attributes:
        segment: the segment. Its staged file may have been discarded since.
        base_offset: the segment's first offset.
        data: the bytes of the segment's file.
        copies: the copies that are staged on the roots of followers.
    """

    segment: StagedSegment
    base_offset: int
    data: pa.Buffer
    copies: StagedCopies

    def ends(self, state: PartitionState, end_offset: int) -> bool:
        """Return whether this segment is the one before an offset in the log of a state's leader.

        The leader of another epoch may have other records at its offsets: an offset is given only
        once within one leader epoch, but not across epochs.
        """
        is_there = self.base_offset + self.segment.record_count == end_offset
        return is_there and self.segment.leader_epoch == state.leader_epoch


class ChainFollowers:
    """The replicas of one partition after its leader in the chain, for one process.

    Its state can be lost at any time: the logs restore it.
    """

    def __init__(
        self,
        replica: Callable[[PartitionState, int], LocalLog],
        check_root: Callable[[int], None],
    ) -> None:
        """Access no storage yet.

        Args:
            replica: returns the replica of a broker id under a state.
            check_root: raises a `StorageError` if the root of a broker id does not exist any more.
        """
        self._replica = replica
        self._check_root = check_root
        self._compared: set[tuple[int, int, int]] = set()
        self._own: _Own | None = None

    def replicate(self, state: PartitionState, end_offset: int) -> bool:
        """Bring the replicas of a state up to an offset of the leader's log, in their order.

        Returns:
            Whether all of them got the segment that this process put last, from its memory. If not,
            they have what the leader's log had when it was read for them.

        Raises:
            ReplicaFailedError: the leader, or another replica, failed.
        """
        with blaming(state.leader):
            leader = self._replica(state, state.leader)
        is_own = True
        for broker_id in state.chain[1:]:
            try:
                with blaming(broker_id, leader=state.leader):
                    replica = self._replica(state, broker_id)
                    self.limit_merges(replica, state)
                    is_own &= self._bring_up(replica, leader, state, broker_id, end_offset)
            except ReplicaFailedError as failed:
                error = failed.error
                is_follower = failed.broker_id == broker_id and broker_id in state.isr
                if is_follower and isinstance(error, DivergedReplicaError):
                    if error.is_ahead:  # the leader has lost records
                        raise ReplicaFailedError(state.leader, error) from error
                    with blaming(state.leader):  # or it was emptied, and has other records now
                        self._check_leaders_root(state)
                raise
        if state.is_replicated and not state.high_watermark_cap_epoch:
            # All replicas have the log up to this offset: now its segments may be merged.
            for broker_id in state.chain:
                with blaming(broker_id):
                    self._replica(state, broker_id).appender.merge_limit_offset = end_offset
        return is_own

    def _check_leaders_root(self, state: PartitionState) -> None:
        """Check that the leader's root still exists; if not, a difference is the leader's fault."""
        self._check_root(state.leader)

    def _bring_up(
        self,
        replica: LocalLog,
        leader: LocalLog,
        state: PartitionState,
        broker_id: int,
        end_offset: int,
    ) -> bool:
        # A late import: most partitions have one replica.
        from spark_log.log.chain.replica_fetcher import ReplicaFetcher

        follower, own = replica.follower, self._own
        key = broker_id, state.directory_number(broker_id), state.leader_epoch
        known = follower.known_end_offset
        fetcher = ReplicaFetcher(leader, replica)
        if known is None or key not in self._compared:
            known = follower.observe().log_end_offset
            # Keys of earlier epochs are not needed again; kept, they would grow without end.
            self._compared = {each for each in self._compared if each[2] == state.leader_epoch}
            self._compared.add(key)
        if own is not None and own.ends(state, end_offset):
            if known < own.base_offset:
                fetcher.fetch(known, own.base_offset)
            staged = own.copies.take(replica.files.url)
            try:
                follower.append(own.segment, own.base_offset, own.data, staged)
            finally:
                if staged is not None:
                    staged.discard()
            return True
        if known < end_offset:
            fetcher.fetch(known, end_offset)
        return False

    def staged_copies(self, state: PartitionState, *, sync: bool) -> StagedCopies | None:
        """Return the copies of a segment that are to be staged on the roots of followers.

        Args:
            state: the partition state that the segment will be put under.
            sync: whether to make the copies durable.

        Returns:
            None if the chain has no followers.
        """
        if len(state.chain) == 1:
            return None
        places = []
        for broker_id in state.chain[1:]:
            with suppress(SparkLogError):  # the put will raise it
                files = self._replica(state, broker_id).files
                places.append((files.store, files.path))
        return StagedCopies(places, sync=sync)

    def on_put(self, segment: StagedSegment, base_offset: int) -> None:
        """Remember the segment that was just put into the leader's log, to copy it from memory.

        Args:
            segment: the segment that was put.
            base_offset: the segment's first offset.
        """
        self.forget_put()
        self._own = _Own(segment, base_offset, segment.load(), segment.take_copies())

    def forget_put(self) -> None:
        """Forget the segment that was put last, and discard its staged copies."""
        if self._own is not None:
            self._own.copies.discard()
        self._own = None

    @staticmethod
    def limit_merges(replica: LocalLog, state: PartitionState) -> None:
        """Keep a replica from merging segments that other replicas may lack.

        A merged segment is copied under its own name, which leaves the plain names that it covers
        free. A writer that does not know the newest leader could then put other records under these
        names.

        Args:
            replica: the replica that will be appended to.
            state: the partition state that the append is made under.
        """
        appender = replica.appender
        if not state.is_replicated:
            appender.merge_limit_offset = math.inf
        elif appender.merge_limit_offset == math.inf:
            appender.merge_limit_offset = 0
