"""Opening the segments of a view one after the other, on an object store some ahead of time."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from spark_log.log.live_log import LiveSegment
from spark_log.log.segment.reader import SegmentReader

if TYPE_CHECKING:
    from spark_log.log.partition_directory import LogView, PartitionDirectory

AHEAD: Final = 8
"""Segments opened ahead. Each holds `segment_file.TAIL_BYTES`, which is all of a small one."""


class SegmentOpener:
    """Opens a directory's segments in order.

    On an object store, opening is a request of some milliseconds, and a small segment is read by
    it: so the next ones are opened meanwhile. Not from the start: who reads little gets no more.
    """

    def __init__(self, directory: PartitionDirectory, end_offset: int) -> None:
        """Args: directory: the partition's; end_offset: what begins there is not opened ahead."""
        self._directory = directory
        self._end_offset = end_offset
        self._view: LogView | None = None
        self._ahead: dict[LiveSegment, Future[SegmentReader]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._opened = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def open(self, view: LogView, index: int) -> SegmentReader:
        """Open a segment of a view. See `PartitionDirectory.open_listed`."""
        if self._view is not view:
            self._view, self._ahead = view, {}
        segment = view.live.segments[index]
        future = self._ahead.pop(segment, None)
        self._opened += 1
        if self._opened > 1 and not self._directory.store.is_mapped:
            self._open_ahead(view, index + 1)
        if future is not None:
            return future.result()
        return self._directory.open_listed(segment, view.observed_ms)

    def _open_ahead(self, view: LogView, first: int) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(AHEAD, "spark-log-open-ahead")
        for segment in view.live.segments[first : first + AHEAD]:
            if segment not in self._ahead and segment.start_offset < self._end_offset:
                self._ahead[segment] = self._threads.submit(
                    self._directory.open_listed, segment, view.observed_ms
                )
