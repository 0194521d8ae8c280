"""All classic groups that a gateway coordinates: one event of a group at a time, with timers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from spark_log.coordinator import GroupLog, OffsetsTable, StandaloneCommits
from spark_log.errors import CommitFailedError, IllegalGenerationError, SparkLogError
from spark_log.gateway.groups import classic_decisions
from spark_log.gateway.groups.classic_decisions import (
    GroupLimits,
    JoinRequest,
    MemberIdentity,
)
from spark_log.gateway.groups.coordinated_group import (
    CoordinatedGroup,
    ForeignMembersError,
    GroupLostError,
)
from spark_log.gateway.groups.group_state import (
    Decision,
    GroupError,
    GroupState,
    HeartbeatAnswer,
    JoinAnswer,
    LeaveAnswer,
    SyncAnswer,
    Timer,
    Token,
)
from spark_log.gateway.groups.group_timers import (
    CallLater,
    CancelTimer,
    GroupTimers,
    TimerKey,
)
from spark_log.types import OffsetAndMetadata, TopicPartition
from spark_log.util import random_id

if TYPE_CHECKING:
    from spark_log.cluster import Cluster

CHECK_INTERVAL_MS = 30_000
"""Time between two looks at the log of a group with members: within it, its members are told that
another gateway has taken the group. Their commits are refused at once."""

_CHECK = ("check", "")
_Result = TypeVar("_Result")
_Answer = TypeVar("_Answer", JoinAnswer, SyncAnswer, HeartbeatAnswer, LeaveAnswer)

_log = logging.getLogger(__name__)


class RunBlocking(Protocol):
    """Runs a call that blocks on another thread (`Gateway.run_blocking`)."""

    def __call__(self, call: Callable[..., _Result], *args: Any) -> Awaitable[_Result]:
        """Return the result of the call."""


class GroupRefusedError(Exception):
    """A group cannot be used here.

    Attributes:
        error: the answer to the client.
    """

    def __init__(self, error: GroupError) -> None:
        super().__init__(error.name)
        self.error = error


@dataclass(slots=True)
class _Entry:
    """A group in memory.

    Attributes:
        group: reads and writes the group.
        limits: the cluster's limits when the group was loaded.
        state: the group; None before it is loaded, and after it was lost.
        lock: held during an event.
        waiting: the requests that wait for an answer.
        timers: its timers.
    """

    group: CoordinatedGroup
    timers: GroupTimers = field(init=False)
    limits: GroupLimits | None = None
    state: GroupState | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: dict[Token, asyncio.Future[Any]] = field(default_factory=dict)


class GroupCoordinators:
    """Coordinates the groups of Kafka's clients that come to this gateway. For one event loop.

    Which gateway a client asks is the choice of FindCoordinator. Two gateways that coordinate one
    group do no harm: the log has one next generation, and whoever is late has lost the group, and
    answers NOT_COORDINATOR.
    """

    def __init__(
        self,
        cluster: Cluster,
        run_blocking: RunBlocking,
        *,
        is_coordinator: Callable[[str], bool] = lambda _: True,
        finalize_feature: Callable[[], None] = lambda: None,
        call_later: CallLater | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """Return the coordinators; nothing is read yet.

        Args:
            cluster: the opened root.
            run_blocking: runs calls that read or write the log.
            is_coordinator: whether clients are sent to this gateway for a group; called on any
                thread.
            finalize_feature: called before the first record of Kafka's clients in a root; blocks.
            call_later: sets a timer; by default the event loop's.
            new_id: the function that returns the unique part of member ids.
        """
        self._cluster = cluster
        self._run_blocking = run_blocking
        self._is_coordinator = is_coordinator
        self._finalize_feature = finalize_feature
        self._call_later = call_later
        self._new_id = new_id
        self._entries: dict[str, _Entry] = {}
        self._tokens = count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @cached_property
    def _table(self) -> OffsetsTable:
        return OffsetsTable(self._cluster)

    # --- requests of members ---------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        """Return the answer to a JoinGroup, when the next generation has begun."""
        member = request.member
        prefix = member.instance_id or member.client_id
        new_member_id = f"{prefix}-{self._new_id()}"

        def decide(state: GroupState, token: Token, limits: GroupLimits) -> Decision:
            return classic_decisions.join(state, request, token, new_member_id, limits)

        try:
            return await self._ask(group_id, decide, JoinAnswer)
        except ForeignMembersError:
            return JoinAnswer(GroupError.INCONSISTENT_GROUP_PROTOCOL, member.member_id)
        except GroupRefusedError as refused:
            return JoinAnswer(refused.error, member.member_id)

    async def sync(
        self,
        group_id: str,
        identity: MemberIdentity,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> SyncAnswer:
        """Return the answer to a SyncGroup, when the leader has assigned."""

        def decide(state: GroupState, token: Token, _: GroupLimits) -> Decision:
            return classic_decisions.sync(state, identity, generation, protocol, assignments, token)

        try:
            return await self._ask(group_id, decide, SyncAnswer)
        except ForeignMembersError:
            return SyncAnswer(GroupError.UNKNOWN_MEMBER_ID)
        except GroupRefusedError as refused:
            return SyncAnswer(refused.error)

    async def heartbeat(
        self, group_id: str, identity: MemberIdentity, generation: int
    ) -> HeartbeatAnswer:
        """Return the answer to a Heartbeat; reads and writes nothing."""

        def decide(state: GroupState, token: Token, _: GroupLimits) -> Decision:
            return classic_decisions.heartbeat(state, identity, generation, token)

        try:
            return await self._ask(group_id, decide, HeartbeatAnswer)
        except ForeignMembersError:
            return HeartbeatAnswer(GroupError.UNKNOWN_MEMBER_ID)
        except GroupRefusedError as refused:
            return HeartbeatAnswer(refused.error)

    async def leave(self, group_id: str, identities: Sequence[MemberIdentity]) -> LeaveAnswer:
        """Return the answer to a LeaveGroup.

        Raises:
            GroupRefusedError: the group cannot be used here.
        """

        def decide(state: GroupState, token: Token, limits: GroupLimits) -> Decision:
            return classic_decisions.leave(state, identities, token, limits)

        try:
            return await self._ask(group_id, decide, LeaveAnswer)
        except ForeignMembersError:
            return LeaveAnswer((GroupError.UNKNOWN_MEMBER_ID,) * len(identities))

    async def commit(
        self,
        group_id: str,
        identity: MemberIdentity,
        generation: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        is_coordinator: Callable[[str], bool] | None = None,
    ) -> GroupError:
        """Commit offsets, all of them or none; durable on return. Return why they are refused.

        Args:
            group_id: the group's id.
            identity: the member.
            generation: the member's generation.
            offsets: the offsets.
            is_coordinator: whether this gateway has coordinated the group since the request
                arrived; called before each try, on any thread.

        Raises:
            SparkLogError: see `OffsetsTable.commit`.
        """
        try:
            entry, state = await self._loaded(group_id)
            error = classic_decisions.check_commit(state, identity, generation)
            if error is GroupError.NONE and offsets:
                check = partial(check_coordinator, is_coordinator or self._is_coordinator, group_id)
                await self._commit(group_id, entry, state, identity, offsets, check)
        except ForeignMembersError:
            error = GroupError.UNKNOWN_MEMBER_ID
        except GroupRefusedError as refused:
            error = refused.error
        except IllegalGenerationError:
            error = GroupError.ILLEGAL_GENERATION
        except CommitFailedError:
            # It has members since, or other commits kept coming first, or this gateway has stood
            # still meanwhile: the client asks again.
            error = GroupError.COORDINATOR_NOT_AVAILABLE
        return error

    async def _commit(
        self,
        group_id: str,
        entry: _Entry,
        state: GroupState,
        identity: MemberIdentity,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        check: Callable[[], None],
    ) -> None:
        if not state.classic.members:
            commits = StandaloneCommits(self._cluster, self._table, group_id)
            await self._run_blocking(partial(commits.commit, check=check), offsets)
            return
        member_id = classic_decisions.member_id_of(state, identity)
        try:
            await self._run_blocking(entry.group.commit, state, member_id, offsets, check)
        except IllegalGenerationError:
            async with entry.lock:
                if not await self._is_current(group_id, entry):
                    raise GroupRefusedError(GroupError.NOT_COORDINATOR) from None
            raise

    def close(self) -> None:
        """End all timers, and tell members to find another coordinator."""
        self._is_closed = True
        for group_id, entry in list(self._entries.items()):
            self._lose(group_id, entry, GroupError.NOT_COORDINATOR)

    # --- events ----------------------------------------------------------------------------------

    async def _ask(
        self,
        group_id: str,
        decide: Callable[[GroupState, Token, GroupLimits], Decision],
        kind: type[_Answer],
    ) -> _Answer:
        """Return the answer to a request, which may come with a later event."""
        token = next(self._tokens)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def decide_with_token(state: GroupState, limits: GroupLimits) -> Decision:
            return decide(state, token, limits)

        await self._apply(group_id, decide_with_token, (token, future))
        answer = await future
        assert isinstance(answer, kind)
        return answer

    async def _apply(
        self,
        group_id: str,
        decide: Callable[[GroupState, GroupLimits], Decision],
        request: tuple[Token, asyncio.Future[Any]] | None = None,
    ) -> None:
        """Change a group by one event, after the events before it."""
        while True:
            entry = self._entry(group_id)
            async with entry.lock:
                if self._entries.get(group_id) is not entry:
                    continue  # it was lost while this event waited
                await self._load(group_id, entry)
                assert entry.state is not None
                assert entry.limits is not None
                if request is not None:
                    token, future = request
                    entry.waiting[token] = future
                decision = decide(entry.state, entry.limits)
                if decision.change is not None:
                    try:
                        write = entry.group.write
                        decision = await self._run_blocking(write, decision, entry.state)
                    except GroupLostError:
                        self._lose(group_id, entry, GroupError.NOT_COORDINATOR)
                        return
                    except asyncio.CancelledError:
                        # The thread continues: no later event may use this object beside it.
                        self._lose(group_id, entry, GroupError.COORDINATOR_NOT_AVAILABLE)
                        raise
                    except SparkLogError as error:
                        _log.warning(
                            "group %s: a change was not written, and its members join again: %s",
                            group_id,
                            error,
                        )
                        self._lose(group_id, entry, GroupError.COORDINATOR_NOT_AVAILABLE)
                        return
                    _log.debug(
                        "group %s: generation %d, %s by %s of %d members",
                        group_id,
                        decision.state.generation,
                        decision.state.classic.state,
                        decision.change,
                        len(decision.changed_members),
                    )
                if self._entries.get(group_id) is entry:
                    self._adopt(group_id, entry, decision)
                return

    async def _loaded(self, group_id: str) -> tuple[_Entry, GroupState]:
        """Return a group after the events before this call."""

        def decide(state: GroupState, _: GroupLimits) -> Decision:
            found.append(state)
            return Decision(state)

        found: list[GroupState] = []
        entry = self._entry(group_id)
        await self._apply(group_id, decide)
        return self._entries.get(group_id, entry), found[-1]

    def _entry(self, group_id: str) -> _Entry:
        entry = self._entries.get(group_id)
        if self._is_closed or not self._is_coordinator(group_id):
            if entry is not None:
                self._lose(group_id, entry, GroupError.NOT_COORDINATOR)
            raise GroupRefusedError(GroupError.NOT_COORDINATOR)
        if entry is None:
            entry = self._entries[group_id] = _Entry(self._open_group(group_id))
            expire = partial(self._expire, group_id, entry)
            entry.timers = GroupTimers(expire, self._call_later, self._tasks)
        return entry

    def _open_group(self, group_id: str) -> CoordinatedGroup:
        log = GroupLog(self._cluster.store, group_id, self._cluster.clock)
        finalize = self._finalize_feature
        return CoordinatedGroup(log, self._table, group_id, finalize_feature=finalize)

    async def _load(self, group_id: str, entry: _Entry) -> None:
        if entry.state is not None:
            return
        try:
            decision, entry.limits = await self._run_blocking(self._read, entry)
        except ForeignMembersError:
            self._lose(group_id, entry, GroupError.INCONSISTENT_GROUP_PROTOCOL)
            raise
        except GroupLostError:
            self._lose(group_id, entry, GroupError.NOT_COORDINATOR)
            raise GroupRefusedError(GroupError.NOT_COORDINATOR) from None
        except SparkLogError as error:
            self._lose(group_id, entry, GroupError.COORDINATOR_NOT_AVAILABLE)
            _log.warning("group %s cannot be loaded: %s", group_id, error)
            raise GroupRefusedError(GroupError.COORDINATOR_NOT_AVAILABLE) from None
        except asyncio.CancelledError:
            self._lose(group_id, entry, GroupError.COORDINATOR_NOT_AVAILABLE)
            raise
        if self._is_closed:
            raise GroupRefusedError(GroupError.NOT_COORDINATOR)
        entry.state = decision.state
        _set_timers(entry, decision.timers)
        entry.timers.set(_CHECK, CHECK_INTERVAL_MS)

    def _read(self, entry: _Entry) -> tuple[Decision, GroupLimits]:
        config = self._cluster.image().cluster_config()
        limits = GroupLimits(
            config.group_max_size,
            config.group_initial_rebalance_delay_ms,
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
        )
        return entry.group.load(), limits

    def _adopt(self, group_id: str, entry: _Entry, decision: Decision) -> None:
        entry.state = decision.state
        for token, answer in decision.answers:
            future = entry.waiting.pop(token, None)
            if future is not None and not future.done():
                future.set_result(answer)
        _set_timers(entry, decision.timers)
        state = decision.state
        if not state.classic.members and not state.pending and not entry.waiting:
            self._lose(group_id, entry, GroupError.NOT_COORDINATOR)  # nothing to remember

    def _lose(self, group_id: str, entry: _Entry, error: GroupError) -> None:
        """Forget a group, and tell the members that wait to find the coordinator again."""
        if self._entries.get(group_id) is entry:
            del self._entries[group_id]
        entry.state = None
        entry.timers.end_all()
        waiting, entry.waiting = entry.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(GroupRefusedError(error))

    # --- timers ----------------------------------------------------------------------------------

    async def _expire(
        self, group_id: str, entry: _Entry, key: TimerKey, timer: CancelTimer
    ) -> None:
        if key == _CHECK:
            await self._check(group_id, entry)
            return

        def decide(state: GroupState, limits: GroupLimits) -> Decision:
            if not entry.timers.take(key, timer):
                return Decision(state)  # a heartbeat or a join came first
            if key[0] == "session":
                _log.info("group %s: %s sent no heartbeat, and expires", group_id, key[1])
            return classic_decisions.expire(state, key, limits)

        try:
            await self._apply(group_id, decide)
        except (ForeignMembersError, GroupRefusedError) as error:
            _log.debug("group %s: a timer of %s ended in vain: %r", group_id, key, error)

    async def _check(self, group_id: str, entry: _Entry) -> None:
        async with entry.lock:
            if await self._is_current(group_id, entry):
                entry.timers.set(_CHECK, CHECK_INTERVAL_MS)

    async def _is_current(self, group_id: str, entry: _Entry) -> bool:
        """Return whether this gateway still coordinates a group, whose lock the caller holds."""
        if entry.state is None:
            return False
        try:
            await self._run_blocking(entry.group.check, entry.state)
        except GroupLostError:
            self._lose(group_id, entry, GroupError.NOT_COORDINATOR)
        except SparkLogError as error:
            _log.debug("group %s: its log was not read: %s", group_id, error)
        except asyncio.CancelledError:
            self._lose(group_id, entry, GroupError.COORDINATOR_NOT_AVAILABLE)
            raise
        return self._entries.get(group_id) is entry


def check_coordinator(is_coordinator: Callable[[str], bool], group_id: str) -> None:
    """Raise if clients are not sent to this gateway for a group, or it cannot know that.

    Raises:
        CommitFailedError: another gateway may coordinate the group, and may have committed later
            offsets of the same member. Its client asks again.
    """
    if not is_coordinator(group_id):
        raise CommitFailedError(
            f"offsets of group {group_id!r} were not committed: another gateway may coordinate the "
            f"group; find the coordinator again"
        )


def _set_timers(entry: _Entry, timers: Sequence[Timer]) -> None:
    for timer in timers:
        if timer.delay_ms is None:
            entry.timers.end(timer.key)
        else:
            entry.timers.set(timer.key, timer.delay_ms)
