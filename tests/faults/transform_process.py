"""A process that reads a topic as a member of a group, and writes another topic in transactions.

It may be killed or stopped at any moment. It notes a line for each transaction with its outcome.
"""

import faulthandler
import logging
import os
import random
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import spark_log.coordinator.offsets.maintenance  # noqa: F401 - before the fork, not after
from spark_log import Consumer, OffsetAndMetadata, Producer
from spark_log.errors import CommitFailedError, SparkLogError
from tests.faults.fast_clock import FastClock
from tests.faults.notes import Notes

GROUP = "transform"
SOURCE, TARGET = "source", "target"
_POLL_MS = 50
_WORK_S = 0.2


@dataclass(frozen=True)
class TransformRole:
    """The role of one process.

    Attributes:
        root: the cluster's root.
        name: the name of the process.
        transactional_id: its producer's.
        notes: path of its notes; its ``stderr`` goes to a file beside them.
        consumer, producer: configs of its clients.
    """

    root: str
    name: str
    transactional_id: str
    notes: str
    consumer: dict[str, Any] = field(default_factory=dict)
    producer: dict[str, Any] = field(default_factory=dict)


def transform_until_told(role: TransformRole, told: Connection):
    """Consume, transform and produce until the pipe is closed."""
    sys.stderr = open(f"{role.notes}.stderr", "w", buffering=1)  # noqa: SIM115 - until it ends
    os.dup2(sys.stderr.fileno(), 2)
    faulthandler.enable()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr, force=True
    )
    chance = random.Random(role.name)
    clock = FastClock()
    with (
        Notes(role.notes) as notes,
        Producer(
            role.root, transactional_id=role.transactional_id, clock=clock, **role.producer
        ) as producer,
        Consumer(
            SOURCE,
            root=role.root,
            group_id=GROUP,
            clock=clock,
            client_id=role.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **role.consumer,
        ) as consumer,
    ):
        producer.init_transactions()
        notes.write("began")
        while not told.poll():
            polled = consumer.poll(_POLL_MS, max_records=chance.choice([5, 20, 100]))
            if polled and chance.random() < 0.2:
                time.sleep(_WORK_S)  # the work, during which a signal may arrive
            if polled and not _transform(producer, consumer, polled, notes):
                break  # fenced: another process has its transactional id
        notes.write("ended")


def _transform(producer, consumer, polled, notes):
    """Write the results and the offsets in one transaction; return whether to go on."""
    try:
        with producer.transaction():
            for partition, records in polled.items():
                for record in records:
                    producer.send(TARGET, record.value, partition=partition.partition)
            offsets = {
                partition: OffsetAndMetadata(records[-1].offset + 1)
                for partition, records in polled.items()
            }
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    except SparkLogError as error:
        notes.write("refused" if isinstance(error, CommitFailedError) else "aborted", repr(error))
        if error.fenced:
            return False
        for partition in polled.keys() & consumer.assignment():
            consumer.seek(partition, polled[partition][0].offset)
    else:
        notes.write("committed", sum(map(len, polled.values())))
    return True
