"""The topic that holds an offset map, in Kafka and in the log."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from spark_log.errors import TopicAlreadyExistsError
from spark_log.mirror.kafka_cluster import KafkaCluster
from spark_log.mirror.mirror_settings import LogAddress
from spark_log.mirror.offset_map import OffsetMaps, Side
from spark_log.types import NewTopic, TopicPartition

_SETTINGS: Final = {"cleanup.policy": "compact"}
_POLL_MS: Final = 1_000


def read_maps(kafka: KafkaCluster, log: LogAddress, topic: str) -> OffsetMaps:
    """Return the offset maps of both directions, as they are committed now."""
    maps = OffsetMaps()
    if topic in kafka.partition_counts():
        for key, value in kafka.read_topic(topic):
            maps.replay(key, value, Side.KAFKA)
    admin = log.admin()
    if topic in admin.list_topics():
        _read_log(log, topic, maps)
    return maps


def create_in_log(log: LogAddress, topic: str) -> None:
    """Create the topic in the log, and the root, unless they exist."""
    with suppress(TopicAlreadyExistsError):
        log.admin().create_topics([NewTopic(topic, topic_configs=_SETTINGS)])


def create_in_kafka(kafka: KafkaCluster, topic: str) -> None:
    """Create the topic in Kafka, unless it exists."""
    if topic not in kafka.partition_counts():
        kafka.create_topic(topic, 1, _SETTINGS)


def _read_log(log: LogAddress, topic: str, maps: OffsetMaps) -> None:
    tp = TopicPartition(topic, 0)
    with log.consumer() as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning()
        (end,) = consumer.end_offsets([tp]).values()
        while consumer.position(tp) < end:
            table = consumer.poll_table(_POLL_MS)
            keys, values = (table.column(name).to_pylist() for name in ("key", "value"))
            for key, value in zip(keys, values, strict=True):
                maps.replay(key, value, Side.LOG)
