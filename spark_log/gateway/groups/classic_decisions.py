"""Changes of a classic group by events: pure functions of the group and the event.

The rules are those of Kafka's ``GroupMetadataManager`` (``classicGroupJoin`` and the functions
around it), with its names and errors. An event is a request, or a timer that expired. Time is not
read here: a decision sets timers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spark_log.coordinator import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    ClassicMember,
    Group,
)
from spark_log.gateway.groups.group_state import (
    AnyAnswer,
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

NEW_MEMBER_TIMEOUT_MS = 300_000
"""Time for which a member waits for its first generation (``classicGroupNewMemberJoinTimeoutMs``).
A client that is gone does not know its id, and would join as another member."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The cluster's limits of groups.

    Attributes:
        max_size: ``group.max.size``.
        initial_delay_ms: ``group.initial.rebalance.delay.ms``.
        min_session_timeout_ms: ``group.min.session.timeout.ms``.
        max_session_timeout_ms: ``group.max.session.timeout.ms``.
    """

    max_size: int
    initial_delay_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup request.

    Attributes:
        member: the member; its id is empty in the first request of a client.
        protocol_type: the kind of member.
        needs_known_id: whether the client has to join again with the id that it is given
            (KIP-394, from version 4 on).
        knows_skip_assignment: whether the client knows the field ``skip_assignment`` (version 9).
    """

    member: ClassicMember
    protocol_type: str
    needs_known_id: bool
    knows_skip_assignment: bool


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """A member as a request names it."""

    member_id: str
    instance_id: str | None = None


# --- loading --------------------------------------------------------------------------------------


def load(group: Group, fence: int) -> Decision:
    """Begin to coordinate a group that the log has: its members have their whole timeouts.

    Args:
        group: the group as its log has it; its members are Kafka's clients, or there are none.
        fence: the fence of its offsets.
    """
    classic = group.classic or ClassicGroup("")
    draft = _Draft(GroupState(group, classic, group.protocol, fence=fence))
    for member in classic.members.values():
        draft.keep_alive(member)
    if classic.state == PREPARING_REBALANCE:
        draft.set_timer("join", draft.rebalance_timeout_ms)
    elif classic.state == COMPLETING_REBALANCE:
        draft.unsynced = set(classic.members)
        draft.set_timer("sync", draft.rebalance_timeout_ms)
    return draft.decision()


# --- requests -------------------------------------------------------------------------------------


def join(
    state: GroupState, request: JoinRequest, token: Token, new_member_id: str, limits: GroupLimits
) -> Decision:
    """Add a member, or begin a new generation of a member that joins again.

    Args:
        state: the group.
        request: the request.
        token: the number of the request.
        new_member_id: the id of the member if it has none.
        limits: the cluster's limits.
    """
    draft = _Draft(state)
    member = request.member
    name = member.member_id
    error = _refusal(draft, request, limits)
    if error is not None:
        draft.answer(token, JoinAnswer(error, name))
    elif not name:
        _join_new(draft, request, token, new_member_id, limits)
    elif name in draft.pending:
        if member.instance_id is not None:
            draft.answer(token, JoinAnswer(GroupError.UNKNOWN_MEMBER_ID, name))
        else:
            _add(draft, request, token, member, limits)
    else:
        error = _member_error(draft.members, MemberIdentity(name, member.instance_id))
        if error is not GroupError.NONE:
            draft.answer(token, JoinAnswer(error, name))
        else:
            _join_again(draft, request, token, limits)
    return draft.decision()


