"""The records of a group's log: versioned JSON, each with the whole state after one change.

A record's value on storage is ``{"type": "GroupRecord", "version": 0, "data": {"groupId": …}}``, as
in the metadata log. Since a record holds everything, the newest one is all that a reader needs, and
all others may be deleted.
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
    """What all parts of a record share. Fields that a newer version added are ignored."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class TopicPart(_Part):
    """A topic as the assignment knows it."""

    topic_id: str
    partitions: int


class MemberPart(_Part):
    """A member, and what it has; see `spark_log.coordinator.group.group.Member`."""

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
        group_id: the group's id; its directory's name may not tell it.
        generation: of the state; each record has a higher one than the record before it.
        change_id: random; by it who lost the answer to an append finds its own record again.
        change: what it was: ``join``, ``leave``, ``expire``, ``release``, ``topics``, ``fence``.
        changed_members: whom it was about.
        protocol: name of the assignor; None without members.
        topics: by name; see `spark_log.coordinator.group.group.Group`.
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
    """Read a record's value.

    Raises:
        CorruptRecordError: it is not a group record, or one of a newer version of spark-log.
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
    """Return partitions as they are stored."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return {topic: tuple(found) for topic, found in numbers.items()}


def of_partitions(stored: Mapping[str, Iterable[int]]) -> frozenset[TopicPartition]:
    """Return partitions that were stored."""
    return frozenset(
        TopicPartition(topic, number) for topic, numbers in stored.items() for number in numbers
    )
