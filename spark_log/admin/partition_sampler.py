"""Samples of one partition: its log start and end, and the offsets appended since the last one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_log.errors import NotFoundError
from spark_log.log import REPLICA_ERRORS, LogView, PartitionLog, first_unread_us
from spark_log.log.files import SegmentName
from spark_log.storage import is_listing_valid


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """A partition at one moment.

    Attributes:
        log_start_offset: the first offset that can be read.
        log_end_offset: the offset of the next record to be written.
        size_bytes: the size of its segments.
        appended: the number of offsets appended since the last sample; 0 in the first one.
        appended_bytes: the size of the records at these offsets.
    """

    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    appended: int = 0
    appended_bytes: float = 0


class PartitionSampler:
    """Reads one partition repeatedly, without keeping its segments.

    A sample costs one request, for the name that the next segment must have. If the log has new
    records, or if the last listing is old (so that deleted and merged files are noticed), the
    sample also costs a listing and a read of the last batch header.

    Each lookup of the next name extends the validity of the listing by half of
    ``file.delete.delay.ms``: a name that was unused at that time cannot have been used and freed
    since (`storage.listing_validity`). The end is therefore exact, even if the listing is old.
    """

    def __init__(self, log: PartitionLog, *, is_new: bool, max_listing_age_ms: float) -> None:
        """Begin with a log.

        Args:
            log: the partition's log, which is used only here.
            is_new: whether the partition was created since the last sample, so that all of its
                records were appended since.
            max_listing_age_ms: the maximum age of a listing, and so of a sample's log start and
                size.
        """
        self._log = log
        self._max_listing_age_ms = max_listing_age_ms
        self._end: int | None = 0 if is_new else None
        self._last: PartitionSample | None = None
        self._listed_ms = self._unused_ms = float("-inf")

    def reopen(self, log: PartitionLog, max_listing_age_ms: float) -> None:
        """Continue with another log of the partition, whose replicas or settings have changed."""
        self._log = log
        self._max_listing_age_ms = max_listing_age_ms
        self._last = None

    def read(self) -> PartitionSample:
        """Return a sample of the partition's present state.

        Raises:
            SparkLogError: the log cannot be read, or is damaged.
        """
        if self._last is not None and self._is_end(self._last.log_end_offset):
            if self._last.appended:
                self._last = replace(self._last, appended=0, appended_bytes=0)
            return self._last
        view = self._log.observe()
        end = view.log_end_offset
        before = end if self._end is None else min(self._end, end)
        self._last = PartitionSample(
            view.log_start_offset,
            end,
            sum(segment.file.size_bytes for segment in view.live.segments),
            end - before,
            _bytes_since(view, before),
        )
        self._end = end
        self._listed_ms = self._unused_ms = view.observed_ms
        return self._last

    def _is_end(self, offset: int) -> bool:
        """Return whether the log still ends at an offset; False also if a listing is needed."""
        now_ms = self._log.clock.monotonic_ms()
        if now_ms - self._listed_ms >= self._max_listing_age_ms:
            return False
        try:
            files = self._log.files
            files.open(SegmentName(offset))
        except NotFoundError:
            # If too much time has passed, a freed name cannot be told from a name never used.
            if is_listing_valid(files.clock, self._unused_ms, files.valid_ms):
                self._unused_ms = now_ms
                return True
        except REPLICA_ERRORS:
            return False  # the listing leaves the replica out
        return False

    def first_unread_us(self, offset: int) -> int | None:
        """Return the timestamp of the first record at or after an offset, in microseconds.

        None if no such record exists, or if it cannot be read.
        """
        return first_unread_us(self._log, offset)


def _bytes_since(view: LogView, offset: int) -> float:
    """Return the size of the records from ``offset`` on; a partly older segment counts by share."""
    size_bytes = 0.0
    for segment in reversed(view.live.segments):
        end = view.log_end_offset if segment.end_offset is None else segment.end_offset
        if end <= offset:
            break
        share = (end - max(offset, segment.start_offset)) / (end - segment.start_offset)
        size_bytes += share * segment.file.size_bytes
    return size_bytes