def sync(
    state: GroupState,
    identity: MemberIdentity,
    generation: int,
    protocol: tuple[str | None, str | None],
    assignments: Mapping[str, bytes],
    token: Token,
) -> Decision:
    """Give a member its assignment, as soon as the leader has made it.

    Args:
        state: the group.
        identity: the member.
        generation: the generation that the member knows.
        protocol: type and name of the protocol that the member knows; None for older clients.
        assignments: the assignment of each member, from the leader.
        token: the number of the request.
    """
    draft = _Draft(state)
    error = _member_error(draft.members, identity)
    if error is GroupError.NONE and generation != state.generation:
        error = GroupError.ILLEGAL_GENERATION
    kind, name = protocol
    if error is GroupError.NONE and (
        (kind is not None and kind != draft.protocol_type)
        or (name is not None and name != draft.protocol)
    ):
        error = GroupError.INCONSISTENT_GROUP_PROTOCOL
    if error is GroupError.NONE and draft.phase == PREPARING_REBALANCE:
        error = GroupError.REBALANCE_IN_PROGRESS
    if error is not GroupError.NONE:
        draft.answer(token, SyncAnswer(error))
        return draft.decision()
    member_id = draft.name_of(identity)
    draft.unsynced.discard(member_id)
    if draft.phase == STABLE:
        draft.answer(token, draft.assignment_of(member_id))
        draft.keep_alive(draft.members[member_id])
        _end_sync_timer(draft)
        return draft.decision()
    draft.wait("syncing", member_id, token)
    if member_id == draft.leader:
        for each in list(draft.members.values()):
            given = assignments.get(each.member_id, b"")
            draft.members[each.member_id] = replace(each, assignment=given)
        draft.phase = STABLE
        draft.change, draft.changed = "sync", (member_id,)
        waiting, draft.syncing = draft.syncing, {}
        for name_of_waiting, its_token in waiting.items():
            draft.answer(its_token, draft.assignment_of(name_of_waiting))
            draft.keep_alive(draft.members[name_of_waiting])
    _end_sync_timer(draft)
    return draft.decision()


def heartbeat(
    state: GroupState, identity: MemberIdentity, generation: int, token: Token
) -> Decision:
    """Keep a member alive."""
    draft = _Draft(state)
    error = _member_error(draft.members, identity)
    if error is GroupError.NONE and generation != state.generation:
        error = GroupError.ILLEGAL_GENERATION
    if error is GroupError.NONE:
        draft.keep_alive(draft.members[draft.name_of(identity)])
        if draft.phase == PREPARING_REBALANCE:
            error = GroupError.REBALANCE_IN_PROGRESS
    draft.answer(token, HeartbeatAnswer(error))
    return draft.decision()


def leave(
    state: GroupState, identities: Sequence[MemberIdentity], token: Token, limits: GroupLimits
) -> Decision:
    """Remove members; the others rebalance."""
    draft = _Draft(state)
    errors = []
    gone = []
    for identity in identities:
        if identity.instance_id is None and identity.member_id in draft.pending:
            draft.forget_pending(identity.member_id)
            errors.append(GroupError.NONE)
            continue
        error = _member_error(draft.members, identity)
        errors.append(error)
        if error is GroupError.NONE:
            gone.append(draft.name_of(identity))
            draft.remove(gone[-1], GroupError.UNKNOWN_MEMBER_ID)
    draft.answer(token, LeaveAnswer(tuple(errors)))
    if gone:
        _removed(draft, gone, "leave", limits)
    else:
        _complete_if_all_joined(draft, limits)
    return draft.decision()


def check_commit(state: GroupState, identity: MemberIdentity, generation: int) -> GroupError:
    """Return why a member may not commit offsets; NONE if it may.

    As in Kafka a client that assigns partitions itself, which has no generation, may if the group
    is empty. It may have an id: clients of the consumer protocol make theirs when they start.
    """
    if generation < 0 and state.classic.state == EMPTY:
        return GroupError.NONE
    error = _member_error(state.classic.members, identity)
    if error is GroupError.NONE and generation != state.generation:
        return GroupError.ILLEGAL_GENERATION
    if error is GroupError.NONE and state.classic.state == COMPLETING_REBALANCE:
        return GroupError.REBALANCE_IN_PROGRESS
    return error


def member_id_of(state: GroupState, identity: MemberIdentity) -> str:
    """Return the id of a member that `check_commit` accepted."""
    return _Draft(state).name_of(identity)


# --- timers ---------------------------------------------------------------------------------------


