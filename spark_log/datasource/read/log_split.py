"""`LogSplit`: the input of one task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from spark_log.datasource.read.record_filter import ANY, Bounds
from spark_log.datasource.read.split_replica import SplitReplica
from spark_log.datasource.read.split_stripe import SplitStripe

if TYPE_CHECKING:
    from spark_log.log import TransactionIndex

LOST_DATA_ADVICE: Final = (
    "retention has deleted the records, or the topic was deleted and created again; start at a "
    "retained offset, or set failOnDataLoss=false to read the existing records instead of failing"
)


@dataclass
class LogSplit(InputPartition):
    """The input of one task: a range of offsets of one partition.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        topic_id: id of the topic.
        directory: directory of the partition below the cluster's root.
        start_offset: first offset.
        end_offset: offset after the last.
        times_us: bounds of the records' timestamps, in microseconds since the epoch.
        transactions: the aborted transactions of the range. The driver has them, since it found the
            last stable offset; a task would have to read the newest snapshot and all headers behind
            it. None for a read of uncommitted records.
        replicas: the in-sync replicas at the time of the planning, in the order in which they are
            tried; each has all offsets of the range. Empty if the cluster's root alone has them.
        stripe: the stripe of a striped partition; None for a partition log.
    """

    topic: str
    partition: int
    topic_id: str
    directory: str
    start_offset: int
    end_offset: int
    times_us: Bounds = ANY
    transactions: TransactionIndex | None = None
    replicas: tuple[SplitReplica, ...] = ()
    stripe: SplitStripe | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}, offsets {self.start_offset} to {self.end_offset}"
