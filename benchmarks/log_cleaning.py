"""The result of one compaction, by our cleaner or Kafka's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The work of one compaction, and its cost.

    Attributes:
        records_read: the number of records that the compaction read.
        records_written: the number of records that remain.
        bytes_read: the bytes of the segments that the compaction read.
        took_s: the wall-clock time.
        cpu_s: the CPU time; None if unknown.
        peak_mib: the peak memory of the process; None if unknown.
        before_mib: the peak memory of the process before the compaction; None if unknown.
    """

    records_read: int
    records_written: int
    bytes_read: float
    took_s: float
    cpu_s: float | None = None
    peak_mib: float | None = None
    before_mib: float | None = None
