"""`TaskGeneration`: the tasks that may write to one side, if a job has one task per partition.

A mirror of all partitions fences the one before it by their common transactional id. The tasks of a
job run at the same time, so each partition has an id of its own, and a late task of a killed job
has to be refused as well. As in Kafka Connect (KIP-618), a new mirror first fences all tasks of the
last generation. The generation is a record of the offset-sync topic.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from spark_log.errors import CorruptRecordError
from spark_log.mirror.kafka import KafkaCluster, kafka_errors
from spark_log.mirror.kafka import Producer as KafkaProducer
from spark_log.mirror.mirror_settings import LogAddress, MirrorSettings
from spark_log.mirror.mirrored_partition import MirroredPartition, Side
from spark_log.producer import Producer as LogProducer
from spark_log.util import parse_json

_log = logging.getLogger(__name__)

KEY: Final = b'{"generation": true}'
"""Key of the record; compaction keeps the last one."""


@dataclass(frozen=True, slots=True)
class TaskGeneration:
    """The tasks of a job.

    Attributes:
        generation_id: the unique id of the generation.
        partitions: the partitions, each of which may have a task; empty if no job mirrors.
    """

    generation_id: str
    partitions: tuple[MirroredPartition, ...] = ()

    @classmethod
    def of(cls, partitions: Iterable[MirroredPartition]) -> TaskGeneration:
        """Return a new generation."""
        return cls(uuid.uuid4().hex, tuple(partitions))

    @classmethod
    def parse(cls, value: bytes) -> TaskGeneration:
        """Return the generation of a record.

        Raises:
            CorruptRecordError: the value is not a generation.
        """
        try:
            fields: dict[str, Any] = parse_json(value)
            partitions = tuple(MirroredPartition(*each) for each in fields["partitions"])
            return cls(str(fields["id"]), partitions)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptRecordError(
                f"the record {value[:200]!r} is not a generation of tasks: {error}"
            ) from None

    def record(self) -> tuple[bytes, bytes]:
        """Return key and value of the record."""
        return KEY, self._value()

    def _value(self) -> bytes:
        document = {
            "id": self.generation_id,
            "partitions": [list(each) for each in self.partitions],
        }
        return json.dumps(document).encode()


@dataclass(frozen=True, slots=True)
class MirrorTask:
    """The single partition that a mirror copies for a job.

    Attributes:
        generation_id: the id of the generation of the job's tasks.
        partition: the partition that the task copies.
    """

    generation_id: str
    partition: MirroredPartition


def fence_tasks(
    kafka: KafkaCluster,
    log: LogAddress,
    settings: MirrorSettings,
    side: Side,
    generation: TaskGeneration,
) -> None:
    """Fence all tasks that write to a side, including tasks that have not begun yet.

    A task begins by fencing its own predecessor, and then reads the generation. Therefore the id of
    the generation is changed first, and its partitions are removed last: if this function is
    interrupted, the next mirror repeats it.

    Args:
        kafka: the Kafka cluster.
        log: the log.
        settings: the settings of the mirror.
        side: the side that the tasks write to.
        generation: the present generation of this side.
    """
    write_generation(kafka, log, settings, side, TaskGeneration.of(generation.partitions))
    for partition in generation.partitions:
        fence_mirror(kafka, log, settings, side, partition)
    write_generation(kafka, log, settings, side, TaskGeneration.of(()))
    _log.info(
        "fenced %d tasks of generation %s, which wrote to %s",
        len(generation.partitions),
        generation.generation_id,
        side.name,
    )


def fence_mirror(
    kafka: KafkaCluster,
    log: LogAddress,
    settings: MirrorSettings,
    side: Side,
    partition: MirroredPartition | None = None,
) -> None:
    """Fence the mirror that writes to a side: of all partitions, or the task of one partition."""
    name = settings.transactional_id(side, partition)
    if side is Side.KAFKA:
        kafka.producer(name)
    else:
        log.producer(name).close()


def write_generation(
    kafka: KafkaCluster,
    log: LogAddress,
    settings: MirrorSettings,
    side: Side,
    generation: TaskGeneration,
) -> None:
    """Fence all mirrors that write to a side, except tasks, and replace the side's generation."""
    name = settings.transactional_id(side)
    if side is Side.KAFKA:
        write_to_kafka(kafka, kafka.producer(name), settings, [generation.record()])
        return
    with log.producer(name) as producer:
        write_to_log(producer, settings, [generation.record()])


def write_to_kafka(
    kafka: KafkaCluster,
    producer: KafkaProducer,
    settings: MirrorSettings,
    records: Iterable[tuple[bytes, bytes | None]],
) -> None:
    """Write records to the offset-sync topic in Kafka, in a transaction of their own."""
    with kafka_errors():
        producer.begin_transaction()
        for key, value in records:
            producer.produce(settings.offset_sync_topic, value, key, 0)
    kafka.commit(producer)


def write_to_log(
    producer: LogProducer,
    settings: MirrorSettings,
    records: Iterable[tuple[bytes, bytes | None]],
) -> None:
    """Write records to the offset-sync topic in the log, in a transaction of their own."""
    with producer.transaction():
        for key, value in records:
            producer.send(settings.offset_sync_topic, value, key=key, partition=0)
