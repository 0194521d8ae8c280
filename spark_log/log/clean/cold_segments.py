"""The cold part of a log, which the cleaner writes as Parquet (``table.format``).

A segment is cold if all of its transactions have their markers, and its file is older than
``table.commit.interval.ms``, by the storage's time. Its file is at least as new as its newest
record. A Parquet file is always cold. Cold and other segments are merged apart: cold ones into
Parquet files, the others into Arrow files, so that no merge takes a Parquet file back. A Parquet
file whose first part another file replaces is written anew from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from spark_log.log.clean.compacted_conversion import is_convertible
from spark_log.log.directory import LogView
from spark_log.log.files import LiveSegment
from spark_log.log.local_log import LocalLog
from spark_log.log.producers import TransactionIndex
from spark_log.log.rewrite import MergeCandidate, MergePolicy, candidates_of_summaries
from spark_log.log.segment import SegmentSummary
from spark_log.record import BatchHeader


class Merge(NamedTuple):
    """A merge that is due.

    Attributes:
        run: indexes of the segments to merge.
        to_parquet: whether the merged segment is a Parquet file.
    """

    run: range
    to_parquet: bool = False


class ColdSegments:
    """The cold segments of one log, during one cleaning."""

    def __init__(self, log: LocalLog, now_us: int, *, at_once: bool) -> None:
        """Read nothing yet.

        Args:
            log: the partition's log.
            now_us: the storage's time, or earlier, microseconds since the epoch.
            at_once: whether a segment is cold as soon as its transactions have their markers.
        """
        self._log = log
        self._cold_us = None if at_once else now_us - log.config.table_commit_interval_ms * 1000
        self._index: TransactionIndex | None = None

    def merges(
        self,
        policy: MergePolicy,
        segments: Sequence[SegmentSummary],
        live: Sequence[LiveSegment],
        view: LogView,
    ) -> list[Merge]:
        """Return the merges that are due; if there are none, those that only convert to Parquet.

        Args:
            policy: the merge policy.
            segments: the segments that may be rewritten, in offset order.
            live: the same segments in a listing.
            view: the view that the listing shows.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
            StorageError: the storage does not answer.
        """
        candidates = candidates_of_summaries(segments)
        stable_offset = self._transactions(view).last_stable_offset
        cold = [
            summary.end_offset <= stable_offset and self._is_cold(segment)
            for summary, segment in zip(segments, live, strict=True)
        ]
        stretches = [
            (is_cold, range(first, first + count)) for is_cold, first, count in _stretches(cold)
        ]
        due = [
            Merge(run, is_cold)
            for is_cold, stretch in stretches
            for run in _in_stretch(policy.runs, candidates, stretch)
        ]
        # The table has whole files: what another file cuts is no Parquet file of the table yet.
        unconverted = [
            replace(each, is_parquet=each.is_parquet and not is_cut(segment, view.log_start_offset))
            for each, segment in zip(candidates, live, strict=True)
        ]
        return due or [
            Merge(run, to_parquet=True)
            for is_cold, stretch in stretches
            if is_cold
            for run in _in_stretch(policy.conversions, unconverted, stretch)
            if not live[run.start].name.is_compacted
            or is_convertible(live[run.start], view.log_start_offset)
        ]

    def prepare(self, view: LogView, start_offset: int, end_offset: int) -> None:
        """List all aborted transactions in a range of offsets, for `is_aborted`.

        Args:
            view: the view that the range will be read from.
            start_offset: the first offset.
            end_offset: the offset behind the last.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
            OffsetOutOfRangeError: the log start offset has moved meanwhile.
        """
        index = self._transactions(view)
        for unlisted in index.unlisted_in(start_offset, end_offset):
            start, end = max(unlisted[0], view.log_start_offset), unlisted[1]
            walk = self._log.files.walk(view, start, end)
            index.list_range(
                unlisted, ((each.base_offset, each.header_array()) for _, _, each in walk)
            )

    def is_aborted(self, header: BatchHeader, base_offset: int) -> bool:
        """Return whether a batch of a prepared range was aborted.

        Args:
            header: the batch's header.
            base_offset: the batch's first offset.
        """
        assert self._index is not None
        return self._index.is_aborted(header, base_offset)

    def _transactions(self, view: LogView) -> TransactionIndex:
        """Return the transactions of the log; those that a view showed first stay true."""
        if self._index is None:
            state, _ = self._log.snapshots.transactions(view)
            self._index = state.transactions
        return self._index

    def _is_cold(self, segment: LiveSegment) -> bool:
        if segment.name.is_parquet or self._cold_us is None:
            return True
        return segment.file.modified_us <= self._cold_us


def is_cut(segment: LiveSegment, log_start_offset: int) -> bool:
    """Return whether another file replaces the first part of a segment (protocol B16)."""
    return segment.start_offset not in (segment.name.base_offset, log_start_offset)


def _stretches(cold: Sequence[bool]) -> list[tuple[bool, int, int]]:
    """Return the longest ranges of segments that are all cold or all not: first index, count."""
    found, first = [], 0
    for is_cold, group in groupby(cold):
        count = len(list(group))
        found.append((is_cold, first, count))
        first += count
    return found


def _in_stretch(
    choose: Callable[[Sequence[MergeCandidate]], Sequence[range]],
    candidates: Sequence[MergeCandidate],
    stretch: range,
) -> list[range]:
    """Return the runs that a policy chooses in a range of the candidates."""
    return [
        range(stretch.start + run.start, stretch.start + run.stop)
        for run in choose(candidates[stretch.start : stretch.stop])
    ]
