"""Finding the Arrow batch of a segment where a read begins, by offset or time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Protocol

from spark_log.errors import CorruptRecordError
from spark_log.log.segment.indexes import SegmentIndexes
from spark_log.record import BatchHeader

MAX_UNINDEXED_BATCHES: Final = 16
"""A mapped file of up to 16 batches is searched by all of its headers: indexes are no faster."""


class _Batches(Protocol):
    """The part of a segment reader that a search uses."""

    @property
    def base_offset(self) -> int: ...
    @property
    def batch_count(self) -> int: ...
    def headers(self, ordinal: int) -> tuple[BatchHeader, ...]: ...
    def all_headers(self) -> Iterator[tuple[int, tuple[BatchHeader, ...]]]: ...


class BatchSearch:
    """Finds Arrow batches of one segment; returns their ordinals.

    Indexes narrow the search if they are valid; batch headers decide. The segment is passed to each
    search and not kept, so that its file is released as soon as no reader uses it.
    """

    def __init__(self, indexes: SegmentIndexes, *, is_mapped: bool) -> None:
        """Prepare searches. Accesses no storage yet.

        Args:
            indexes: the segment's indexes.
            is_mapped: whether the file is mapped, so that reading a header costs no request.
        """
        self._indexes = indexes
        self._is_mapped = is_mapped
        self._has_tried_to_rebuild = False

    def first(self, batches: _Batches, offset: int) -> int:
        """Return the ordinal of the last Arrow batch that begins at or before ``offset``."""
        base_offset = batches.base_offset
        low, high = 0, batches.batch_count
        if high == 1 or offset <= base_offset:
            return 0
        index = None
        if not self._skips_indexes(batches):
            if self._is_mapped and self._indexes.offset_index() is None:
                self._rebuild_indexes(batches)  # cheap: no requests
            index = self._indexes.offset_index()
        if index is not None:
            floor, following = index.lookup(offset), index.following(offset)
            low = low if floor is None else self._indexes.ordinal_of(floor)
            high = high if following is None else self._indexes.ordinal_of(following)
        while high - low > 1:
            middle = (low + high) // 2
            if base_offset + batches.headers(middle)[0].base_offset_delta > offset:
                high = middle
            else:
                low = middle
        return low

    def last(self, batches: _Batches, end_offset: int | None) -> int:
        """Return the ordinal of the last Arrow batch to be read for records before an offset.

        It only avoids fetching batches that are not needed. If a header is damaged, it is the last
        batch of the segment, and the read itself raises the error.

        Args:
            batches: the segment.
            end_offset: None reads to the segment's end.
        """
        if end_offset is not None and not self._is_mapped:
            with suppress(CorruptRecordError):
                return self.first(batches, end_offset - 1)
        return batches.batch_count - 1

    def before_time(self, batches: _Batches, timestamp_us: int) -> int:
        """Return the ordinal of a batch before which all records are earlier than a time."""
        if self._skips_indexes(batches):
            return 0
        if self._indexes.time_index() is None:
            self._rebuild_indexes(batches)
        offsets, times = self._indexes.offset_index(), self._indexes.time_index()
        if offsets is None or times is None:
            return 0
        ceiling = times.ceiling(timestamp_us)
        floor = offsets.last() if ceiling is None else offsets.lookup(ceiling.offset)
        return 0 if floor is None else self._indexes.ordinal_of(floor)

    def _skips_indexes(self, batches: _Batches) -> bool:
        return self._is_mapped and batches.batch_count <= MAX_UNINDEXED_BATCHES

    def _rebuild_indexes(self, batches: _Batches) -> None:
        if self._indexes.is_indexed and not self._has_tried_to_rebuild:
            self._has_tried_to_rebuild = True
            # A read of the damaged batch raises the error; other reads continue without indexes.
            with self._indexes.suppressing(CorruptRecordError):
                self._indexes.rebuild(batches.all_headers())
