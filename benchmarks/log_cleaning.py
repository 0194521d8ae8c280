"""The result of one compaction, by our cleaner or Kafka's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What one compaction did, and what it took.

    Attributes:
        records_read: of all that it went over.
        records_written: that stay.
        bytes_read: of files.
        took_s: by the clock.
        cpu_s: of the processor; None where it is not known.
        peak_mib: the most memory of its process; None likewise.
        before_mib: the same before it began.
    """

    records_read: int
    records_written: int
    bytes_read: float
    took_s: float
    cpu_s: float | None = None
    peak_mib: float | None = None
    before_mib: float | None = None
