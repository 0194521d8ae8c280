"""Variants of replication without one of the safety rules of docs/protocol."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from spark_log.errors import FencedLeaderEpochError, UnknownLeaderEpochError
from spark_log.log import (
    DivergedReplicaError,
    LocalLog,
    LogAppendInfo,
    LogView,
    partition_log,
)
from spark_log.log.append.appender import Appender
from spark_log.log.append.appender_state import AppenderState
from spark_log.log.chain import (
    PartitionState,
    ReplicaChain,
    ReplicaFetcher,
    chain_followers,
    replica_chain,
    replica_fetcher,
)
from spark_log.log.chain.append_failover import AppendFailover
from spark_log.log.chain.chain_followers import ChainFollowers
from spark_log.log.chain.failover import Failover
from spark_log.log.chain.replica_selection import ReplicaSelection
from spark_log.log.chain.replicated_appender import ReplicatedAppender
from spark_log.log.clean import cleaner
from spark_log.log.log_start import move_log_start
from spark_log.log.read.leader_epochs import LeaderEpochs
from spark_log.log.read.log_reader import LogReader
from spark_log.log.segment import StagedSegment
from spark_log.metadata import complete_joining
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.partitions.partition_change_builder import PartitionChangeBuilder
from spark_log.metadata.records import MetadataRecord
from spark_log.replication import ReplicaRecovery, replica_recovery
from tests.simulation.patches import PatchVariant
from tests.simulation.replication.controllers import Controller

# --- barriers ------------------------------------------------------------------------------------

_shipped_refresh = Failover.refresh_epoch


def _does_nothing(*_: object, **__: object) -> None:
    pass


def _is_true(*_: object) -> bool:
    return True


class _ChecksNoEpoch(AppenderState):
    def _check_leader_epoch(self, segment: StagedSegment, *, is_epoch_certain: bool) -> None:
        pass


class _NeedsNoBarrier(AppenderState):
    def _check_leader_epoch(self, segment: StagedSegment, *, is_epoch_certain: bool) -> None:
        with suppress(UnknownLeaderEpochError):
            super()._check_leader_epoch(segment, is_epoch_certain=is_epoch_certain)


class _IsNotFenced(AppenderState):
    def _check_leader_epoch(self, segment: StagedSegment, *, is_epoch_certain: bool) -> None:
        with suppress(FencedLeaderEpochError):
            super()._check_leader_epoch(segment, is_epoch_certain=is_epoch_certain)


class _KeepsEarlierEpochs(Appender):
    def _forget_earlier_epochs(self, leader_epoch: int) -> None:
        pass


class _PutsIntoAnEmptiedRoot(Appender):
    def _check_first_put(self, base_offset: int) -> None:
        pass


class _BelievesInMissingFiles(Appender):
    def _relist_if_files_are_missing(self) -> None:
        pass


class _LetsFollowersLeave(ChainFollowers):
    def _check_leaders_root(self, state: PartitionState) -> None:
        pass


class _BelievesTheFirstAnswer(ReplicatedAppender):
    def _find_again(
        self, leader: LocalLog, segment: StagedSegment, url: str, info: LogAppendInfo
    ) -> LogAppendInfo:
        return info


class _MovesTheStart(ReplicaChain):
    def _move_replica_start(
        self, broker_id: int, replica: LocalLog, offset: int, view: LogView | None
    ) -> int:
        return move_log_start(replica, offset, view)


def _believes_its_state(self: AppendFailover[Any]) -> PartitionState:
    return self.state


def _waits_for_nobody(_: ReplicaRecovery) -> float:
    return 0.0


def _takes_the_epoch_of_the_log(self: Failover) -> PartitionState:
    """Continue with the replicas that it knows."""
    return replace(self.state, leader_epoch=_shipped_refresh(self).leader_epoch)


# --- the order of the chain ----------------------------------------------------------------------

_shipped_replicate = ChainFollowers.replicate
_shipped_elect = PartitionChangeBuilder.elect


def _elects_the_last(self: PartitionChangeBuilder, *what: Any) -> tuple[tuple[int, ...], bool]:
    isr, is_clean = _shipped_elect(self, *what)
    is_elected = bool(isr) and isr[0] != self.partition.leader
    return (isr[::-1] if is_elected else isr), is_clean


def _keeps_all_in_sync(
    self: PartitionChangeBuilder, target: Any, election: Any
) -> tuple[tuple[int, ...], bool]:
    """Put those before the new leader behind it, as if they were prefixes of its log."""
    isr, is_clean = _shipped_elect(self, target, election)
    present = self.partition.isr
    before = present[: present.index(isr[0])] if isr and isr[0] in present else ()
    return isr + before, is_clean


def _puts_on_the_last_first(self: ChainFollowers, state: PartitionState, end_offset: int) -> bool:
    followers = state.isr[1:][::-1]
    return _shipped_replicate(self, replace(state, isr=state.isr[:1] + followers), end_offset)


def _believes_the_leaders_log(self: ChainFollowers, state: PartitionState, end_offset: int) -> bool:
    _shipped_replicate(self, state, end_offset)
    return True


# --- prefixes and directories --------------------------------------------------------------------


class _ComparesOnce(ReplicaFetcher):
    """Compares a follower with a leader only at the first listing in this process."""

    def check_is_prefix(self, view: LogView) -> None:
        compared = self._follower.__dict__.setdefault("compared", set())
        if self._leader.files.url not in compared:
            super().check_is_prefix(view)
            compared.add(self._leader.files.url)


class _TruncatesInPlace(ReplicaRecovery):
    """Deletes the files of a diverged replica, and copies the leader's log into its directory."""

    def _copy(self, state: PartitionState, follower: LocalLog) -> int | None:
        try:
            return super()._copy(state, follower)
        except DivergedReplicaError:
            files = follower.files
            for file in sorted(files.store.list(files.path), key=lambda each: each.path):
                files.store.delete(file.path)
            number = state.directory_number(self._broker_id)
            empty = self._cluster.replica_log(self._topic, self._partition, self._broker_id, number)
            empty.files.existence_marker = None
            return super()._copy(state, empty)


