"""Samples of one partition: its log start and end, and the offsets appended since the last one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_log.errors import NotFoundError
from spark_log.log import REPLICA_ERRORS, LogView, PartitionLog, first_unread_us
from spark_log.log.files import SegmentName
from spark_log.storage import is_listing_valid

if TYPE_CHECKING:
    from spark_log.log.stripe import Stripe


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

    The end of a striped partition is that of the last poll of its stripe, which the caller makes
    for all of the stripe's partitions. So a sample costs no request, also with new records: their
    size is known. The partition is listed if records of it have gone home since the last listing,
    or if this is old.
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
        self._log.leave_polls()
        self._max_listing_age_ms = max_listing_age_ms
        self._end: int | None = 0 if is_new else None
        self._last: PartitionSample | None = None
        self._listed_ms = self._unused_ms = float("-inf")
        self._home_end = 0

    @property
    def stripe(self) -> Stripe | None:
        """The partition's stripe, which has to be polled before `read`; None without one."""
        return self._log.stripe

    def reopen(self, log: PartitionLog, max_listing_age_ms: float) -> None:
        """Continue with another log of the partition, whose replicas or settings have changed."""
        self._log = log
        self._log.leave_polls()
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
        if self._last is not None and self._is_listing_kept():
            self._last = self._with_new_entries(self._last)
            return self._last
        home_end = self._known_home_end()
        view = self._log.observe_polled()
        end = view.log_end_offset
        before = end if self._end is None else min(self._end, end)
        self._last = PartitionSample(
            view.log_start_offset,
            end,
            sum(segment.file.size_bytes for segment in view.live.segments),
            end - before,
            _bytes_since(view, before),
        )
        self._end, self._home_end = end, home_end
        self._listed_ms = self._unused_ms = view.observed_ms
        return self._last

    def _with_new_entries(self, last: PartitionSample) -> PartitionSample:
        """Return the next sample of a striped partition, by what the stripe has of it."""
        view = self._log.observe_polled(last.log_end_offset)
        appended_bytes = _bytes_since(view, last.log_end_offset)
        self._end = view.log_end_offset
        return replace(
            last,
            log_end_offset=view.log_end_offset,
            size_bytes=last.size_bytes + round(appended_bytes),
            appended=view.log_end_offset - last.log_end_offset,
            appended_bytes=appended_bytes,
        )

    def _is_listing_kept(self) -> bool:
        """Return whether new records lie in the stripe, behind what the last listing has shown."""
        age_ms = self._log.clock.monotonic_ms() - self._listed_ms
        return (
            self.stripe is not None
            and age_ms < self._max_listing_age_ms
            and self._known_home_end() == self._home_end
        )

    def _known_home_end(self) -> int:
        """Return the offset before which records are known to be at home; 0 without a stripe."""
        if self.stripe is None:
            return 0
        return self.stripe.reader.home_end(self._log.files.partition)

    def _is_end(self, offset: int) -> bool:
        """Return whether the log still ends at an offset; False also if a listing is needed."""
        if self.stripe is not None:
            end = self.stripe.reader.end_offset(self._log.files.partition)
            return end == offset and self._is_listing_kept()
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
