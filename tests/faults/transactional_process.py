"""A process with a transactional producer, which may be killed or stopped at any moment.

Each of its transactions has records in all partitions of a topic. The value of a record is
``<transactional id>.<incarnation>.<transaction>.<partition>.<number>.<count>``, where the count is
the number of records that the transaction has in each partition: a reader of one of its records
knows all others. The process notes the outcome of each transaction in an unbuffered line.
"""

import random
from dataclasses import dataclass
from multiprocessing.connection import Connection

from spark_log import Producer, ProducerFencedError, TransactionAbortableError
from tests.faults.notes import Notes

PARTITIONS = 3
_MAX_RECORDS = 4
_ABORTS = 0.3
_FLUSHES = 0.4


@dataclass(frozen=True)
class Transactor:
    """The role of one process: its root, transactional id, incarnation, and notes."""

    root: str
    storage_options: dict[str, str] | None
    transactional_id: str
    incarnation: int
    notes: str

    @property
    def mark(self):
        """The beginning of its records' values."""
        return f"{self.transactional_id}.{self.incarnation}"


def transact_until_stopped(role: Transactor, orders: Connection):
    """Commit and abort transactions until the pipe is closed, or another process takes over."""
    chance = random.Random(role.mark)
    with (
        Notes(role.notes) as notes,
        Producer(
            role.root,
            storage_options=role.storage_options,
            transactional_id=role.transactional_id,
            linger_ms=1,
        ) as producer,
    ):
        try:
            producer.init_transactions()
            number = 0
            while not orders.poll():
                _transact(role, producer, notes, chance, number)
                number += 1
        except ProducerFencedError:
            notes.write("fenced")
        else:
            notes.write("ended")


def _transact(role, producer, notes, chance, number):
    notes.write("began", number)
    producer.begin_transaction()
    try:
        count = chance.randint(1, _MAX_RECORDS)
        for each in range(count):
            for partition in range(PARTITIONS):
                value = f"{role.mark}.{number}.{partition}.{each}.{count}"
                producer.send("t", value.encode(), partition=partition)
            if chance.random() < _FLUSHES:
                producer.flush()
        if chance.random() < _ABORTS:
            producer.abort_transaction()
            notes.write("aborted", number)
        else:
            notes.write("committing", number)
            producer.commit_transaction()
            notes.write("committed", number)
    except TransactionAbortableError:
        # It was stopped so long that another process took over, or the timeout passed.
        producer.abort_transaction()
        notes.write("aborted", number)
