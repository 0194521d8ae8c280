"""The result of one compaction, by our cleaner or Kafka's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The work of one compaction, and its cost.

    Attributes:
        records_read: records that the compaction read.
        records_written: records that remain.
        bytes_read: bytes of segments that it read.
        took_s: wall-clock time.
        cpu_s: CPU time; None if unknown.
        peak_mib: peak memory of its process; None if unknown.
        before_mib: peak memory of its process before it began; None if unknown.
    """

    records_read: int
    records_written: int
    bytes_read: float
    took_s: float
    cpu_s: float | None = None
    peak_mib: float | None = None
    before_mib: float | None = None
