"""Looks a partition up in the metadata image, and makes the record of a change of its state."""

from __future__ import annotations

from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import (
    CHANGEABLE_FIELDS,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
)


def find_partition(image: MetadataImage, topic_id: str, partition: int) -> PartitionRecord | None:
    """Return the present state of a partition; None if it, or its topic, does not exist."""
    topic = image.find_by_id(topic_id)
    return None if topic is None else topic.partitions.get(partition)


def find_in_epoch(
    image: MetadataImage, topic_id: str, partition: int, leader_epoch: int
) -> PartitionRecord | None:
    """Return the present state of a partition; None if its leader epoch is another one."""
    found = find_partition(image, topic_id, partition)
    return None if found is None or found.leader_epoch != leader_epoch else found


def unfenced_brokers(image: MetadataImage) -> frozenset[int]:
    """Return the ids of the brokers that may lead partitions."""
    return frozenset(broker.broker_id for broker in image.brokers() if not broker.fenced)


def change_records(before: PartitionRecord, after: PartitionRecord) -> list[MetadataRecord]:
    """Return the record with the fields that differ; none if all are equal.

    Epochs are not compared: replaying the record adds to them.
    """
    changes = {
        field: getattr(after, field)
        for field in CHANGEABLE_FIELDS
        if getattr(after, field) != getattr(before, field)
    }
    if not changes:
        return []
    return [
        PartitionChangeRecord(topic_id=before.topic_id, partition_id=before.partition_id, **changes)
    ]
