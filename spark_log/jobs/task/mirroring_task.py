"""Mirrors the partitions of Kafka and a log in Spark tasks, one task per partition."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import Accumulator

from spark_log.errors import SparkLogError
from spark_log.mirror import (
    KafkaCluster,
    KafkaToLog,
    LogAddress,
    LogToKafka,
    Mirror,
    MirrorSettings,
    MirrorTask,
    Side,
)
from spark_log.types import TopicPartition


@dataclass(frozen=True, slots=True)
class MirroringTask:
    """The arguments of a Spark task that mirrors a partition. They are pickled to the tasks.

    Attributes:
        kafka_settings: the settings of librdkafka; never shown.
        log: the log.
        settings: the settings of the mirror.
        source: the side that is read.
        tasks: the tasks, by the partition of the source.
        copied_bytes: the accumulator of the bytes that each task has copied; None for none.
    """

    kafka_settings: Mapping[str, str] = field(repr=False)
    log: LogAddress
    settings: MirrorSettings
    source: Side
    tasks: Mapping[TopicPartition, MirrorTask] = field(default_factory=dict)
    copied_bytes: Accumulator[int] | None = None

    def driver(self) -> Mirror:
        """Return the mirror that begins and ends the tasks."""
        return self._mirror(None)

    def copy(self, partition: TopicPartition) -> dict[str, Any]:
        """Mirror a partition of the source up to its present end.

        Returns:
            The counts of `Mirror.metrics`, with underscores, and ``error`` if it failed.
        """
        document: dict[str, Any] = {"topic": partition.topic, "partition": partition.partition}
        mirror = self._mirror(self.tasks[partition])
        try:
            with mirror:
                try:
                    mirror.run(lambda: False, refresh_interval_s=math.inf, until_end=True)
                finally:
                    metrics = mirror.metrics()
                    document |= {
                        name.replace("-", "_"): metrics[name]
                        for name in ("record-count", "byte-count", "transaction-count")
                    }
            document["records_lag"] = metrics["records-lag"]
        except SparkLogError as error:
            document["error"] = str(error)
        if self.copied_bytes is not None:
            self.copied_bytes.add(document.get("byte_count", 0))
        return document

    def _mirror(self, task: MirrorTask | None) -> Mirror:
        kind = KafkaToLog if self.source is Side.KAFKA else LogToKafka
        return kind(KafkaCluster(self.kafka_settings), self.log, self.settings, task)


def tasks_by_partition(
    tasks: Iterable[MirrorTask], source: Side
) -> dict[TopicPartition, MirrorTask]:
    """Return tasks by the partition that each reads."""
    return {
        TopicPartition(each.partition.topic(source), each.partition.partition): each
        for each in tasks
    }
