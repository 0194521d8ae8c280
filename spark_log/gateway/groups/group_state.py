"""A classic group in its coordinator's memory, and the answers to its members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from spark_log.coordinator import ClassicGroup, ClassicMember, Group


class GroupError(IntEnum):
    """The codes of Kafka's ``Errors`` that a coordinator answers."""

    NONE = 0
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_REGULAR_EXPRESSION = 128


Token = int
"""The number of a request that waits for its answer."""


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The answer to a JoinGroup request; members are told to the leader alone."""

    error: GroupError
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[ClassicMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """The answer to a SyncGroup request."""

    error: GroupError
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a Heartbeat request, and to the check of a member before a commit."""

    error: GroupError


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    """The answer to a LeaveGroup request: an error for each of its members."""

    errors: tuple[GroupError, ...]


AnyAnswer = JoinAnswer | SyncAnswer | HeartbeatAnswer | LeaveAnswer


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that is set anew; an older one of the same key ends.

    Attributes:
        key: the kind, and the id of the member that it is for: ``("session", "a-1")``,
            ``("pending", "a-2")``, ``("join", "")`` or ``("sync", "")``.
        delay_ms: the time until it expires; None to end it.
    """

    key: tuple[str, str]
    delay_ms: float | None


@dataclass(frozen=True, slots=True)
class GroupState:
    """A classic group as its coordinator knows it.

    Attributes:
        logged: the group as its log has it.
        classic: its members with those that have not been in a generation yet, and its state.
        protocol: the name of the present generation's protocol.
        joining: the JoinGroup request of each member that waits for the next generation.
        syncing: the SyncGroup request of each member that waits for its assignment.
        pending: ids that were given to clients that have not joined with them yet (KIP-394).
        new: members that have been in no generation yet.
        unsynced: members that have not asked for their assignment in this generation.
        first_delay_left_ms: the time for which the first members of an empty group may still wait
            for others; None if the group was not empty when it began to rebalance.
        is_new_member_added: whether a member has joined since the last such wait began.
        fence: the lowest generation that the offsets table accepts commits of.
    """

    logged: Group
    classic: ClassicGroup
    protocol: str | None = None
    joining: Mapping[str, Token] = field(default_factory=dict)
    syncing: Mapping[str, Token] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()
    unsynced: frozenset[str] = frozenset()
    first_delay_left_ms: int | None = None
    is_new_member_added: bool = False
    fence: int = 0

    @property
    def generation(self) -> int:
        """The present generation."""
        return self.logged.generation

    @property
    def waiting(self) -> tuple[Token, ...]:
        """The requests that wait for an answer."""
        return (*self.joining.values(), *self.syncing.values())


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of an event.

    Attributes:
        state: the group after the event.
        answers: the answers, which are sent when the group's log has ``after``.
        timers: the timers that are set or ended.
        change: the change that is appended to the log: ``join``, ``sync``, ``leave`` or
            ``expire``; None if the log does not change.
        changed_members: the members that the change is about.
    """

    state: GroupState
    answers: tuple[tuple[Token, AnyAnswer], ...] = ()
    timers: tuple[Timer, ...] = ()
    change: str | None = None
    changed_members: tuple[str, ...] = ()
