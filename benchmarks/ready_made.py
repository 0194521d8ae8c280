"""A Spark data source that does no work: the upper bound of Spark's Python data source API.

It has Spark Log's columns and batch sizes. Its readers yield slices of one batch, its writers drop
every batch; no file is opened. Like Spark Log's processes, its processes exclude modules from
garbage collection. No source behind this API can be faster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark_log.datasource.worker_process import freeze_modules, silence_broken_pipe

BATCH_ROWS = 10_000


@dataclass
class Slice(InputPartition):
    """The input partition of a task: the number of records that it yields."""

    records: int


class ReadyMadeSource(DataSource):
    """The data source ``format("ready_made")`` with options ``records`` and ``partitions``.

    A stream has the option ``maxOffsetsPerTrigger``, too.
    """

    def __init__(self, options: dict[str, str]) -> None:
        """Return a data source with these options."""
        super().__init__(options)
        freeze_modules()

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "ready_made"

    def schema(self) -> str:
        """Spark Log's columns."""
        return (
            "key binary, value binary, topic string, partition int, offset bigint, "
            "timestamp timestamp, timestampType int"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return ReadyMadeReader(int(self.options["records"]), int(self.options["partitions"]))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer."""
        return DroppingWriter()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        most = self.options.get("maxOffsetsPerTrigger")
        records, partitions = int(self.options["records"]), int(self.options["partitions"])
        return ReadyMadeStreamReader(records, partitions, None if most is None else int(most))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the writer of a stream."""
        return DroppingStreamWriter()


class ReadyMadeReader(DataSourceReader):
    """Yields slices of one record batch."""

    def __init__(self, records: int, partitions: int) -> None:
        """Return a reader.

        Args:
            records: the total number of records.
            partitions: the number of tasks.
        """
        self._records, self._partitions = records, partitions

    def partitions(self) -> Sequence[InputPartition]:
        """Return slices of equal size."""
        return _slices(self._records, self._partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a slice."""
        return _read(partition)


class ReadyMadeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Yields slices of one record batch; an offset is a number of records."""

    def __init__(self, records: int, partitions: int, most: int | None) -> None:
        """Return a reader.

        Args:
            records: the total number of records.
            partitions: the number of tasks.
            most: the maximum number of records in a micro-batch; None for no limit.
        """
        self._records, self._partitions, self._most = records, partitions, most

    def initialOffset(self) -> dict[str, int]:
        """Return the start."""
        return {"records": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch."""
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: the end does not move."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the end of a micro-batch."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._records
        return {"records": min(self._records, start["records"] + most)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return slices of equal size."""
        return _slices(end["records"] - start["records"], self._partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a slice."""
        return _read(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing."""


class DroppingWriter(DataSourceArrowWriter):
    """Drops all batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Drop one task's batches."""
        return _drop(iterator)


class DroppingStreamWriter(DataSourceStreamArrowWriter):
    """Drops all batches of a stream."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Drop one task's batches."""
        return _drop(iterator)


def _slices(records: int, partitions: int) -> list[InputPartition]:
    bounds = np.linspace(0, records, partitions + 1).astype(int)
    return [Slice(int(size)) for size in np.diff(bounds)]


def _read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, Slice)
    silence_broken_pipe()
    freeze_modules()
    batch = _batch()
    for start in range(0, partition.records, BATCH_ROWS):
        yield batch.slice(0, min(BATCH_ROWS, partition.records - start))


def _drop(batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    freeze_modules()
    for _ in batches:
        pass
    return WriterCommitMessage()


def _batch() -> pa.RecordBatch:
    numbers = np.arange(BATCH_ROWS)
    columns = {
        "key": pa.array([b"%08d" % number for number in numbers], pa.binary()),
        "value": pa.array([b"%0100d" % number for number in numbers], pa.binary()),
        "topic": pa.repeat(pa.scalar("ready_made"), BATCH_ROWS),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), BATCH_ROWS),
        "offset": pa.array(numbers),
        "timestamp": pa.array(numbers).cast(pa.timestamp("us", tz="UTC")),
        "timestampType": pa.repeat(pa.scalar(0, pa.int32()), BATCH_ROWS),
    }
    return pa.RecordBatch.from_pydict(columns)
