"""Sends records made of lines to a topic through a producer."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from spark_log.producer import Producer
from spark_log.util import Clock

if TYPE_CHECKING:
    from spark_log.producer import RecordRange, TableFuture

TABLE_BYTES: Final = 16 * 1_048_576
"""Gathered records of this size are sent, even if more lines are ready to be read."""
MAX_LINGER_MS: Final = 1000
"""Gathered records of this age are sent, even if more lines are ready to be read."""
MAX_TABLES: Final = 1
"""Maximum number of tables in progress while the next one is gathered."""


@dataclass(slots=True)
class AppendedRecords:
    """Number of records appended to a partition, and their first and last offset.

    If other producers append at the same time, some offsets between these are those of their
    records. With ``acks=0`` both offsets are -1.
    """

    records: int
    base_offset: int
    last_offset: int


class LineSender:
    """Gathers records into tables, sends these, and counts the acknowledged records.

    A few tables are in progress at a time, so memory does not grow with the input. An error of a
    table is raised by a later call.

    Attributes:
        appended: acknowledged records by partition.
    """

    def __init__(self, producer: Producer, topic: str, partition: int | None, clock: Clock) -> None:
        """Send to a topic through ``producer``, which the caller closes.

        Args:
            producer: the producer that sends the tables.
            topic: the name of the topic.
            partition: the partition of all records; None to let the producer's partitioner choose.
            clock: the clock that measures the age of gathered records.
        """
        self.appended: dict[int, AppendedRecords] = {}
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._clock = clock
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._gathered_since_ms = 0.0
        self._sent: deque[TableFuture] = deque()

    @property
    def records(self) -> int:
        """Number of acknowledged records."""
        return sum(partition.records for partition in self.appended.values())

    def add(self, records: pa.RecordBatch) -> None:
        """Gather records, and send the gathered ones if they are many or old.

        Args:
            records: columns of `RECORD_SCHEMA`.

        Raises:
            SparkLogError: records that were sent before could not be appended.
        """
        if not records.num_rows:
            return
        now_ms = self._clock.monotonic_ms()
        if not self._gathered:
            self._gathered_since_ms = now_ms
        self._gathered.append(records)
        self._gathered_bytes += records.nbytes
        is_old = now_ms - self._gathered_since_ms >= MAX_LINGER_MS
        if is_old or self._gathered_bytes >= TABLE_BYTES:
            self._send()

    def flush(self) -> None:
        """Send the gathered records, and wait until all records are acknowledged.

        Raises:
            SparkLogError: records could not be appended.
        """
        self._send()
        while self._sent:
            self._finish(self._sent.popleft())

    def count_late(self) -> None:
        """Count the records that were acknowledged after an error or an interrupt.

        Call this when the producer is closed: the outcome of all records is then known.
        """
        while self._sent:
            self._count(self._sent.popleft())

    def _send(self) -> None:
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered)
        self._gathered, self._gathered_bytes = [], 0
        self._sent.append(self._producer.send_table(self._topic, table, self._partition))
        while len(self._sent) > MAX_TABLES or (self._sent and self._sent[0].done()):
            self._finish(self._sent.popleft())

    def _finish(self, future: TableFuture) -> None:
        error = future.exception()
        self._count(future)
        if error is not None:
            raise error

    def _count(self, future: TableFuture) -> None:
        for appended in future.appended():
            self._count_range(appended)

    def _count_range(self, appended: RecordRange) -> None:
        total = self.appended.get(appended.partition)
        if total is None:
            self.appended[appended.partition] = AppendedRecords(
                appended.records, appended.base_offset, appended.last_offset
            )
        else:
            total.records += appended.records
            total.last_offset = appended.last_offset
