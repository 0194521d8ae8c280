"""Summary of a segment: its offsets, its size and its times, known without opening it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spark_log.log.files import SegmentName
from spark_log.log.segment.appended_segment import AppendedSegment
from spark_log.log.segment.reader import SegmentReader
from spark_log.record import (
    NO_TIMESTAMP,
    BatchHeader,
    latest_delete_horizon_us,
    latest_timestamp_us,
)


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """Summary of a segment, known without opening it.

    Attributes:
        name: parsed name of the segment's file.
        end_offset: the offset after the last one that the segment contains or covers.
        record_count: number of records in the segment.
        size_bytes: the file's size.
        min_timestamp_us: smallest timestamp, microseconds since the epoch; None if not known.
        max_timestamp_us: largest timestamp, microseconds since the epoch; -1 if a compaction left
            no record.
        append_id: random id of the file; empty if an earlier version wrote the snapshot.
        delete_horizon_us: in a compacted segment, the time after which the last of its tombstones
            and transaction markers may be removed, microseconds since the epoch; -1 if it has none
            of them. None if an earlier version wrote the snapshot.
    """

    name: SegmentName
    end_offset: int
    record_count: int
    size_bytes: int
    min_timestamp_us: int | None
    max_timestamp_us: int
    append_id: str = field(default="", compare=False)
    delete_horizon_us: int | None = NO_TIMESTAMP

    @classmethod
    def of_headers(
        cls,
        name: SegmentName,
        segment: SegmentReader | AppendedSegment,
        headers: Sequence[BatchHeader],
    ) -> SegmentSummary:
        """Return the summary of a segment in the log, from all of its batch headers."""
        latest_us = latest_timestamp_us(headers)
        return cls(
            name=name,
            end_offset=segment.end_offset,
            record_count=sum(header.record_count for header in headers),
            size_bytes=segment.size_bytes,
            min_timestamp_us=None,
            max_timestamp_us=NO_TIMESTAMP if latest_us is None else latest_us,
            append_id=segment.append_id,
            delete_horizon_us=latest_delete_horizon_us(headers),
        )
