"""The names of confluent-kafka that the bridge uses: the only place that imports it.

Raises:
    InvalidConfigurationError: on import, if confluent-kafka is not installed.
"""

from __future__ import annotations

from spark_log.errors import InvalidConfigurationError

try:
    import confluent_kafka  # noqa: F401 - the next lines import from it
except ImportError:
    raise InvalidConfigurationError(
        "a bridge to Kafka needs confluent-kafka: pip install 'spark-log[bridge]'"
    ) from None

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

__all__ = [
    "OFFSET_BEGINNING",
    "AdminClient",
    "AlterConfigOpType",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "Consumer",
    "ConsumerGroupTopicPartitions",
    "KafkaError",
    "KafkaException",
    "KafkaPartition",
    "Message",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "Producer",
    "TopicCollection",
]
