"""The state of a consumer group: its members and their partitions; changed by `replay` alone.

A partition that moves is first *revoked*: its owner stops reading it, may still commit it, and then
*releases* it. Only then does the next member get it, as in Kafka's group coordinator (KIP-848,
``CurrentAssignmentBuilder``). The partitions of a member that leaves or expires are free at once.
Each partition therefore has at most one owner in every generation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from spark_log.coordinator.group.classic import (
    COMPLETING_REBALANCE,
    PREPARING_REBALANCE,
    ClassicGroup,
)
from spark_log.coordinator.group.consumer import ConsumerGroup
from spark_log.coordinator.group.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    assigned_partitions,
    subscribed_topics,
)
from spark_log.coordinator.group.records import (
    GroupRecord,
    MemberPart,
    PendingOffsetsPart,
    TopicPart,
    topic_partitions,
)
from spark_log.errors import CorruptRecordError
from spark_log.record import ProducerIdAndEpoch
from spark_log.types import TopicPartition
from spark_log.util import to_partitions

if TYPE_CHECKING:
    from spark_log.metadata import TopicImage

GROUP_STATES = ("Empty", "Stable", "Reconciling", PREPARING_REBALANCE, COMPLETING_REBALANCE)
"""The states of a group: it has no members, no partition moves, or some partitions move. The last
two are those of a group of Kafka's clients that rebalances."""

_NOTHING: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupTopic:
    """A topic in the state of a group.

    Attributes:
        topic_id: the topic's id.
        partitions: the number of its partitions.
        stripes: the number of its stripes; 0 if it has none, and in a topic that was read from the
            group's log. Another number moves no partition by itself.
    """

    topic_id: str
    partitions: int
    stripes: int = field(default=0, compare=False)

    @classmethod
    def of(cls, topic: TopicImage) -> GroupTopic:
        """Return the topic of the metadata."""
        stripes = topic.config().stripes if "stripes" in topic.overrides else 0
        return cls(topic.topic_id, topic.num_partitions, stripes)

    def stripe_numbers(self) -> list[int]:
        """Return the stripe of each partition of a topic with stripes."""
        from spark_log.log.stripe import stripe_of  # late: few topics have stripes

        return [stripe_of(number, self.stripes) for number in range(self.partitions)]


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group.

    Attributes:
        member_id: the member's id, never used again: a process that joins again gets another one.
        instance_id: ``group.instance.id`` of a static member (KIP-345).
        client_id: ``client.id``, shown to users.
        client_host: the host name of its machine, shown to users.
        rack: ``client.rack``.
        topics: the names of topics that it subscribes to.
        pattern: the regular expression that it subscribes to instead, matched from the start of a
            topic's name.
        assignors: the assignors that it supports, the preferred one first.
        session_timeout_ms: the time without heartbeats after which it expires.
        rebalance_timeout_ms: the maximum time between two polls (``max.poll.interval.ms``).
        owned: the partitions that it reads and commits.
        revoking: the partitions that it no longer reads, and may commit until it releases them.
        pending: the partitions that it gets when others have released them.
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
        """Partitions that it may commit."""
        return self.owned | self.revoking

    @property
    def target(self) -> frozenset[TopicPartition]:
        """Its partitions once all members have released their revoked partitions."""
        return self.owned | self.pending

    @staticmethod
    def of(part: MemberPart) -> Member:
        """Return the member from its stored form."""
        values = {name: getattr(part, name) for name in MemberPart.model_fields}
        for name in ("owned", "revoking", "pending"):
            values[name] = topic_partitions(values[name])
        return Member(**values)

    def to_part(self) -> MemberPart:
        """Return the stored form of the member."""
        values = {name: getattr(self, name) for name in MemberPart.model_fields}
        for name in ("owned", "revoking", "pending"):
            values[name] = to_partitions(values[name])
        return MemberPart(**values)


@dataclass(frozen=True, slots=True)
class PendingOffsets:
    """Partitions whose offsets a transaction commits when it is committed (KIP-447).

    The offsets themselves are in the transaction's decision.

    Attributes:
        transactional_id: the ``transactional.id`` of the transaction.
        producer: the participant that sent them. It takes part in one transaction only.
        generation: the group's generation in which they were sent.
        member_id: the id of the member that sent them; empty without membership.
        partitions: the partitions, which the member held.
        committed_us: the timestamp of the group's newest commit before they were sent, in
            microseconds. Later commits have a higher timestamp.
    """

    transactional_id: str
    producer: ProducerIdAndEpoch
    generation: int
    member_id: str
    partitions: frozenset[TopicPartition]
    committed_us: int

    def is_superseded_by(self, generation: int, commit_timestamp_us: int) -> bool:
        """Return whether a commit of one of the partitions came after these offsets were sent."""
        if not self.member_id and generation < self.generation:
            return False  # sending raised the generation: the commit was decided before
        return commit_timestamp_us > self.committed_us


