"""The state that the actors share: storage, the offsets table, the gateways, and the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from spark_log.coordinator.group.classic import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE
from spark_log.coordinator.group.group import GroupTopic
from spark_log.coordinator.group.records import from_json
from spark_log.errors import CorruptRecordError
from spark_log.gateway.groups import CoordinatedGroup
from spark_log.metadata.image import MetadataImage
from spark_log.types import OffsetAndMetadata, TopicPartition
from tests.simulation.gateway_process import Network, draw_network
from tests.simulation.gateway_world import GatewayWorld
from tests.simulation.groups.profile import SESSION_TIMEOUT_MS
from tests.simulation.groups.true_group import Place, TrueGroup
from tests.simulation.groups.world import SimulatedOffsets, metadata_image
from tests.simulation.log.profile import Profile, draw_profile
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.simulation.store import SimulatedStore
from tests.simulation.violation import ViolationError

TOPIC = GroupTopic("the-topic", 4)
PARTITIONS = tuple(TopicPartition("topic", number) for number in range(TOPIC.partitions))


@dataclass(frozen=True, slots=True)
class GatewayGroupProfile:
    """The conditions of one simulation.

    Attributes:
        faults: the rates of faults of the storage and of processes.
        network: the conditions of requests between clients and gateways.
        gateways: number of gateways.
        members: number of dynamic members.
        statics: number of static members.
        poll_ms: mean time between two polls.
        commit: probability that a poll ends with a commit.
        leave: probability that a member leaves after a poll.
        stray: probability that a client asks another gateway than the others do.
        move_ms: mean time until the clients are sent to another gateway.
        slow_offsets: probability that a step of a call of the offsets table takes long.
        lost_fences: probability that a gateway's request for a fence does not arrive.
        initial_delay_ms: ``group.initial.rebalance.delay.ms``.
        trim_every: number of records after which the group's log is trimmed.
        steps: number of steps before the faults end.
    """

    faults: Profile
    network: Network
    gateways: int
    members: int
    statics: int
    poll_ms: float
    commit: float
    leave: float
    stray: float
    move_ms: float
    slow_offsets: float
    lost_fences: float
    initial_delay_ms: int
    trim_every: int
    steps: int


def draw_gateway_group_profile(random: Random) -> GatewayGroupProfile:
    """Draw the conditions of a simulation."""
    latency_ms = random.choice((1.0, 4.0, 10.0))
    return GatewayGroupProfile(
        faults=replace(draw_profile(random), latency_ms=latency_ms, range_bytes=0),
        network=draw_network(random),
        gateways=random.choice((1, 2, 2, 3)),
        members=random.choice((1, 2, 2, 3)),
        statics=random.choice((0, 0, 1, 2)),
        poll_ms=random.choice((10.0, 30.0, 100.0)),
        commit=random.choice((0.05, 0.3, 0.9)),
        leave=random.choice((0.0, 0.01, 0.05)),
        stray=random.choice((0.0, 0.02, 0.2)),
        move_ms=random.choice((500.0, 2000.0, 100_000.0)),
        slow_offsets=random.choice((0.0, 0.1, 0.3)),
        initial_delay_ms=random.choice((0, 0, 50)),
        trim_every=random.choice((2, 6, 64)),
        steps=random.choice((1500, 3000, 6000)),
        lost_fences=random.choice((0.0, 0.5)),
    )


class TrueClassicGroup(TrueGroup):
    """Follows the group's log, and checks each record of Kafka's clients.

    Attributes:
        assigned: in each generation, partition → the instance or the id of the member that has it.
        note: adds a line to the trace.
    """

    note: Callable[[str], None]

    def __init__(self, *args: object) -> None:
        """Return the model of an empty group."""
        super().__init__(*args)  # type: ignore[arg-type]
        self.assigned: dict[int, dict[TopicPartition, str]] = {}
        self._committed_in: dict[Place, int] = {}
        self._highest: dict[Place, int] = {}
        self._began_again: set[tuple[int, Place]] = set()

    def _replay(self, value: bytes) -> None:
        before = self.group
        record = from_json(value)
        is_same = record.generation == before.generation
        if record.generation < before.generation or (
            is_same and record.revision != before.revision + 1
        ):
            raise ViolationError(f"generation {record.generation} follows {before.generation}")
        try:
            after = before.replay(record)
        except CorruptRecordError as error:
            raise ViolationError(str(error)) from error
        self.note(f"generation {record.generation} by {record.change}: {after.state}")
        self._check_members(before, after)
        assert after.classic is not None
        if record.change == "sync":
            if before.state != COMPLETING_REBALANCE or not is_same:
                raise ViolationError(f"generation {record.generation} was assigned twice")
            self.assigned[after.generation] = {
                tp: self.holder(member.instance_id, member.member_id)
                for member in after.members.values()
                for tp in member.owned
            }
            if len(self.assigned[after.generation]) != len(PARTITIONS):
                raise ViolationError(f"generation {record.generation} has not all partitions")
        elif is_same and after.members.keys() - before.members.keys():
            is_replaced = {
                each.instance_id for each in after.members.values() if each.instance_id
            } >= {
                after.members[name].instance_id or "nobody"
                for name in after.members.keys() - before.members.keys()
            }
            if not is_replaced:
                raise ViolationError(f"a member joined within generation {record.generation}")
        elif is_same and after.state == STABLE and before.state != STABLE:
            raise ViolationError(f"generation {record.generation} is stable by {record.change}")
        elif is_same and before.state == PREPARING_REBALANCE and after.state != before.state:
            raise ViolationError(f"a rebalance ended within generation {record.generation}")
        self.group = after
        self.groups[after.generation] = after

    @staticmethod
    def holder(instance_id: str | None, member_id: str) -> str:
        """Return the name of a member that its next process has, too, if it is static."""
        return member_id if instance_id is None else f"instance {instance_id}"

    def check_started(self, place: Place, position: int, holder: str, generation: int) -> None:
        """Check the position at which a member begins to read, in its generation."""
        if self.assigned.get(generation, {}).get(place[1]) != holder:
            raise ViolationError(f"{holder} begins {place[1]}, which it does not have")
        newest = max(self.begun_in.get(place, 0), self.fence)
        if generation < newest:
            return  # it is late: its commits are refused
        if self.begun_in.get(place) == generation:
            self._began_again.add((generation, place))
        self.begun_in[place] = generation
        is_again = (generation, place) in self._began_again
        if position != self.positions.get(place, 0) and not is_again:
            raise ViolationError(
                f"{holder} begins {place[1]} at {position}, but "
                f"{self.positions.get(place, 0)} is committed"
            )

    def _check_rows(self, generation: int, member_id: str, rows: Mapping[Place, int]) -> None:
        for place, offset in rows.items():
            begun = self.begun_in.get(place, 0)
            if generation < begun:
                raise ViolationError(
                    f"a commit of {member_id} of {place[1]} in generation {generation} took "
                    f"effect after a member had begun it in generation {begun}"
                )
            before = self.positions.get(place, 0)
            # In one generation a gateway that stood still may make an earlier commit of the member
            # late. Then records are read again, which Kafka allows, too.
            if offset < before and generation != self._committed_in.get(place):
                raise ViolationError(
                    f"{member_id} committed {offset} of {place[1]}, after {before}"
                )
            if offset > self.handled.get(place, 0):
                raise ViolationError(f"{member_id} committed {offset}, which nobody has handled")
            self.positions[place] = offset
            self._committed_in[place] = generation
            self._highest[place] = max(offset, self._highest.get(place, 0))

    def check_acknowledged(self, rows: Mapping[Place, int]) -> None:
        """Check that an acknowledged commit took effect."""
        for place, offset in rows.items():
            if self._highest.get(place, 0) < offset:
                raise ViolationError(f"{place} was acknowledged at {offset}, and is not committed")


class GroupOffsets(SimulatedOffsets):
    """The offsets table with the interface that a gateway uses."""

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
        super().commit(
            group,
            offsets,
            generation=generation,
            member_id=member_id,
            topic_ids={"topic": TOPIC.topic_id},
        )


@dataclass(slots=True)
class GatewayGroupWorld(GatewayWorld):
    """The storage, the time, the model and the conditions of one simulation.

    Attributes:
        scheduler: runs the actors.
        clock: the actors' clock.
        store: the store that gateways use; ``store.faults`` has the rates of faults.
        truth: the model that results are checked against.
        profile: the conditions.
        offsets: the offsets table.
        group_class: the class under test.
        network: the conditions of requests.
        preferred: the gateway that most clients ask.
        is_ending: faults have ended.
        is_over: all actors end.
    """

    scheduler: Scheduler
    clock: SimulatedClock
    store: SimulatedStore
    truth: TrueClassicGroup
    profile: GatewayGroupProfile
    offsets: GroupOffsets
    group_class: type[CoordinatedGroup]
    network: Network
    preferred: int = 0
    is_ending: bool = False
    is_over: bool = False
    ids: count[int] = field(default_factory=count)

    def image(self) -> MetadataImage:
        """Return the metadata, which do not change; a step."""
        self.rest(self.store.faults.latency_ms)
        return metadata_image(
            self.truth.topics,
            {
                "group.min.session.timeout.ms": 0,
                "group.initial.rebalance.delay.ms": self.profile.initial_delay_ms,
            },
        )


SESSION_MS, REBALANCE_MS = SESSION_TIMEOUT_MS, 2 * SESSION_TIMEOUT_MS
