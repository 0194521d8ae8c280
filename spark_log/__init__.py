"""spark-log: Kafka's log on shared storage, with no server.

Every public name can be imported from here. The import starts no JVM and imports no pyspark.
Clients are imported on first use (PEP 562): a process that only produces loads no consumer.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from spark_log.errors import (
    AlreadyExistsError,
    BufferExhaustedError,
    ClockSkewError,
    CommitFailedError,
    ConcurrentModificationError,
    CorruptRecordError,
    DataLossError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    GroupNotEmptyError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidConfigurationError,
    InvalidGroupIdError,
    InvalidOptionError,
    InvalidPartitionsError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidReplicationFactorError,
    InvalidRootError,
    InvalidSessionTimeoutError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaTimeoutError,
    LogEndOffsetMismatchError,
    LogTruncatedError,
    NoOffsetForPartitionError,
    NotFoundError,
    NotRepeatableError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordDeserializationError,
    RecordTooLargeError,
    RootNotFoundError,
    SerializationError,
    SparkLogError,
    StorageError,
    StorageFullError,
    StorageTimeoutError,
    StorageUnavailableError,
    TopicAlreadyExistsError,
    UnknownMemberIdError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedStoreError,
    WakeupError,
)
from spark_log.types import (
    AlterConfigOp,
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConsumerGroupMetadata,
    ConsumerRecord,
    DeletedRecords,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetSpec,
    OffsetTimestamp,
    RecordMetadata,
    ReplicaInfo,
    TopicDescription,
    TopicPartition,
)

if TYPE_CHECKING:
    from spark_log.admin.admin import Admin
    from spark_log.consumer.aio_consumer import AIOConsumer
    from spark_log.consumer.consumer import Consumer
    from spark_log.consumer.rebalance_listener import ConsumerRebalanceListener
    from spark_log.datasource.session import spark_session
    from spark_log.producer.aio_producer import AIOProducer
    from spark_log.producer.producer import Producer

__version__ = "0.1.0"

_MODULES = {
    "AIOConsumer": "spark_log.consumer.aio_consumer",
    "AIOProducer": "spark_log.producer.aio_producer",
    "Admin": "spark_log.admin.admin",
    "Consumer": "spark_log.consumer.consumer",
    "ConsumerRebalanceListener": "spark_log.consumer.rebalance_listener",
    "Producer": "spark_log.producer.producer",
    "spark_session": "spark_log.datasource.session",
}
"""Public names imported on first use, by module."""

__all__ = [
    "AIOConsumer",
    "AIOProducer",
    "Admin",
    "AlreadyExistsError",
    "AlterConfigOp",
    "BrokerDescription",
    "BufferExhaustedError",
    "ClockSkewError",
    "ClusterDescription",
    "CommitFailedError",
    "ConcurrentModificationError",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "CorruptRecordError",
    "DataLossError",
    "DeletedRecords",
    "FencedInstanceIdError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "GroupNotEmptyError",
    "GroupSubscribedToTopicError",
    "IllegalGenerationError",
    "IllegalStateError",
    "InconsistentGroupProtocolError",
    "InvalidConfigurationError",
    "InvalidGroupIdError",
    "InvalidOptionError",
    "InvalidPartitionsError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidReplicationFactorError",
    "InvalidRootError",
    "InvalidSessionTimeoutError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "KafkaTimeoutError",
    "LogDirDescription",
    "LogEndOffsetMismatchError",
    "LogTruncatedError",
    "NewPartitions",
    "NewTopic",
    "NoOffsetForPartitionError",
    "NotFoundError",
    "NotRepeatableError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "OffsetSpec",
    "OffsetTimestamp",
    "OutOfOrderSequenceError",
    "Producer",
    "RecordDeserializationError",
    "RecordMetadata",
    "RecordTooLargeError",
    "ReplicaInfo",
    "RootNotFoundError",
    "SerializationError",
    "SparkLogError",
    "StorageError",
    "StorageFullError",
    "StorageTimeoutError",
    "StorageUnavailableError",
    "TopicAlreadyExistsError",
    "TopicDescription",
    "TopicPartition",
    "UnknownMemberIdError",
    "UnknownOutcomeError",
    "UnknownTopicOrPartitionError",
    "UnsupportedCompressionTypeError",
    "UnsupportedStoreError",
    "WakeupError",
    "spark_session",
]


def __getattr__(name: str) -> object:
    """Import what is asked for the first time."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
