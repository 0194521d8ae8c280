"""The results of a write, which Spark takes from the tasks to the driver.

The process that commits a write imports this module, but nothing that writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from spark_log.types import TopicPartition

if TYPE_CHECKING:
    from spark_log.datasource.write.task_transaction import JoinedTransaction


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Result of a write to one partition.

    Attributes:
        first_offset: offset of the first record; -1 if the record is repeated and its offset
            unknown.
        last_offset: offset of the last record; records of other producers may be in between.
        records: number of records.
        repeated: number of records that an earlier attempt had appended.
        size_bytes: size of the staged segments, including repeated records.
    """

    first_offset: int
    last_offset: int
    records: int
    repeated: int
    size_bytes: int


@dataclass
class TaskCommitMessage(WriterCommitMessage):
    """The results of a task attempt, which Spark passes to the driver.

    Attributes:
        results: the results, by partition.
        joined: the attempt's part in the transaction; None if the attempt has appended nothing, or
            the write is not transactional.
    """

    results: dict[TopicPartition, WriteResult]
    joined: JoinedTransaction | None = None
