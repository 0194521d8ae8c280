"""`KafkaCluster`: topics, settings and groups of a Kafka cluster, as a mirror needs them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from spark_log.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    KafkaTimeoutError,
    ProducerFencedError,
    SparkLogError,
    StorageUnavailableError,
)
from spark_log.mirror.confluent import (
    OFFSET_BEGINNING,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    KafkaPartition,
    Message,
    NewPartitions,
    NewTopic,
    Producer,
)
from spark_log.types import OffsetAndMetadata, TopicPartition

TIMEOUT_S: Final = 30.0
"""How long one call to the brokers may take."""

_POLL_S: Final = 0.1

_QUIET: Final = {"log_level": 3}
"""Librdkafka's warnings, such as of a coordinator that is not ready yet, are not for users."""


class KafkaCluster:
    """A Kafka cluster, reached by librdkafka."""

    def __init__(self, settings: Mapping[str, str | int | float | bool]) -> None:
        """Connect to no broker yet.

        Args:
            settings: of librdkafka, with ``bootstrap.servers``; never shown.

        Raises:
            InvalidConfigurationError: a setting does not exist, or has a wrong value.
        """
        self._settings = {**_QUIET, **settings}
        with kafka_errors():
            self._admin = AdminClient(self._settings)

    def consumer(self, **settings: str | int | bool) -> Consumer:
        """Return a consumer of committed records that commits no offsets.

        Args:
            settings: of librdkafka, with ``_`` for dots.
        """
        defaults: dict[str, Any] = {
            "group.id": "spark-log-mirror",  # required by the client; no group is joined
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        given = {name.replace("_", "."): value for name, value in settings.items()}
        with kafka_errors():
            return Consumer({**self._settings, **defaults, **given})

    def producer(self, transactional_id: str) -> Producer:
        """Return a transactional producer that has fenced all earlier ones with this id.

        Raises:
            KafkaTimeoutError: no broker answered in time.
        """
        settings = {
            **self._settings,
            "transactional.id": transactional_id,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
            "message.max.bytes": 1_000_000_000,  # the topic's own limit decides
            "linger.ms": 20,
            "batch.size": 1_000_000,
        }
        with kafka_errors():
            producer = Producer(settings)
            producer.init_transactions(TIMEOUT_S)
        return producer

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of every topic.

        Raises:
            KafkaTimeoutError: no broker answered in time.
        """
        with kafka_errors():
            topics = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items() if not topic.error}

    def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings that were made for topics, without defaults."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        if not resources:
            return {}
        made = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        with kafka_errors():
            futures = self._admin.describe_configs(resources, request_timeout=TIMEOUT_S)
            found = {each.name: future.result() for each, future in futures.items()}
        return {
            topic: {name: each.value for name, each in entries.items() if each.source == made}
            for topic, entries in found.items()
        }

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Create a topic with the brokers' default number of replicas, unless it exists."""
        new = NewTopic(topic, partitions, -1, config=dict(settings))
        with kafka_errors(KafkaError.TOPIC_ALREADY_EXISTS):
            self._admin.create_topics([new], request_timeout=TIMEOUT_S)[topic].result()

    def create_partitions(self, topic: str, total: int) -> None:
        """Increase the number of partitions of a topic."""
        with kafka_errors():
            grown = [NewPartitions(topic, total)]
            self._admin.create_partitions(grown, request_timeout=TIMEOUT_S)[topic].result()

    def alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change settings of a topic; others stay."""
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes)
        with kafka_errors():
            futures = self._admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S)
            futures[resource].result()

    def groups(self) -> dict[str, bool]:
        """Return the ids of all consumer groups, and whether each has members."""
        with kafka_errors():
            listed = self._admin.list_consumer_groups(request_timeout=TIMEOUT_S).result()
        return {each.group_id: each.state.name not in ("EMPTY", "DEAD") for each in listed.valid}

    def group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group; a group that does not exist has none."""
        request = [ConsumerGroupTopicPartitions(group_id)]
        with kafka_errors():
            futures = self._admin.list_consumer_group_offsets(request, request_timeout=TIMEOUT_S)
            found = futures[group_id].result().topic_partitions or []
        return {
            TopicPartition(each.topic, each.partition): OffsetAndMetadata(
                each.offset, each.metadata or ""
            )
            for each in found
            if each.offset >= 0
        }

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Set committed offsets of a group without members."""
        partitions = [
            KafkaPartition(tp.topic, tp.partition, each.offset, each.metadata)
            for tp, each in offsets.items()
        ]
        request = [ConsumerGroupTopicPartitions(group_id, partitions)]
        with kafka_errors():
            futures = self._admin.alter_consumer_group_offsets(request, request_timeout=TIMEOUT_S)
            for each in futures[group_id].result().topic_partitions or []:
                if each.error is not None:
                    raise KafkaException(each.error)

    def read_topic(self, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield keys and values of the committed records of partition 0, up to its present end."""
        consumer = self.consumer()
        try:
            with kafka_errors():
                consumer.assign([KafkaPartition(topic, 0, OFFSET_BEGINNING)])
            heard_s = time.monotonic()
            while time.monotonic() - heard_s < TIMEOUT_S:
                with kafka_errors():
                    messages = consumer.consume(10_000, _POLL_S)
                for message in messages:
                    if is_end(message):
                        return
                    yield message.key() or b"", message.value()
                    heard_s = time.monotonic()
            raise KafkaTimeoutError(
                f"Kafka's topic {topic} gave no record in {TIMEOUT_S:.0f} s; try again"
            )
        finally:
            consumer.close()


def is_end(message: Message) -> bool:
    """Whether a message only says that the end of a partition was reached.

    Raises:
        SparkLogError: it says that reading failed.
    """
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    with kafka_errors():
        raise KafkaException(error)
    return False


@contextmanager
def kafka_errors(*expected: int) -> Iterator[None]:
    """Raise errors of librdkafka as those of this package.

    Args:
        expected: codes of errors that are ignored.

    Raises:
        SparkLogError: what corresponds to the error of librdkafka.
    """
    try:
        yield
    except KafkaException as raised:
        error = raised.args[0]
        if error.code() not in expected:
            raise as_own_error(error) from None


def as_own_error(error: KafkaError) -> SparkLogError:
    """Return the error of this package that corresponds to one of librdkafka."""
    text = f"Kafka: {error.str()}"
    code = error.code()
    if code in _FENCED:
        return ProducerFencedError(f"{text}: another mirror with the same aliases was started")
    if code in (KafkaError._INVALID_ARG, KafkaError._CONFLICT, *_REFUSED):
        return InvalidConfigurationError(text)
    if code in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
        return KafkaTimeoutError(f"{text}; check the bootstrap servers, and try again")
    if code in (KafkaError.INVALID_MSG, KafkaError._BAD_MSG):
        return CorruptRecordError(text)
    return StorageUnavailableError(text)


_FENCED: Final[Sequence[int]] = (
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
)
_REFUSED: Final[Sequence[int]] = (
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
)
