"""Sizes of segments, by which ranges are split into tasks with about equal work.

A task's work follows the size of the records, not that of the files: of the same records, a Parquet
segment may have a fortieth of the bytes of an Arrow segment. So where both kinds are read, stored
bytes would give one task nearly all records that are Parquet. What a Parquet file has before
compression stands in its footer. One file of each partition is asked, since the others compress
about as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from spark_log.datasource.read.offset_ranges import OffsetRange, SegmentMark
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.log import LogView, RowStatistics
from spark_log.log.files import LiveSegment
from spark_log.types import TopicPartition


def with_segments(reader: OffsetReader, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges with their segments.

    Args:
        reader: gives the partitions' logs.
        ranges: the ranges; a partition may have several.

    Raises:
        UnknownTopicOrPartitionError: a partition does not exist.
        CorruptRecordError: the footer of a Parquet segment is damaged.
    """
    bounds: dict[TopicPartition, tuple[int, int]] = {}
    for each in ranges:  # in offset order
        first, _ = bounds.get(each.topic_partition, (each.start, each.end))
        bounds[each.topic_partition] = first, each.end
    views = reader.views(bounds)
    segments = [_segments_of(each, views[each.topic_partition]) for each in ranges]
    samples = _samples(ranges, segments)
    densities = {
        tp: _Density.of(samples[tp], statistics)
        for tp, statistics in reader.row_statistics(samples).items()
    }
    return [
        replace(each, segments=tuple(_marks(each, those, densities.get(each.topic_partition))))
        for each, those in zip(ranges, segments, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Density:
    """Bytes of a partition's records without compression, as one Parquet file has them.

    Attributes:
        of_stored: bytes for each stored byte of a Parquet file.
        of_record: bytes for each record.
    """

    of_stored: float
    of_record: float

    @classmethod
    def of(cls, sample: LiveSegment, statistics: RowStatistics) -> _Density | None:
        """Return the density of a file; None if it has no records or does not exist any more."""
        if not statistics.num_rows:
            return None
        size_bytes = statistics.uncompressed_bytes
        return cls(size_bytes / sample.file.size_bytes, size_bytes / statistics.num_rows)


def _segments_of(offset_range: OffsetRange, view: LogView) -> Sequence[LiveSegment]:
    first = max(0, view.live.index_of(offset_range.start))
    behind = view.live.index_of(offset_range.end - 1) + 1
    return view.live.segments[first:behind]


def _samples(
    ranges: Sequence[OffsetRange], segments: Sequence[Sequence[LiveSegment]]
) -> dict[TopicPartition, LiveSegment]:
    """Return the largest Parquet segment of each partition; none if all segments are of one kind.

    Stored bytes of one kind can be compared.
    """
    if len({each.name.is_parquet for those in segments for each in those}) < 2:
        return {}
    found: dict[TopicPartition, LiveSegment] = {}
    for offset_range, those in zip(ranges, segments, strict=True):
        tp = offset_range.topic_partition
        for each in those:
            known = found.get(tp)
            if each.name.is_parquet and (
                known is None or known.file.size_bytes < each.file.size_bytes
            ):
                found[tp] = each
    return found


def _marks(
    offset_range: OffsetRange, segments: Iterable[LiveSegment], density: _Density | None
) -> Iterator[SegmentMark]:
    for each in segments:
        size_bytes: float = each.file.size_bytes
        if density is not None and each.name.is_parquet:
            size_bytes *= density.of_stored
        elif density is not None:  # an Arrow file may be compressed, which its name does not tell
            end = max(each.start_offset, each.end_offset or offset_range.end)
            size_bytes = max(size_bytes, (end - each.start_offset) * density.of_record)
        yield SegmentMark(each.start_offset, int(size_bytes))
