"""A range of event time that a job reads: options of the read, and a filter of its records."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def starting_options(from_us: int) -> dict[str, str]:
    """Return options with which a read starts at or before the first record of the range.

    Args:
        from_us: start of the range, in microseconds since the epoch.
    """
    return {
        "startingTimestamp": str(from_us // 1000),
        # For partitions without a record at or after the time.
        "startingOffsetsByTimestampStrategy": "latest",
    }


def where_timestamp_in(records: DataFrame, from_us: int | None, to_us: int | None) -> DataFrame:
    """Return the records of a range.

    Timestamps may decrease from offset to offset, so a range of offsets does not replace the
    filter.

    Args:
        records: records with the column ``timestamp``.
        from_us: start of the range, included, in microseconds since the epoch; None for no start.
        to_us: end of the range, excluded; None for no end.
    """
    if from_us is not None:
        records = records.where(F.col("timestamp") >= F.timestamp_micros(F.lit(from_us)))
    if to_us is not None:
        records = records.where(F.col("timestamp") < F.timestamp_micros(F.lit(to_us)))
    return records