@dataclass(frozen=True)
class Group:
    """A group after a prefix of its log.

    Attributes:
        group_id: the group's id.
        generation: the number of the last change of members or partitions; 0 before the first one.
        protocol: the name of the assignor; None without members.
        topics: the existing topics that a member subscribes to or still has partitions of.
        members: the members, in the order in which they joined.
        pending_offsets: the pending offsets of transactions that may not be complete, in the order
            in which they were sent.
        revision: the number of changes of pending offsets in this generation.
        last_removal: the generation of the last change that removed a member; 0 before the first
            one.
        classic: the members that are Kafka's clients; None if there are none and the last members
            were of another kind. ``members`` shows them without what is theirs alone.
        consumer: what the members have beside, if they are Kafka's clients with the consumer
            protocol (KIP-848); None if there are none and the last members were of another kind.
    """

    group_id: str
    generation: int = 0
    protocol: str | None = None
    topics: Mapping[str, GroupTopic] = field(default_factory=dict)
    members: Mapping[str, Member] = field(default_factory=dict)
    pending_offsets: tuple[PendingOffsets, ...] = ()
    revision: int = 0
    last_removal: int = 0
    classic: ClassicGroup | None = None
    consumer: ConsumerGroup | None = None

    @property
    def state(self) -> str:
        """The group's state, one of `GROUP_STATES`."""
        if not self.members:
            return "Empty"
        if self.classic is not None:
            return self.classic.state
        moving = any(member.revoking or member.pending for member in self.members.values())
        return "Reconciling" if moving else "Stable"

    @property
    def protocol_type(self) -> str:
        """The kind of its members: ``consumer``, ``connect``, …; empty if it never had members."""
        if self.classic is not None:
            return self.classic.protocol_type
        return CONSUMER_PROTOCOL_TYPE if self.generation else ""

    @cached_property
    def owners(self) -> Mapping[TopicPartition, str]:
        """Partition → id of the member that may commit it."""
        return {
            partition: member.member_id
            for member in self.members.values()
            for partition in member.held
        }

    @cached_property
    def instances(self) -> Mapping[str, Member]:
        """The static members by instance id."""
        return {
            member.instance_id: member
            for member in self.members.values()
            if member.instance_id is not None
        }

    def next_generation(self, **changed: Any) -> Group:
        """Return the group in its next generation, with changed attributes.

        Its members are consumers of this package unless ``changed`` says otherwise.
        """
        kind = {"classic": None, "consumer": None}
        after = replace(self, generation=self.generation + 1, revision=0, **{**kind, **changed})
        if self.members.keys() <= after.members.keys():
            return after
        return replace(after, last_removal=after.generation)

    def pending_offsets_of(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[PendingOffsets, ...]:
        """Return the pending offsets of some partitions."""
        return tuple(
            each for each in self.pending_offsets if not each.partitions.isdisjoint(partitions)
        )

    def refusal_of(self, sent: PendingOffsets, instance_id: str | None) -> str:
        """Return why offsets may not be sent to a transaction; empty if they may.

        Args:
            sent: the offsets.
            instance_id: ``group.instance.id`` of the member, if it is a static one.
        """
        if not sent.member_id:
            if not self.members or self.classic is not None or self.consumer is not None:
                # Kafka's clients before KIP-447 are fenced by their transactional ids alone.
                return ""
            return (
                "it has members, and this consumer is none of them: subscribe instead of assigning"
            )
        member = self.members.get(sent.member_id)
        if member is None:
            reason = f"{sent.member_id!r} is not a member any more"
            if instance_id is not None and instance_id in self.instances:
                reason += f"; another process has taken its group.instance.id {instance_id!r}"
            return reason
        consumer = self.consumer
        is_present = (
            sent.generation == self.generation
            if consumer is None
            else consumer.may_commit(sent.member_id, sent.generation, self.generation)
        )
        if not is_present:
            return f"generation {sent.generation} has passed: {self.generation} has started"
        # Only Kafka's clients know what is assigned to them.
        if self.classic is None and (lost := sent.partitions - member.held):
            return f"{sent.member_id!r} does not have {', '.join(map(str, sorted(lost)))}"
        return ""

    def replay(self, record: GroupRecord) -> Group:
        """Return the group after one more record.

        Raises:
            CorruptRecordError: the record belongs to another group, does not follow the record
                before it, or gives a partition two owners.
        """
        if record.group_id != self.group_id:
            raise CorruptRecordError(
                f"the log of group {self.group_id!r} holds a record of group {record.group_id!r}"
            )
        if (record.generation, record.revision) <= (self.generation, self.revision):
            raise CorruptRecordError(
                f"group {self.group_id!r}: generation {record.generation} follows "
                f"{self.generation}, and its revision {record.revision} follows {self.revision}"
            )
        classic = None if record.classic is None else ClassicGroup.of(record.classic)
        if classic is None:
            members = {part.member_id: Member.of(part) for part in record.members}
        else:
            members = _shown_members(classic, record.protocol)
        consumer = None if record.consumer is None else ConsumerGroup.of(record.consumer)
        if consumer is not None and (
            classic is not None or consumer.members.keys() != members.keys()
        ):
            raise CorruptRecordError(
                f"group {self.group_id!r}: the record of generation {record.generation} does not "
                f"say of each member, and of no other, which epoch it has"
            )
        group = Group(
            self.group_id,
            record.generation,
            record.protocol,
            {name: GroupTopic(t.topic_id, t.partitions) for name, t in record.topics.items()},
            members,
            tuple(map(_pending_offsets, record.pending_offsets)),
            record.revision,
            record.generation if record.last_removal is None else record.last_removal,
            classic,
            consumer,
        )
        if classic is None and len(group.owners) != sum(
            len(member.held) for member in members.values()
        ):
            raise CorruptRecordError(
                f"group {self.group_id!r}: a partition has two owners in generation "
                f"{record.generation}"
            )
        return group

    def to_record(
        self, change: str, changed_members: tuple[str, ...], change_id: str
    ) -> GroupRecord:
        """Return the record whose replay results in this group."""
        return GroupRecord(
            group_id=self.group_id,
            generation=self.generation,
            revision=self.revision,
            change_id=change_id,
            change=change,
            changed_members=changed_members,
            protocol=self.protocol,
            topics={
                name: TopicPart(topic_id=topic.topic_id, partitions=topic.partitions)
                for name, topic in sorted(self.topics.items())
            },
            members=()
            if self.classic is not None
            else tuple(member.to_part() for member in self.members.values()),
            pending_offsets=tuple(map(_pending_offsets_part, self.pending_offsets)),
            last_removal=self.last_removal,
            classic=None if self.classic is None else self.classic.to_part(),
            consumer=None if self.consumer is None else self.consumer.to_part(),
        )

    def with_classic(
        self, classic: ClassicGroup, protocol: str | None, generation: int | None = None
    ) -> Group:
        """Return the group with other members that are Kafka's clients.

        Args:
            classic: the members.
            protocol: the name of the protocol; None without members.
            generation: the new generation, which is higher; by default the generation is the same.
        """
        is_new = generation is not None and generation > self.generation
        after = replace(
            self,
            generation=generation if is_new else self.generation,  # type: ignore[arg-type]
            revision=0 if is_new else self.revision + 1,
            protocol=protocol,
            topics={},
            members=_shown_members(classic, protocol),
            classic=classic,
            consumer=None,
        )
        if self.members.keys() <= after.members.keys():
            return after
        return replace(after, last_removal=after.generation)


def _shown_members(classic: ClassicGroup, protocol: str | None) -> dict[str, Member]:
    """Return the members of a classic group as those of this package, for display."""
    reads = classic.protocol_type == CONSUMER_PROTOCOL_TYPE
    return {
        each.member_id: Member(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            topics=subscribed_topics(each.metadata(protocol)) if reads else (),
            assignors=tuple(name for name, _ in each.protocols),
            session_timeout_ms=each.session_timeout_ms,
            rebalance_timeout_ms=each.rebalance_timeout_ms,
            owned=assigned_partitions(each.assignment) if reads else _NOTHING,
        )
        for each in classic.members.values()
    }


def _pending_offsets(part: PendingOffsetsPart) -> PendingOffsets:
    return PendingOffsets(
        part.transactional_id,
        ProducerIdAndEpoch(part.producer_id, part.producer_epoch),
        part.generation,
        part.member_id,
        topic_partitions(part.partitions),
        part.committed_us,
    )


def _pending_offsets_part(pending: PendingOffsets) -> PendingOffsetsPart:
    return PendingOffsetsPart(
        transactional_id=pending.transactional_id,
        producer_id=pending.producer.producer_id,
        producer_epoch=pending.producer.producer_epoch,
        generation=pending.generation,
        member_id=pending.member_id,
        partitions=to_partitions(pending.partitions),
        committed_us=pending.committed_us,
    )
