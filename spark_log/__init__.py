"""spark-log: Kafka's log on shared storage, with no server.

Everything public is importable from here. Importing it starts no JVM and imports no pyspark.
"""

from spark_log.errors import (
    AlreadyExistsError,
    CommitFailedError,
    CorruptRecordError,
    InvalidConfigurationError,
    InvalidOptionError,
    InvalidPartitionsError,
    InvalidRecordError,
    InvalidReplicationFactorError,
    InvalidRootError,
    InvalidTopicError,
    LogEndOffsetMismatchError,
    NotFoundError,
    OffsetOutOfRangeError,
    RootNotFoundError,
    SparkLogError,
    StorageError,
    StorageFullError,
    TopicAlreadyExistsError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedStoreError,
)
from spark_log.metadata import Admin
from spark_log.types import (
    ConsumerRecord,
    NewTopic,
    OffsetAndMetadata,
    RecordMetadata,
    TopicDescription,
    TopicPartition,
)

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AlreadyExistsError",
    "CommitFailedError",
    "ConsumerRecord",
    "CorruptRecordError",
    "InvalidConfigurationError",
    "InvalidOptionError",
    "InvalidPartitionsError",
    "InvalidRecordError",
    "InvalidReplicationFactorError",
    "InvalidRootError",
    "InvalidTopicError",
    "LogEndOffsetMismatchError",
    "NewTopic",
    "NotFoundError",
    "OffsetAndMetadata",
    "OffsetOutOfRangeError",
    "RecordMetadata",
    "RootNotFoundError",
    "SparkLogError",
    "StorageError",
    "StorageFullError",
    "TopicAlreadyExistsError",
    "TopicDescription",
    "TopicPartition",
    "UnknownOutcomeError",
    "UnknownTopicOrPartitionError",
    "UnsupportedCompressionTypeError",
    "UnsupportedStoreError",
]
