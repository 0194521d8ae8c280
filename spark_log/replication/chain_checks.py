"""`ChainChecks`: regularly copies records that no writer copied from the leader to the replicas.

Writers copy such records when they append. The last records of a writer with ``acks=1`` may be on
the leader only, if the writer ended early, and a change of the replicas may lack its barrier.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from spark_log.cluster import Cluster
from spark_log.errors import (
    BrokerIdNotRegisteredError,
    CorruptRecordError,
    NotFoundError,
    ReplicationError,
    SparkLogError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import REPLICA_ERRORS, LogView, PartitionLog
from spark_log.log.chain import NO_LEADER, PartitionState
from spark_log.metadata import MetadataImage
from spark_log.replication.controller_decision import ControllerDecision
from spark_log.threads import LimitedCall
from spark_log.types import TopicPartition

_INTERVAL_MS: Final = 300_000
"""Interval between checks of a partition."""

_NAMED_FAILURES: Final = 3
"""Maximum number of partitions that a warning names."""

_FAILURES = (
    BrokerIdNotRegisteredError,
    CorruptRecordError,
    ReplicationError,
    StorageError,
    UnknownTopicOrPartitionError,
)

_log = logging.getLogger(__name__)


class ChainChecks:
    """Checks all partitions on another thread, one after the other."""

    def __init__(self, cluster: Cluster) -> None:
        """Return the checks; no storage is accessed yet.

        Args:
            cluster: the opened root.
        """
        self._cluster = cluster
        self._call: LimitedCall[list[ControllerDecision]] | None = None
        self._began_ms: float | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no check is running or due."""
        return self._call is None and not self._is_due()

    def poll(self, image: MetadataImage, report: Callable[[ControllerDecision], None]) -> None:
        """Begin to check if a check is due; report the decisions since the last call.

        Args:
            image: the present metadata.
            report: called with each decision.
        """
        if self._call is not None and self._call.wait(0):
            call, self._call = self._call, None  # also after a failure: the next check begins
            for decision in call.result():
                report(decision)
        if self._call is None and self._is_due():
            self._began_ms = self._cluster.clock.monotonic_ms()
            partitions = list(_replicated_partitions(image))
            self._call = LimitedCall(lambda: self._check_all(partitions))

    def _is_due(self) -> bool:
        if self._began_ms is None:
            return True
        return self._cluster.clock.monotonic_ms() - self._began_ms >= _INTERVAL_MS

    def _check_all(
        self, partitions: Sequence[tuple[TopicPartition, int]]
    ) -> list[ControllerDecision]:
        """Check partitions, each with the broker id of its leader; return the decisions."""
        decisions = []
        # While a root is away, all of its partitions fail alike.
        failures: defaultdict[tuple[int, str], list[tuple[TopicPartition, SparkLogError]]]
        failures = defaultdict(list)
        for tp, leader in partitions:
            try:
                decision = self._check(tp)
            except _FAILURES as error:
                failures[leader, type(error).__name__].append((tp, error))
                continue
            if decision is not None:
                decisions.append(decision)
        for (leader, kind), failed in failures.items():
            _log.warning(
                "the replicas of %d partitions that broker %d leads could not be compared: %s%s "
                "(%s: %s)",
                len(failed),
                leader,
                ", ".join(str(tp) for tp, _ in failed[:_NAMED_FAILURES]),
                ", …" if len(failed) > _NAMED_FAILURES else "",
                kind,
                failed[0][1],
            )
        return decisions

    def _check(self, tp: TopicPartition) -> ControllerDecision | None:
        topic = self._cluster.topic(tp.topic)
        log = self._cluster.partition_log(topic, tp.partition)
        reason = _why_behind(log)
        if reason is None:
            return None
        log.replicate()
        return ControllerDecision("bring up the replicas", reason, tp.topic, tp.partition)


def _why_behind(log: PartitionLog) -> str | None:
    """Return the reason why replicas need records of the leader; None if they have all."""
    state = log.states.refresh()
    if state.leader == NO_LEADER:
        return None
    leader = log.replica_of(state.leader, state.directory_number(state.leader))
    try:
        leading = leader.files.observe()
        epoch = leader.leader_epochs.latest(leading)
    except NotFoundError:  # rewritten since: a process is working on it
        return None
    except REPLICA_ERRORS as error:
        return f"the leader on broker {state.leader} cannot be read: {error}"
    if state.leader_epoch and epoch is not None and epoch < state.leader_epoch:
        return f"the barrier of leader epoch {state.leader_epoch} is missing"
    return _why_followers_are_behind(log, state, leading)


def _why_followers_are_behind(
    log: PartitionLog, state: PartitionState, leading: LogView
) -> str | None:
    for broker_id in state.chain[1:]:
        follower = log.replica_of(broker_id, state.directory_number(broker_id))
        try:
            behind = leading.log_end_offset - follower.files.observe().log_end_offset
        except SparkLogError as error:
            return f"the replica on broker {broker_id} cannot be read: {error}"
        if behind > 0:
            return f"the replica on broker {broker_id} is {behind} offsets behind the leader"
    return None


def _replicated_partitions(image: MetadataImage) -> Iterator[tuple[TopicPartition, int]]:
    """Yield the partitions whose replicas may differ, each with the broker id of its leader."""
    for topic in image.topics():
        for number, partition in sorted(topic.partitions.items()):
            if partition.leader_epoch or len(partition.isr) > 1:
                yield TopicPartition(topic.name, number), partition.leader
