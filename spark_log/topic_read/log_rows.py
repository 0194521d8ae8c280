"""The rows of a read that come from a log: those behind the table's end, with typed columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_log.log import LogBatch, RecordColumns, stored_columns
from spark_log.record import READ_SCHEMA
from spark_log.topic_read.plan import PartitionRead
from spark_log.values import TypedValues

if TYPE_CHECKING:
    from pyarrow import compute


class LogRows:
    """Makes rows of a log's batches."""

    def __init__(
        self,
        topic: str,
        schema: pa.Schema,
        columns: Sequence[str],
        where: compute.Expression | None,
        typed: TypedValues | None,
    ) -> None:
        """Read nothing yet.

        Args:
            topic: the topic's name.
            schema: all columns.
            columns: names of the columns to return, in this order.
            where: the rows to return; None for all.
            typed: decodes values; None without typed columns.
        """
        self._topic = topic
        self._schema = schema
        self._columns = columns
        self._where = where
        self._typed = typed
        needed = columns if where is None else schema.names  # a filter may need any column
        self._decodes = any(name not in READ_SCHEMA.names for name in needed)
        self._needed = [*needed]
        self._stored = [name for name in needed if name in READ_SCHEMA.names]
        if self._decodes and "value" not in self._stored:
            self._stored.append("value")

    @property
    def stored_columns(self) -> list[str] | None:
        """The stored columns that `of` needs; None for whole records."""
        return stored_columns(self._stored)

    def behind_table(self, read: PartitionRead) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition behind its table's end, in offset order.

        Args:
            read: the read of the partition.

        Raises:
            OffsetOutOfRangeError: the records were deleted since the read was planned.
            CorruptRecordError: a segment is damaged; has file and position.
        """
        if read.log_start >= read.end:
            return
        batches = read.log.scan(
            read.log_start,
            read.end,
            columns=self.stored_columns,
            isolation_level="read_committed",
        )
        yield from self.of(read.partition, batches)

    def of(self, partition: int, batches: Iterable[LogBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of batches.

        Args:
            partition: number of the partition.
            batches: batches with `stored_columns`.
        """
        stored = pa.schema([READ_SCHEMA.field(name) for name in self._stored])
        columns = RecordColumns(self._topic, partition, stored)
        for batch in batches:
            rows = columns.of(batch)
            if self._decodes:
                rows = with_typed_columns(rows, self._typed)
            rows = rows.select(self._needed)
            if self._where is not None:
                rows = rows.filter(self._where).select(self._columns)
            yield rows


def with_typed_columns(rows: pa.RecordBatch, typed: TypedValues | None) -> pa.RecordBatch:
    """Return rows with the typed columns of their values behind them.

    Args:
        rows: the rows, with the column ``value``.
        typed: decodes values; None adds nothing.
    """
    if typed is None:
        return rows
    decoded = typed.decode(rows.column("value"))
    return pa.RecordBatch.from_arrays(
        [*rows.columns, *decoded.columns], schema=pa.schema([*rows.schema, *decoded.schema])
    )