def expire(state: GroupState, key: tuple[str, str], limits: GroupLimits) -> Decision:
    """Do what the end of a timer is for.

    Args:
        state: the group.
        key: the timer's key (`Timer`).
        limits: the cluster's limits.
    """
    draft = _Draft(state)
    kind, name = key
    if kind == "pending":
        draft.forget_pending(name)
        _complete_if_all_joined(draft, limits)
    elif kind == "session":
        if name in draft.members:
            _expire_members(draft, [name], limits)
    elif kind == "sync":
        late = [each for each in draft.members if each in draft.unsynced]
        if late and draft.phase in (COMPLETING_REBALANCE, STABLE):
            _expire_members(draft, late, limits)
    elif draft.phase == PREPARING_REBALANCE:
        left_ms = draft.first_delay_left_ms
        if left_ms and draft.is_new_member_added:  # Kafka's InitialDelayedJoin
            _wait_for_first_members(draft, left_ms, limits)
        else:
            _complete_join(draft, limits)
    return draft.decision()


# --- helpers --------------------------------------------------------------------------------------


class _Draft:
    """A group while an event changes it."""

    def __init__(self, state: GroupState) -> None:
        self.before = state
        self.protocol_type = state.classic.protocol_type
        self.protocol = state.protocol
        self.phase = state.classic.state
        self.leader = state.classic.leader
        self.members = dict(state.classic.members)
        self.joining = dict(state.joining)
        self.syncing = dict(state.syncing)
        self.pending = set(state.pending)
        self.new = set(state.new)
        self.unsynced = set(state.unsynced)
        self.first_delay_left_ms = state.first_delay_left_ms
        self.is_new_member_added = state.is_new_member_added
        self.generation = state.generation
        self.change: str | None = None
        self.changed: tuple[str, ...] = ()
        self._answers: list[tuple[Token, AnyAnswer]] = []
        self._timers: dict[tuple[str, str], float | None] = {}

    @property
    def rebalance_timeout_ms(self) -> int:
        """The time in which all members have to join again."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def decision(self) -> Decision:
        """Return the outcome."""
        before = self.before
        classic = ClassicGroup(self.protocol_type, self.phase, self.leader, self.members)
        logged = before.logged
        if self.change is not None:
            # New members are in the log from their first generation on.
            kept = {name: each for name, each in self.members.items() if name not in self.new}
            leader = self.leader if self.leader in kept else next(iter(kept), None)
            phase = self.phase if kept else EMPTY
            in_log = ClassicGroup(self.protocol_type, phase, leader, kept)
            protocol = self.protocol if kept else None
            generation = self.generation
            if not kept and self.generation == logged.generation and logged.members:
                generation += 1
            logged = logged.with_classic(in_log, protocol, generation)
        state = GroupState(
            logged,
            classic,
            self.protocol,
            self.joining,
            self.syncing,
            frozenset(self.pending),
            frozenset(self.new),
            frozenset(self.unsynced),
            self.first_delay_left_ms,
            self.is_new_member_added,
            before.fence,
        )
        timers = tuple(Timer(key, delay) for key, delay in self._timers.items())
        return Decision(state, tuple(self._answers), timers, self.change, self.changed)

    def answer(self, token: Token, answer: AnyAnswer) -> None:
        self._answers.append((token, answer))

    def set_timer(self, kind: str, delay_ms: float | None, name: str = "") -> None:
        self._timers[kind, name] = delay_ms

    def keep_alive(self, member: ClassicMember) -> None:
        """Begin the member's session anew; a member that waits for an answer does not expire."""
        name = member.member_id
        is_waiting = name in self.joining or name in self.syncing
        delay_ms: float | None = None if is_waiting else member.session_timeout_ms
        if name in self.new and name in self.joining:
            delay_ms = NEW_MEMBER_TIMEOUT_MS
        self.set_timer("session", delay_ms, name)

    def wait(self, kind: str, name: str, token: Token) -> None:
        """Note that a request waits; an earlier one of the member is answered with an error."""
        waiting: dict[str, Token] = getattr(self, kind)
        if name in waiting:
            error = GroupError.REBALANCE_IN_PROGRESS
            earlier = JoinAnswer(error, name) if kind == "joining" else SyncAnswer(error)
            self.answer(waiting[name], earlier)
        waiting[name] = token
        self.keep_alive(self.members[name])

    def name_of(self, identity: MemberIdentity) -> str:
        """Return the id of a member that a request names by its instance id alone."""
        if identity.member_id or identity.instance_id is None:
            return identity.member_id
        found = _static_member(self.members, identity.instance_id)
        assert found is not None
        return found.member_id

    def forget_pending(self, name: str) -> None:
        self.pending.discard(name)
        self.set_timer("pending", None, name)

    def remove(self, name: str, error: GroupError) -> None:
        """Remove a member, and answer its request that waits."""
        del self.members[name]
        if name in self.joining:
            self.answer(self.joining.pop(name), JoinAnswer(error, name))
        if name in self.syncing:
            self.answer(self.syncing.pop(name), SyncAnswer(error))
        self.new.discard(name)
        self.unsynced.discard(name)
        self.set_timer("session", None, name)
        if self.leader == name:
            self.leader = next(iter(self.members), None)

    def assignment_of(self, name: str) -> SyncAnswer:
        assignment = self.members[name].assignment
        return SyncAnswer(GroupError.NONE, self.protocol_type, self.protocol, assignment)

    def join_answer(self, name: str, *, skip_assignment: bool = False) -> JoinAnswer:
        """Return the answer of the present generation to a member."""
        is_leader = name == self.leader
        return JoinAnswer(
            GroupError.NONE,
            name,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            skip_assignment,
            tuple(self.members.values()) if is_leader else (),
        )


