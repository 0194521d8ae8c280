"""The state that the actors share: storage, the offsets table, gateways, and the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any, cast

from spark_log.cluster import Cluster
from spark_log.coordinator.group.group import GroupTopic
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.offsets.rows import CommittedOffset, Row
from spark_log.coordinator.offsets.transactional_offsets import (
    RolledForwardOffsets,
    TransactionalOffsets,
)
from spark_log.gateway.groups import (
    ConsumerGroups,
    CoordinatedConsumerGroup,
    CoordinatedGroup,
)
from spark_log.gateway.transactions import Transactions
from spark_log.metadata.image import MetadataImage
from spark_log.transaction import TransactionCoordinator
from spark_log.types import TopicPartition
from spark_log.util.suppressed import SuppressedErrors
from tests.simulation.consumer_protocol.true_group import Position
from tests.simulation.consumer_protocol.world import ConsumerGroupOffsets
from tests.simulation.gateway_process import Network, draw_network
from tests.simulation.gateway_transactions.true_offsets import SentOffset, TrueSentOffsets
from tests.simulation.gateway_world import GatewayWorld
from tests.simulation.groups.profile import SESSION_TIMEOUT_MS
from tests.simulation.groups.true_group import Place
from tests.simulation.groups.world import metadata_image
from tests.simulation.log.profile import Profile, draw_profile
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.simulation.store import SimulatedStore

TRANSACTION_TIMEOUT_MS = SESSION_TIMEOUT_MS
SESSION_MS = 3 * SESSION_TIMEOUT_MS
"""Longer than a transaction, in which a client of the simulation sends no heartbeats."""


@dataclass(frozen=True, slots=True)
class GatewayTransactionsProfile:
    """The conditions of one simulation.

    Attributes:
        faults: the rates of faults of the storage and of processes.
        network: the conditions of requests between clients and gateways.
        is_classic: whether the group uses the classic protocol, else the consumer protocol.
        keeps_identity: whether producers keep their epoch, as before KIP-890.
        gateways: number of gateways.
        members: number of dynamic members.
        statics: number of static members.
        twins: whether the first two members have one transactional id.
        partitions: number of partitions.
        poll_ms: mean time between two polls.
        commit: probability that a poll ends with a transaction.
        abort: probability that a transaction is aborted, and that it is left open.
        leave: probability that a member leaves after a poll.
        pause: probability that a client stands still for longer than its session.
        stray: probability that a client asks another gateway than the others do.
        move_ms: mean time until the clients are sent to another gateway.
        slow_offsets: probability that a step of a call of the offsets table takes long.
        trim_every: number of records after which the group's log is trimmed.
        steps: number of steps before the faults end.
        topics_ms: mean time until a topic gets another partition: it gets none.
        initial_delay_ms: ``group.initial.rebalance.delay.ms``.
    """

    faults: Profile
    network: Network
    is_classic: bool
    keeps_identity: bool
    gateways: int
    members: int
    statics: int
    twins: bool
    partitions: int
    poll_ms: float
    commit: float
    abort: float
    leave: float
    pause: float
    stray: float
    move_ms: float
    slow_offsets: float
    trim_every: int
    steps: int
    topics_ms: float = 1e9
    initial_delay_ms: int = 0


def draw_gateway_transactions_profile(random: Random) -> GatewayTransactionsProfile:
    """Draw the conditions of a simulation."""
    latency_ms = random.choice((1.0, 4.0))
    return GatewayTransactionsProfile(
        faults=replace(draw_profile(random), latency_ms=latency_ms, range_bytes=0),
        network=draw_network(random),
        is_classic=random.random() < 0.4,
        keeps_identity=random.random() < 0.4,
        gateways=random.choice((1, 2, 2, 3)),
        members=random.choice((1, 2, 2, 3)),
        statics=random.choice((0, 0, 1)),
        twins=random.random() < 0.4,
        partitions=random.choice((1, 2, 3)),
        poll_ms=random.choice((10.0, 30.0, 100.0)),
        commit=random.choice((0.1, 0.3, 0.9)),
        abort=random.choice((0.05, 0.2)),
        leave=random.choice((0.0, 0.02, 0.1)),
        pause=random.choice((0.0, 0.005)),
        stray=random.choice((0.0, 0.1, 0.5)),
        move_ms=random.choice((500.0, 2000.0, 100_000.0)),
        slow_offsets=random.choice((0.0, 0.1, 0.3)),
        trim_every=random.choice((2, 6, 64)),
        steps=random.choice((2000, 4000, 8000)),
    )


class SentOffsetsTable(ConsumerGroupOffsets):
    """The offsets table: rows keep the name of their offset."""

    truth: TrueSentOffsets

    def roll_forward(
        self,
        group: str,
        rows: Sequence[Row],
        is_superseded: Callable[[CommittedOffset], bool],
        *,
        generation: int,
        member_id: str,
        decided_ms: float,
    ) -> None:
        """Commit the offsets of a committed transaction; those that were committed are left out."""

        def take_effect() -> None:
            due: dict[Place, Any] = {}
            for row in rows:
                place = row.key.topic_id, TopicPartition(row.key.topic, row.key.partition)
                newest = self._newest.get(place)
                if newest is None or not is_superseded(newest):
                    sent = SentOffset.parse(row.metadata)
                    due[place] = Position(row.offset, sent.acquisition)
            self.truth.on_rolled_forward(generation, member_id, due)
            offsets = {place: position.offset for place, position in due.items()}
            self._note_newest(offsets, generation, member_id)

        self._commit(generation, take_effect, is_fenced=False)


class ProducerIds:
    """Allocates producer ids, without a request."""

    def __init__(self) -> None:
        """Return the ids from 0 on."""
        self._ids = count()

    def next_id(self) -> int:
        """Return a new producer id."""
        return next(self._ids)


@dataclass(slots=True)
class GatewayTransactionsWorld(GatewayWorld):
    """The storage, the time, the model and the conditions of one simulation.

    Attributes:
        scheduler: runs the actors.
        clock: the actors' clock.
        store: the store that gateways use; ``store.faults`` has the rates of faults.
        truth: the model that results are checked against.
        profile: the conditions.
        offsets: the offsets table.
        transactions_class, transactional_offsets_class: the classes under test.
        network: the conditions of requests.
        groups_class, group_class: the classes that coordinate the group.
        preferred: the gateway that clients are sent to.
        is_ending: faults have ended.
        is_over: all actors end.
    """

    scheduler: Scheduler
    clock: SimulatedClock
    store: SimulatedStore
    truth: TrueSentOffsets
    profile: GatewayTransactionsProfile
    offsets: SentOffsetsTable
    transactions_class: type[Transactions]
    transactional_offsets_class: type[TransactionalOffsets]
    network: Network
    groups_class: type[ConsumerGroups] = ConsumerGroups
    group_class: Any = None
    preferred: int = 0
    is_ending: bool = False
    is_over: bool = False
    ids: count[int] = field(default_factory=count)
    transactions: count[int] = field(default_factory=count)
    producer_ids: ProducerIds = field(default_factory=ProducerIds)
    suppressed: SuppressedErrors = field(default_factory=SuppressedErrors)

    def __post_init__(self) -> None:
        """Choose the class of the group by its protocol."""
        self.group_class = CoordinatedGroup if self.profile.is_classic else CoordinatedConsumerGroup

    def open_transactional_offsets(self) -> TransactionalOffsets:
        """Return the offsets in transactions as a new process has them."""
        world = self

        class Offsets(self.transactional_offsets_class):  # type: ignore[misc, name-defined]
            def _open_log(self, group_id: str) -> GroupLog:
                return world.open_log(group_id)

            def _open_coordinator(self, transactional_id: str) -> TransactionCoordinator:
                return TransactionCoordinator(
                    cast(Cluster, world),
                    transactional_id,
                    commit_offsets=self.commit_offsets,
                    markers_at_once=1,
                )

        return Offsets(cast(Cluster, self), cast(RolledForwardOffsets, self.offsets))

    def image(self) -> MetadataImage:
        """Return the metadata, which do not change; a step."""
        self.rest(self.store.faults.latency_ms)
        return metadata_image(
            self.truth.topics,
            {
                "group.min.session.timeout.ms": 0,
                "group.initial.rebalance.delay.ms": self.profile.initial_delay_ms,
                "group.consumer.session.timeout.ms": SESSION_MS,
                "group.consumer.heartbeat.interval.ms": SESSION_TIMEOUT_MS // 10,
            },
        )

    def set_partitions(self, name: str, topic_id: str, partitions: int) -> None:
        """Create a topic."""
        self.truth.set_topic(name, GroupTopic(topic_id, partitions))
