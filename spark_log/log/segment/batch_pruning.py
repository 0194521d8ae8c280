"""Pruning: which Arrow batches of a segment a read by offset and time needs, and which it skips.

`SegmentReader.read` and `SegmentReader.offset_for_time` ask here. Which segments of a log a read
needs, and which offsets of a segment a read within bounds of time needs, is decided in
`log.read.pruning`.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

import numpy as np

from spark_log.errors import CorruptRecordError
from spark_log.log.files import SegmentName
from spark_log.log.segment.arrow_batches import ArrowBatches
from spark_log.log.segment.file import SegmentFile
from spark_log.log.segment.indexes import SegmentIndexes
from spark_log.storage import Store
from spark_log.util import SuppressedErrors, lazy

_log = logging.getLogger(__name__)

MAX_UNINDEXED_BATCHES: Final = 16
"""A local file of up to 16 batches is searched by all of its headers: indexes are no faster."""


class BatchPruning:
    """Decides which batches of one segment can hold the records that a read wants.

    The indexes narrow the search, and batch headers decide it. Batches that are skipped are not
    read; at most their headers are.
    """

    def __init__(
        self,
        store: Store,
        directory: str,
        name: SegmentName,
        file: SegmentFile,
        batches: ArrowBatches,
        append_id: str,
        suppressed: SuppressedErrors,
    ) -> None:
        """Read nothing yet.

        Args:
            store: the store that holds the segment. If it is local, reading headers is no request.
            directory: the partition's directory, relative to the store's root.
            name: parsed name of the segment's file.
            file: the segment's file.
            batches: the headers of the file's batches.
            append_id: the segment's append id.
            suppressed: counter of errors of the indexes, which fail no read.
        """
        self._store = store
        self._directory = directory
        self._name = name
        self._file = file
        self._batches = batches
        self._append_id = append_id
        self._suppressed = suppressed
        self._batch_count = len(file.blocks)
        self._is_local = store.is_local
        self._has_tried_to_rebuild = False

    @lazy
    def _indexes(self) -> SegmentIndexes:
        """The segment's indexes. Most segments have one batch and need none."""
        return SegmentIndexes(
            self._store,
            self._directory,
            self._name,
            self._append_id,
            self._file.blocks,
            suppressed=self._suppressed,
        )

    def needed(
        self, start_offset: int, end_offset: int | None = None, from_us: int | None = None
    ) -> range:
        """Return the ordinals of the batches that can hold the records which a read wants.

        A batch in this range may hold no such record: the caller compares its records.

        Args:
            start_offset: records before it are not wanted.
            end_offset: records at and after it are not wanted; None for no such limit. On a local
                store it does not shorten the range: headers cost no request there, so the caller
                reads them, and stops at the first batch at or after the offset.
            from_us: records before the first one with this timestamp, or a later one, are not
                wanted, in microseconds since the epoch; None for all times.
        """
        first = self._ordinal_at(start_offset)
        if from_us is not None:
            first = max(first, self._ordinal_before_time(from_us))
        if end_offset is None or self._is_local:
            return range(first, self._batch_count)
        behind = self._batch_count
        # If a header is damaged, all batches are read, and the read itself raises the error.
        with suppress(CorruptRecordError):
            behind = self._ordinal_at(end_offset - 1) + 1
        return range(first, behind)

    def ranges_in_time(
        self, times_us: tuple[int, int], end_offset: int
    ) -> list[tuple[int, int]] | None:
        """Return the ranges of offsets whose batches can hold records between two times.

        Args:
            times_us: the first timestamp and the one after the last, microseconds.
            end_offset: the segment's end offset.

        Returns:
            First offset and the offset after the last of each range, in order. None if the footer
            of the file does not tell.
        """
        file = self._file
        least_us, latest_us = file.min_timestamps_us, file.max_timestamps_us
        deltas = file.base_offset_deltas
        if least_us is None or latest_us is None or deltas is None:
            return None
        low_us, high_us = times_us
        wanted = np.concatenate([[False], (latest_us >= low_us) & (least_us < high_us), [False]])
        begins = np.append(deltas + self._name.base_offset, end_offset)
        edges = np.flatnonzero(wanted[1:] != wanted[:-1])
        return [(int(begins[first]), int(begins[last])) for first, last in edges.reshape(-1, 2)]

    def _ordinal_at(self, offset: int) -> int:
        """Return the ordinal of the last Arrow batch that begins at or before ``offset``, or 0."""
        low, high = 0, self._batch_count
        if high == 1 or offset <= self._name.base_offset:
            return 0
        deltas = self._file.base_offset_deltas
        if deltas is not None:
            found = np.searchsorted(deltas, offset - self._name.base_offset, "right")
            return max(0, int(found) - 1)
        index = None
        if not self._skips_indexes:
            if self._is_local and self._indexes.offset_index() is None:
                self._rebuild_indexes()  # cheap: no requests
            index = self._indexes.offset_index()
        if index is not None:
            floor, following = index.lookup(offset), index.following(offset)
            low = low if floor is None else self._indexes.ordinal_of(floor)
            high = high if following is None else self._indexes.ordinal_of(following)
        delta = offset - self._name.base_offset
        while high - low > 1:
            middle = (low + high) // 2
            if self._batches.headers(middle).headers[0].base_offset_delta > delta:
                high = middle
            else:
                low = middle
        return low

    def _ordinal_before_time(self, timestamp_us: int) -> int:
        """Return the ordinal of a batch before which all records are earlier than a time."""
        latest_us = self._file.max_timestamps_us
        if latest_us is not None:
            found = np.flatnonzero(latest_us >= timestamp_us)
            return int(found[0]) if found.size else self._batch_count
        if self._skips_indexes:
            return 0
        if self._indexes.time_index() is None:
            self._rebuild_indexes()
        offsets, times = self._indexes.offset_index(), self._indexes.time_index()
        if offsets is None or times is None:
            return 0
        ceiling = times.ceiling(timestamp_us)
        floor = offsets.last() if ceiling is None else offsets.lookup(ceiling.offset)
        return 0 if floor is None else self._indexes.ordinal_of(floor)

    @property
    def _skips_indexes(self) -> bool:
        return self._is_local and self._batch_count <= MAX_UNINDEXED_BATCHES

    def _rebuild_indexes(self) -> None:
        if not self._indexes.is_indexed or self._has_tried_to_rebuild:
            return
        self._has_tried_to_rebuild = True
        positions = self._file.blocks.positions
        # A read of the damaged batch raises the error; other reads continue without indexes.
        with self._indexes.suppressing(CorruptRecordError):
            self._indexes.rebuild(
                (int(positions[ordinal]), self._batches.headers(ordinal).headers)
                for ordinal in self._file.messages_in_order(0)
            )
            path = f"{self._directory}/{self._name.file_name}"
            _log.debug("%s: rebuilt its indexes from batch headers", path)