def _refusal(draft: _Draft, request: JoinRequest, limits: GroupLimits) -> GroupError | None:
    """Return why a member may not join, whoever it is."""
    member, members = request.member, draft.members
    timeout_ms = member.session_timeout_ms
    if not limits.min_session_timeout_ms <= timeout_ms <= limits.max_session_timeout_ms:
        return GroupError.INVALID_SESSION_TIMEOUT
    if not request.protocol_type or not member.protocols:
        return GroupError.INCONSISTENT_GROUP_PROTOCOL
    if not _is_room(draft, member, limits.max_size):
        return GroupError.GROUP_MAX_SIZE_REACHED
    if not members:
        return None
    others = [
        each
        for each in members.values()
        if each.member_id != member.member_id
        and (each.instance_id is None or each.instance_id != member.instance_id)
    ]
    if request.protocol_type != draft.protocol_type or not _common([member, *others]):
        return GroupError.INCONSISTENT_GROUP_PROTOCOL
    return None


def _is_room(draft: _Draft, member: ClassicMember, max_size: int) -> bool:
    """Return whether the group has a place (``acceptJoiningMember``)."""
    if draft.phase == PREPARING_REBALANCE:
        return member.member_id in draft.joining or len(draft.joining) < max_size
    is_known = member.member_id in draft.members or (
        member.instance_id is not None
        and _static_member(draft.members, member.instance_id) is not None
    )
    return is_known or len(draft.members) < max_size


def _join_new(
    draft: _Draft, request: JoinRequest, token: Token, new_member_id: str, limits: GroupLimits
) -> None:
    member = replace(request.member, member_id=new_member_id)
    if member.instance_id is not None:
        before = _static_member(draft.members, member.instance_id)
        if before is not None:
            _replace_static(draft, request, token, before, member, limits)
            return
    elif request.needs_known_id:
        draft.pending.add(new_member_id)
        draft.set_timer("pending", member.session_timeout_ms, new_member_id)
        draft.answer(token, JoinAnswer(GroupError.MEMBER_ID_REQUIRED, new_member_id))
        return
    _add(draft, request, token, member, limits)


def _add(
    draft: _Draft, request: JoinRequest, token: Token, member: ClassicMember, limits: GroupLimits
) -> None:
    name = member.member_id
    draft.forget_pending(name)
    if not draft.members:
        draft.protocol_type = request.protocol_type
        draft.leader = name
    draft.members[name] = member
    draft.new.add(name)
    draft.is_new_member_added = True
    draft.wait("joining", name, token)
    _rebalance(draft, limits)


