"""The operations of client processes, noted as a history, and checked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Set
from dataclasses import replace
from itertools import count
from pathlib import Path

from spark_log.testing.history import (
    ALLOWED,
    Anomaly,
    Assign,
    HistoryWriter,
    Operation,
    Outcome,
    Poll,
    Polled,
    Send,
    check_history,
    read_history,
)
from spark_log.types import TopicPartition

SUFFIX = ".history"


class OperationNotes:
    """The operations of one client, in a file of history lines that survives SIGKILL.

    A send is noted before it is invoked, with an unknown outcome: if the process is killed before
    it has noted the answer, the outcome stays unknown. Threads may share the notes.
    """

    def __init__(self, path):
        """Note in a file beside ``path``, whose name is the name of the client."""
        self._process = os.path.basename(path)
        self._writer = HistoryWriter(f"{path}{SUFFIX}")
        self._numbers = count()

    def begin(self, topic_partition, *values):
        """Note that these values are about to be sent, and return the operation."""
        sends = tuple(Send(topic_partition, value) for value in values)
        return self._note(sends, Outcome.UNKNOWN)

    def acknowledge(self, operation, offsets):
        """Note that the values of an operation were acknowledged at these offsets."""
        pairs = zip(operation.actions, offsets, strict=True)
        sends = tuple(replace(send, offset=offset) for send, offset in pairs)
        self._end(replace(operation, actions=sends, outcome=Outcome.COMMITTED))

    def refuse(self, operation):
        """Note that the values of an operation were refused, and are not in the log."""
        self._end(replace(operation, outcome=Outcome.ABORTED))

    def begin_transaction(self, polled, sends):
        """Note that a transaction is about to send records made of polled ones."""
        return self._note((Poll(tuple(polled)), *sends), Outcome.UNKNOWN, is_transaction=True)

    def end_transaction(self, operation):
        """Note that a transaction is about to be committed, and return the operation."""
        ending = replace(operation, end_invoked=time.monotonic_ns())
        self._writer.note(ending)
        return ending

    def note_end(self, operation, outcome):
        """Note the outcome of a transaction."""
        self._end(replace(operation, outcome=outcome))

    def poll(self, *records):
        """Note that a poll returned these `Polled` records."""
        self._note((Poll(records),), Outcome.COMMITTED)

    def assign(self, topic_partitions, offset=None):
        """Note that the next poll of these partitions begins at an offset; None: anywhere."""
        positions = tuple((each, offset) for each in topic_partitions)
        self._note((Assign(positions),), Outcome.COMMITTED)

    def close(self):
        self._writer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _note(self, actions, outcome, *, is_transaction=False):
        operation = Operation(
            self._process,
            next(self._numbers),
            actions,
            outcome,
            is_transaction=is_transaction,
            invoked=time.monotonic_ns(),
        )
        self._writer.note(operation)
        return operation

    def _end(self, operation):
        self._writer.note(replace(operation, completed=time.monotonic_ns()))


def read_operations(folder: Path, clients: str = "*") -> list[Operation]:
    """Return the noted operations of the clients whose names have this pattern."""
    return list(read_history(*sorted(folder.glob(f"{clients}{SUFFIX}"))).operations)


def polled(operations: Iterable[Operation]) -> list[Polled]:
    """Return the records that the polls of these operations returned."""
    actions = [action for each in operations for action in each.actions]
    return [record for each in actions if isinstance(each, Poll) for record in each.records]


def sends(operations: Iterable[Operation]) -> list[Send]:
    """Return the sends of these operations; those that were not acknowledged have no offset."""
    actions = [action for each in operations for action in each.actions]
    return [each for each in actions if isinstance(each, Send)]


def read_of_log(
    topic_partition: TopicPartition, records: Iterable[tuple[int, str]], start: int = 0
) -> Operation:
    """Return the test's own reading of a whole log as an operation."""
    polled = tuple(Polled(topic_partition, offset, value) for offset, value in records)
    actions = Assign(((topic_partition, start),)), Poll(polled)
    return Operation(f"log of {topic_partition}", 0, actions, Outcome.COMMITTED)


def check_operations(operations: Iterable[Operation], *, allowed: Set[Anomaly] = ALLOWED) -> None:
    """Assert that a history has no anomaly but the allowed ones."""
    findings = check_history(operations, allowed=allowed)
    assert not findings.anomalies, str(findings)
