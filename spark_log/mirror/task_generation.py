"""`TaskGeneration`: which tasks may write to one side, if a job mirrors each partition in its own.

A mirror of all partitions fences the one before it by their one transactional id. The tasks of a
job run at the same time, so each partition has an id of its own, and a task that comes late, from a
job that was killed, has to be refused as well. As in Kafka Connect (KIP-618), the one that begins
fences all tasks of the last generation first; the generation is a record of the map topic.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from spark_log.errors import CorruptRecordError
from spark_log.mirror.confluent import Producer as KafkaProducer
from spark_log.mirror.kafka_cluster import KafkaCluster
from spark_log.mirror.kafka_errors import kafka_errors
from spark_log.mirror.mirror_settings import LogAddress, MirrorSettings
from spark_log.mirror.offset_map import MirroredPartition, Side
from spark_log.producer import Producer as LogProducer
from spark_log.untrusted_json import parse_json

KEY: Final = b'{"generation": true}'
"""Key of the record; compaction keeps the last one."""


@dataclass(frozen=True, slots=True)
class TaskGeneration:
    """The tasks of a job.

    Attributes:
        generation_id: unlike that of any other generation.
        partitions: of which each may have a task; none: no job mirrors.
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
            CorruptRecordError: it is no such record.
        """
        try:
            fields: dict[str, Any] = parse_json(value)
            partitions = tuple(MirroredPartition(*each) for each in fields["partitions"])
            return cls(str(fields["id"]), partitions)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptRecordError(
                f"the record {value[:200]!r} names no generation of tasks: {error}"
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
    """The one partition that a mirror copies for a job.

    Attributes:
        generation_id: of the job's tasks.
        partition: what it copies.
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
    """Fence all tasks that write to a side, also those that have not begun yet.

    A task begins by fencing its own predecessor, and reads the generation then. So the id of the
    generation is changed first, and its partitions are removed last: if this is cut off, it will be
    done again.

    Args:
        kafka: one of the two sides.
        log: the other one.
        settings: of the mirror.
        side: the side.
        generation: its present generation.
    """
    write_generation(kafka, log, settings, side, TaskGeneration.of(generation.partitions))
    for partition in generation.partitions:
        fence_mirror(kafka, log, settings, side, partition)
    write_generation(kafka, log, settings, side, TaskGeneration.of(()))


def fence_mirror(
    kafka: KafkaCluster,
    log: LogAddress,
    settings: MirrorSettings,
    side: Side,
    partition: MirroredPartition | None = None,
) -> None:
    """Fence the mirror that writes to a side: that of all partitions, or the task of one."""
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
    """Fence all mirrors that write to a side, except tasks, and replace its generation."""
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
    """Write records to the map topic in Kafka, in a transaction of their own."""
    with kafka_errors():
        producer.begin_transaction()
        for key, value in records:
            producer.produce(settings.map_topic, value, key, 0)
    kafka.commit(producer)


def write_to_log(
    producer: LogProducer,
    settings: MirrorSettings,
    records: Iterable[tuple[bytes, bytes | None]],
) -> None:
    """Write records to the map topic in the log, in a transaction of their own."""
    with producer.transaction():
        for key, value in records:
            producer.send(settings.map_topic, value, key=key, partition=0)
