"""`KafkaCluster`: a mirror's access to topics, settings and groups of a Kafka cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from spark_log.errors import KafkaTimeoutError
from spark_log.mirror.kafka.confluent import (
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
    NewPartitions,
    NewTopic,
    OffsetSpec,
    Producer,
    TopicCollection,
)
from spark_log.mirror.kafka.errors import (
    is_end,
    is_not_ready,
    kafka_errors,
    retry_while_not_ready,
)
from spark_log.types import OffsetAndMetadata, TopicPartition
from spark_log.util import SYSTEM_CLOCK, Clock

TIMEOUT_S: Final = 30.0
"""Time limit of one call to the brokers."""

BATCH_BYTES: Final = 1_000_000
"""Maximum bytes of a producer's batch; less than Kafka's default ``max.message.bytes``."""

_POLL_S: Final = 0.1

_QUIET: Final = {"log_level": 0}
"""Setting that stops librdkafka's log on stderr: the errors of calls contain the same."""

_T = TypeVar("_T")


class KafkaCluster:
    """A Kafka cluster, reached by librdkafka.

    A call waits for brokers that are not ready, such as a coordinator that loads its partition.
    """

    def __init__(
        self, settings: Mapping[str, str | int | float | bool], clock: Clock | None = None
    ) -> None:
        """Return the cluster; no broker is connected yet.

        Args:
            settings: librdkafka's settings, with ``bootstrap.servers``; never shown.
            clock: the clock for waiting; None for the system's.

        Raises:
            InvalidConfigurationError: a setting does not exist, or has a wrong value.
        """
        self._settings = {**_QUIET, **settings}
        self._clock = clock or SYSTEM_CLOCK
        with kafka_errors():
            self._admin = AdminClient(self._settings)

    def consumer(self, **settings: str | int | bool) -> Consumer:
        """Return a consumer of committed records that commits no offsets.

        Args:
            settings: more of librdkafka's settings, with ``_`` for dots.
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

    def producer(self, transactional_id: str, batch_bytes: int = BATCH_BYTES) -> Producer:
        """Return a transactional producer that has fenced all earlier ones with this id.

        Args:
            transactional_id: the transactional id.
            batch_bytes: maximum bytes of a batch of several records.

        Raises:
            KafkaTimeoutError: no broker answered in time.
        """
        settings = {
            **self._settings,
            "transactional.id": transactional_id,
            "queue.buffering.max.messages": 10_000_000,  # bytes limit it
            "queue.buffering.max.kbytes": 262_144,
            "message.max.bytes": 1_000_000_000,  # the topic's own limit decides
            "linger.ms": 20,
            "batch.size": batch_bytes,
        }
        with kafka_errors():
            producer = Producer(settings)
            self._call(lambda: producer.init_transactions(TIMEOUT_S))
        return producer

    def commit(self, producer: Producer) -> None:
        """Commit the transaction of a producer.

        Raises:
            SparkLogError: it is not known whether the transaction was committed.
        """
        with kafka_errors():
            self._call(producer.commit_transaction)

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of every topic.

        Raises:
            KafkaTimeoutError: no broker answered in time.
        """

        def counts() -> dict[str, int]:
            topics = self._admin.list_topics(timeout=TIMEOUT_S).topics
            for topic in topics.values():
                if topic.error is not None and is_not_ready(topic.error):
                    raise KafkaException(topic.error)  # it may still exist
            return {name: len(each.partitions) for name, each in topics.items() if not each.error}

        with kafka_errors():
            return self._call(counts)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of topics. A topic that was deleted and created again has another id."""
        given = list(topics)
        if not given:
            return {}
        names = TopicCollection(given)

        def ids() -> dict[str, str]:
            futures = self._admin.describe_topics(names, request_timeout=TIMEOUT_S)
            return {topic: str(future.result().topic_id) for topic, future in futures.items()}

        with kafka_errors():
            return self._call(ids)

    def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings that users made for topics, without defaults."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        if not resources:
            return {}
        made = ConfigSource.DYNAMIC_TOPIC_CONFIG.value

        def settings() -> dict[str, dict[str, Any]]:
            futures = self._admin.describe_configs(resources, request_timeout=TIMEOUT_S)
            return {each.name: future.result() for each, future in futures.items()}

        with kafka_errors():
            found = self._call(settings)
        return {
            topic: {name: each.value for name, each in entries.items() if each.source == made}
            for topic, entries in found.items()
        }

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Create a topic with the brokers' default number of replicas, unless it exists."""

        def create() -> None:
            new = NewTopic(topic, partitions, -1, config=dict(settings))
            self._admin.create_topics([new], request_timeout=TIMEOUT_S)[topic].result()

        with kafka_errors(KafkaError.TOPIC_ALREADY_EXISTS):
            self._call(create)

    def create_partitions(self, topic: str, total: int) -> None:
        """Increase the number of partitions of a topic."""

        def grow() -> None:
            grown = [NewPartitions(topic, total)]
            self._admin.create_partitions(grown, request_timeout=TIMEOUT_S)[topic].result()

        with kafka_errors():
            self._call(grow)

    def alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change some settings of a topic; its other settings stay."""
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes)

        def alter() -> None:
            futures = self._admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S)
            futures[resource].result()

        with kafka_errors():
            self._call(alter)

    def groups(self) -> dict[str, bool]:
        """Return the ids of all consumer groups, and whether each has members."""

        def groups() -> Any:
            listed = self._admin.list_consumer_groups(request_timeout=TIMEOUT_S).result()
            for error in listed.errors:  # a coordinator did not return its groups
                raise error
            return listed

        with kafka_errors():
            listed = self._call(groups)
        return {each.group_id: each.state.name not in ("EMPTY", "DEAD") for each in listed.valid}

    def group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group; a group that does not exist has none."""
        request = [ConsumerGroupTopicPartitions(group_id)]

        def offsets() -> list[KafkaPartition]:
            futures = self._admin.list_consumer_group_offsets(request, request_timeout=TIMEOUT_S)
            return _checked(futures[group_id].result().topic_partitions)

        with kafka_errors():
            found = self._call(offsets)
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
        """Set committed offsets of a group without members.

        Raises:
            GroupNotEmptyError: the group has members.
        """
        partitions = [
            KafkaPartition(tp.topic, tp.partition, each.offset, each.metadata)
            for tp, each in offsets.items()
        ]
        request = [ConsumerGroupTopicPartitions(group_id, partitions)]

        def alter() -> None:
            futures = self._admin.alter_consumer_group_offsets(request, request_timeout=TIMEOUT_S)
            _checked(futures[group_id].result().topic_partitions)

        with kafka_errors():
            self._call(alter)

    def read_topic(
        self, topic: str, *, complete: bool = False
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield keys and values of the committed records of partition 0, up to its present end.

        Args:
            topic: the topic.
            complete: whether to wait until transactions that are open now have ended.

        Raises:
            KafkaTimeoutError: a transaction stays open, or no broker answers.
        """
        end = self._end_offset(topic) if complete else 0
        consumer = self.consumer()
        try:
            with kafka_errors():
                consumer.assign([KafkaPartition(topic, 0, OFFSET_BEGINNING)])
            heard_s = time.monotonic()
            while time.monotonic() - heard_s < TIMEOUT_S:
                with kafka_errors():
                    messages = consumer.consume(10_000, _POLL_S)
                for message in messages:
                    if not is_end(message):
                        yield message.key() or b"", message.value()
                        heard_s = time.monotonic()
                    elif (message.offset() or 0) >= end:
                        return
            raise KafkaTimeoutError(
                f"Kafka's topic {topic} gave no record in {TIMEOUT_S:.0f} s"
                f"{', or a transaction stays open' if complete else ''}; try again"
            )
        finally:
            consumer.close()

    def earliest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that each partition still has."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def latest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition, committed or not."""
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def _end_offset(self, topic: str) -> int:
        """Return the offset after the last record of partition 0, committed or not."""
        (end,) = self.latest_offsets([TopicPartition(topic, 0)]).values()
        return end

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        request = {KafkaPartition(*each): spec for each in partitions}

        def offsets() -> dict[TopicPartition, int]:
            futures = self._admin.list_offsets(request, request_timeout=TIMEOUT_S)
            return {
                TopicPartition(each.topic, each.partition): int(future.result().offset)
                for each, future in futures.items()
            }

        with kafka_errors():
            return self._call(offsets)

    def _call(self, call: Callable[[], _T]) -> _T:
        return retry_while_not_ready(call, self._clock)


def _checked(partitions: list[KafkaPartition] | None) -> list[KafkaPartition]:
    """Return the partitions of an answer; raise the error of the first one that has one."""
    for each in partitions or []:
        if each.error is not None:
            raise KafkaException(each.error)
    return partitions or []
