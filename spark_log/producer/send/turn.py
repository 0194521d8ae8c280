"""One attempt to append the batches of one partition, and its result."""

from __future__ import annotations

from dataclasses import dataclass

from spark_log.log import LogAppendInfo
from spark_log.metadata import MetadataImage
from spark_log.producer.batch import InFlightBatches, PartitionQueue


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The result of a successful append.

    Attributes:
        info: the offsets of the append; None if the topic accepted none of its records.
        log_append_times_us: one item per `EncodedBatch`: the timestamp that the log gave to all its
            records, or None.
        size_bytes: size of the segment file, or of the records in an object of a stripe.
        image: the metadata right after the append.
    """

    info: LogAppendInfo | None
    log_append_times_us: tuple[int | None, ...]
    size_bytes: int
    image: MetadataImage | None = None


@dataclass(slots=True)
class Turn:
    """One attempt to append the batches of one partition.

    Attributes:
        queue: the partition, which the calling thread has acquired.
        in_flight: its batches, with the identity of the append.
        outcome: the result, or the error; None before the attempt.
    """

    queue: PartitionQueue
    in_flight: InFlightBatches
    outcome: AppendResult | Exception | None = None
