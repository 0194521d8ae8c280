"""Checks that a topic with ``table.format=delta`` can be a table.

The files of a Delta table lie below one directory. So each partition has a replica in the cluster's
root, and the table is made of those. A version of the table is made from a listing of the log,
which is valid for half of ``file.delete.delay.ms``. So this is not 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_log.errors import InvalidConfigurationError
from spark_log.metadata.features import TABLE_VERSION
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from spark_log.metadata.root_broker import ROOT_BROKER_ID
from spark_log.metadata.topic_image import TopicImage


def check_tables(image: MetadataImage, records: Sequence[MetadataRecord]) -> None:
    """Check a change of the metadata before it is appended.

    Args:
        image: the metadata before the change.
        records: the records of the change.

    Raises:
        InvalidConfigurationError: after it a topic with ``table.format=delta`` could not be a table
            (`check_table_requirements`).
    """
    may_have_tables = image.may_have_tables or any(map(TABLE_VERSION.is_needed_by, records))
    if not may_have_tables or not any(map(_concerns_tables, records)):
        return
    ids = {each.topic_id for each in records if isinstance(each, _OF_PARTITIONS)}
    names = {each.resource_name for each in records if isinstance(each, ConfigRecord)}
    for topic in image.after(records).topics():
        is_changed = topic.topic_id in ids or topic.name in names
        if is_changed and topic.config().table_format != "none":
            check_table_requirements(topic)


def check_is_table(topic: TopicImage) -> None:
    """Check that a topic is to be a table.

    Raises:
        InvalidConfigurationError: it has ``table.format=none``; the message has the command that
            changes it.
    """
    if topic.config().table_format == "none":
        raise InvalidConfigurationError(
            f"topic {topic.name!r} is no table: turn it on with spark-log configs alter "
            f"{topic.name} --add-config table.format=delta"
        )


def check_table_requirements(topic: TopicImage) -> None:
    """Check that the files of a topic can be one table.

    Raises:
        InvalidConfigurationError: a partition has no replica in the cluster's root, or is moved
            away from it; or ``file.delete.delay.ms`` is 0.
    """
    if topic.config().file_delete_delay_ms == 0:
        raise InvalidConfigurationError(
            f"topic {topic.name!r} cannot have table.format=delta with file.delete.delay.ms=0: a "
            f"listing of the log must be valid for half of this time, so that the table gets no "
            f"file that is deleted meanwhile; set file.delete.delay.ms to its default of 60000, or "
            f"leave table.format at none"
        )
    for number, state in sorted(topic.partitions.items()):
        if ROOT_BROKER_ID not in set(state.replicas).difference(state.removing_replicas):
            raise InvalidConfigurationError(
                f"topic {topic.name!r} cannot have table.format=delta: partition {number} has no "
                f"replica in the cluster's root (broker {ROOT_BROKER_ID}), where the table lies; "
                f"reassign it, or leave table.format at none"
            )


_OF_PARTITIONS = (PartitionRecord, PartitionChangeRecord)

_DELETE_DELAY = "file.delete.delay.ms"


def _concerns_tables(record: MetadataRecord) -> bool:
    """Return whether a record may change which topics are tables, or what their tables require."""
    if isinstance(record, ConfigRecord):
        is_required = record.name in (TABLE_VERSION.setting, _DELETE_DELAY)
        return record.resource_type == TOPIC_RESOURCE and is_required and record.value is not None
    if isinstance(record, PartitionChangeRecord):
        return record.replicas is not None or record.removing_replicas is not None
    return isinstance(record, PartitionRecord)
