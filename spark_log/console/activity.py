"""Computes the amounts and times of a partition's appends from a listing, without its records.

The segment of an append has the append's time as the date of its file, by the storage's clock. A
segment that was merged since has the date of the merge: the timestamps in its batch headers are
used instead, so that a merge of old records does not appear as many new ones. Records with old
timestamps disappear from the result after they are merged.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from spark_log.log import LogView
from spark_log.log.files import LiveSegment

STEP_S: Final = 15
"""Length of one step, for which appends are counted: a quarter of a minute."""

STEPS: Final = 120
"""Number of steps that are shown: the last half hour."""

_STEP_US: Final = STEP_S * 1_000_000
_MAX_MERGED: Final = 5_000


@dataclass(frozen=True, slots=True)
class Activity:
    """A partition's offsets at one moment, and its appends before that moment.

    Attributes:
        log_start_offset: the first offset that can be read.
        log_end_offset: the next offset to be written.
        records: quarter minute, counted from the epoch → number of offsets appended in it.
        size_bytes: quarter minute → size of these records, after compression.
    """

    log_start_offset: int
    log_end_offset: int
    records: Mapping[int, float] = field(default_factory=dict)
    size_bytes: Mapping[int, float] = field(default_factory=dict)


def step_of(time_us: int) -> int:
    """Return the quarter minute, counted from the epoch, that contains a time."""
    return time_us // _STEP_US


class MergedAppends:
    """The times of the appends in merged segments, by file path. Thread-safe."""

    def __init__(self) -> None:
        self._steps: OrderedDict[str, Mapping[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def steps(
        self, path: str, since_step: int, read: Callable[[], np.ndarray | None]
    ) -> Mapping[int, float]:
        """Return quarter minute → share of the segment's records.

        Args:
            path: the path of the segment, whose content never changes.
            since_step: the first quarter minute in the result.
            read: returns the segment's batch headers, as an array of `HEADER_DTYPE`; None if they
                must not be read now. It is called if the segment is not in the cache.
        """
        with self._lock:
            if path in self._steps:
                self._steps.move_to_end(path)
                return self._steps[path]
        headers = read()
        if headers is None:
            return {}
        made = _shares_of(headers, since_step)
        with self._lock:
            self._steps[path] = made
            if len(self._steps) > _MAX_MERGED:
                self._steps.popitem(last=False)
        return made


def _shares_of(headers: np.ndarray, since_step: int) -> Mapping[int, float]:
    """Return quarter minute → share of the records, computed from batch headers.

    A merge joins batches: the records of a batch are spread over the time from its first timestamp
    to its largest timestamp.
    """
    shares: defaultdict[int, float] = defaultdict(float)
    total = int(headers["record_count"].sum())
    recent = headers[headers["max_timestamp_us"] // _STEP_US >= since_step]
    for header in recent:
        begin_us, end_us = int(header["base_timestamp_us"]), int(header["max_timestamp_us"])
        begin_us = min(begin_us, end_us)
        share = int(header["record_count"]) / total if total else 0.0
        for step in range(max(step_of(begin_us), since_step), step_of(end_us) + 1):
            part_us = min(end_us, (step + 1) * _STEP_US) - max(begin_us, step * _STEP_US)
            shares[step] += share * (part_us / (end_us - begin_us) if end_us > begin_us else 1.0)
    return shares


def activity(
    view: LogView, since_step: int, merged: Callable[[LiveSegment], Mapping[int, float]]
) -> Activity:
    """Return the activity of a partition from a listing of its log.

    Args:
        view: the view of the log.
        since_step: the first quarter minute in the result.
        merged: returns `MergedAppends.steps` of a merged segment.
    """
    records: defaultdict[int, float] = defaultdict(float)
    size_bytes: defaultdict[int, float] = defaultdict(float)
    for segment in reversed(view.live.segments):
        written_step = step_of(segment.file.modified_us)
        if written_step < since_step:
            break  # earlier segments were appended earlier
        end = view.log_end_offset if segment.end_offset is None else segment.end_offset
        count = end - segment.start_offset
        is_merged = segment.name.last_offset is not None
        for step, share in (merged(segment) if is_merged else {written_step: 1.0}).items():
            # No record was appended after its file was written, whatever its timestamp says.
            before = min(step, written_step)
            if before >= since_step:
                records[before] += share * count
                size_bytes[before] += share * segment.file.size_bytes
    return Activity(view.log_start_offset, view.log_end_offset, records, size_bytes)