# --- joining -------------------------------------------------------------------------------------


def _is_acknowledged_without_joining(self: PartitionState) -> tuple[int, ...]:
    return self.isr


class _CompletesAtOnce(ReplicaRecovery):
    """Puts the joining replica into the in-sync replicas before the barrier stands on it."""

    def _complete(self) -> bool:
        state = self._log.states.refresh()
        self._cluster.metadata.commit(
            lambda image: complete_joining(
                image,
                self._topic.topic_id,
                self._partition,
                self._broker_id,
                leader_epoch=state.leader_epoch,
            )
        )
        return False


def _in_any_epoch(
    decide: Callable[..., list[MetadataRecord]],
) -> Callable[..., list[MetadataRecord]]:
    """Return a decision that is made however old the state is that led to it."""

    def decided(
        image: MetadataImage, topic_id: str, partition: int, *what: Any, **how: Any
    ) -> list[MetadataRecord]:
        topic = image.find_by_id(topic_id)
        assert topic is not None
        how["leader_epoch"] = topic.partitions[partition].leader_epoch
        return decide(image, topic_id, partition, *what, **how)

    return decided


class _CopiesToTheLeadersEnd(ReplicaRecovery):
    def _high_watermark(self) -> int:
        state = self._log.states.current()
        leader = self._log.replica_of(state.leader, state.directory_number(state.leader))
        return leader.files.observe().log_end_offset


# --- reading -------------------------------------------------------------------------------------


class _ReadsTheLastInSync(ReplicaSelection):
    place: ClassVar[int] = -1

    @property
    def replica(self) -> LocalLog:
        state = self.known_state
        replica = self._chain.replica(state, state.isr[self.place])
        replica._reader.max_leader_epoch = state.leader_epoch
        return replica


class _ReadsTheLeader(_ReadsTheLastInSync):
    place: ClassVar[int] = 0


class _ReadsWithoutTheBarrier(ReplicaSelection):
    @staticmethod
    def _has_barrier(state: PartitionState, replica: LocalLog) -> bool:
        return True


def _epoch_as_listed(self: LeaderEpochs, offset: int, view: LogView) -> int:
    """Return the leader epoch of the last batch before an offset in the segment that is listed."""
    segment = view.live.segments[view.live.index_of(offset)]
    reader = self._directory.open_listed(segment, view.observed_ms)
    headers = reader.header_array()
    return int(
        headers["leader_epoch"][headers["base_offset_delta"] <= offset - reader.base_offset][-1]
    )


def _hides_nothing(*_: object) -> float:
    return math.inf


def _has_no_limit(self: LogReader, value: int | None) -> None:
    pass


