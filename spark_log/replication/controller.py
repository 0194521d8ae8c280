"""`Controller`: watches the brokers of a cluster and the replicas of its partitions.

No client waits for it. A writer that meets a failed root removes it from the ISR by itself, and a
reader appends a missing barrier. The controller does the remaining work: it fences brokers whose
roots do not answer, elects leaders, returns replicas to the ISR, balances leaders, and advances
reassignments.

Each of its changes is decided on the newest metadata and appended to them conditionally. For
this reason any number of controllers are safe at the same time. A round reads the metadata once to
see which changes may be due. To save work only the newest controller works: it registers with an
epoch in the metadata log, and a controller that sees a newer epoch stops.
"""

from __future__ import annotations

import logging
import math
import platform
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from spark_log.cluster import Cluster
from spark_log.errors import CorruptRecordError, StorageError
from spark_log.log.chain import NO_LEADER
from spark_log.metadata import (
    ROOT_BROKER_ID,
    Decide,
    MetadataImage,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterControllerRecord,
    advance_reassignment,
    elect_online_leader,
    fence_broker_records,
    imbalanced_partitions,
    list_reassignments,
    rebalance_leader,
    shrink_isr,
)
from spark_log.replication.background_recovery import BackgroundRecovery, RecoverPartition
from spark_log.replication.broker_probes import BrokerFailure, BrokerProbes
from spark_log.replication.chain_checks import ChainChecks
from spark_log.replication.cluster_recovery import (
    ClusterRecovery,
    RecoveredReplica,
    TopicPartitionReplica,
    out_of_sync_replicas,
)
from spark_log.replication.controller_decision import ControllerDecision
from spark_log.types import TopicPartition
from spark_log.util import Throttle, random_id

_PROBE_TIMEOUT_MS: Final = 5_000
"""Time limit of a probe. A root that does not answer within it counts as failing."""

_FENCE: Final = "fence broker"
_REPLICATE_FAILED: Final = "replicate failed"
_COMPLETE: Final = "complete the reassignment"
_ALL_ARE_IN_SYNC: Final = "all replicas of the target are in sync"

_FAILURES: Final = frozenset((_FENCE, _REPLICATE_FAILED))
"""Actions that follow from a failure, which a person must repair."""

_Change = tuple[Decide, ControllerDecision]
"""A change of the metadata, and the decision that is reported if the change is made."""

_log = logging.getLogger(__name__)


class NewerControllerError(Exception):
    """A newer controller has registered, so this one stops."""


