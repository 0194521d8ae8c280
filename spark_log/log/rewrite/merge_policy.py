"""The merge policy: pure functions that choose neighbouring segments to rewrite into one.

A segment's generation is the number of times that its bytes were rewritten. ``fan_in`` neighbours
of one generation are merged into one segment of the next generation. Segments of lower generations
between them are merged too, and count as a fraction of one. Each byte is thus rewritten
log(appends) / log(``fan_in``) times, and fewer than ``fan_in`` segments of each generation remain.
A segment of half ``segment.bytes`` is done: two of them might exceed ``segment.bytes``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from spark_log.config import TopicConfig
from spark_log.log.directory import LogView
from spark_log.log.files import MAX_MERGE_GENERATION
from spark_log.log.segment import MAX_SEGMENT_RECORDS, SegmentSummary

_SMALL_BYTES: Final = 1_048_576
"""Size below which segments are merged in spite of ``segment.ms``, as they would stay small."""

_MAX_SEGMENTS: Final = 1_000
"""Maximum number of segments in one merge: each may take 64 KiB of memory."""


@dataclass(frozen=True, slots=True)
class MergeCandidate:
    """The properties of a segment by which the policy decides.

    Attributes:
        generation: number of times that the segment's bytes were rewritten.
        size_bytes: the size of the segment's file.
        base_offset: the segment's first offset.
        end_offset: the offset after the segment's last offset.
        first_us: approximate time of the first record, microseconds since the epoch.
        last_us: the largest timestamp, or the time of the append, microseconds since the epoch.
        is_parquet: whether the segment is a Parquet file.
    """

    generation: int
    size_bytes: int
    base_offset: int
    end_offset: int
    first_us: int
    last_us: int
    is_parquet: bool = False


def candidates_of_view(view: LogView) -> list[MergeCandidate]:
    """Return candidates from a listing alone, with the modification times of the files."""
    return [
        MergeCandidate(
            segment.name.generation,
            segment.file.size_bytes,
            segment.name.base_offset,
            segment.end_offset or view.log_end_offset,
            segment.file.modified_us,
            segment.file.modified_us,
            segment.name.is_parquet,
        )
        for segment in view.live.segments
    ]


def candidates_of_summaries(summaries: Sequence[SegmentSummary]) -> list[MergeCandidate]:
    """Return candidates from summaries of the segments, with the timestamps of their records.

    If a summary has no smallest timestamp, the largest one of the segment before is used.
    """
    before_us = None
    candidates = []
    for summary in summaries:
        first_us = summary.min_timestamp_us
        if first_us is None:
            latest_us = summary.max_timestamp_us
            first_us = latest_us if before_us is None else min(before_us, latest_us)
        candidates.append(
            MergeCandidate(
                summary.name.generation,
                summary.size_bytes,
                summary.name.base_offset,
                summary.end_offset,
                first_us,
                summary.max_timestamp_us,
                summary.name.is_parquet,
            )
        )
        before_us = summary.max_timestamp_us
    return candidates


def segment_span_us(config: TopicConfig) -> int | None:
    """Return the longest time span of a merged segment, in microseconds; None for no limit.

    ``segment.ms`` is the limit, so that retention by time can delete a segment as a whole. Without
    retention by time, a limit would only leave many small files.
    """
    return None if config.retention_ms < 0 else config.segment_ms * 1000


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """The parameters by which segments are merged.

    Attributes:
        segment_bytes: ``segment.bytes``.
        segment_us: the longest time span of a merged segment, in microseconds; None for no limit.
        fan_in: minimum number of segments of one generation in a merge.
        most_bytes: maximum size of one merge; None for ``segment_bytes``.
        finishes: whether two segments are enough for a merge that cannot grow any more.
        takes_parquet: whether Parquet files are merged, too. Their names are freed only by a
            process that asks the topic's table (protocol B9).
    """

    segment_bytes: int
    segment_us: int | None
    fan_in: int
    most_bytes: int | None = None
    finishes: bool = True
    takes_parquet: bool = True

    def runs(self, candidates: Sequence[MergeCandidate]) -> list[range]:
        """Return the runs of segments to merge next: only runs of the lowest generation.

        The runs are independent of each other. After they are merged, runs of the next generation
        may be due.
        """
        generations = sorted({each.generation for each in candidates if not self._is_done(each)})
        for generation in generations:
            is_last = self.finishes and generation == generations[-1]
            found = [
                chunk
                for run in self._stretches(candidates, generation)
                for chunk, is_closed in self._chunks(candidates, run)
                if self._is_worth_it(candidates, chunk, generation, is_closed=is_closed and is_last)
            ]
            if found:
                return found
        return []

    def conversions(self, candidates: Sequence[MergeCandidate]) -> list[range]:
        """Return the runs of segments to write as Parquet, whatever their size and generation.

        Together they have all segments that are no Parquet files. A compacted one is a run of its
        own.
        """

        def kind(index: int) -> tuple[bool, int]:
            each = candidates[index]
            is_compacted = each.generation > MAX_MERGE_GENERATION
            return each.is_parquet, index if is_compacted else -1

        return [
            chunk
            for (is_parquet, _), stretch in groupby(range(len(candidates)), key=kind)
            if not is_parquet
            for indexes in [list(stretch)]
            for chunk, _ in self._chunks(candidates, range(indexes[0], indexes[-1] + 1))
        ]

    def _is_done(self, candidate: MergeCandidate) -> bool:
        is_compacted = candidate.generation > MAX_MERGE_GENERATION  # a merge may not include it
        is_left = candidate.is_parquet and not self.takes_parquet
        return is_compacted or is_left or candidate.size_bytes >= self.segment_bytes // 2

    def _stretches(self, candidates: Sequence[MergeCandidate], generation: int) -> Iterator[range]:
        """Yield the longest runs of segments that are not done and not above a generation."""
        apart = [
            index
            for index, each in enumerate(candidates)
            if self._is_done(each) or each.generation > generation
        ]
        for before, behind in pairwise([-1, *apart, len(candidates)]):
            if behind - before > 2:
                yield range(before + 1, behind)

    def _chunks(
        self, candidates: Sequence[MergeCandidate], run: range
    ) -> Iterator[tuple[range, bool]]:
        """Yield the parts of a run that fit into one segment, and whether each is full."""
        first, total = run.start, candidates[run.start].size_bytes
        first_us = candidates[run.start].first_us
        for index in run[1:]:
            each = candidates[index]
            if self._fits(candidates[first], each, index - first, total, first_us):
                total += each.size_bytes
                first_us = min(first_us, each.first_us)
            else:
                yield range(first, index), True
                first, total, first_us = index, each.size_bytes, each.first_us
        yield range(first, run.stop), run.stop < len(candidates)

    def _fits(
        self, first: MergeCandidate, each: MergeCandidate, count: int, total: int, first_us: int
    ) -> bool:
        return (
            total + each.size_bytes
            <= min(self.most_bytes or self.segment_bytes, self.segment_bytes)
            and count < max(_MAX_SEGMENTS, self.fan_in)
            and each.end_offset - first.base_offset < MAX_SEGMENT_RECORDS
            and (
                self.segment_us is None
                or total < _SMALL_BYTES
                or each.last_us - first_us <= self.segment_us
            )
        )

    def _is_worth_it(
        self,
        candidates: Sequence[MergeCandidate],
        chunk: range,
        generation: int,
        *,
        is_closed: bool,
    ) -> bool:
        if len(chunk) < 2:
            return False
        weight = sum(
            self.fan_in ** float(candidates[index].generation - generation) for index in chunk
        )
        total = sum(candidates[index].size_bytes for index in chunk)
        is_final = is_closed or total >= self.segment_bytes // 2
        return weight >= self.fan_in or (self.finishes and is_final)
