"""Opening the segments of a view in order; on an object store, some of them ahead of time."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Self

from spark_log.log.live_log import LiveSegment
from spark_log.log.segment.reader import SegmentReader

if TYPE_CHECKING:
    from spark_log.log.partition_directory import LogView, PartitionDirectory

AHEAD: Final = 8
"""Segments opened ahead. Each holds `segment.file.TAIL_BYTES`, which is all of a small segment."""


class SegmentOpener:
    """Opens the segments of a partition in order.

    On an object store, opening a segment is a request of some milliseconds, which reads all of a
    small segment. So from the second segment on, the next ones are opened in the background. A
    reader that needs one segment alone opens no other.
    """

    def __init__(self, directory: PartitionDirectory, end_offset: int) -> None:
        """Open nothing yet.

        Args:
            directory: of the partition.
            end_offset: segments that begin at or after it are not opened ahead.
        """
        self._directory = directory
        self._end_offset = end_offset
        self._view: LogView | None = None
        self._ahead: dict[LiveSegment, Future[SegmentReader]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._opened = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def open(self, view: LogView, index: int) -> SegmentReader:
        """Open a segment of a view, or return it if it was opened ahead.

        Args:
            view: of the log. Segments opened ahead for another view are dropped.
            index: of the segment in the view.

        Raises:
            NotFoundError: the file does not exist; or the view is so old that the file may have
                been deleted, and its name used by a put that was delivered late.
            CorruptRecordError: the segment is damaged, or its file was replaced by another one.
        """
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