def _join_again(draft: _Draft, request: JoinRequest, token: Token, limits: GroupLimits) -> None:
    member = request.member
    name = member.member_id
    known = draft.members[name]
    is_same = known.protocols == member.protocols
    # The answer may have been lost, or a follower asks again: nothing changes for the others.
    if is_same and (
        draft.phase == COMPLETING_REBALANCE or (draft.phase == STABLE and name != draft.leader)
    ):
        draft.answer(token, draft.join_answer(name))
        draft.keep_alive(known)
        return
    draft.members[name] = replace(member, assignment=known.assignment)
    draft.wait("joining", name, token)
    _rebalance(draft, limits)


def _replace_static(
    draft: _Draft,
    request: JoinRequest,
    token: Token,
    before: ClassicMember,
    member: ClassicMember,
    limits: GroupLimits,
) -> None:
    """Put a static member that was started again in the place of its predecessor (KIP-345)."""
    name = member.member_id
    was_leader = draft.leader == before.member_id
    was_new = before.member_id in draft.new
    if before.member_id in draft.joining:
        answer = JoinAnswer(GroupError.FENCED_INSTANCE_ID, before.member_id)
        draft.answer(draft.joining.pop(before.member_id), answer)
    if before.member_id in draft.syncing:
        fenced = SyncAnswer(GroupError.FENCED_INSTANCE_ID)
        draft.answer(draft.syncing.pop(before.member_id), fenced)
    successor = replace(member, assignment=before.assignment)
    draft.members = {
        (name if each is before else key): (successor if each is before else each)
        for key, each in draft.members.items()
    }
    draft.set_timer("session", None, before.member_id)
    draft.unsynced.discard(before.member_id)
    draft.new.discard(before.member_id)
    if was_new:
        draft.new.add(name)
    if was_leader:
        draft.leader = name
    if draft.phase == STABLE and _selected(draft.members.values()) == draft.protocol:
        draft.change, draft.changed = "join", (name, before.member_id)
        draft.keep_alive(successor)
        answer = draft.join_answer(name, skip_assignment=was_leader)
        if was_leader and not request.knows_skip_assignment:
            # An older client that is told to be the leader would assign: it is told that another
            # one is, and asks for its assignment.
            answer = replace(answer, leader=before.member_id, skip_assignment=False, members=())
        draft.answer(token, answer)
        return
    if draft.phase == COMPLETING_REBALANCE:
        # The leader may assign to the predecessor, which the log has.
        draft.change, draft.changed = "join", (name, before.member_id)
    draft.wait("joining", name, token)
    _rebalance(draft, limits)


def _rebalance(draft: _Draft, limits: GroupLimits) -> None:
    """Let all members join again, if they do not already."""
    if draft.phase != PREPARING_REBALANCE:
        _prepare_rebalance(draft, limits)
    _complete_if_all_joined(draft, limits)


def _prepare_rebalance(draft: _Draft, limits: GroupLimits) -> None:
    for token in draft.syncing.values():
        draft.answer(token, SyncAnswer(GroupError.REBALANCE_IN_PROGRESS))
    waiting, draft.syncing = draft.syncing, {}
    for name in waiting:
        draft.keep_alive(draft.members[name])
    draft.unsynced = set()
    draft.set_timer("sync", None)
    was_empty = draft.phase == EMPTY
    draft.phase = PREPARING_REBALANCE
    if was_empty:
        _wait_for_first_members(draft, draft.rebalance_timeout_ms, limits)
    else:
        draft.first_delay_left_ms = None
        draft.set_timer("join", draft.rebalance_timeout_ms)


def _wait_for_first_members(draft: _Draft, left_ms: int, limits: GroupLimits) -> None:
    delay_ms = min(limits.initial_delay_ms, left_ms)
    draft.first_delay_left_ms = left_ms - delay_ms
    draft.is_new_member_added = False
    draft.set_timer("join", delay_ms)


def _complete_if_all_joined(draft: _Draft, limits: GroupLimits) -> None:
    if (
        draft.phase == PREPARING_REBALANCE
        and draft.first_delay_left_ms is None
        and not draft.pending
        and len(draft.joining) == len(draft.members)
    ):
        _complete_join(draft, limits)


