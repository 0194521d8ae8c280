"""The records of the metadata log: KRaft's names and fields, as versioned JSON.

On storage a record's value is ``{"type": "TopicRecord", "version": 0, "data": {"name": …}}``, with
field names in camel case as in the output of ``kafka-dump-log --cluster-metadata-decoder``.
"""

from __future__ import annotations

import json
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from spark_log.errors import CorruptRecordError


class MetadataRecord(BaseModel):
    """Base class of all metadata records. Fields that a newer version added are ignored."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )

    version: ClassVar[int] = 0

    def to_json(self) -> bytes:
        """Return the record's value on storage."""
        document = {
            "type": type(self).__name__,
            "version": self.version,
            "data": self.model_dump(by_alias=True),
        }
        return json.dumps(document, separators=(",", ":")).encode()


class TopicRecord(MetadataRecord):
    """A topic was created."""

    name: str
    topic_id: str


class PartitionRecord(MetadataRecord):
    """A partition was created.

    Attributes:
        replicas: brokers (storage roots) that hold the partition, the preferred leader first.
        isr: in-sync replicas, the leader first.
    """

    topic_id: str
    partition_id: int
    replicas: tuple[int, ...] = (0,)
    isr: tuple[int, ...] = (0,)
    leader: int = 0
    leader_epoch: int = 0
    partition_epoch: int = 0


class ConfigRecord(MetadataRecord):
    """A config override was set, or removed if ``value`` is None."""

    resource_type: str
    resource_name: str
    name: str
    value: str | None


class RemoveTopicRecord(MetadataRecord):
    """A topic was deleted, with its partitions and configs."""

    topic_id: str


class ProducerIdsRecord(MetadataRecord):
    """A block of producer ids was allocated.

    Attributes:
        broker_id: the storage root that the request came through.
        broker_epoch: the epoch of that root's registration; -1 without one.
        next_producer_id: the first id of the next block.
    """

    broker_id: int = 0
    broker_epoch: int = -1
    next_producer_id: int


_BY_NAME: dict[str, type[MetadataRecord]] = {
    kind.__name__: kind
    for kind in (TopicRecord, PartitionRecord, ConfigRecord, RemoveTopicRecord, ProducerIdsRecord)
}


def from_json(value: bytes) -> MetadataRecord:
    """Return the record with this value.

    Raises:
        CorruptRecordError: it is not a metadata record, or a newer version of spark-log wrote it.
    """
    try:
        document = json.loads(value)
        kind = _BY_NAME.get(document["type"])
        if kind is None or document["version"] > kind.version:
            raise CorruptRecordError(
                f"metadata record {document['type']} version {document['version']} is newer than "
                f"this spark-log; upgrade it"
            )
        return kind.model_validate(document["data"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise CorruptRecordError(f"not a metadata record: {value!r:.200} ({error})") from None
