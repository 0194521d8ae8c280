"""The records of the metadata log: KRaft's names and fields, as versioned JSON.

On storage a record's value is ``{"type": "TopicRecord", "version": 0, "data": {"name": …}}``, with
field names in camel case as in the output of ``kafka-dump-log --cluster-metadata-decoder``.
"""

from __future__ import annotations

from typing import Final

from spark_log.metadata.versioned_records import VersionedRecord, record_from_json


class MetadataRecord(VersionedRecord):
    """Base class of all metadata records."""


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


_BY_NAME: Final[dict[str, type[MetadataRecord]]] = {
    kind.__name__: kind
    for kind in (TopicRecord, PartitionRecord, ConfigRecord, RemoveTopicRecord, ProducerIdsRecord)
}


def from_json(value: bytes) -> MetadataRecord:
    """Return the record with this value.

    Raises:
        CorruptRecordError: it is not a metadata record, or a newer version of spark-log wrote it.
    """
    return record_from_json(value, _BY_NAME, "metadata record")