class Controller:
    """Watches the brokers and partitions of a cluster. Not thread-safe."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        copy: RecoverPartition | None = None,
        threads: int = 1,
        on_decision: Callable[[ControllerDecision], None] = lambda decision: None,
        random: Random | None = None,
    ) -> None:
        """Return a controller; no storage is accessed yet.

        Args:
            cluster: the opened root.
            copy: returns replicas of one partition to the in-sync replicas; None to copy in this
                process, throttled by ``replication.throttled.rate``.
            threads: the number of partitions that are copied at the same time.
            on_decision: called with each decision after it was made.
            random: varies the pauses between tries.
        """
        self._cluster = cluster
        self._clock = cluster.clock
        self._on_decision = on_decision
        self._epoch = 0
        self._probes = BrokerProbes(cluster, _PROBE_TIMEOUT_MS)
        self._reached: set[int] = set()
        self._checks = ChainChecks(cluster)
        self._recovery = ClusterRecovery(cluster, self._throttle_copy)
        self._background = BackgroundRecovery(
            copy or self._copy_here,
            threads=threads,
            clock=self._clock,
            random=random or Random(),
        )
        self._balanced_ms = -math.inf
        self._moving: list[tuple[str, int]] = []
        self._rate: int | None = None
        self._throttle = Throttle()
        self._decided = 0

    # --- running ---------------------------------------------------------------------------------

    def run(self, wait: Callable[[], bool]) -> None:
        """Register, and work until a newer controller registers.

        The next round repeats the work of a failed one.

        Args:
            wait: called after each round; it waits, and returns whether to stop.

        Raises:
            StorageError: the controller could not be registered.
        """
        self.register()
        while True:
            try:
                self.do_round()
            except NewerControllerError as newer:
                self._report(ControllerDecision("stop", str(newer)))
                return
            except (StorageError, CorruptRecordError) as error:
                _log.warning("a round was not finished: %s; the next round repeats it", error)
            if wait():
                return

    def run_once(self, wait: Callable[[], bool]) -> list[TopicPartitionReplica]:
        """Work without registering until nothing is left to do.

        Args:
            wait: called after each round; it waits, and returns whether to stop.

        Returns:
            The replicas that are not in sync because their last try failed.

        Raises:
            StorageError: the metadata cannot be read or changed.
        """
        while self.do_round() and not wait():
            pass
        replicas = out_of_sync_replicas(self._cluster.image())
        return [replica for replica in replicas if self._background.has_failed(replica)]

    def register(self) -> int:
        """Register as the newest controller, and return the epoch.

        Raises:
            StorageError: it is not known whether the controller is registered.
        """
        own_id = random_id()

        def decide(image: MetadataImage) -> list[MetadataRecord]:
            epoch = image.controller_epoch + 1
            record = RegisterControllerRecord(
                controller_epoch=epoch, incarnation_id=own_id, host=platform.node()
            )
            return [record]

        self._cluster.metadata.commit(decide)
        controller = self._cluster.image().controller
        if controller is not None and controller.incarnation_id == own_id:
            self._epoch = controller.controller_epoch
        else:
            self._epoch = 1  # a newer controller has registered already: the first round finds it
        self._report(ControllerDecision("register", f"controller epoch {self._epoch}"))
        return self._epoch

    def do_round(self) -> bool:
        """Check all brokers and partitions once, and make the changes that are due.

        Returns:
            Whether the round made a change, or work continues in the background.

        Raises:
            NewerControllerError: this controller is registered, and a newer one has registered.
            StorageError: the metadata cannot be read or changed.
        """
        decided = self._decided
        for done in self._background.take_results():
            self._report_recovery(done)
        image = self._cluster.image()
        self._check_epoch(image)
        rate = image.cluster_config().replication_throttled_rate
        if rate != self._rate:
            self._rate, self._throttle = rate, Throttle(rate)
        failures = self._probe(image)
        if failures:
            image = self._cluster.image()  # waiting for a failing root took seconds
        self._fence(image, failures)
        self._unfence(image, failures)
        self._shrink(self._known_image(), failures)
        self._elect(self._known_image(), failures)
        self._advance_reassignments(self._known_image())
        self._balance(self._known_image())
        image = self._known_image()
        self._checks.poll(image, self._report)
        replicas = self._replicas_to_copy(image, failures)
        self._background.begin(replicas)
        is_waiting = any(
            self._may_fence(each, failures) for each in self._unfenced(image, failures)
        )
        untried = [each for each in replicas if not self._background.has_failed(each)]
        is_busy = not self._background.is_idle or not self._checks.is_idle or bool(untried)
        return self._decided > decided or is_waiting or is_busy

    # --- brokers ---------------------------------------------------------------------------------

    def _probe(self, image: MetadataImage) -> dict[int, BrokerFailure]:
        """Return the brokers whose roots fail. Broker 0 has the metadata, which were just read."""
        others = [each.broker_id for each in image.brokers() if each.broker_id != ROOT_BROKER_ID]
        failures = self._probes.probe(others)
        self._reached |= set(others) - failures.keys()
        return failures

    def _may_fence(self, broker_id: int, failures: Mapping[int, BrokerFailure]) -> bool:
        """Return whether a failure is the broker's rather than this process's.

        A process without the mounts or the credentials of the brokers reaches none of them.
        """
        return broker_id in self._reached or bool(self._reached - failures.keys())

    def _unfenced(
        self, image: MetadataImage, failures: Mapping[int, BrokerFailure]
    ) -> dict[int, BrokerFailure]:
        return {
            broker.broker_id: failures[broker.broker_id]
            for broker in image.brokers()
            if broker.broker_id in failures and not broker.fenced
        }

    def _fence(self, image: MetadataImage, failures: Mapping[int, BrokerFailure]) -> None:
        lag_ms = image.cluster_config().replica_lag_time_max_ms
        for broker_id, failure in self._unfenced(image, failures).items():
            if failure.failing_ms >= lag_ms and self._may_fence(broker_id, failures):
                decide = partial(
                    fence_broker_records, broker_id=broker_id, fenced=True, failed=True
                )
                decision = ControllerDecision(_FENCE, _since(failure), broker=broker_id)
                self._commit([(decide, decision)])

    def _unfence(self, image: MetadataImage, failures: Mapping[int, BrokerFailure]) -> None:
        for broker in image.brokers():
            broker_id = broker.broker_id
            if broker.failed and broker_id not in failures:
                decide = partial(fence_broker_records, broker_id=broker_id, fenced=False)
                decision = ControllerDecision(
                    "unfence broker", "its root answers again", broker=broker_id
                )
                self._commit([(decide, decision)])

    # --- partitions ------------------------------------------------------------------------------

    def _shrink(self, image: MetadataImage, failures: Mapping[int, BrokerFailure]) -> None:
        """Remove failing brokers from the ISR of partitions whose topics allow a shorter lag."""
        changes: list[_Change] = []
        for topic in image.topics() if failures else ():
            lag_ms = topic.config().replica_lag_time_max_ms
            lagging = {
                broker_id
                for broker_id, failure in failures.items()
                if failure.failing_ms >= lag_ms and self._may_fence(broker_id, failures)
            }
            for number, partition in topic.partitions.items():
                leaving = sorted(lagging.intersection((*partition.isr, *partition.joining)))
                if leaving:
                    decide = partial(
                        shrink_isr,
                        topic_id=topic.topic_id,
                        partition=number,
                        brokers=leaving,
                        leader_epoch=partition.leader_epoch,
                    )
                    reason = "; ".join(
                        f"broker {each}: {_since(failures[each])}" for each in leaving
                    )
                    changes.append(
                        (decide, ControllerDecision("shrink the isr", reason, topic.name, number))
                    )
        self._commit(changes)

    def _elect(self, image: MetadataImage, failures: Mapping[int, BrokerFailure]) -> None:
        working = [each.broker_id for each in image.brokers() if each.broker_id not in failures]
        changes: list[_Change] = []
        for topic in image.topics():
            for number, partition in topic.partitions.items():
                if partition.leader == NO_LEADER:
                    decide = partial(
                        elect_online_leader,
                        topic_id=topic.topic_id,
                        partition=number,
                        brokers=working,
                        leader_epoch=partition.leader_epoch,
                    )
                    decision = ControllerDecision(
                        "elect a leader", "it has none", topic.name, number
                    )
                    changes.append((decide, decision))
        self._commit(changes)

    def _advance_reassignments(self, image: MetadataImage) -> None:
        self._commit(
            [
                (
                    partial(
                        advance_reassignment,
                        topic_id=image.topic(tp.topic).topic_id,
                        partition=tp.partition,
                    ),
                    ControllerDecision(_COMPLETE, _ALL_ARE_IN_SYNC, tp.topic, tp.partition),
                )
                for tp in list_reassignments(image)
            ]
        )

    def _balance(self, image: MetadataImage) -> None:
        """Move leaderships towards the preferred replicas, one replica in each round."""
        config = image.cluster_config()
        if not config.auto_leader_rebalance_enable:
            self._moving = []
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._balanced_ms >= config.leader_imbalance_check_interval_seconds * 1000:
            self._balanced_ms = now_ms
            self._moving = list(imbalanced_partitions(image))
        moving, changes = [], list[_Change]()
        for topic_id, number in self._moving:
            topic = image.find_by_id(topic_id)
            partition = None if topic is None else topic.partitions[number]
            if topic is None or partition is None or partition.leader == partition.replicas[0]:
                continue
            moving.append((topic_id, number))
            reason = f"broker {partition.replicas[0]} is the preferred leader"
            changes.append(
                (
                    partial(rebalance_leader, topic_id=topic_id, partition=number),
                    ControllerDecision("move the leadership", reason, topic.name, number),
                )
            )
        self._moving = moving
        self._commit(changes)

    # --- replicas --------------------------------------------------------------------------------

    def _replicas_to_copy(
        self, image: MetadataImage, failures: Mapping[int, BrokerFailure]
    ) -> list[TopicPartitionReplica]:
        fenced = {broker.broker_id for broker in image.brokers() if broker.fenced}
        return [
            replica
            for replica in out_of_sync_replicas(image)
            if replica.broker_id not in fenced
            and replica.broker_id not in failures
            and image.topic(replica.topic).partitions[replica.partition].leader != NO_LEADER
        ]

    def _copy_here(
        self, partition: TopicPartition, replicas: Collection[TopicPartitionReplica]
    ) -> Iterator[RecoveredReplica]:
        return self._recovery.advance(replicas)

    def _throttle_copy(self, done_bytes: int) -> None:
        self._throttle(done_bytes)

    def _report_recovery(self, done: RecoveredReplica) -> None:
        topic, number, broker_id = done.replica
        if done.error is not None:
            self._report(
                ControllerDecision(_REPLICATE_FAILED, done.error, topic, number, broker_id)
            )
        elif done.report is not None and done.report.is_in_sync:
            report = done.report
            reason = (
                f"{report.copied_bytes} bytes in {report.copied_segments} segments were copied to "
                f"directory {report.directory}"
            )
            self._report(ControllerDecision("expand the isr", reason, topic, number, broker_id))
        if done.completes_reassignment:
            self._report(ControllerDecision(_COMPLETE, _ALL_ARE_IN_SYNC, topic, number))

    # --- changes of the metadata -----------------------------------------------------------------

    def _known_image(self) -> MetadataImage:
        """Return the metadata after this round's read and its changes, without a request."""
        return self._cluster.metadata.known_image()

    def _check_epoch(self, image: MetadataImage) -> None:
        newest = image.controller
        if self._epoch and newest is not None and newest.controller_epoch > self._epoch:
            raise NewerControllerError(
                f"a controller with epoch {newest.controller_epoch} has registered on "
                f"{newest.host}; this one has epoch {self._epoch}"
            )

    def _commit(self, changes: Sequence[_Change]) -> None:
        """Make changes of the metadata together, as far as they are still due; report each one.

        Args:
            changes: the changes, each of another partition or broker.
        """
        made: list[tuple[ControllerDecision, Sequence[MetadataRecord]]] = []

        def decide_all(image: MetadataImage) -> list[MetadataRecord]:
            self._check_epoch(image)
            made[:] = [(decision, decide(image)) for decide, decision in changes]
            return [record for _, records in made for record in records]

        if changes:
            self._cluster.metadata.commit(decide_all)
        for decision, records in made:
            if records:
                self._report(
                    replace(decision, reason=decision.reason + _outcome(decision, records))
                )

    def _report(self, decision: ControllerDecision) -> None:
        self._decided += 1
        level = logging.WARNING if decision.action in _FAILURES else logging.INFO
        _log.log(level, "%s", decision)
        self._on_decision(decision)


def _outcome(decision: ControllerDecision, records: Sequence[MetadataRecord]) -> str:
    """Return a description of the changes in records, to be appended to a reason."""
    changes = [record for record in records if isinstance(record, PartitionChangeRecord)]
    if decision.topic is None:
        return f"; this changes {len(changes)} partitions" if changes else ""
    text = ""
    for change in changes:
        if change.leader == NO_LEADER:
            text += "; now it has no leader"
        elif change.leader is not None:
            text += f"; now broker {change.leader} leads"
        if change.isr is not None:
            text += f"; in sync are {list(change.isr)}"
        if change.replicas is not None:
            text += f"; replicas are {list(change.replicas)}"
    return text


def _since(failure: BrokerFailure) -> str:
    return f"its root has failed for {failure.failing_ms / 1000:.1f} s: {failure.reason}"
