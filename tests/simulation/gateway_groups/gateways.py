"""Gateways and clients of the simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_log.coordinator.group.classic import ClassicMember
from spark_log.coordinator.group.consumer_protocol import (
    assigned_partitions,
    encode_assignment,
)
from spark_log.errors import IllegalGenerationError, SparkLogError, StorageError
from spark_log.gateway.groups import (
    CoordinatedGroup,
    GroupError,
    GroupLimits,
    GroupLostError,
    JoinAnswer,
    JoinRequest,
    MemberIdentity,
)
from spark_log.gateway.groups import classic_decisions as decisions
from spark_log.gateway.groups.group_state import Decision, GroupState
from spark_log.types import OffsetAndMetadata, TopicPartition
from tests.simulation.gateway_groups.world import (
    PARTITIONS,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    GatewayGroupWorld,
)
from tests.simulation.groups.true_group import GROUP_ID

_CHECK_MS = 400.0
_REQUEST_TIMEOUT_MS = 3 * REBALANCE_MS
_STEP_MS = 15.0

_Decide = Callable[[GroupState, int, GroupLimits], Decision]


@dataclass(slots=True)
class Request:
    """A request on its way, and its answer.

    Attributes:
        decide: the decision of the coordinator; None for a commit.
        commit: the member, its generation and its offsets; None for others.
        answer: the answer; None if it has not come.
        is_abandoned: whether the client waits no more.
    """

    decide: _Decide | None = None
    commit: tuple[MemberIdentity, int, dict[TopicPartition, OffsetAndMetadata]] | None = None
    answer: Any = None
    is_abandoned: bool = False


class SimulatedGateway:
    """A gateway that coordinates the group if it is asked: what `GroupCoordinators` does."""

    def __init__(self, world: GatewayGroupWorld, name: str) -> None:
        self.name = name
        self.requests: list[Request] = []
        self._world = world
        self._tokens = 0

    def run(self) -> None:
        """Answer requests; called again after each crash, without memory."""
        self.requests.clear()
        self._forget()
        while not self._world.is_over:
            if self.requests:
                self._answer(self.requests.pop(0))
            elif not self._expire():
                self._world.rest(_STEP_MS)

    def _forget(self) -> None:
        self._group: CoordinatedGroup | None = None
        self._state: GroupState | None = None
        self._waiting: dict[int, Request] = {}
        self._timers: dict[tuple[str, str], float] = {}

    def _answer(self, request: Request) -> None:
        self._tokens += 1
        token = self._tokens
        self._waiting[token] = request
        try:
            state = self._loaded()
            if request.commit is not None:
                del self._waiting[token]
                self._commit(request, state)
                return
            assert request.decide is not None
            self._take(request.decide(state, token, self._world.limits))
        except GroupLostError:
            self._lose(GroupError.NOT_COORDINATOR)
        except SparkLogError:
            self._lose(GroupError.COORDINATOR_NOT_AVAILABLE)

    def _loaded(self) -> GroupState:
        if self._state is None:
            self._group = self._world.open_group()
            decision = self._group.load()
            self._state = decision.state
            self._set_timers(decision)
            self._timers["check", ""] = self._world.clock.monotonic_ms() + _CHECK_MS
        return self._state

    def _take(self, decision: Decision) -> None:
        assert self._group is not None
        assert self._state is not None
        if decision.change is not None:
            decision = self._group.write(decision, self._state)
            self._world.scheduler.note(
                f"generation {decision.state.generation} by {decision.change}"
            )
        self._state = decision.state
        for token, answer in decision.answers:
            if token in self._waiting:
                self._waiting.pop(token).answer = answer
        self._set_timers(decision)

    def _commit(self, request: Request, state: GroupState) -> None:
        assert request.commit is not None
        assert self._group is not None
        identity, generation, offsets = request.commit
        error = decisions.check_commit(state, identity, generation)
        if error is GroupError.NONE:
            member_id = decisions.member_id_of(state, identity)
            try:
                self._group.commit(state, member_id, offsets)
            except IllegalGenerationError:
                error = GroupError.ILLEGAL_GENERATION
                try:
                    self._group.check(state)
                except GroupLostError:
                    request.answer = GroupError.NOT_COORDINATOR
                    raise
            except SparkLogError:
                error = GroupError.COORDINATOR_NOT_AVAILABLE  # it may be committed
        request.answer = error

    def _set_timers(self, decision: Decision) -> None:
        for timer in decision.timers:
            self._timers.pop(timer.key, None)
            if timer.delay_ms is not None:
                self._timers[timer.key] = self._world.clock.monotonic_ms() + timer.delay_ms

    def _expire(self) -> bool:
        now_ms = self._world.clock.monotonic_ms()
        due = min(self._timers, key=self._timers.__getitem__, default=None)
        if due is None or self._timers[due] > now_ms or self._state is None:
            return False
        del self._timers[due]
        try:
            if due == ("check", ""):
                self._timers[due] = now_ms + _CHECK_MS
                assert self._group is not None
                self._group.check(self._state)
            else:
                self._take(decisions.expire(self._state, due, self._world.limits))
        except GroupLostError:
            self._lose(GroupError.NOT_COORDINATOR)
        except SparkLogError:
            if due != ("check", ""):
                self._lose(GroupError.COORDINATOR_NOT_AVAILABLE)
        return True

    def _lose(self, error: GroupError) -> None:
        self._world.scheduler.note(f"has lost the group: {error.name}")
        waiting = list(self._waiting.values())
        self._forget()
        for request in waiting:
            request.answer = error


class SimulatedClient:
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
        gateways: list[SimulatedGateway],
        name: str,
        instance_id: str | None,
    ) -> None:
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.reading: dict[TopicPartition, int] = {}
        self._world = world
        self._gateways = gateways

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
            if self.generation < 0:
                self._join()
            else:
                self._poll()
            world.rest(world.profile.poll_ms)

    def _forget(self) -> None:
        self.generation = -1
        self.reading = {}

    def _ask(self, **what: Any) -> Any:
        """Return the answer of a gateway; None without one."""
        world = self._world
        random = world.scheduler.random
        number = world.preferred
        if not world.is_ending and random.random() < world.profile.stray:
            number = random.randrange(len(self._gateways))
        request = Request(**what)
        self._gateways[number].requests.append(request)
        until_ms = world.scheduler.now_ms + _REQUEST_TIMEOUT_MS
        while request.answer is None:
            if world.scheduler.now_ms > until_ms or world.is_over:
                request.is_abandoned = True
                return None
            world.rest(_STEP_MS)
        return request.answer

    def _join(self) -> None:
        world = self._world
        member = ClassicMember(
            self.member_id,
            self.instance_id,
            self.name,
            "",
            REBALANCE_MS,
            SESSION_MS,
            (("range", b""),),
        )
        wanted = JoinRequest(member, "consumer", True, True)
        new_id = f"{self.name}-{next(world.ids)}"
        answer = self._ask(
            decide=lambda state, token, limits: decisions.join(state, wanted, token, new_id, limits)
        )
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
                name: encode_assignment(frozenset(PARTITIONS[at :: len(names)]))
                for at, name in enumerate(names)
            }
        identity = MemberIdentity(self.member_id, self.instance_id)
        generation = joined.generation
        answer = self._ask(
            decide=lambda state, token, _: decisions.sync(
                state, identity, generation, ("consumer", "range"), given, token
            )
        )
        if _error(answer) is not GroupError.NONE:
            self._refused(_error(answer))
            return
        assigned = assigned_partitions(answer.assignment)
        try:
            found = world.offsets.fetch(GROUP_ID)
        except StorageError:
            return  # it joins again
        self.generation = generation
        for partition in sorted(assigned):
            position = found.get(partition, 0)
            place = (TOPIC.topic_id, partition)
            world.truth.check_started(place, position, self.holder, generation)
            self.reading[partition] = position
            world.scheduler.note(f"begins {partition} at {position} in generation {generation}")

    def _poll(self) -> None:
        world = self._world
        random = world.scheduler.random
        for partition in self.reading:
            self.reading[partition] += random.randrange(3)
            world.truth.on_handled((TOPIC.topic_id, partition), self.reading[partition])
        identity = MemberIdentity(self.member_id, self.instance_id)
        generation = self.generation
        if self.reading and random.random() < world.profile.commit:
            offsets = {tp: OffsetAndMetadata(at) for tp, at in self.reading.items()}
            self._refused(_error(self._ask(commit=(identity, generation, offsets))))
        if self.generation >= 0:
            answer = self._ask(
                decide=lambda state, token, _: decisions.heartbeat(
                    state, identity, generation, token
                )
            )
            self._refused(_error(answer))
        is_leaving = not world.is_ending and random.random() < world.profile.leave
        if self.generation >= 0 and self.instance_id is None and is_leaving:
            self._ask(
                decide=lambda state, token, limits: decisions.leave(
                    state, [identity], token, limits
                )
            )
            self._forget()
            self.member_id = ""

    def _refused(self, error: GroupError) -> None:
        """Go on after an answer as Kafka's clients do."""
        if error in (GroupError.UNKNOWN_MEMBER_ID, GroupError.FENCED_INSTANCE_ID):
            self.member_id = ""
            self._forget()
        elif error in (GroupError.ILLEGAL_GENERATION, GroupError.REBALANCE_IN_PROGRESS):
            self._forget()


def _error(answer: Any) -> GroupError:
    if answer is None:
        return GroupError.COORDINATOR_NOT_AVAILABLE
    return answer if isinstance(answer, GroupError) else GroupError(answer.error)
