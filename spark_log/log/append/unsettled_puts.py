"""Unsettled puts: a segment whose put may or may not have succeeded is searched for in the log.

Most of them are puts whose answers were lost. The rules: (protocol A5).
"""

from __future__ import annotations

import logging
from types import TracebackType

from spark_log.config import TopicConfig
from spark_log.errors import (
    CorruptRecordError,
    NotFoundError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log.append.appender_state import AppenderState
from spark_log.log.directory import LogView, PartitionDirectory
from spark_log.log.segment import StagedSegment

_log = logging.getLogger(__name__)

_MAX_LOST_ANSWERS = 10
"""Number of lost answers after which an append is given up, and its outcome is unknown."""


class UnsettledPuts:
    """The puts of one append that are not settled, in a ``with`` block around the append.

    The segment may be at one of their offsets, or appear there later. A put is not settled if its
    answer was lost, if the answer came too late for the put to count for certain, or if the log's
    last segment was removed meanwhile.

    After a `StorageError` or `CorruptRecordError` in the block, the log's end is forgotten, and the
    error becomes an `UnknownOutcomeError` if the append has an unsettled put. Other errors pass:
    they are refusals by `AppenderState.check`. If it let the segment pass before a put, and refuses
    it afterwards, the log has grown past this put in between. A segment that is not found below the
    log's end will never be in the log, so nothing was appended, and the known end is right.
    """

    def __init__(
        self, directory: PartitionDirectory, config: TopicConfig, state: AppenderState
    ) -> None:
        self._directory = directory
        self._expiration_ms = config.producer_id_expiration_ms
        self._state = state
        self._offsets: set[int] = set()
        self._count = 0
        self._began_ms = directory.clock.monotonic_ms()

    def __enter__(self) -> UnsettledPuts:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not isinstance(error, StorageError | CorruptRecordError):
            return
        self._state.reset()
        if self._offsets and not isinstance(error, UnknownOutcomeError):
            raise UnknownOutcomeError(
                f"{self._directory.path}: the answer to an append was lost, and the log could not "
                f"be searched for it: {error}",
                path=self._directory.path,
            ) from error

    def add(self, base_offset: int) -> None:
        """Add a put at an offset: the segment may be there, now or later."""
        self._offsets.add(base_offset)

    def remove(self, base_offset: int) -> None:
        """Remove the puts at an offset that another segment has had all the time."""
        self._offsets.discard(base_offset)

    def resolve(self, segment: StagedSegment, base_offset: int) -> int | None:
        """Decide, after a put without a certain answer, whether the segment is in the log.

        Args:
            segment: the segment that was put.
            base_offset: the offset of the put.

        Returns:
            The segment's offset; None if it may be checked, and put, again (`search_log`).

        Raises:
            UnknownOutcomeError: it could not be determined whether the segment is in the log, or it
                may not be put again.
            CorruptRecordError: the end of the log is damaged.
            StorageError: the storage does not answer.
        """
        self.add(base_offset)
        self._count += 1
        self._check_may_retry()
        found = self.search_log(segment)
        if found is not None:
            outcome = f"found at offset {found}"
        elif _is_found_by_check(segment):
            outcome = "the next check tells whether its markers or its barrier are in the log"
        else:
            outcome = "the segment is not in the log"
        _log.debug(
            "%s: it is not certain whether the put at offset %d counts (%d such puts of this "
            "append); %s",
            self._directory.path,
            base_offset,
            self._count,
            outcome,
        )
        if found is None and segment.needs_producers:
            self._check_may_retry()  # the search may have been too late to find it
        # A segment that is not live below the log's end never will be.
        end_offset = self._state.log_end_offset
        self._offsets = {offset for offset in self._offsets if offset >= end_offset}
        return found

    def search_log(self, segment: StagedSegment) -> int | None:
        """List the log, and search it for a segment at the offsets of its puts.

        Args:
            segment: the segment that was put.

        Returns:
            The segment's offset; None if it is not in the log. None also for markers, barriers and
            batches that the producer state shows, wherever they are: the log is listed, and
            `AppenderState.check` then finds them in it.

        Raises:
            UnknownOutcomeError: the segment, or a batch of it, has no producer, or its producer was
                fenced since; and the live segment at one of the offsets was merged or deleted.
            CorruptRecordError: the end of the log is damaged.
            StorageError: the storage does not answer.
        """
        if _is_found_by_check(segment):
            self._state.observe(segment)
            return None
        if segment.producers:
            self._state.observe(segment)
            if not self._state.needs_search(segment):
                return None
        elif segment.producer is not None:
            self._state.observe(segment)
            offset = self._state.duplicate_offset(segment)
            if offset is not None or not self._state.is_fenced(segment):
                return offset
            # The producer state holds nothing of older epochs: only the log itself shows it.
        while True:
            view = self._directory.observe()
            try:
                here = {
                    offset: _is_at(self._directory, segment, offset, view)
                    for offset in sorted(self._offsets)
                }
            except NotFoundError as error:  # rewritten and deleted since
                self._directory.on_missed(error, view.observed_ms)
                continue
            if None in here.values():
                continue  # the listing lacks a segment that appeared during it
            self._state.on_listed(view)
            return next((offset for offset in here if here[offset]), None)

    def _check_may_retry(self) -> None:
        """Check that the append may be searched for in the log, and put again if it is missing.

        An append that is too old may not be put again: the log may have forgotten its producer.

        Raises:
            UnknownOutcomeError: too many answers were lost, or the append is too old.
        """
        age_ms = self._directory.clock.monotonic_ms() - self._began_ms
        if age_ms >= self._expiration_ms / 2 or self._count > _MAX_LOST_ANSWERS:
            raise UnknownOutcomeError(
                f"{self._directory.path}: the answers to {self._count} puts of one append were "
                f"lost within {age_ms / 1000:.0f} s. Read the log's end to see whether its records "
                f"are in it",
                path=self._directory.path,
            )


def _is_found_by_check(segment: StagedSegment) -> bool:
    """Return whether `AppenderState.check` finds the content of a segment in the log by itself."""
    return bool(segment.markers) or segment.is_barrier


def _is_at(
    directory: PartitionDirectory, segment: StagedSegment, offset: int, view: LogView
) -> bool | None:
    """Return whether a segment is in the log at an offset; None if the view cannot show it.

    Args:
        directory: the partition's directory.
        segment: the segment that was put.
        offset: the offset of the put.
        view: a view of the log, from a listing after the put.

    Raises:
        UnknownOutcomeError: the segment at the offset was rewritten, or deleted at the log's start.
        NotFoundError: the segment at the offset was rewritten and deleted since the listing.
    """
    if offset >= view.log_end_offset:
        return False
    index = view.live.index_of(offset)
    if index < 0 or view.live.segments[index].name.last_offset is not None:
        raise UnknownOutcomeError(
            f"{directory.path}: the answer to an append at offset {offset} was lost, and the "
            f"segment at this offset was merged or deleted before it could be checked. Read from "
            f"{max(offset, view.log_start_offset)} to see whether the records are in the log",
            path=directory.path,
        )
    reader = directory.open(view.live.segments[index].name)
    if reader.end_offset <= offset:
        return None
    return reader.base_offset == offset and reader.append_id == segment.append_id
