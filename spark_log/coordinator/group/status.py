"""A member's status in the newest state of its group that was read."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_log.coordinator.group.group import Group, GroupTopic, Member, PendingOffsets
from spark_log.errors import FencedInstanceIdError, UnknownMemberIdError
from spark_log.types import TopicPartition
from spark_log.util import shown


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member's assignment in the newest generation that it has read.

    Attributes:
        member_id: the member's id.
        generation: the group's generation.
        protocol: the name of the assignor.
        assigned: the partitions that it reads and commits.
        revoking: the partitions that it has to stop reading, commit, and `release`.
        topics: the id and number of partitions of each topic in the assignment.
        is_settled: whether no partition is moving from one member to another.
        pending_offsets: the pending offsets of transactions that may not be complete. They change
            without notice: statuses that differ only in them compare equal.
    """

    member_id: str
    generation: int
    protocol: str
    assigned: frozenset[TopicPartition]
    revoking: frozenset[TopicPartition]
    topics: dict[str, GroupTopic]
    is_settled: bool
    pending_offsets: tuple[PendingOffsets, ...] = field(default=(), compare=False)

    @property
    def held(self) -> frozenset[TopicPartition]:
        """Partitions that it may commit in this generation."""
        return self.assigned | self.revoking

    def __str__(self) -> str:
        revoking = f", revokes {shown(sorted(self.revoking))}" if self.revoking else ""
        return (
            f"{self.member_id} reads {shown(sorted(self.assigned)) or 'nothing'}{revoking} "
            f"in generation {self.generation}"
        )

    @staticmethod
    def of(group: Group, member: Member) -> MemberStatus:
        """Return the status of a member of a group."""
        return MemberStatus(
            member.member_id,
            group.generation,
            group.protocol or "",
            member.owned,
            member.revoking,
            dict(group.topics),
            group.state == "Stable",
            group.pending_offsets,
        )


def present_member(group: Group, group_id: str, member: Member | None) -> Member:
    """Return the group's present state of a member.

    Args:
        group: the group.
        group_id: the group's id.
        member: the member as it joined; None if it has not joined, or left.

    Raises:
        UnknownMemberIdError: it is not a member: it left, or others expired it.
        FencedInstanceIdError: a process with the same instance id has replaced it.
    """
    if member is not None and member.member_id in group.members:
        return group.members[member.member_id]
    member_id = "" if member is None else member.member_id
    if member is not None and member.instance_id in group.instances:
        raise FencedInstanceIdError(
            f"another process with group.instance.id {member.instance_id!r} has taken the place of "
            f"{member_id!r} in group {group_id!r}; give each its own",
            group_id=group_id,
            member_id=member_id,
            instance_id=member.instance_id or "",
        )
    raise UnknownMemberIdError(
        f"{member_id or 'this consumer'!r} is not in group {group_id!r}"
        + ("" if member is None else ": it left, or wrote no heartbeat for session.timeout.ms")
        + "; join again",
        group_id=group_id,
        member_id=member_id,
    )
