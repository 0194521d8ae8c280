"""A history as numbers in NumPy arrays, which the checks compare by whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from spark_log.testing.history.operation import Assign, Operation, Outcome, Poll, Send
from spark_log.types import TopicPartition

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

NONE: Final = -1
"""The value in columns for a missing row, offset or time."""

_MAX_CODE: Final = 2**62

_MAX_SHOWN: Final = 40
"""Maximum number of characters of a value in an explanation."""


class SendColumns:
    """One row for each record that was sent, in the order of the history.

    Attributes:
        operation: the operation.
        partition: the partition.
        value: the value, as a number that stands for partition and value.
        offset: the acknowledged offset, or NONE.
        previous: the row of this client's last acknowledged send to this partition before this one;
            NONE without one, or if this send has no offset.
    """

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.operation, self.partition, self.value, self.offset, self.previous = map(_ints, rows)


class ReadColumns:
    """One row for each record that a poll returned, in the order of the history.

    Attributes:
        operation: the operation.
        partition: the partition.
        value: the value, as a number that stands for partition and value.
        offset: its offset.
        since: the offset before the client's position, so that a record between ``since`` and
            ``offset`` was left out; NONE - 1 if the position is not known.
        since_operation: the operation that set the position; NONE after an assignment.
        is_committed: whether the consumer was read_committed.
    """

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.operation, self.partition, self.value, self.offset = map(_ints, rows[:4])
        self.since, self.since_operation = map(_ints, rows[4:6])
        self.is_committed: Bools = np.array(rows[6], dtype=np.bool_)


class SeenColumns:
    """One row for each time that a client learned which value is at an offset.

    These are the acknowledged sends, then the reads, for any outcome of their operations.

    Attributes:
        operation: the operation.
        value: the value, as in the other columns.
        offset: the offset.
    """

    def __init__(self, sends: SendColumns, reads: ReadColumns) -> None:
        known = sends.offset != NONE
        self.operation = np.concatenate([sends.operation[known], reads.operation])
        self.value = np.concatenate([sends.value[known], reads.value])
        self.offset = np.concatenate([sends.offset[known], reads.offset])


class HistoryColumns:
    """The operations of a history, as columns.

    Attributes:
        operations: the operations.
        processes: name of each process.
        partitions: partition of each partition number.
        values: text of each value number.
        process: process of each operation.
        is_aborted: whether each operation was aborted.
        is_transaction: whether each operation is a transaction.
        is_committed: whether each operation took effect: it was committed, or it is a transaction
            of unknown outcome and a read_committed client polled a value that only it sent.
        value_partition: partition of each value number.
        sends: the records sent.
        reads: the records polled.
        seen: the values that clients know to be at an offset.
        sent_times: number of sends of each value.
        writer: row in ``sends`` of each value that was sent once; NONE for others.
        located: the offset of each row of ``sends``: the acknowledged one, else the one at which
            its value was polled if no other send has the value; NONE if it is not known.
        is_value_aborted: whether a value was sent, and by aborted operations only.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        rows = _Rows()
        for number, operation in enumerate(operations):
            rows.add(number, operation)
        self.processes = list(rows.processes)
        self.partitions = list(rows.partitions)
        self.values = [value for _, value in rows.values]
        self.value_partition = _ints([partition for partition, _ in rows.values])
        self.process = _ints(rows.process)
        outcome = np.array([each.outcome for each in operations], dtype="U9")
        self.is_aborted: Bools = outcome == Outcome.ABORTED.value
        self.is_transaction: Bools = np.array(
            [each.is_transaction for each in operations], dtype=np.bool_
        )
        self.sends = SendColumns(rows.sends)
        self.reads = ReadColumns(rows.reads)
        self.seen = SeenColumns(self.sends, self.reads)
        offsets = (self.sends.offset, self.reads.offset, self.reads.since)
        self._base = max(int(each.max(initial=NONE)) for each in offsets) + 3
        if self._base * max(len(self.partitions), len(self.values), 1) > _MAX_CODE:
            raise OverflowError(f"offsets up to {self._base - 3} are too high to be checked")
        self._resolve(outcome)

    def _resolve(self, outcome: npt.NDArray[np.str_]) -> None:
        sends, reads = self.sends, self.reads
        self.sent_times = np.bincount(sends.value, minlength=len(self.values))
        self.writer = np.full(len(self.values), NONE, dtype=np.int64)
        self.writer[sends.value] = np.arange(len(sends.value))
        self.writer[self.sent_times > 1] = NONE
        aborted = np.bincount(
            sends.value, weights=self.is_aborted[sends.operation], minlength=len(self.values)
        )
        self.is_value_aborted: Bools = (self.sent_times > 0) & (aborted == self.sent_times)
        self.is_committed: Bools = outcome == Outcome.COMMITTED.value
        writers = self.writer[reads.value]
        seen = sends.operation[writers[reads.is_committed & (writers != NONE)]]
        self.is_committed[seen[self.is_transaction[seen] & ~self.is_aborted[seen]]] = True
        self.located = sends.offset.copy()
        polled = np.flatnonzero(writers != NONE)
        polled = polled[sends.offset[writers[polled]] == NONE]
        self.located[writers[polled]] = reads.offset[polled]

    def place(self, partition: Ints, offset: Ints) -> Ints:
        """Return a number for each partition (or value) and offset, in their order."""
        return partition * self._base + offset + 2

    def name(self, operation: int) -> str:
        """Return the name of an operation."""
        return self.operations[operation].name

    def text(self, value: int) -> str:
        """Return a value quoted, and shortened if it is long."""
        text = self.values[value]
        if len(text) <= _MAX_SHOWN:
            return repr(text)
        return f"{text[:_MAX_SHOWN]!r}… ({len(text):,} characters)"

    def times(self, name: str) -> Ints:
        """Return a time of each operation, by the name of the field; NONE if it was not noted."""
        found = (getattr(each, name) for each in self.operations)
        return _ints([NONE if each is None else each for each in found])


