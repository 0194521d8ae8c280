"""The state that the actors share: storage, topics, the offsets table, gateways, and the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any

from spark_log.coordinator.group.group import GroupTopic
from spark_log.gateway.groups import ConsumerGroups, CoordinatedConsumerGroup
from spark_log.metadata.image import MetadataImage
from spark_log.types import OffsetAndMetadata, TopicPartition
from tests.simulation.consumer_protocol.true_group import Position, TrueConsumerGroup
from tests.simulation.gateway_process import Network, draw_network
from tests.simulation.gateway_world import GatewayWorld
from tests.simulation.groups.profile import SESSION_TIMEOUT_MS
from tests.simulation.groups.true_group import Place
from tests.simulation.groups.world import SimulatedOffsets, metadata_image
from tests.simulation.log.profile import Profile, draw_profile
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.simulation.store import SimulatedStore

TOPICS = {"t": "the-topic-t", "u": "the-topic-u"}
"""The topic ids by name."""

REBALANCE_MS = 2 * SESSION_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class ConsumerProtocolProfile:
    """The conditions of one simulation.

    Attributes:
        faults: the rates of faults of the storage and of processes.
        network: the conditions of requests between clients and gateways.
        gateways: number of gateways.
        members: number of dynamic members.
        statics: number of static members.
        partitions: number of partitions of each topic in the beginning.
        poll_ms: mean time between two polls.
        commit: probability that a poll ends with a commit.
        leave: probability that a member leaves after a poll.
        pause: probability that a client stands still for longer than its session.
        stray: probability that a client asks another gateway than the others do.
        move_ms: mean time until the clients are sent to another gateway.
        topics_ms: mean time until a topic gets another partition, or the second topic is made.
        slow_offsets: probability that a step of a call of the offsets table takes long.
        lost_fences: probability that a gateway's request for a fence does not arrive.
        trim_every: number of records after which the group's log is trimmed.
        steps: number of steps before the faults end.
    """

    faults: Profile
    network: Network
    gateways: int
    members: int
    statics: int
    partitions: int
    poll_ms: float
    commit: float
    leave: float
    pause: float
    stray: float
    move_ms: float
    topics_ms: float
    slow_offsets: float
    lost_fences: float
    trim_every: int
    steps: int


def draw_consumer_protocol_profile(random: Random) -> ConsumerProtocolProfile:
    """Draw the conditions of a simulation."""
    latency_ms = random.choice((1.0, 4.0, 10.0))
    return ConsumerProtocolProfile(
        faults=replace(draw_profile(random), latency_ms=latency_ms, range_bytes=0),
        network=draw_network(random),
        gateways=random.choice((1, 2, 2, 3)),
        members=random.choice((1, 2, 2, 3)),
        statics=random.choice((0, 0, 1, 2)),
        partitions=random.choice((2, 3, 4)),
        poll_ms=random.choice((10.0, 30.0, 100.0)),
        commit=random.choice((0.05, 0.3, 0.9)),
        leave=random.choice((0.0, 0.01, 0.05, 0.1)),
        pause=random.choice((0.0, 0.005)),
        stray=random.choice((0.0, 0.02, 0.2)),
        move_ms=random.choice((500.0, 2000.0, 100_000.0)),
        topics_ms=random.choice((1000.0, 5000.0, 100_000.0)),
        slow_offsets=random.choice((0.0, 0.1, 0.3)),
        trim_every=random.choice((2, 6, 64)),
        steps=random.choice((1500, 3000, 6000)),
        lost_fences=random.choice((0.0, 0.5)),
    )


class ConsumerGroupOffsets(SimulatedOffsets):
    """The offsets table with the interface that a gateway uses.

    The metadata of a commit names the time for which its member has the partition.
    """

    truth: TrueConsumerGroup

    def generation(self, group: str) -> int:
        """Return the fence."""
        return self.last_commit(group).generation

    def commit(  # type: ignore[override]
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation: int = 0,
        member_id: str = "",
        check: Callable[[], None] | None = None,
    ) -> None:
        """Commit offsets in a generation."""
        if check is not None:
            check()
        rows: dict[Place, Any] = {
            (TOPICS[tp.topic], tp): Position(each.offset, each.metadata)
            for tp, each in offsets.items()
        }
        self._commit(generation, lambda: self.truth.on_committed(generation, member_id, rows))
        self.truth.check_acknowledged(rows)


@dataclass(slots=True)
class ConsumerProtocolWorld(GatewayWorld):
    """The storage, the time, the model and the conditions of one simulation.

    Attributes:
        scheduler: runs the actors.
        clock: the actors' clock.
        store: the store that gateways use; ``store.faults`` has the rates of faults.
        truth: the model that results are checked against.
        profile: the conditions.
        offsets: the offsets table.
        groups_class, group_class: the classes under test.
        network: the conditions of requests.
        preferred: the gateway that clients are sent to.
        is_ending: faults have ended.
        is_over: all actors end.
    """

    scheduler: Scheduler
    clock: SimulatedClock
    store: SimulatedStore
    truth: TrueConsumerGroup
    profile: ConsumerProtocolProfile
    offsets: ConsumerGroupOffsets
    groups_class: type[ConsumerGroups]
    group_class: type[CoordinatedConsumerGroup]
    network: Network
    preferred: int = 0
    is_ending: bool = False
    is_over: bool = False
    ids: count[int] = field(default_factory=count)

    def image(self) -> MetadataImage:
        """Return the metadata of some moment during the call."""
        is_early = self.scheduler.random.random() < 0.5
        image = self._image() if is_early else None
        self.rest(self.store.faults.latency_ms)
        return image or self._image()

    def _image(self) -> MetadataImage:
        return metadata_image(
            self.truth.topics,
            {
                "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
                "group.consumer.heartbeat.interval.ms": SESSION_TIMEOUT_MS // 10,
            },
        )

    def set_partitions(self, name: str, partitions: int) -> None:
        """Create a topic, or add partitions to it."""
        self.truth.set_topic(name, GroupTopic(TOPICS[name], partitions))
