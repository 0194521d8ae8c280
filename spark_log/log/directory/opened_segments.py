"""Open segments that several steps of one piece of work read, and their opening ahead of time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Final

from spark_log.log.directory.opener import AHEAD, AHEAD_BYTES
from spark_log.log.directory.partition_directory import PartitionDirectory
from spark_log.log.files import LiveSegment
from spark_log.log.segment import SegmentReader
from spark_log.storage import FileInfo

KEPT_BYTES: Final = 4_194_304
"""Bytes of small segments that are kept at most. What does not fit is read again."""


class OpenedSegments:
    """Readers of segments of one log, for the next step that reads the same segments.

    A segment that two listings show as part of the log is the same file in both: its name is freed
    only when something durable covers it, and then it is never part of the log again. So a step
    that lists the log again may use the readers of the step before.
    """

    def __init__(self, opened: Iterable[tuple[LiveSegment, SegmentReader]] = ()) -> None:
        """Hold these segments.

        Args:
            opened: segments with their readers.
        """
        self._readers: dict[FileInfo, SegmentReader] = {
            segment.file: reader for segment, reader in opened
        }
        self._kept_bytes = 0

    def get(self, segment: LiveSegment) -> SegmentReader | None:
        """Return the reader of a listed segment; None if the segment is not held."""
        return self._readers.get(segment.file)

    def keep(self, segment: LiveSegment, reader: SegmentReader) -> None:
        """Hold a small segment of an object store, which was read whole, if it fits."""
        size_bytes = segment.file.size_bytes
        if segment.file in self._readers or self._kept_bytes + size_bytes > KEPT_BYTES:
            return
        if reader.is_in_memory:
            self._readers[segment.file] = reader
            self._kept_bytes += size_bytes


def open_in_order(
    directory: PartitionDirectory,
    segments: Iterable[LiveSegment],
    observed_ms: float,
    opened: OpenedSegments | None = None,
) -> Iterator[tuple[LiveSegment, SegmentReader]]:
    """Open segments of one listing, all of which are needed.

    On an object store up to `AHEAD` of them are opened at once, with `AHEAD_BYTES` in memory.

    Args:
        directory: the partition's directory.
        segments: segments of the listing.
        observed_ms: monotonic time before the listing began.
        opened: the segments that are open already; None without any.

    Yields:
        Each segment with its reader, in order.

    Raises:
        NotFoundError: a segment was deleted, or may have been.
        CorruptRecordError: a segment is damaged.
    """
    segments = deque(segments)
    opened = OpenedSegments() if opened is None else opened
    if directory.store.is_local or len(segments) < 2:
        for segment in segments:
            yield segment, directory.open_listed(segment, observed_ms, opened.get(segment))
        return
    ahead: deque[tuple[LiveSegment, Future[SegmentReader]]] = deque()
    ahead_bytes = 0
    executor_class = directory.store.executor_class
    with executor_class(min(AHEAD, len(segments)), "spark-log-open") as threads:
        while segments or ahead:
            while segments and len(ahead) < AHEAD:
                ahead_bytes += segments[0].file.size_bytes
                if ahead and ahead_bytes > AHEAD_BYTES:
                    ahead_bytes -= segments[0].file.size_bytes
                    break
                segment = segments.popleft()
                open_listed = directory.open_listed
                future = threads.submit(open_listed, segment, observed_ms, opened.get(segment))
                ahead.append((segment, future))
            segment, future = ahead.popleft()
            ahead_bytes -= segment.file.size_bytes
            yield segment, future.result()
