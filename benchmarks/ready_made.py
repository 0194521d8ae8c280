"""A Spark data source that does no work: the upper bound of Spark's Python data source API.

It has Spark Log's columns and batch sizes. Its reader yields slices of one batch, its writer drops
every batch; no file is opened. No source behind this API can be faster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

BATCH_ROWS = 10_000


@dataclass
class Slice(InputPartition):
    """Number of records that a task yields."""

    records: int


class ReadyMadeSource(DataSource):
    """``format("ready_made")``; options ``records`` and ``partitions``."""

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


class ReadyMadeReader(DataSourceReader):
    """Yields slices of one record batch."""

    def __init__(self, records: int, partitions: int) -> None:
        """Args: records: total number; partitions: number of tasks."""
        self._records, self._partitions = records, partitions

    def partitions(self) -> Sequence[InputPartition]:
        """Return slices of equal size."""
        bounds = np.linspace(0, self._records, self._partitions + 1).astype(int)
        return [Slice(int(size)) for size in np.diff(bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a slice."""
        assert isinstance(partition, Slice)
        batch = _batch()
        for start in range(0, partition.records, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, partition.records - start))


class DroppingWriter(DataSourceArrowWriter):
    """Drops all batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Drop one task's batches."""
        for _ in iterator:
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
