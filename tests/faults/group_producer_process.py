"""A process with an idempotent producer, which notes its sends."""

import random
from dataclasses import dataclass
from multiprocessing.connection import Connection

from spark_log import Producer, TopicPartition
from tests.faults.operation_notes import OperationNotes

_PARTITIONS_AT_ONCE = 4
_MAX_RECORDS = 12
_PAUSE_S = 0.12


@dataclass(frozen=True)
class ProducerRole:
    """The role of one producer: its name, its topics, and the path of its operation notes."""

    root: str
    storage_options: dict[str, str] | None
    name: str
    notes: str
    topics: tuple[str, ...]


def produce_until_stopped(role: ProducerRole, orders: Connection):
    """Repeatedly send records to some partitions, and wait for their acknowledgements."""
    chance = random.Random(role.name)
    number = 0
    with (
        OperationNotes(role.notes) as notes,
        Producer(role.root, storage_options=role.storage_options) as producer,
    ):
        while not orders.poll(_PAUSE_S):
            sent = []
            for _ in range(_PARTITIONS_AT_ONCE):
                topic = chance.choice(role.topics)
                partition = chance.choice(sorted(producer.partitions_for(topic)))
                count = chance.randint(1, _MAX_RECORDS)
                values = [f"{role.name}.{each}" for each in range(number, number + count)]
                number += count
                operation = notes.begin(TopicPartition(topic, partition), *values)
                futures = [
                    producer.send(topic, value.encode(), partition=partition) for value in values
                ]
                sent.append((operation, futures))
            for operation, futures in sent:
                notes.acknowledge(operation, [future.result().offset for future in futures])
