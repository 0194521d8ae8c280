"""Looks up the newest record of a key, in the partition that the key belongs to."""

from __future__ import annotations

from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch import BatchSlice
from spark_log.consumer.record_factory import RecordFactory
from spark_log.errors import InvalidRecordError
from spark_log.log import PartitionLog
from spark_log.metadata import MetadataImage
from spark_log.record import partition_for_key
from spark_log.types import ConsumerRecord, TopicPartition


class KeyReader:
    """Looks up keys, with log handles that nothing else uses. For one thread at a time."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, records: RecordFactory) -> None:
        """Prepare for a cluster.

        Args:
            cluster: the opened root.
            config: the settings, of which ``isolation.level`` and ``check.crcs`` are used.
            records: makes the record, with the consumer's deserializers.
        """
        self._cluster = cluster
        self._config = config
        self._records = records
        self._image: MetadataImage | None = None
        self._logs: dict[tuple[str, int], PartitionLog] = {}  # by topic id and partition

    def get(self, topic: str, key: bytes, partition: int | None) -> ConsumerRecord | None:
        """Return the newest record of a key; None if there is none, or if it is a tombstone.

        Args:
            topic: the topic's name.
            key: the key's bytes.
            partition: the partition's number; None for that of Kafka's default partitioner.

        Raises:
            UnknownTopicOrPartitionError: the topic or the partition does not exist.
            RecordDeserializationError: a deserializer refused the key or the value.
        """
        image = self._cluster.image()
        if image is not self._image:  # a new image is made only for a change
            self._image = image
            for known in [each for each in self._logs if image.find_by_id(each[0]) is None]:
                del self._logs[known]
        found = image.topic(topic)
        if partition is None:
            partition = partition_for_key(key, found.num_partitions)
        log = self._logs.get((found.topic_id, partition))
        if log is None:
            log = self._cluster.partition_log(found, partition)
            self._logs[found.topic_id, partition] = log
        with self._cluster.detecting_deletion(found):
            batch = log.find_key(
                key,
                check_crcs=self._config.check_crcs,
                isolation_level=self._config.isolation_level,
            )
        if batch is None or not batch.records.column("value")[0].is_valid:
            return None
        tp = TopicPartition(topic, partition)
        rows = BatchSlice(tp, batch, 0, 1, batch.end_offset, batch.size_bytes)
        records, error = self._records.records(rows)
        if error is not None:
            raise error
        return records[0]


def checked_key(key: object) -> bytes:
    """Return a key's bytes.

    Raises:
        InvalidRecordError: the key is not bytes.
    """
    if not isinstance(key, bytes | bytearray | memoryview):
        raise InvalidRecordError(
            f"a key to look up is bytes, got {type(key).__name__}; encode it as the producer's "
            f"key_serializer does, such as 'my key'.encode()"
        )
    return bytes(key)
