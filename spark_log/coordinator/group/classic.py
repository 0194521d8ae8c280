"""Groups of Kafka's clients (the classic protocol): members whose metadata are opaque bytes.

A gateway coordinates such a group; the partitions are assigned by one of the clients, the leader,
in a format that only the clients know. The group's log has all of it, so that another gateway can
continue with it. A group has members of one kind only (docs/adr/0054): Kafka's clients, or
consumers of this package.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from spark_log.coordinator.group.records import ClassicMemberPart, ClassicPart
from spark_log.errors import CorruptRecordError

EMPTY: Final = "Empty"
PREPARING_REBALANCE: Final = "PreparingRebalance"
COMPLETING_REBALANCE: Final = "CompletingRebalance"
STABLE: Final = "Stable"
CLASSIC_STATES: Final = (EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE)
"""The states of a classic group (``ClassicGroupState``): no members; members join again; the leader
has to assign the partitions; it has."""


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """A member of a classic group.

    Attributes:
        member_id: the member's id, which the coordinator gave it.
        instance_id: ``group.instance.id`` of a static member (KIP-345).
        client_id: the ``client.id`` of its client.
        client_host: the address that its JoinGroup came from.
        rebalance_timeout_ms: the time in which it has to join again after a rebalance began.
        session_timeout_ms: the time without heartbeats after which it expires.
        protocols: the protocols that it supports, the preferred one first, each with the member's
            metadata; for consumers, these are assignors and subscriptions.
        assignment: the assignment that the leader gave it in this generation.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not support it."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    @staticmethod
    def of(part: ClassicMemberPart) -> ClassicMember:
        """Return the member from its stored form."""
        return ClassicMember(
            part.member_id,
            part.instance_id,
            part.client_id,
            part.client_host,
            part.rebalance_timeout_ms,
            part.session_timeout_ms,
            tuple((name, _bytes(data)) for name, data in part.protocols),
            _bytes(part.assignment),
        )

    def to_part(self) -> ClassicMemberPart:
        """Return the stored form of the member."""
        return ClassicMemberPart(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            protocols=tuple((name, _text(data)) for name, data in self.protocols),
            assignment=_text(self.assignment),
        )


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    """The members of a classic group after a prefix of the group's log.

    Attributes:
        protocol_type: the kind of its members: ``consumer``, ``connect``, …
        state: one of `CLASSIC_STATES`.
        leader: the id of the member that assigns; None without members.
        members: the members, in the order in which they joined.
    """

    protocol_type: str
    state: str = EMPTY
    leader: str | None = None
    members: Mapping[str, ClassicMember] = field(default_factory=dict)

    def without(self, member_ids: Collection[str]) -> ClassicGroup:
        """Return the group after members left: the others have to join again."""
        left = {name: each for name, each in self.members.items() if name not in member_ids}
        if not left:
            return ClassicGroup(self.protocol_type)
        leader = self.leader if self.leader in left else next(iter(left))
        return replace(self, state=PREPARING_REBALANCE, leader=leader, members=left)

    @staticmethod
    def of(part: ClassicPart) -> ClassicGroup:
        """Return the members from their stored form.

        Raises:
            CorruptRecordError: the state does not exist, or does not fit the members.
        """
        members = {each.member_id: ClassicMember.of(each) for each in part.members}
        if part.state not in CLASSIC_STATES or (part.state == EMPTY) != (not members):
            raise CorruptRecordError(
                f"a group record has the state {part.state!r} with {len(members)} members; "
                f"expected {EMPTY} without members, else one of {', '.join(CLASSIC_STATES[1:])}"
            )
        return ClassicGroup(part.protocol_type, part.state, part.leader, members)

    def to_part(self) -> ClassicPart:
        """Return the stored form of the members."""
        return ClassicPart(
            protocol_type=self.protocol_type,
            state=self.state,
            leader=self.leader,
            members=tuple(each.to_part() for each in self.members.values()),
        )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise CorruptRecordError(f"a group record has bytes that are not base64: {error}") from None
