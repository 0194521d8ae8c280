"""The state of a consumer group: who is in it, and who has what; changed by `replay` alone.

A partition that is to move is first *revoked*: the one who has it stops reading it, may still
commit it, and *releases* it. Only then it is given to the next one, as Kafka's group coordinator
does it (KIP-848, `CurrentAssignmentBuilder`). What a member has that leaves or is expired is free
at once. So each partition has at most one owner in every generation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from spark_log.coordinator.group.records import (
    GroupRecord,
    MemberPart,
    TopicPart,
    of_partitions,
    to_partitions,
)
from spark_log.errors import CorruptRecordError
from spark_log.types import TopicPartition

GROUP_STATES = ("Empty", "Stable", "Reconciling")
"""What a group may be; see `Group.state`."""

_NOTHING: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupTopic:
    """A topic as a group knows it: which one, and how many partitions it has."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group.

    Attributes:
        member_id: unique for ever: who comes back has another one.
        instance_id: ``group.instance.id`` of a static member (KIP-345).
        client_id: for people.
        client_host: name of the machine that it runs on; for people.
        rack: where it reads best.
        topics: what it subscribes to by name.
        pattern: or the regular expression that names are matched against, from their start.
        assignors: that it can do with, the one that it likes best first.
        session_timeout_ms: how long its heartbeat may stand still.
        rebalance_timeout_ms: how long it may take from poll to poll (``max.poll.interval.ms``).
        owned: what it reads and commits.
        revoking: what it may only commit, until it releases it.
        pending: what will be its own as soon as others have released it.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rack: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignors: tuple[str, ...] = ("range",)
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    owned: frozenset[TopicPartition] = _NOTHING
    revoking: frozenset[TopicPartition] = _NOTHING
    pending: frozenset[TopicPartition] = _NOTHING

    @property
    def held(self) -> frozenset[TopicPartition]:
        """What it may commit."""
        return self.owned | self.revoking

    @property
    def target(self) -> frozenset[TopicPartition]:
        """What it has once all have released what they are to give up."""
        return self.owned | self.pending


@dataclass(frozen=True)
class Group:
    """A group after some prefix of its log.

    Attributes:
        group_id: its id.
        generation: 0 before the first change.
        protocol: the assignor that all members know; None without members.
        topics: those that exist and that somebody subscribes to, or has something of still.
        members: in the order in which they joined.
    """

    group_id: str
    generation: int = 0
    protocol: str | None = None
    topics: Mapping[str, GroupTopic] = field(default_factory=dict)
    members: Mapping[str, Member] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """``Empty``, ``Reconciling`` while partitions are on their way, or ``Stable`` (KIP-848)."""
        if not self.members:
            return "Empty"
        moving = any(member.revoking or member.pending for member in self.members.values())
        return "Reconciling" if moving else "Stable"

    @cached_property
    def owners(self) -> Mapping[TopicPartition, str]:
        """Who may commit each partition."""
        return {
            partition: member.member_id
            for member in self.members.values()
            for partition in member.held
        }

    @cached_property
    def instances(self) -> Mapping[str, Member]:
        """The static members by their instance ids."""
        return {
            member.instance_id: member
            for member in self.members.values()
            if member.instance_id is not None
        }

    def unowned(self) -> Iterator[TopicPartition]:
        """Yield the partitions of subscribed topics that nobody has."""
        for name, topic in self.topics.items():
            for number in range(topic.partitions):
                if TopicPartition(name, number) not in self.owners:
                    yield TopicPartition(name, number)

    def replay(self, record: GroupRecord) -> Group:
        """Return the group after one more record.

        Raises:
            CorruptRecordError: the record is another group's, its generation is no higher than the
                one before, or a partition has two owners in it.
        """
        if record.group_id != self.group_id:
            raise CorruptRecordError(
                f"the log of group {self.group_id!r} holds a record of group {record.group_id!r}"
            )
        if record.generation <= self.generation:
            raise CorruptRecordError(
                f"group {self.group_id!r}: generation {record.generation} follows {self.generation}"
            )
        members = {part.member_id: _member(part) for part in record.members}
        group = Group(
            self.group_id,
            record.generation,
            record.protocol,
            {name: GroupTopic(t.topic_id, t.partitions) for name, t in record.topics.items()},
            members,
        )
        if len(group.owners) != sum(len(member.held) for member in members.values()):
            raise CorruptRecordError(
                f"group {self.group_id!r}: a partition has two owners in generation "
                f"{record.generation}"
            )
        return group

    def to_record(
        self, change: str, changed_members: tuple[str, ...], change_id: str
    ) -> GroupRecord:
        """Return the record after which the group is as this one."""
        return GroupRecord(
            group_id=self.group_id,
            generation=self.generation,
            change_id=change_id,
            change=change,
            changed_members=changed_members,
            protocol=self.protocol,
            topics={
                name: TopicPart(topic_id=topic.topic_id, partitions=topic.partitions)
                for name, topic in sorted(self.topics.items())
            },
            members=tuple(map(_part, self.members.values())),
        )


def _member(part: MemberPart) -> Member:
    values = {name: getattr(part, name) for name in MemberPart.model_fields}
    for name in ("owned", "revoking", "pending"):
        values[name] = of_partitions(values[name])
    return Member(**values)


def _part(member: Member) -> MemberPart:
    values = {name: getattr(member, name) for name in MemberPart.model_fields}
    for name in ("owned", "revoking", "pending"):
        values[name] = to_partitions(values[name])
    return MemberPart(**values)
