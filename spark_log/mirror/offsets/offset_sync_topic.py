"""The topic that holds offset syncs, in Kafka and in the log."""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import pyarrow as pa

from spark_log.errors import KafkaTimeoutError, TopicAlreadyExistsError
from spark_log.mirror.kafka import TIMEOUT_S, KafkaCluster
from spark_log.mirror.mirror_settings import LogAddress
from spark_log.mirror.mirrored_partition import Side
from spark_log.mirror.offsets.offset_syncs import OffsetSyncStore
from spark_log.mirror.offsets.task_generation import KEY, TaskGeneration
from spark_log.types import NewTopic, OffsetSpec, TopicPartition

_SETTINGS: Final = {"cleanup.policy": "compact"}
_POLL_MS: Final = 1_000
_ID_KEY: Final = b"id of topic "
_NAME: Final = re.compile(r"mirror-offset-syncs\.[^.]+\.[^.]+\.internal")


@dataclass(frozen=True, slots=True)
class OffsetSyncTopic:
    """The content of the offset-sync topic, on both sides.

    Attributes:
        offset_syncs: the offset syncs.
        generations: the generations of tasks, by the side that the tasks write to.
        topic_ids: the ids of the topics that are mirrored to each side, by name in the source.
    """

    offset_syncs: OffsetSyncStore = field(default_factory=OffsetSyncStore)
    generations: dict[Side, TaskGeneration] = field(default_factory=dict)
    topic_ids: dict[Side, dict[str, str]] = field(
        default_factory=lambda: {each: {} for each in Side}
    )

    def replay(self, key: bytes, value: bytes | None, to: Side) -> None:
        """Add a record of the topic on one side."""
        if key == KEY:
            if value is not None:
                self.generations[to] = TaskGeneration.parse(value)
        elif key.startswith(_ID_KEY):
            if value is not None:
                self.topic_ids[to][key.removeprefix(_ID_KEY).decode()] = value.decode()
        else:
            self.offset_syncs.replay(key, value, to)


def read_offset_syncs(kafka: KafkaCluster, log: LogAddress, topic: str) -> OffsetSyncStore:
    """Return the offset syncs of both directions, as they are committed at present."""
    return read_offset_sync_topic(kafka, log, topic).offset_syncs


def read_offset_sync_topic(
    kafka: KafkaCluster, log: LogAddress, topic: str, *, complete: Side | None = None
) -> OffsetSyncTopic:
    """Return the committed content of an offset-sync topic, on both sides.

    Args:
        kafka: the Kafka cluster.
        log: the log.
        topic: the name of the offset-sync topic.
        complete: the side on which to wait for open transactions: records after them are not
            readable before they end.

    Raises:
        KafkaTimeoutError: the transaction of another mirror stays open.
    """
    found = OffsetSyncTopic()
    if topic in kafka.partition_counts():
        for key, value in kafka.read_topic(topic, complete=complete is Side.KAFKA):
            found.replay(key, value, Side.KAFKA)
    admin = log.admin()
    if topic in admin.list_topics():
        _read_log(log, topic, found, complete=complete is Side.LOG)
    return found


def topic_id_record(topic: str, topic_id: str) -> tuple[bytes, bytes]:
    """Return key and value of the record with the id of a topic of the source."""
    return _ID_KEY + topic.encode(), topic_id.encode()


def has_offset_sync_topic(kafka: KafkaCluster, log: LogAddress, topic: str, side: Side) -> bool:
    """Return whether a side has the offset-sync topic: a mirror has written to this side."""
    return topic in _topics(kafka, log, side)


def sources_of_others(
    kafka: KafkaCluster, log: LogAddress, topic: str, side: Side
) -> dict[str, dict[str, str]]:
    """Return the sources of topics that mirrors with other aliases have written, unrenamed.

    Args:
        kafka: the Kafka cluster.
        log: the log.
        topic: this mirror's offset-sync topic.
        side: the side that the other mirrors have written to.

    Returns:
        Topic → id of its source → name of the offset-sync topic that says so.
    """
    sources: dict[str, dict[str, str]] = {}
    for name in sorted(_topics(kafka, log, side)):
        if name == topic or not _NAME.fullmatch(name):
            continue
        found = OffsetSyncTopic()
        if side is Side.LOG:
            _read_log(log, name, found, complete=False)
        else:
            for key, value in kafka.read_topic(name):
                found.replay(key, value, side)
        for source, topic_id in found.topic_ids[side].items():
            partitions = found.offset_syncs.of_topic(source, side)
            if any(each.kafka_topic == each.log_topic for each in chain(*partitions.values())):
                sources.setdefault(source, {})[topic_id] = name
    return sources


def _topics(kafka: KafkaCluster, log: LogAddress, side: Side) -> Collection[str]:
    return kafka.partition_counts() if side is Side.KAFKA else log.admin().list_topics()


def create_in_log(log: LogAddress, topic: str) -> None:
    """Create the topic in the log, and the root, unless they exist."""
    with suppress(TopicAlreadyExistsError):
        log.admin().create_topics([NewTopic(topic, topic_configs=_SETTINGS)])


def create_in_kafka(kafka: KafkaCluster, topic: str) -> None:
    """Create the topic in Kafka, unless it exists."""
    if topic not in kafka.partition_counts():
        kafka.create_topic(topic, 1, _SETTINGS)


def _read_log(log: LogAddress, topic: str, found: OffsetSyncTopic, *, complete: bool) -> None:
    tp = TopicPartition(topic, 0)
    with log.consumer() as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning()
        (end,) = consumer.end_offsets([tp]).values()
        if complete:
            end = log.admin().list_offsets({tp: OffsetSpec.LATEST})[tp].offset
        heard_s = time.monotonic()
        while (position := consumer.position(tp)) < end:
            table: pa.Table = consumer.poll_table(_POLL_MS)
            keys, values = (table.column(name).to_pylist() for name in ("key", "value"))
            for key, value in zip(keys, values, strict=True):
                found.replay(key, value, Side.LOG)
            if consumer.position(tp) > position:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > TIMEOUT_S:
                raise KafkaTimeoutError(
                    f"a transaction of another mirror stays open in {topic} at offset {position}; "
                    f"try again"
                )
