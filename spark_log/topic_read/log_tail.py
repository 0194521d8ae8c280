"""The rows of a read that come from the log: those behind the table's end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from spark_log.log import RecordColumns, stored_columns
from spark_log.record import READ_SCHEMA
from spark_log.topic_read.plan import PartitionRead


def read_tail(topic: str, read: PartitionRead, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition from its log, in offset order.

    Args:
        topic: the topic's name.
        read: the read of the partition.
        columns: names of columns of `READ_SCHEMA`.

    Raises:
        OffsetOutOfRangeError: the records were deleted since the read was planned.
        CorruptRecordError: a segment is damaged; has file and position.
    """
    if read.log_start >= read.end:
        return
    schema = pa.schema([READ_SCHEMA.field(name) for name in columns])
    made = RecordColumns(topic, read.partition, schema)
    batches = read.log.scan(
        read.log_start,
        read.end,
        columns=stored_columns(columns),
        isolation_level="read_committed",
    )
    yield from map(made.of, batches)
