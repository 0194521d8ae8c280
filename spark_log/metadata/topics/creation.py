"""Checks new topics and new partitions, and builds the metadata records that create them."""

from __future__ import annotations

from spark_log.config import TopicConfig, to_text
from spark_log.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
)
from spark_log.metadata.image import TOPIC_RESOURCE
from spark_log.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from spark_log.metadata.topic_image import TopicImage
from spark_log.metadata.topics.names import validate_topic_name
from spark_log.types import NewTopic

MAX_PARTITIONS = 200_000
"""Maximum number of partitions of a topic: a typing error must not create millions."""


def validate_new_topic(topic: NewTopic) -> None:
    """Check a new topic, except for conflicts with existing topics.

    Raises:
        InvalidTopicError, InvalidPartitionsError, InvalidReplicationFactorError,
        InvalidConfigurationError: the topic cannot be created.
    """
    if not isinstance(topic, NewTopic):
        example = repr(topic) if isinstance(topic, str) else "'name'"
        raise InvalidTopicError(
            f"{topic!r} is a {type(topic).__name__}; give a list of NewTopic, such as "
            f"[NewTopic({example}, num_partitions=3)]"
        )
    validate_topic_name(topic.name)
    if not 1 <= topic.num_partitions <= MAX_PARTITIONS:
        raise InvalidPartitionsError(
            f"topic {topic.name!r}: {topic.num_partitions} partitions; give 1 to {MAX_PARTITIONS}"
        )
    if topic.replication_factor != 1:
        raise InvalidReplicationFactorError(
            f"topic {topic.name!r}: replication factor {topic.replication_factor}, but 1 broker "
            f"(storage root) is registered; give 1"
        )
    TopicConfig.parse(topic.topic_configs)


def topic_records(topic: NewTopic, topic_id: str) -> list[MetadataRecord]:
    """Return the records that create a topic, its partitions and its configs."""
    checked = TopicConfig.parse(topic.topic_configs)
    values = checked.dotted()
    given_keys = [
        TopicConfig.model_fields[field].alias or field for field in checked.model_fields_set
    ]
    return [
        TopicRecord(name=topic.name, topic_id=topic_id),
        *(
            PartitionRecord(topic_id=topic_id, partition_id=number)
            for number in range(topic.num_partitions)
        ),
        *(
            ConfigRecord(
                resource_type=TOPIC_RESOURCE,
                resource_name=topic.name,
                name=key,
                value=to_text(values[key]),
            )
            for key in sorted(given_keys)
        ),
    ]


def partition_records(topic: TopicImage, total_count: int) -> list[MetadataRecord]:
    """Return the records that add partitions to a topic.

    Raises:
        InvalidPartitionsError: the topic has as many partitions or more (as Kafka's
            ``ReplicationControlManager`` refuses it), or the number is not allowed.
    """
    has = topic.num_partitions
    if not isinstance(total_count, int):
        raise InvalidPartitionsError(
            f"topic {topic.name!r}: {total_count!r} partitions; give a whole number"
        )
    if total_count == has:
        raise InvalidPartitionsError(f"topic {topic.name!r} already has {_partitions(has)}")
    if total_count < has:
        raise InvalidPartitionsError(
            f"topic {topic.name!r} has {_partitions(has)}; {total_count} would not be an increase, "
            f"and partitions cannot be removed"
        )
    if total_count > MAX_PARTITIONS:
        raise InvalidPartitionsError(
            f"topic {topic.name!r}: {total_count} partitions; give {has + 1} to {MAX_PARTITIONS}"
        )
    return [
        PartitionRecord(topic_id=topic.topic_id, partition_id=number)
        for number in range(has, total_count)
    ]


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"
