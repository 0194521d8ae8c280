"""Settings of a mirror between Kafka and a log: its sides, topics and transactions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_log.admin import Admin
from spark_log.consumer import Consumer
from spark_log.errors import InvalidConfigurationError
from spark_log.mirror.mirrored_partition import MirroredPartition, Side
from spark_log.mirror.replication_policy import ReplicationPolicy, TopicFilter, check_alias
from spark_log.producer import Producer
from spark_log.types import OffsetSpec, TopicPartition


@dataclass(frozen=True, slots=True)
class LogAddress:
    """The root of a log.

    Attributes:
        root: the path or URL of the cluster root.
        client_arguments: the keyword arguments of every client, such as ``storage_options``; never
            shown.
    """

    root: str | os.PathLike[str]
    client_arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def admin(self) -> Admin:
        """Return an `Admin`; nothing is read yet."""
        return Admin(self.root, **self.client_arguments)

    def producer(self, transactional_id: str) -> Producer:
        """Return a transactional producer that has fenced all earlier ones with this id."""
        producer = Producer(
            self.root,
            transactional_id=transactional_id,
            transaction_timeout_ms=300_000,
            buffer_memory=268_435_456,
            max_request_size=2**31 - 1,  # the topic's own limit decides
            metadata_max_age_ms=1_000,  # new partitions
            flush_on_exit=False,  # uncommitted records are mirrored again
            **self.client_arguments,
        )
        producer.init_transactions()
        return producer

    def consumer(self) -> Consumer:
        """Return a consumer of committed records, without a group."""
        return Consumer(
            root=self.root,
            isolation_level="read_committed",
            auto_offset_reset="none",
            fetch_max_bytes=268_435_456,
            max_partition_fetch_bytes=33_554_432,
            **self.client_arguments,
        )

    def earliest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that each partition still has."""
        return self._offsets(partitions, OffsetSpec.EARLIEST)

    def latest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log end offset of each partition."""
        return self._offsets(partitions, OffsetSpec.LATEST)

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        found = self.admin().list_offsets(dict.fromkeys(partitions, spec))
        return {tp: each.offset for tp, each in found.items()}


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """The settings of a mirror.

    Attributes:
        kafka_alias: the name of the Kafka cluster, in the names of topics and of offset syncs.
        log_alias: the name of the log, in the same names.
        policy: the rule for the names of mirrored topics.
        topics: the filter of the source's topics that are mirrored.
        commit_interval_ms: the time for which a transaction collects records; five times as long
            while the mirror lags behind the source.
        max_transaction_bytes: the size of records after which a transaction is committed earlier.
        fail_on_data_loss: whether a mirror fails if records were deleted before they were mirrored.
            If not, it continues at the first remaining record.
    """

    kafka_alias: str = "kafka"
    log_alias: str = "spark-log"
    policy: ReplicationPolicy = ReplicationPolicy.IDENTITY
    topics: TopicFilter = field(default_factory=TopicFilter.parse)
    commit_interval_ms: int = 1_000
    max_transaction_bytes: int = 134_217_728
    fail_on_data_loss: bool = True

    def __post_init__(self) -> None:
        """Check the aliases.

        Raises:
            InvalidConfigurationError: an alias cannot be a part of a topic's name, or both are the
                same.
        """
        check_alias(self.kafka_alias, "kafka-alias")
        check_alias(self.log_alias, "log-alias")
        if self.kafka_alias == self.log_alias:
            raise InvalidConfigurationError(
                f"--kafka-alias and --log-alias are both {self.kafka_alias!r}; give two different "
                f"names"
            )

    @property
    def offset_sync_topic(self) -> str:
        """Name of the topic with the offset syncs, the same in Kafka and in the log."""
        return f"mirror-offset-syncs.{self.kafka_alias}.{self.log_alias}.internal"

    def transactional_id(self, target: Side, partition: MirroredPartition | None = None) -> str:
        """Return the transactional id of the mirror that writes to one side.

        If topics keep their names, mirroring in both directions would return records to the topic
        that they came from. Both directions have the same id, so that the mirror that is
        started last fences the other.

        Args:
            target: the side that the mirror writes to.
            partition: the partition of a job's task; None for a mirror of all partitions.
        """
        name = f"mirror.{self.kafka_alias}.{self.log_alias}"
        if not self.is_exclusive:
            name = f"{name}.to-{target.name.lower()}"
        return name if partition is None else f"{name}.{partition.topic(target)}-{partition[-1]}"

    @property
    def is_exclusive(self) -> bool:
        """Whether only one direction may be mirrored at a time."""
        return self.policy is ReplicationPolicy.IDENTITY

    def is_mirrored(self, topic: str, source: Side) -> bool:
        """Return whether a topic of the source is mirrored; topics from the target are not."""
        return self.topics(topic) and not self.policy.comes_from(topic, self._alias(source.other))

    def partition(self, topic: str, partition: int, source: Side) -> MirroredPartition:
        """Return a partition of the source together with its partition of the target."""
        target = self.policy.target_topic(topic, self._alias(source))
        names = (topic, target) if source is Side.KAFKA else (target, topic)
        return MirroredPartition(*names, partition)

    def _alias(self, side: Side) -> str:
        return self.kafka_alias if side is Side.KAFKA else self.log_alias