def _complete_join(draft: _Draft, limits: GroupLimits) -> None:
    """Begin the next generation with the members that have joined, and static ones."""
    late = [
        name
        for name, each in draft.members.items()
        if name not in draft.joining and each.instance_id is None
    ]
    for name in late:
        draft.remove(name, GroupError.UNKNOWN_MEMBER_ID)
    draft.first_delay_left_ms = None
    if draft.members and not draft.joining:
        # Only static members are left, and none has joined: nobody could assign.
        if late:
            draft.change, draft.changed = "expire", tuple(late)
        draft.set_timer("join", draft.rebalance_timeout_ms)
        return
    draft.set_timer("join", None)
    fence = draft.before.fence
    draft.generation = max(draft.generation, fence) + 1
    draft.change, draft.changed = "join", tuple(draft.joining) or tuple(late)
    if not draft.members:
        draft.phase, draft.protocol, draft.leader = EMPTY, None, None
        draft.change = "expire" if late else "leave"
        return
    if draft.leader not in draft.joining:
        draft.leader = next(name for name in draft.members if name in draft.joining)
    draft.protocol = _selected(draft.members.values())
    draft.phase = COMPLETING_REBALANCE
    draft.new = set()
    draft.unsynced = set(draft.members)
    for name, each in draft.members.items():
        draft.members[name] = replace(each, assignment=b"")
    joined, draft.joining = draft.joining, {}
    for name, token in joined.items():
        draft.answer(token, draft.join_answer(name))
        draft.keep_alive(draft.members[name])
    draft.set_timer("sync", draft.rebalance_timeout_ms)


def _expire_members(draft: _Draft, names: Sequence[str], limits: GroupLimits) -> None:
    for name in names:
        draft.remove(name, GroupError.UNKNOWN_MEMBER_ID)
    _removed(draft, names, "expire", limits)


def _removed(draft: _Draft, names: Sequence[str], change: str, limits: GroupLimits) -> None:
    """Go on without members that were removed."""
    if any(name in draft.before.logged.members for name in names):
        draft.change, draft.changed = change, tuple(names)
    if draft.phase in (STABLE, COMPLETING_REBALANCE):
        _prepare_rebalance(draft, limits)
    if not draft.members and not draft.pending:
        draft.set_timer("join", None)
        draft.first_delay_left_ms = None
        draft.phase, draft.protocol, draft.leader = EMPTY, None, None
        return
    _complete_if_all_joined(draft, limits)


def _end_sync_timer(draft: _Draft) -> None:
    if not draft.unsynced:
        draft.set_timer("sync", None)


def _member_error(members: Mapping[str, ClassicMember], identity: MemberIdentity) -> GroupError:
    """Return why a request of a member is refused (``ClassicGroup.validateMember``)."""
    if identity.instance_id is not None:
        static = _static_member(members, identity.instance_id)
        if static is None:
            return GroupError.UNKNOWN_MEMBER_ID
        if identity.member_id and static.member_id != identity.member_id:
            return GroupError.FENCED_INSTANCE_ID
        return GroupError.NONE
    return GroupError.NONE if identity.member_id in members else GroupError.UNKNOWN_MEMBER_ID


def _static_member(members: Mapping[str, ClassicMember], instance_id: str) -> ClassicMember | None:
    return next((each for each in members.values() if each.instance_id == instance_id), None)


def _common(members: Sequence[ClassicMember]) -> tuple[str, ...]:
    """Return the protocols that all members support, in the first one's order."""
    names = [[name for name, _ in each.protocols] for each in members]
    return tuple(name for name in names[0] if all(name in each for each in names))


def _selected(members: Iterable[ClassicMember]) -> str | None:
    """Return the protocol that most members prefer, of those that all support."""
    all_members = list(members)
    if not all_members:
        return None
    common = _common(all_members)
    votes = [
        next(name for name, _ in each.protocols if name in common) for each in all_members if common
    ]
    return max(common, key=votes.count, default=None)
