"""The records of a group's log: versioned JSON, each with the whole group after one change.

On storage a record's value is ``{"type": "GroupRecord", "version": 0, "data": {"groupId": …}}``, as
in the metadata log. A reader needs only the newest record, because it holds the whole group; older
records may be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from pydantic import Field

from spark_log.log import StateRecord
from spark_log.types import TopicPartition
from spark_log.util import Partitions, RecordFields, record_from_json, shown

_MEMBERS_SHOWN = 10
_PARTITIONS_SHOWN = 10


class TopicPart(RecordFields):
    """A topic in the assignment: its id and number of partitions."""

    topic_id: str
    partitions: int


class MemberPart(RecordFields):
    """A member with its partitions: the fields of `spark_log.coordinator.group.group.Member`."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rack: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignors: tuple[str, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    owned: Partitions = Field(default={})
    revoking: Partitions = Field(default={})
    pending: Partitions = Field(default={})

    def __str__(self) -> str:
        moving = (("revoking", self.revoking), ("waiting for", self.pending))
        return f"{self.member_id} has {_shown(self.owned)}" + "".join(
            f", {what} {_shown(partitions)}" for what, partitions in moving if partitions
        )


class PendingOffsetsPart(RecordFields):
    """Offsets that a transaction may commit: `spark_log.coordinator.group.group.PendingOffsets`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    generation: int
    member_id: str = ""
    partitions: Partitions
    committed_us: int


class ClassicMemberPart(RecordFields):
    """A member of Kafka's classic protocol: `spark_log.coordinator.group.classic.ClassicMember`.

    Bytes are in base64.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, str], ...]
    assignment: str = ""


class ClassicPart(RecordFields):
    """Members of Kafka's classic protocol: `spark_log.coordinator.group.classic.ClassicGroup`."""

    protocol_type: str
    state: str
    leader: str | None = None
    members: tuple[ClassicMemberPart, ...] = ()


class ConsumerMemberPart(RecordFields):
    """The part of a member that only Kafka's consumer protocol has (KIP-848).

    The fields of `spark_log.coordinator.group.consumer.ConsumerMember`.
    """

    epoch: int
    previous_epoch: int = 0
    topics: tuple[str, ...] = ()
    regex: str | None = None
    assignor: str | None = None
    has_left: bool = False
    named: Partitions = Field(default={})


class ConsumerPart(RecordFields):
    """Members of Kafka's consumer protocol, as in `ConsumerGroup` beside this file."""

    members: dict[str, ConsumerMemberPart] = Field(default={})


class GroupRecord(StateRecord):
    """A group after a change. Version 1 has pending offsets, version 2 members of Kafka's clients.

    Attributes:
        group_id: the group's id; the directory's name may be too short for it.
        generation: the group's generation; not lower than that of the record before it.
        revision: the number of the change within the generation; 0 for the change that began it.
        change: ``join``, ``leave``, ``expire``, ``release``, ``topics``, ``load``, ``fence``,
            ``sync``, ``send-offsets`` or ``settle-offsets``. The last two change pending offsets
            alone; ``sync`` is the assignment of a classic group.
        changed_members: the ids of the members that joined, left, expired or released.
        protocol: the name of the assignor, or of the protocol of a classic group; None without
            members.
        topics: the topics that a member subscribes to or still has partitions of, by name.
        members: the members, in the order in which they joined.
        pending_offsets: the pending offsets of transactions that may not be complete.
        last_removal: the generation of the last change that removed a member. Programs that do not
            know the field leave it out: this change may then have removed a member.
        classic: the members of Kafka's clients, instead of ``members``; None for a group that has
            had none since its last members of another kind.
        consumer: what ``members`` have beside, if they are Kafka's clients with the consumer
            protocol; None for a group that has had none since its last members of another kind.
    """

    version: ClassVar[int] = 2

    group_id: str
    generation: int
    revision: int = 0
    change: str
    changed_members: tuple[str, ...] = ()
    protocol: str | None = None
    topics: dict[str, TopicPart] = Field(default={})
    members: tuple[MemberPart, ...] = ()
    pending_offsets: tuple[PendingOffsetsPart, ...] = ()
    last_removal: int | None = None
    classic: ClassicPart | None = None
    consumer: ConsumerPart | None = None

    @property
    def stored_version(self) -> int:
        """The version: older programs must not read what they would drop."""
        if self.classic is not None or self.consumer is not None:
            return 2
        return 1 if self.pending_offsets else 0

    @property
    def headline(self) -> str:
        """The change in a few words, for log lines: ``generation 4 by join of consumer-1``."""
        revision = f".{self.revision}" if self.revision else ""
        of_members = f" of {shown(self.changed_members)}" if self.changed_members else ""
        return f"generation {self.generation}{revision} by {self.change}{of_members}"

    def __str__(self) -> str:
        members = "; ".join(map(str, self.members[:_MEMBERS_SHOWN])) or "no members"
        if self.classic is not None:
            members = f"{self.classic.state}, {len(self.classic.members)} members of a gateway"
        more = len(self.members) - _MEMBERS_SHOWN
        return (
            f"{self.headline}: {members}"
            + (f"; {more} more members" if more > 0 else "")
            + (f"; {len(self.pending_offsets)} pending offsets" if self.pending_offsets else "")
        )


def from_json(value: bytes) -> GroupRecord:
    """Return the record with this value.

    Raises:
        CorruptRecordError: it is not a group record, or a newer version of spark-log wrote it.
    """
    return record_from_json(value, {"GroupRecord": GroupRecord}, "group record")


def _shown(stored: Mapping[str, Iterable[int]]) -> str:
    return shown(sorted(topic_partitions(stored)), _PARTITIONS_SHOWN) or "nothing"


def topic_partitions(stored: Mapping[str, Iterable[int]]) -> frozenset[TopicPartition]:
    """Return partitions from the form in which they are stored."""
    return frozenset(
        TopicPartition(topic, number) for topic, numbers in stored.items() for number in numbers
    )
