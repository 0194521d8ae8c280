"""Division of offset ranges into the pieces that tasks read. Pure functions.

The rule is that of Spark's connector (``KafkaOffsetRangeCalculator``) with three differences: the
number of pieces is not approximate; no piece is larger than 1.5 times the mean; and pieces begin
where segments begin, unless a piece would become too large.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple

from spark_log.types import TopicPartition

MAX_SKEW: Final = 1.5
"""No piece is larger than the mean by more than this factor, if it can be split."""

_SNAP: Final = 0.2
"""Maximum distance, as a fraction of a piece, by which a cut moves to the start of a segment."""


class SegmentMark(NamedTuple):
    """Start offset of a segment, and the size of its records without compression, an estimate."""

    start_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition, from ``start`` (inclusive) to ``end`` (exclusive).

    Attributes:
        topic_partition: the partition.
        start: first offset.
        end: offset after the last.
        segments: the segments of the range in offset order; the first one starts at or before
            ``start``. Empty if they are unknown: then every offset has the same weight, and a cut
            can be at any offset. Of ranges that are split together, either all or none have
            segments.
    """

    topic_partition: TopicPartition
    start: int
    end: int
    segments: tuple[SegmentMark, ...] = ()

    def __len__(self) -> int:
        return max(0, self.end - self.start)


def split_ranges(
    ranges: Sequence[OffsetRange],
    *,
    min_partitions: int | None,
    max_records_per_partition: int | None,
) -> list[OffsetRange]:
    """Split ranges into pieces, in order; empty ranges are left out.

    Args:
        ranges: the ranges to read.
        min_partitions: minimum number of pieces, if there are enough offsets. The largest ranges
            are split first, so that no piece is larger than 1.5 times the mean, measured in bytes
            if segments are known, else in offsets. Ranges stay whole if this is None or not more
            than the number of ranges.
        max_records_per_partition: maximum number of offsets in a piece. It takes precedence.
    """
    pieces = [each for each in ranges if len(each)]
    if max_records_per_partition is not None:
        pieces = [
            piece for whole in pieces for piece in _cut_by_offsets(whole, max_records_per_partition)
        ]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    weights = [_Weights(piece) for piece in pieces]
    parts = _apportion(pieces, [each.total for each in weights], min_partitions)
    mean = sum(each.total for each in weights) / max(1, sum(parts))
    return [
        part
        for piece, weight, count in zip(pieces, weights, parts, strict=True)
        for part in _cut(piece, weight, count, MAX_SKEW * mean)
    ]


def _apportion(ranges: list[OffsetRange], totals: list[float], min_pieces: int) -> list[int]:
    """Return the number of pieces of each range.

    The range with the largest pieces is split next.
    """
    parts = [1] * len(ranges)
    count, total = len(ranges), sum(totals)
    largest = [(-weight, index) for index, weight in enumerate(totals) if len(ranges[index]) > 1]
    heapify(largest)
    while largest and (count < min_pieces or -largest[0][0] > MAX_SKEW * total / count):
        _, index = heappop(largest)
        parts[index] += 1
        count += 1
        if parts[index] < len(ranges[index]):
            heappush(largest, (-totals[index] / parts[index], index))
    return parts


class _Weights:
    """The weight of a range before each offset: in bytes, or in offsets if segments are unknown."""

    def __init__(self, piece: OffsetRange) -> None:
        self.offsets = [piece.start, piece.end]
        self.before: list[float] = [0.0, float(len(piece))]
        if piece.segments:
            self._weigh_segments(piece)
        self.total = self.before[-1]

    def _weigh_segments(self, piece: OffsetRange) -> None:
        starts = [segment.start_offset for segment in piece.segments]
        first = max(0, bisect_right(starts, piece.start) - 1)
        behind = bisect_left(starts, piece.end)
        offsets, before = [piece.start], [0.0]
        for index in range(first, behind):
            begin = starts[index]
            end = starts[index + 1] if index + 1 < len(starts) else max(piece.end, begin + 1)
            inside = min(end, piece.end) - max(begin, piece.start)
            if inside > 0:
                offsets.append(min(end, piece.end))
                before.append(
                    before[-1] + piece.segments[index].size_bytes * inside / (end - begin)
                )
        if before[-1] > 0:
            self.offsets, self.before = offsets, before

    def offset_at(self, weight: float) -> int:
        """Return the offset before which approximately ``weight`` lies."""
        index = min(max(1, bisect_left(self.before, weight)), len(self.before) - 1)
        low, high = self.before[index - 1], self.before[index]
        fraction = (weight - low) / (high - low) if high > low else 0.0
        first = self.offsets[index - 1]
        # Rounding errors must not turn a whole number into the one below it.
        return first + int(fraction * (self.offsets[index] - first) + 1e-6)

    def boundary_near(self, weight: float, tolerance: float) -> int | None:
        """Return the nearest segment start; None if it is farther away than ``tolerance``."""
        if len(self.offsets) < 3:
            return None
        index = bisect_left(self.before, weight, 1, len(self.before) - 1)
        near = [at for at in (index - 1, index) if 0 < at < len(self.before) - 1]
        best = min(near, key=lambda at: abs(self.before[at] - weight), default=None)
        if best is None or abs(self.before[best] - weight) > tolerance:
            return None
        return self.offsets[best]


def _cut(piece: OffsetRange, weights: _Weights, count: int, largest: float) -> list[OffsetRange]:
    """Split a range into pieces of about equal weight, none heavier than ``largest``."""
    size = weights.total / count
    tolerance = max(0.0, min(_SNAP * size, (largest - size) / 2))
    cuts = [piece.start]
    for number in range(1, count):
        weight = weights.total * number / count
        cut = weights.boundary_near(weight, tolerance)
        cuts.append(weights.offset_at(weight) if cut is None else cut)
    return _between([*cuts, piece.end], piece)


def _cut_by_offsets(whole: OffsetRange, max_offsets: int) -> list[OffsetRange]:
    """Split a range into pieces of about equal size, each of at most ``max_offsets`` offsets."""
    count = -(-len(whole) // max_offsets)
    if count == 1:
        return [whole]
    # A piece may grow by this many offsets in total, half of them at each end.
    slack = max_offsets - -(-len(whole) // count)
    starts = [segment.start_offset for segment in whole.segments]
    cuts = [whole.start]
    for number in range(1, count):
        cut = whole.start + len(whole) * number // count
        index = bisect_left(starts, cut)
        near = min(starts[max(0, index - 1) : index + 1], key=lambda at: abs(at - cut), default=cut)
        cuts.append(near if abs(near - cut) <= slack // 2 else cut)
    return _between([*cuts, whole.end], whole)


def _between(cuts: list[int], whole: OffsetRange) -> list[OffsetRange]:
    return [
        replace(whole, start=begin, end=end) for begin, end in pairwise(sorted(cuts)) if begin < end
    ]