REPLICATION_RULES: dict[str, PatchVariant] = {
    "an epoch begins with a barrier": PatchVariant(
        (
            (Appender, "state_class", _ChecksNoEpoch),
            (LocalLog, "append_barrier", _does_nothing),
            (partition_log, "ReplicaSelection", _ReadsWithoutTheBarrier),
        )
    ),
    "nobody appends before the barrier": PatchVariant(
        ((Appender, "state_class", _NeedsNoBarrier),)
    ),
    "a new leader's barrier is put behind its copies as a follower": PatchVariant(
        ((LocalLog, "appender_class", _KeepsEarlierEpochs),)
    ),
    "a replica is listed again before it is read in a new state": PatchVariant(
        ((LogReader, "forget", _does_nothing),)
    ),
    "an append is looked for again in a new leader epoch": PatchVariant(
        ((partition_log, "ReplicatedAppender", _BelievesTheFirstAnswer),)
    ),
    "a copy of the leader's log needs its root": PatchVariant(
        ((ChainFollowers, "replicate", _believes_the_leaders_log),)
    ),
    "the first put into a log needs its root": PatchVariant(
        ((LocalLog, "appender_class", _PutsIntoAnEmptiedRoot),)
    ),
    "a leader without its files leaves, and no follower": PatchVariant(
        ((replica_chain, "ChainFollowers", _LetsFollowersLeave),)
    ),
    "a replica that ends before the log start was emptied": PatchVariant(
        (
            (replica_fetcher, "follow_log_start", move_log_start),
            (replica_recovery, "follow_log_start", move_log_start),
            (cleaner, "follow_log_start", move_log_start),
        )
    ),
    "a writer whose merge misses files lists the log": PatchVariant(
        ((LocalLog, "appender_class", _BelievesInMissingFiles),)
    ),
    "records are deleted without a replica that was emptied": PatchVariant(
        ((partition_log, "ReplicaChain", _MovesTheStart),)
    ),
    "an append is acknowledged by a recent state": PatchVariant(
        ((AppendFailover, "recent_state", _believes_its_state),)
    ),
    "a replica joins until every writer knows it": PatchVariant(
        ((ReplicaRecovery, "remaining_ms", property(_waits_for_nobody)),)
    ),
    "a newer epoch in the log fences a writer": PatchVariant(
        ((Appender, "state_class", _IsNotFenced),)
    ),
    "a writer that finds the log newer reads the metadata": PatchVariant(
        ((Failover, "refresh_epoch", _takes_the_epoch_of_the_log),)
    ),
    "all in-sync replicas have each acknowledged record": PatchVariant(
        ((ChainFollowers, "replicate", _does_nothing),)
    ),
    "the first one that is left leads": PatchVariant(
        ((PartitionChangeBuilder, "elect", _elects_the_last),)
    ),
    "replicas before the new leader leave": PatchVariant(
        ((PartitionChangeBuilder, "elect", _keeps_all_in_sync),)
    ),
    "puts follow the order of the chain": PatchVariant(
        ((ChainFollowers, "replicate", _puts_on_the_last_first),)
    ),
    "a replica is a prefix of the leader before a put": PatchVariant(
        ((ReplicaFetcher, "check_is_prefix", _does_nothing),)
    ),
    "a leader epoch is that of the segment that has the offset": PatchVariant(
        ((LeaderEpochs, "epoch_for_offset", _epoch_as_listed),)
    ),
    "a replica is compared again when it is listed again": PatchVariant(
        (
            (chain_followers, "ReplicaFetcher", _ComparesOnce),
            (replica_recovery, "ReplicaFetcher", _ComparesOnce),
        )
    ),
    "a diverged replica gets a new directory": PatchVariant(
        ((Controller, "recovery_class", _TruncatesInPlace),)
    ),
    "nothing is acknowledged without the joining replicas": PatchVariant(
        ((PartitionState, "chain", property(_is_acknowledged_without_joining)),)
    ),
    "a replica is in sync when the barrier stands on it": PatchVariant(
        ((Controller, "recovery_class", _CompletesAtOnce),)
    ),
    "joining is completed in the epoch of its barrier": PatchVariant(
        ((replica_recovery, "complete_joining", _in_any_epoch(complete_joining)),)
    ),
    "a replica outside of the chain gets committed records": PatchVariant(
        ((Controller, "recovery_class", _CopiesToTheLeadersEnd),)
    ),
    "only committed records are merged": PatchVariant(
        ((ChainFollowers, "limit_merges", _does_nothing),)
    ),
    "a reader reads the last replica": PatchVariant(
        ((partition_log, "ReplicaSelection", _ReadsTheLeader),)
    ),
    "a reader reads the last replica, also a joining one": PatchVariant(
        ((partition_log, "ReplicaSelection", _ReadsTheLastInSync),)
    ),
    "a reader waits for the barrier on the last replica": PatchVariant(
        ((partition_log, "ReplicaSelection", _ReadsWithoutTheBarrier),)
    ),
    "a reader sees nothing that was written with too few in sync": PatchVariant(
        ((LeaderEpochs, "start_offset_of", _hides_nothing),)
    ),
    "a reader shows nothing of a newer epoch": PatchVariant(
        (
            (LogReader, "max_leader_epoch", property(lambda _: None, _has_no_limit)),
            (ReplicaSelection, "is_newer", lambda *_: False),
        )
    ),
}
"""The name of each safety rule, and the variant without it."""
