"""Opening the segments of a view in order; on an object store, some of them ahead of time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Self

from spark_log.log.directory.log_view import LogView
from spark_log.log.files import LiveSegment
from spark_log.log.segment import TAIL_BYTES, WHOLE_BYTES, SegmentReader

OpenListed = Callable[[LiveSegment, float, SegmentReader | None], SegmentReader]
"""Opens a segment of a listing (`PartitionDirectory.open_listed`)."""

AHEAD: Final = 16
"""Segments that are opened ahead at most, each by one request."""

AHEAD_BYTES: Final = 8_388_608
"""Bytes that segments opened ahead hold at most: a small one is read whole when it is opened."""


class SegmentOpener:
    """Opens the segments of a partition in order.

    On an object store, opening a segment is a request of some milliseconds, which reads all of a
    small segment. For a reader that moves from one segment to the next one, the following segments
    are opened in the background. A reader that needs one segment alone opens no other.
    """

    def __init__(
        self,
        open_listed: OpenListed,
        end_offset: int,
        last: SegmentReader | None = None,
        *,
        executor_class: type[ThreadPoolExecutor] | None,
    ) -> None:
        """Open nothing yet.

        Args:
            open_listed: function that opens a segment of a listing.
            end_offset: segments that begin at or after it are not opened ahead.
            last: reader of the first view's last segment if it is open; else None.
            executor_class: the class of the threads that open following segments, for an object
                store; None opens none ahead.
        """
        self._open_listed = open_listed
        self._executor_class = executor_class
        self._end_offset = end_offset
        self._view: LogView | None = None
        self._ahead: dict[LiveSegment, Future[SegmentReader]] = {}
        self._last_index = -1
        self._last = last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the segments that were opened ahead."""
        self._ahead = {}
        self._last = None

    def take_last(self) -> SegmentReader | None:
        """Hand over the last segment of the first view if it is open and was not read."""
        last, self._last = self._last, None
        return last

    def open(self, view: LogView, index: int) -> SegmentReader:
        """Return the reader of a view's segment, which may have been opened ahead.

        Args:
            view: the log's view. Segments opened ahead for another view are dropped.
            index: the segment's index in the view.

        Raises:
            NotFoundError: the file does not exist; or the view is so old that the file may have
                been deleted, and its name used by a put that was delivered late.
            CorruptRecordError: the segment is damaged, or its file was replaced by another one.
        """
        if self._view is not view:
            is_next = self._last_index >= 0
            if self._view is not None:
                self.close()
            self._view = view
        else:
            is_next = index == self._last_index + 1
        self._last_index = index
        segment = view.live.segments[index]
        future = self._ahead.pop(segment, None)
        if is_next and self._executor_class is not None and segment.start_offset < self._end_offset:
            self._open_ahead(self._executor_class, view, index + 1)
        elif future is None:
            self._ahead = {}  # the reader is elsewhere
        if future is not None:
            return future.result()
        opened = self.take_last() if index == len(view.live.segments) - 1 else None
        return self._open_listed(segment, view.observed_ms, opened)

    def _open_ahead(
        self, executor_class: type[ThreadPoolExecutor], view: LogView, first: int
    ) -> None:
        wanted: list[LiveSegment] = []
        left_bytes = AHEAD_BYTES
        for segment in view.live.segments[first : first + AHEAD]:
            size_bytes = segment.file.size_bytes
            left_bytes -= size_bytes if size_bytes <= WHOLE_BYTES else TAIL_BYTES
            if left_bytes < 0 or segment.start_offset >= self._end_offset:
                break
            is_open = self._last is not None and segment == view.live.segments[-1]
            if not is_open and segment not in self._ahead:
                wanted.append(segment)
        if not wanted:
            return
        # Its threads end with their requests: a reader may stop anywhere, and is not closed.
        threads = executor_class(len(wanted), "spark-log-open-ahead")
        for segment in wanted:
            self._ahead[segment] = threads.submit(
                self._open_listed, segment, view.observed_ms, None
            )
        threads.shutdown(wait=False)
