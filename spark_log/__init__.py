"""spark-log: Kafka's log on shared storage, with no server.

Everything public is importable from here. Importing it starts no JVM and imports no pyspark.
"""

from spark_log import errors
from spark_log.errors import *  # noqa: F403
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
    "ConsumerRecord",
    "NewTopic",
    "OffsetAndMetadata",
    "RecordMetadata",
    "TopicDescription",
    "TopicPartition",
    *(name for name in dir(errors) if name.endswith("Error")),
]
