"""`scan`: a topic's records as one stream of Arrow batches, from its table and its log."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_log.cluster import open_cluster
from spark_log.errors import InvalidOptionError, nearest
from spark_log.log import joined
from spark_log.record import READ_SCHEMA
from spark_log.storage import StorageOptions, checked_root
from spark_log.topic_read.bounds import ReadBounds
from spark_log.topic_read.log_rows import LogRows
from spark_log.topic_read.parquet_files import ParquetRows
from spark_log.topic_read.plan import TopicRead, plan_read

if TYPE_CHECKING:
    from pyarrow import compute


def scan(
    root: str | os.PathLike[str] | None,
    topic: str,
    *,
    storage_options: StorageOptions | None = None,
    columns: Sequence[str] | None = None,
    where: compute.Expression | None = None,
    partitions: Collection[int] | None = None,
    starting_offsets: Mapping[int, int] | None = None,
    ending_offsets: Mapping[int, int] | None = None,
    from_time: datetime | None = None,
    to_time: datetime | None = None,
    version: int | None = None,
    broker_storage_options: Mapping[int, StorageOptions] | None = None,
) -> pa.RecordBatchReader:
    """Return a topic's records as a stream of Arrow batches: its table, and the log behind it.

    The read is one state of the topic, that of this call: nothing that is written while the batches
    are taken appears, and what retention deletes meanwhile is an error, not a gap. It has what is
    acknowledged, up to the first transaction that is open, and no records of aborted transactions.

    pyarrow reads the Parquet files in its threads. ``columns``, ``where`` and the times skip row
    groups, and files before they are opened. Memory does not grow with the topic. A topic without a
    table is read from its log alone.

    Every program that takes Arrow streams takes this one, once: DuckDB (``FROM reader``), polars
    (``pl.from_arrow``), ``pyarrow.dataset.write_dataset``. What a program filters afterwards skips
    nothing, so give ``columns`` and ``where`` here.

    Args:
        root: the cluster root, a path or URL.
        topic: the topic's name.
        storage_options: the options of the file system; never printed or logged.
        columns: names of the columns, in this order; None for all.
        where: the rows to return, as a filter of a pyarrow data set on any column, such as
            ``pc.field("delay") > 60``; None for all.
        partitions: numbers of the partitions to read; None for all.
        starting_offsets: partition → first offset. Other partitions start at their start.
        ending_offsets: partition → offset after the last: the topic as it was when it ended there.
            Other partitions end where they end now. A compacted topic has not all of its past.
        from_time: the smallest timestamp, with a time zone; None for no limit.
        to_time: the timestamp after the largest; None for no limit.
        version: a version of the table: the read has the typed columns that the table had, ends
            at its ends, and has nothing of the log behind. None reads the newest one, and the log.
        broker_storage_options: broker id → options of its root, if replicas lie on other roots.

    Returns:
        A reader of batches with the columns key, value: binary; topic: string; partition: int32;
        offset: int64; timestamp: timestamp[us, UTC]; timestampType: int32; headers:
        list<struct<key: string, value: binary>>; and behind them the typed columns of the table.
        The rows of one partition are in offset order: first those of the table of all partitions,
        then those of the log of one partition after the other.

    Raises:
        UnknownTopicOrPartitionError: the topic or a partition does not exist.
        InvalidOptionError: a column does not exist, the filter does not fit the columns, a limit is
            not possible, or the topic has no such version.
        OffsetOutOfRangeError: an offset to start or end at is not retained, or does not exist yet.
            While batches are taken: records were deleted in the meantime.
        NotFoundError: while batches are taken: a file was deleted in the meantime.
        CorruptRecordError: a file is damaged; the error names it.
    """
    bounds = ReadBounds.parse(
        partitions=partitions,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        from_time=from_time,
        to_time=to_time,
    )
    cluster = open_cluster(
        checked_root(root), storage_options, broker_options=broker_storage_options
    )
    return scan_read(
        plan_read(cluster, topic, bounds, version=version), columns=columns, where=where
    )


def scan_read(
    read: TopicRead,
    *,
    columns: Sequence[str] | None = None,
    where: compute.Expression | None = None,
) -> pa.RecordBatchReader:
    """Return the records of a planned read.

    Args:
        read: the read.
        columns: names of the columns, in this order; None for all.
        where: the rows to return; None for all.

    Raises:
        InvalidOptionError: a column does not exist, or the filter does not fit the columns.
    """
    schema = pa.schema([*READ_SCHEMA, *read.typed_columns])
    _check_where(where, schema)
    rows = _Rows(read, schema, _checked_columns(columns, schema), _with_times(where, read.bounds))
    return pa.RecordBatchReader.from_batches(rows.schema, rows.read())


class _Rows:
    """The rows of a planned read."""

    def __init__(
        self,
        read: TopicRead,
        schema: pa.Schema,
        columns: Sequence[str],
        where: compute.Expression | None,
    ) -> None:
        self.schema = pa.schema([schema.field(name) for name in columns])
        self._planned = read
        self._all = schema
        self._where = where

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files, and then those of the logs."""
        topic, names, where = self._planned.topic, self.schema.names, self._where
        log_rows = LogRows(topic.name, self._all, names, where, self._planned.typed)
        needs_types = where is not None or "timestampType" in names
        files = ParquetRows(topic.name, self._all, names, where, needs_types, log_rows)
        with self._planned.cluster.detecting_deletion(topic):
            yield from files.read(self._planned.partitions)
            for read in self._planned.partitions:
                yield from joined(log_rows.behind_table(read))


def _with_times(where: compute.Expression | None, bounds: ReadBounds) -> compute.Expression | None:
    """Return a filter with the limits of timestamps."""
    if not bounds.has_times:
        return where
    from pyarrow import compute  # late: its import takes long

    time, time_type = compute.field("timestamp"), READ_SCHEMA.field("timestamp").type
    if bounds.from_us is not None:
        limit = time >= pa.scalar(bounds.from_us, time_type)
        where = limit if where is None else limit & where
    if bounds.to_us is not None:
        limit = time < pa.scalar(bounds.to_us, time_type)
        where = limit if where is None else limit & where
    return where


def _check_where(where: compute.Expression | None, schema: pa.Schema) -> None:
    if where is None:
        return
    from pyarrow import compute  # late: its import takes long

    if not isinstance(where, compute.Expression):
        raise InvalidOptionError(
            f"where is {where!r}, expected an expression of pyarrow.compute, such as "
            "pc.field('offset') > 60",
            key="where",
        )
    try:
        schema.empty_table().filter(where)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise InvalidOptionError(
            f"where is {where}, which does not fit the columns {', '.join(schema.names)}: {reason}",
            key="where",
        ) from None


def _checked_columns(columns: Sequence[str] | None, schema: pa.Schema) -> list[str]:
    if columns is None:
        return list(schema.names)
    if not columns:
        raise InvalidOptionError(
            "columns is empty; name at least one, such as offset, whose rows can be counted",
            key="columns",
        )
    for name in columns:
        if name not in schema.names:
            close = nearest(name, schema.names)
            raise InvalidOptionError(
                f"column {name!r} does not exist; "
                + (f"did you mean {close[0]!r}? " if close else "")
                + f"the columns are {', '.join(schema.names)}",
                key="columns",
            )
    return list(columns)
