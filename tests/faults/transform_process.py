"""A process that reads a topic as a member of a group, and writes another topic in transactions.

It may be killed or stopped at any moment. It notes each transaction as an operation of a history,
and a line with its outcome. A record that it writes has the value ``<value read>.<member>.<number
of the transaction>``.
"""

import faulthandler
import logging
import os
import random
import sys
import time
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

import spark_log.coordinator.offsets.maintenance  # noqa: F401 - before the fork, not after
from spark_log import (
    Consumer,
    ConsumerRebalanceListener,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from spark_log.errors import CommitFailedError, SparkLogError, TransactionAbortableError
from spark_log.testing.history import Outcome, Polled, Send
from tests.faults.fast_clock import FastClock
from tests.faults.notes import Notes
from tests.faults.operation_notes import OperationNotes

GROUP = "transform"
SOURCE, TARGET = "source", "target"
_POLL_MS = 50
_WORK_S = 0.2


@dataclass(frozen=True)
class TransformRole:
    """The role of one process.

    Attributes:
        root: the cluster's root.
        storage_options: the root's options.
        name: the name of the process.
        transactional_id: the transactional id of its producer.
        notes: path of its notes; its ``stderr`` goes to a file beside them.
        consumer, producer: configs of its clients.
    """

    root: str
    storage_options: dict[str, str] | None
    name: str
    transactional_id: str
    notes: str
    consumer: dict[str, Any] = field(default_factory=dict)
    producer: dict[str, Any] = field(default_factory=dict)


def transform_until_stopped(role: TransformRole, orders: Connection):
    """Consume, transform and produce until the pipe is closed."""
    sys.stderr = open(f"{role.notes}.stderr", "w", buffering=1)  # noqa: SIM115 - until it ends
    os.dup2(sys.stderr.fileno(), 2)
    faulthandler.enable()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr, force=True
    )
    clock = FastClock()
    with (
        Notes(role.notes) as notes,
        OperationNotes(role.notes) as operations,
        Producer(
            role.root,
            storage_options=role.storage_options,
            transactional_id=role.transactional_id,
            clock=clock,
            **role.producer,
        ) as producer,
        Consumer(
            root=role.root,
            storage_options=role.storage_options,
            group_id=GROUP,
            clock=clock,
            client_id=role.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **role.consumer,
        ) as consumer,
    ):
        _Member(role.name, producer, consumer, notes, operations).run(orders)


class _Member(ConsumerRebalanceListener):
    """The loop of one process."""

    def __init__(self, name, producer, consumer, notes, operations):
        self._name = name
        self._producer, self._consumer = producer, consumer
        self._notes, self._operations = notes, operations
        self._transactions = count()
        self._chance = random.Random(name)

    def on_partitions_assigned(self, assigned):
        self._operations.assign(assigned)

    def on_partitions_revoked(self, revoked):
        pass

    def run(self, orders):
        self._consumer.subscribe([SOURCE], listener=self)
        self._producer.init_transactions()
        self._notes.write("began")
        while not orders.poll():
            most = self._chance.choice([5, 20, 100])
            polled = self._consumer.poll(_POLL_MS, max_records=most)
            if polled and self._chance.random() < 0.2:
                time.sleep(_WORK_S)  # the work, during which a signal may arrive
            if polled and not self._transform(polled):
                break  # fenced: another process has its transactional id
        self._notes.write("ended")

    def _transform(self, polled):
        """Write the results and offsets in one transaction; return False if it was fenced."""
        mark = f"{self._name}.{next(self._transactions)}"
        records = [
            Polled(partition, record.offset, record.value.decode())
            for partition, those in polled.items()
            for record in those
        ]
        sends = [
            Send(TopicPartition(TARGET, each.topic_partition.partition), f"{each.value}.{mark}")
            for each in records
        ]
        offsets = {
            partition: OffsetAndMetadata(those[-1].offset + 1)
            for partition, those in polled.items()
        }
        operation = self._operations.begin_transaction(records, sends)
        outcome = Outcome.ABORTED
        try:
            with self._producer.transaction():
                for each in sends:
                    partition = each.topic_partition.partition
                    self._producer.send(TARGET, each.value.encode(), partition=partition)
                self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())
                operation = self._operations.end_transaction(operation)
                outcome = Outcome.UNKNOWN
        except SparkLogError as error:
            if isinstance(error, TransactionAbortableError):
                outcome = Outcome.ABORTED
            self._operations.note_end(operation, outcome)
            is_refused = isinstance(error, CommitFailedError)
            self._notes.write("refused" if is_refused else "failed", repr(error))
            if error.fenced:
                return False
            back = {
                each: polled[each][0].offset for each in polled.keys() & self._consumer.assignment()
            }
            for partition, offset in back.items():
                self._consumer.seek(partition, offset)
            self._operations.assign(polled)
        else:
            self._operations.note_end(operation, Outcome.COMMITTED)
            self._notes.write("committed", len(records))
        return True
