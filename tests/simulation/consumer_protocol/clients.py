"""Clients of the simulation: they do what Kafka's consumers do with the consumer protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from spark_log.coordinator.group.group import Member
from spark_log.errors import SparkLogError
from spark_log.gateway.groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    GroupError,
)
from spark_log.types import OffsetAndMetadata, TopicPartition
from tests.simulation.consumer_protocol.gateways import ConsumerGateway
from tests.simulation.consumer_protocol.true_group import Reader
from tests.simulation.consumer_protocol.world import REBALANCE_MS, TOPICS, ConsumerProtocolWorld
from tests.simulation.gateway_process import Connection
from tests.simulation.groups.profile import SESSION_TIMEOUT_MS
from tests.simulation.groups.true_group import GROUP_ID

_NAMES = {topic_id: name for name, topic_id in TOPICS.items()}


class ConsumerClient:
    """A consumer: joins, reads what it is assigned, revokes, commits, leaves, and joins again.

    Attributes:
        name: its name in the trace.
        reader: what the model knows of it.
    """

    def __init__(
        self,
        world: ConsumerProtocolWorld,
        gateways: list[ConsumerGateway],
        name: str,
        instance_id: str | None,
    ) -> None:
        """Return a client; `run` is its life."""
        self.name = name
        self.reader = Reader()
        world.truth.readers.append(self.reader)
        self._instance_id = instance_id
        self._world = world
        self._connection = Connection(world, gateways, world.profile.stray)
        self._assigned: set[TopicPartition] = set()
        # As with librdkafka, callbacks and requests for metadata come before it reads: meanwhile it
        # sends heartbeats, and later answers wait.
        self._taking: set[TopicPartition] = set()
        self._takes_after = 0  # heartbeats
        self._told: frozenset[TopicPartition] | None = None

    def run(self) -> None:
        """Consume; called again after each crash, as a new process."""
        world, random = self._world, self._world.scheduler.random
        self._begin_anew()
        while not world.is_over:
            self._heartbeat()
            world.rest(world.profile.poll_ms)
            self._read()
            if world.is_ending:
                self._connection.stray = 0.0
                continue
            if random.random() < world.profile.pause:
                world.scheduler.note("stands still")
                world.rest(2 * SESSION_TIMEOUT_MS)
            if self.reader.epoch > 0 and random.random() < world.profile.leave:
                self._leave()

    def _begin_anew(self) -> None:
        """Forget everything, as a new process: its member has another id."""
        self.reader.member_id = f"{self.name}-{next(self._world.ids)}"
        self._connection.unanswered.clear()
        self._abandon()

    def _abandon(self) -> None:
        """Read nothing more, and join again."""
        self.reader.epoch = JOIN_EPOCH
        self.reader.reading.clear()
        self._assigned.clear()
        self._taking.clear()
        self._told = None

    # --- heartbeats ------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        """Say what has changed since the last answer, and take what the gateway assigns."""
        reader = self.reader
        owned = frozenset(reader.reading)
        fields: dict[str, Any] = {}
        if self._told is None:
            fields = {"rebalance_timeout_ms": REBALANCE_MS, "topics": tuple(TOPICS)}
        if owned != self._told:
            fields["owned"] = _by_topic_id(owned)
        answer = self._ask(reader.epoch, **fields)
        error = GroupError.COORDINATOR_NOT_AVAILABLE if answer is None else answer.error
        if answer is not None and error is GroupError.NONE:
            self._told = owned
            self._take(answer)
        elif error in (GroupError.UNKNOWN_MEMBER_ID, GroupError.FENCED_MEMBER_EPOCH):
            self._on_fenced()
        elif error is GroupError.FENCED_INSTANCE_ID:
            self._on_fenced()
            self._begin_anew()
        else:
            self._told = None  # the gateway may know less or more: say everything
        self._take_if_due()

    def _ask(self, epoch: int, **fields: Any) -> ConsumerHeartbeatAnswer | None:
        member = Member(self.reader.member_id, self._instance_id, self.name)
        request = ConsumerHeartbeat(member, epoch, **fields)
        answer: ConsumerHeartbeatAnswer | None = self._connection.ask(
            lambda gateway: gateway.consumer_groups.heartbeat(GROUP_ID, request)
        )
        self._note_late_requests()
        return answer

    def _note_late_requests(self) -> None:
        self.reader.has_late_request = any(not each.is_over for each in self._connection.unanswered)

    def _on_fenced(self) -> None:
        self._world.truth.check_fenced(self.reader)
        self._world.scheduler.note("is fenced")
        self._abandon()

    def _take(self, answer: ConsumerHeartbeatAnswer) -> None:
        world, reader = self._world, self.reader
        world.truth.check_answer(reader.member_id, answer)
        reader.epoch = answer.epoch
        if answer.assignment is not None:
            self._assigned = {
                TopicPartition(_NAMES[topic_id], number)
                for topic_id, numbers in answer.assignment.items()
                for number in numbers
            }
        if not self._taking:
            self._reconcile()

    def _reconcile(self) -> None:
        """Give up what it has no more, and take the rest, at once or some heartbeats later."""
        world, reader = self._world, self.reader
        if revoked := sorted(reader.reading.keys() - self._assigned):
            if world.scheduler.random.random() < 0.7:
                self._commit(revoked)
            for partition in revoked:
                reader.reading.pop(partition, None)
            world.scheduler.note(f"revokes {', '.join(map(str, revoked))}")
        if wanted := self._assigned - reader.reading.keys():
            self._taking, self._takes_after = wanted, 0
            if world.scheduler.random.random() < 0.2:
                self._takes_after = world.scheduler.random.randrange(1, 4)

    def _take_if_due(self) -> None:
        """Begin what it was told to take, also if a later answer does not have it any more."""
        if self._taking and not self._takes_after:
            taking, self._taking = self._taking, set()
            self._begin(sorted(taking))
        self._takes_after = max(0, self._takes_after - 1)

    def _begin(self, partitions: list[TopicPartition]) -> None:
        """Begin to read at the committed offsets, if the gateway knows the member."""
        world, reader = self._world, self.reader
        epoch, member_id = reader.epoch, reader.member_id

        async def serve(gateway: ConsumerGateway) -> Any:
            error = await gateway.consumer_groups.check_member(GROUP_ID, member_id, epoch)
            if error is not GroupError.NONE:
                return error
            try:
                return await self._fetch(gateway)
            except SparkLogError:
                return GroupError.COORDINATOR_NOT_AVAILABLE

        found = self._connection.ask(serve)
        self._note_late_requests()
        if found is None or isinstance(found, GroupError):
            return  # it asks again after its next heartbeat
        for partition in partitions:
            place = TOPICS[partition.topic], partition
            position = world.truth.begin(reader, place, found.get(partition, 0))
            reader.reading[partition] = position
            world.scheduler.note(f"begins {partition} at {position.offset}, epoch {epoch}")

    def _fetch(self, gateway: ConsumerGateway) -> Awaitable[Mapping[TopicPartition, int]]:
        return gateway.loop.run_blocking(self._world.offsets.fetch, GROUP_ID)

    def _leave(self) -> None:
        """End as a member; then begin as a new process, or join again after a long poll."""
        random = self._world.scheduler.random
        is_static = self._instance_id is not None
        is_final = not is_static or random.random() < 0.3
        self.reader.reading.clear()
        self._ask(LEAVE_EPOCH if is_final else LEAVE_STATIC_EPOCH)
        self._world.scheduler.note("leaves")
        if is_static or random.random() < 0.5:
            self._begin_anew()
        else:
            self._abandon()

    # --- records ---------------------------------------------------------------------------------

    def _read(self) -> None:
        """Handle a few records, and commit them at times."""
        world, random = self._world, self._world.scheduler.random
        for partition, position in self.reader.reading.items():
            position.offset += random.randrange(3)
            world.truth.on_handled((TOPICS[partition.topic], partition), position.offset)
        if self.reader.reading and random.random() < world.profile.commit:
            self._commit(list(self.reader.reading))

    def _commit(self, partitions: list[TopicPartition]) -> None:
        world, reader = self._world, self.reader
        member_id, epoch, instance_id = reader.member_id, reader.epoch, self._instance_id
        offsets = {
            tp: OffsetAndMetadata(position.offset, position.acquisition)
            for tp in partitions
            if (position := reader.reading.get(tp)) is not None
        }

        async def serve(gateway: ConsumerGateway) -> GroupError:
            try:
                return await gateway.consumer_groups.commit(
                    GROUP_ID, member_id, instance_id, epoch, offsets
                )
            except SparkLogError:
                return GroupError.COORDINATOR_NOT_AVAILABLE  # it may be committed

        if world.scheduler.random.random() < 0.3:
            self._connection.send(serve)  # ``commitAsync``
            return
        error = self._connection.ask(serve)
        self._note_late_requests()
        if error in (GroupError.UNKNOWN_MEMBER_ID, GroupError.FENCED_INSTANCE_ID):
            self._on_fenced()


def _by_topic_id(partitions: frozenset[TopicPartition]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for topic, number in partitions:
        found.setdefault(TOPICS[topic], set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in sorted(found.items())}
