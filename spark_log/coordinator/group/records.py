"""The records of a group's log: versioned JSON, each with the whole group after one change.

On storage a record's value is ``{"type": "GroupRecord", "version": 0, "data": {"groupId": …}}``, as
in the metadata log. A reader needs only the newest record, because it holds the whole group; older
records may be deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from spark_log.errors import CorruptRecordError
from spark_log.types import TopicPartition

Partitions = dict[str, tuple[int, ...]]
"""Partitions as they are stored: topic → numbers."""


class _Part(BaseModel):
    """Base class of the parts of a record. Fields that a newer version added are ignored."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class TopicPart(_Part):
    """A topic of the assignment: its id and number of partitions."""

    topic_id: str
    partitions: int


class MemberPart(_Part):
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
    owned: Partitions = {}
    revoking: Partitions = {}
    pending: Partitions = {}


class GroupRecord(_Part):
    """A group after a change.

    Attributes:
        group_id: the group's id, which the name of its directory may not hold.
        generation: higher than that of the record before it.
        change_id: random; a process that lost the answer to an append finds its record by it.
        change: ``join``, ``leave``, ``expire``, ``release``, ``topics`` or ``fence``.
        changed_members: ids of the members that joined, left, expired or released.
        protocol: name of the assignor; None without members.
        topics: by name, those that a member subscribes to or still has partitions of.
        members: in the order in which they joined.
    """

    version: ClassVar[int] = 0

    group_id: str
    generation: int
    change_id: str
    change: str
    changed_members: tuple[str, ...] = ()
    protocol: str | None = None
    topics: dict[str, TopicPart] = {}
    members: tuple[MemberPart, ...] = ()

    def to_json(self) -> bytes:
        """Return the record's value on storage."""
        data = self.model_dump(by_alias=True, exclude_defaults=True)
        document = {"type": "GroupRecord", "version": self.version, "data": data}
        return json.dumps(document, separators=(",", ":")).encode()


def from_json(value: bytes) -> GroupRecord:
    """Return the record with this value.

    Raises:
        CorruptRecordError: it is not a group record, or a newer version of spark-log wrote it.
    """
    try:
        document = json.loads(value)
        if document["type"] != "GroupRecord" or document["version"] > GroupRecord.version:
            raise CorruptRecordError(
                f"group record {document['type']} version {document['version']} is newer than "
                f"this spark-log; upgrade it"
            )
        return GroupRecord.model_validate(document["data"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise CorruptRecordError(f"not a group record: {value!r:.200} ({error})") from None


def to_partitions(partitions: Iterable[TopicPartition]) -> Partitions:
    """Return partitions in the form in which they are stored."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return {topic: tuple(found) for topic, found in numbers.items()}


def of_partitions(stored: Mapping[str, Iterable[int]]) -> frozenset[TopicPartition]:
    """Return partitions from the form in which they are stored."""
    return frozenset(
        TopicPartition(topic, number) for topic, numbers in stored.items() for number in numbers
    )
