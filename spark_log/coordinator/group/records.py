"""The records of a group's log: versioned JSON, each with the whole group after one change.

On storage a record's value is ``{"type": "GroupRecord", "version": 0, "data": {"groupId": …}}``, as
in the metadata log. A reader needs only the newest record, because it holds the whole group; older
records may be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import Field

from spark_log.metadata import Partitions, RecordFields, StateRecord, record_from_json
from spark_log.types import TopicPartition


class TopicPart(RecordFields):
    """A topic of the assignment: its id and number of partitions."""

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


class GroupRecord(StateRecord):
    """A group after a change.

    Attributes:
        group_id: the group's id, which the name of its directory may not hold.
        generation: higher than that of the record before it.
        change: ``join``, ``leave``, ``expire``, ``release``, ``topics`` or ``fence``.
        changed_members: ids of the members that joined, left, expired or released.
        protocol: name of the assignor; None without members.
        topics: by name, those that a member subscribes to or still has partitions of.
        members: in the order in which they joined.
    """

    group_id: str
    generation: int
    change: str
    changed_members: tuple[str, ...] = ()
    protocol: str | None = None
    topics: dict[str, TopicPart] = Field(default={})
    members: tuple[MemberPart, ...] = ()


def from_json(value: bytes) -> GroupRecord:
    """Return the record with this value.

    Raises:
        CorruptRecordError: it is not a group record, or a newer version of spark-log wrote it.
    """
    return record_from_json(value, {"GroupRecord": GroupRecord}, "group record")


def of_partitions(stored: Mapping[str, Iterable[int]]) -> frozenset[TopicPartition]:
    """Return partitions from the form in which they are stored."""
    return frozenset(
        TopicPartition(topic, number) for topic, numbers in stored.items() for number in numbers
    )