class _Rows:
    """Collects the rows of the columns, operation by operation."""

    def __init__(self) -> None:
        self.processes: dict[str, int] = {}
        self.partitions: dict[TopicPartition, int] = {}
        self.values: dict[tuple[int, str], int] = {}
        self.process: list[int] = []
        self.sends: tuple[list[int], ...] = tuple([] for _ in range(5))
        self.reads: tuple[list[int], ...] = tuple([] for _ in range(7))
        # For each process, by partition:
        self._positions: list[dict[int, tuple[int, int]]] = []  # last offset read, its operation
        self._sent: list[dict[int, int]] = []  # row of the last acknowledged send

    def add(self, number: int, operation: Operation) -> None:
        process = self.processes.setdefault(operation.process, len(self.processes))
        if process == len(self._positions):
            self._positions.append({})
            self._sent.append({})
        self.process.append(process)
        committed = self._positions[process]
        # Polls of an operation that was not committed leave the client's position unchanged.
        is_committed = operation.outcome is Outcome.COMMITTED
        positions = committed if is_committed else dict(committed)
        uncertain = []
        for action in operation.actions:
            match action:
                case Send():
                    self._send(number, action, self._sent[process])
                case Poll():
                    uncertain += self._poll(number, action, positions)
                case Assign():
                    self._assign(action, positions)
                    self._assign(action, committed)
        if operation.outcome is Outcome.UNKNOWN:
            # The client's position is the one before the operation, or after the polled records.
            for partition in uncertain:
                committed.pop(partition, None)

    def _send(self, number: int, send: Send, sent: dict[int, int]) -> None:
        operation, partitions, values, offsets, previous = self.sends
        partition = self._partition(send.topic_partition)
        previous.append(NONE)
        if send.offset is not None:
            previous[-1] = sent.get(partition, NONE)
            sent[partition] = len(operation)
        operation.append(number)
        partitions.append(partition)
        values.append(self.values.setdefault((partition, send.value), len(self.values)))
        offsets.append(NONE if send.offset is None else send.offset)

    def _poll(self, number: int, poll: Poll, positions: dict[int, tuple[int, int]]) -> list[int]:
        operation, partitions, values, offsets, since, since_operation, is_committed = self.reads
        touched = []
        unknown = NONE - 1, NONE
        at: TopicPartition | None = None
        partition = NONE
        for topic_partition, offset, value in poll.records:
            if topic_partition != at:
                at, partition = topic_partition, self._partition(topic_partition)
                touched.append(partition)
            last, last_operation = positions.get(partition, unknown)
            operation.append(number)
            partitions.append(partition)
            values.append(self.values.setdefault((partition, value), len(self.values)))
            offsets.append(offset)
            since.append(last)
            since_operation.append(last_operation)
            is_committed.append(poll.is_read_committed)
            positions[partition] = offset, number
        return touched

    def _assign(self, assign: Assign, positions: dict[int, tuple[int, int]]) -> None:
        for topic_partition, offset in assign.positions:
            partition = self._partition(topic_partition)
            positions.pop(partition, None)
            if offset is not None:
                positions[partition] = offset - 1, NONE

    def _partition(self, topic_partition: TopicPartition) -> int:
        return self.partitions.setdefault(topic_partition, len(self.partitions))


def _ints(rows: Sequence[int]) -> Ints:
    return np.array(rows, dtype=np.int64)
