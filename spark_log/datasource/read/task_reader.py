"""The Spark task of a batch reader and of a stream reader: it reads its input split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_log.datasource.options import ReadOptions
from spark_log.datasource.read.member_splits import splits_in
from spark_log.datasource.read.split_reader import read_split
from spark_log.datasource.worker_process import (
    enter_worker,
    freeze_modules,
    hide_traceback,
    warn_exposed_secrets,
)


def read_in_task(
    partition: InputPartition, columns: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the records of an input split, as `read_split` reads each `LogSplit` in it.

    Args:
        partition: a `LogSplit`, or a `MemberSplit` of several.
        columns: names of the columns to read.
        options: options of the query.

    Raises:
        OffsetOutOfRangeError: offsets are no longer retained, and ``failOnDataLoss`` is true.
        CorruptRecordError: a batch is damaged; the error has file and position.
    """
    enter_worker()
    warn_exposed_secrets(options)
    try:
        with hide_traceback():
            for split in splits_in(partition):
                yield from read_split(split, columns, options)
    finally:
        freeze_modules()
