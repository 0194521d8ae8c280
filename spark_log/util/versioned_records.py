"""Records as versioned JSON: ``{"type": "TopicRecord", "version": 0, "data": {"name": …}}``.

The metadata log, the logs of groups and the logs of transactional ids consist of such records.
Field names are in camel case, as in Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from spark_log.errors import CorruptRecordError
from spark_log.util.untrusted_json import parse_json

Partitions = dict[str, tuple[int, ...]]
"""Partitions as they are stored: name or id of the topic → partition numbers."""

_Record = TypeVar("_Record", bound="VersionedRecord")


class RecordFields(BaseModel):
    """Base of a record and of its parts. Fields that a newer version added are ignored."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class VersionedRecord(RecordFields):
    """Base of the records. The name of the class is the type of the record.

    Attributes:
        version: the newest format version of the record type. A spark-log that knows only lower
            versions cannot read such a record.
        stores_defaults: whether fields with their default value are stored.
    """

    version: ClassVar[int] = 0
    stores_defaults: ClassVar[bool] = True

    @property
    def stored_version(self) -> int:
        """The version that is needed to read this record; at most `version`."""
        return self.version

    @property
    def omitted(self) -> set[str]:
        """Names of the fields that this record does not store, because they have their default."""
        return set()

    def to_json(self) -> bytes:
        """Return the record's value on storage."""
        document = {
            "type": type(self).__name__,
            "version": self.stored_version,
            "data": self.model_dump(
                by_alias=True, exclude_defaults=not self.stores_defaults, exclude=self.omitted
            ),
        }
        return json.dumps(document, separators=(",", ":")).encode()


def record_from_json(value: bytes, kinds: Mapping[str, type[_Record]], what: str) -> _Record:
    """Return the record with this value.

    Args:
        value: the record's value on storage.
        kinds: the classes of the records, by name.
        what: the name of such a record for errors, for example ``metadata record``.

    Raises:
        CorruptRecordError: the value is no such record, or a newer version of spark-log wrote it.
    """
    try:
        document = parse_json(value)
        kind = kinds.get(document["type"])
        if kind is None or document["version"] > kind.version:
            raise CorruptRecordError(
                f"{what} {document['type']} version {document['version']} is newer than this "
                f"spark-log; upgrade it"
            )
        return kind.model_validate(document["data"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise CorruptRecordError(f"not a {what}: {value!r:.200} ({error})") from None


def to_partitions(partitions: Iterable[tuple[str, int]]) -> Partitions:
    """Return the stored form of pairs of a topic and a partition number."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return {topic: tuple(found) for topic, found in numbers.items()}
