"""Gateways and clients of the simulation."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from spark_log.cluster import Cluster
from spark_log.coordinator.group.classic import ClassicMember
from spark_log.coordinator.group.consumer_protocol import assigned_partitions, encode_assignment
from spark_log.errors import SparkLogError
from spark_log.gateway.groups import (
    CoordinatedGroup,
    GroupCoordinators,
    GroupError,
    GroupLostError,
    GroupRefusedError,
    JoinAnswer,
    JoinRequest,
    MemberIdentity,
)
from spark_log.gateway.groups.group_state import Decision, GroupState
from spark_log.types import OffsetAndMetadata, TopicPartition
from tests.simulation.gateway_groups.world import (
    PARTITIONS,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    GatewayGroupWorld,
)
from tests.simulation.gateway_process import Connection, GatewayProcess
from tests.simulation.groups.true_group import GROUP_ID


class ClassicGateway(GatewayProcess):
    """A gateway that coordinates the group if it is asked.

    Attributes:
        groups: the groups in its memory.
    """

    world: GatewayGroupWorld
    groups: GroupCoordinators

    def open(self) -> None:
        """Make the coordinator of a new process."""
        world = self.world

        class Group(world.group_class):  # type: ignore[misc, name-defined]
            def load(self) -> Any:
                with _noted(world, "load"):
                    return super().load()

            def write(self, decision: Decision, before: GroupState) -> Any:
                with _noted(world, "write"):
                    return super().write(decision, before)

            def check(self, state: GroupState) -> None:
                with _noted(world, "check"):
                    super().check(state)

        class Groups(GroupCoordinators):
            def _open_group(self, group_id: str) -> CoordinatedGroup:
                return Group(world.open_log(group_id), world.offsets, group_id)

        cluster: Any = world
        self.groups = Groups(
            cast(Cluster, cluster),
            self.loop.run_blocking,
            is_coordinator=self.is_coordinator,
            call_later=self.loop.call_later,
            new_id=lambda: f"{next(world.ids)}",
        )


class ClassicClient:
    """A consumer of Kafka's: joins, assigns if it leads, polls, commits and leaves.

    Attributes:
        reading: its position in each partition that it reads.
        member_id: its id; empty if it has none.
        generation: its generation; -1 while it is no member.
        is_stopped: whether another process has its instance id.
    """

    def __init__(
        self,
        world: GatewayGroupWorld,
        gateways: list[ClassicGateway],
        name: str,
        instance_id: str | None,
    ) -> None:
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.reading: dict[TopicPartition, int] = {}
        self._world = world
        self._partitions = PARTITIONS
        self._session_ms = SESSION_MS
        self._connection = Connection(world, gateways, world.profile.stray)

    @property
    def holder(self) -> str:
        """Its name in the model."""
        return self._world.truth.holder(self.instance_id, self.member_id)

    def run(self) -> None:
        """Consume; called again after each crash, without memory."""
        world = self._world
        self._forget()
        self.member_id = ""
        while not world.is_over:
            if world.is_ending:
                self._connection.stray = 0.0
            if self.generation < 0:
                self._join()
            else:
                self._poll()
            world.rest(world.profile.poll_ms)

    def _forget(self) -> None:
        self.generation = -1
        self.reading = {}

    def _join(self) -> None:
        member = ClassicMember(
            self.member_id,
            self.instance_id,
            self.name,
            "",
            REBALANCE_MS,
            self._session_ms,
            (("range", b""),),
        )
        wanted = JoinRequest(member, "consumer", True, True)
        answer = self._connection.ask(lambda gateway: gateway.groups.join(GROUP_ID, wanted))
        error = _error(answer)
        if error in (GroupError.UNKNOWN_MEMBER_ID, GroupError.FENCED_INSTANCE_ID):
            self.member_id = ""
        if error is GroupError.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        if error is not GroupError.NONE:
            return
        self.member_id = answer.member_id
        self._sync(answer)

    def _sync(self, joined: JoinAnswer) -> None:
        world = self._world
        given: dict[str, bytes] = {}
        if joined.members and not joined.skip_assignment:
            names = [each.member_id for each in joined.members]
            given = {
                name: encode_assignment(frozenset(self._partitions[at :: len(names)]))
                for at, name in enumerate(names)
            }
        identity = MemberIdentity(self.member_id, self.instance_id)
        generation = joined.generation
        answer = self._connection.ask(
            lambda gateway: gateway.groups.sync(
                GROUP_ID, identity, generation, ("consumer", "range"), given
            )
        )
        if _error(answer) is not GroupError.NONE:
            self._refused(_error(answer))
            return
        assigned = assigned_partitions(answer.assignment)
        found = self._connection.ask(self._fetch_safely)
        if found is None or isinstance(found, GroupError):
            return  # it joins again
        self.generation = generation
        for partition in sorted(assigned):
            self._begin(partition, found.get(partition, 0))
            offset = self.reading[partition]
            world.scheduler.note(f"begins {partition} at {offset} in generation {generation}")

    async def _fetch_safely(self, gateway: ClassicGateway) -> Any:
        try:
            return await self._fetch(gateway)
        except SparkLogError:
            return GroupError.COORDINATOR_NOT_AVAILABLE

    def _fetch(self, gateway: ClassicGateway) -> Awaitable[Mapping[TopicPartition, int]]:
        return gateway.loop.run_blocking(self._world.offsets.fetch, GROUP_ID)

    def _begin(self, partition: TopicPartition, offset: int) -> None:
        place = (TOPIC.topic_id, partition)
        self._world.truth.check_started(place, offset, self.holder, self.generation)
        self.reading[partition] = offset

    def _on_handled(self, partition: TopicPartition) -> None:
        self._world.truth.on_handled((TOPIC.topic_id, partition), self.reading[partition])

    def _poll(self) -> None:
        world = self._world
        random = world.scheduler.random
        for partition in self.reading:
            self.reading[partition] += random.randrange(3)
            self._on_handled(partition)
        identity = MemberIdentity(self.member_id, self.instance_id)
        generation = self.generation
        if self.reading and random.random() < world.profile.commit:
            self._refused(self._commit())
        if self.generation >= 0:
            answer = self._connection.ask(
                lambda gateway: gateway.groups.heartbeat(GROUP_ID, identity, generation)
            )
            self._refused(_error(answer))
        is_leaving = not world.is_ending and random.random() < world.profile.leave
        if self.generation >= 0 and self.instance_id is None and is_leaving:
            self._leave(identity)
            self._forget()
            self.member_id = ""

    def _commit(self) -> GroupError:
        identity, generation = MemberIdentity(self.member_id, self.instance_id), self.generation
        offsets = {tp: OffsetAndMetadata(at) for tp, at in self.reading.items()}

        async def serve(gateway: ClassicGateway) -> GroupError:
            try:
                return await gateway.groups.commit(GROUP_ID, identity, generation, offsets)
            except SparkLogError:
                return GroupError.COORDINATOR_NOT_AVAILABLE  # it may be committed

        return _error(self._connection.ask(serve))

    def _leave(self, identity: MemberIdentity) -> None:
        async def serve(gateway: ClassicGateway) -> Any:
            try:
                return await gateway.groups.leave(GROUP_ID, [identity])
            except GroupRefusedError as refused:
                return refused.error

        self._connection.ask(serve)

    def _refused(self, error: GroupError) -> None:
        """Go on after an answer as Kafka's clients do."""
        if error in (GroupError.UNKNOWN_MEMBER_ID, GroupError.FENCED_INSTANCE_ID):
            self.member_id = ""
            self._forget()
        elif error in (GroupError.ILLEGAL_GENERATION, GroupError.REBALANCE_IN_PROGRESS):
            self._forget()


@contextmanager
def _noted(world: Any, operation: str) -> Iterator[None]:
    """Note that a gateway has lost the group, or that the storage did not answer."""
    try:
        yield
    except GroupLostError:
        world.scheduler.note(f"{operation}: has lost the group")
        raise
    except SparkLogError:
        world.scheduler.note(f"{operation}: the storage does not answer")
        raise


def _error(answer: Any) -> GroupError:
    if answer is None:
        return GroupError.COORDINATOR_NOT_AVAILABLE
    return answer if isinstance(answer, GroupError) else GroupError(answer.error)
