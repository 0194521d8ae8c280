"""The offset index and the time index of one segment: built by its writer, used by its reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.errors import NotFoundError, StorageError
from spark_log.log.files import SegmentName
from spark_log.log.segment.offset_index import OffsetIndex, OffsetPosition, offset_index_bytes
from spark_log.log.segment.time_index import TimeIndex, time_index_bytes
from spark_log.record import BatchHeader, Blocks
from spark_log.storage import Store
from spark_log.util import IN_PROCESS, SuppressedErrors

DEFAULT_INTERVAL_BYTES: Final = 4096
"""Default of ``index.interval.bytes``, used if the topic's setting is not known."""


class IndexBuilder:
    """Builds an offset index and a time index, one Arrow batch after the other.

    It needs batch headers alone. A missing index is therefore rebuilt without decoding records, and
    with the same interval the result is the same, byte for byte.
    """

    def __init__(self, interval_bytes: int = DEFAULT_INTERVAL_BYTES) -> None:
        """Begin with empty indexes.

        Args:
            interval_bytes: bytes of log between two entries (``index.interval.bytes``).
        """
        self._interval_bytes = interval_bytes
        self._indexed_up_to = 0
        self._latest: tuple[int, int] | None = None
        self._has_batches = False
        self._offsets: list[tuple[int, int]] = []
        self._times: list[tuple[int, int]] = []

    def add(self, position: int, headers: Sequence[BatchHeader]) -> None:
        """Add the next Arrow batch.

        Args:
            position: position of the batch's block in the file.
            headers: all batch headers of the Arrow batch.
        """
        if self._has_batches and position - self._indexed_up_to > self._interval_bytes:
            self._offsets.append((headers[0].base_offset_delta, position))
            if self._latest is not None and self._latest[0] > self._last_time():
                self._times.append(self._latest)
            self._indexed_up_to = position
        self._has_batches = True
        for header in headers:
            if header.is_control or not header.record_count:
                continue
            if self._latest is None or header.max_timestamp_us > self._latest[0]:
                self._latest = header.max_timestamp_us, header.base_offset_delta

    def files(self, append_id: str) -> tuple[bytes, bytes]:
        """Return the content of the offset index file and of the time index file.

        Each is empty if it has no entries.

        Args:
            append_id: the segment's append id.
        """
        offset_index = offset_index_bytes(self._offsets, append_id)
        return offset_index, time_index_bytes(self._times, offset_index)

    def _last_time(self) -> float:
        return self._times[-1][0] if self._times else float("-inf")


class SegmentIndexes:
    """Offset index and time index of a segment. Each is read once, as a whole, and kept.

    An index that is missing, damaged or of another segment is not used. Both can be rebuilt from
    batch headers, in memory for this reader, and are then written for other readers if the storage
    allows it. Indexes never change an answer, only its cost.
    """

    def __init__(
        self,
        store: Store,
        directory: str,
        name: SegmentName,
        append_id: str,
        blocks: Blocks,
        *,
        suppressed: SuppressedErrors = IN_PROCESS,
    ) -> None:
        """Prepare the indexes. Accesses no storage yet.

        Args:
            store: the store that holds the segment.
            directory: the partition's directory, relative to the store's root.
            name: parsed name of the segment's file.
            append_id: the segment's append id.
            blocks: positions of the segment's Arrow batches.
            suppressed: counter of errors of indexes, which fail no read.
        """
        self._suppressed = suppressed
        self._store = store
        self._directory = directory
        self._name = name
        self._append_id = append_id
        self._blocks = blocks
        self._offset_index_data: pa.Buffer | None = None
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._tried: set[str] = set()

    @property
    def is_indexed(self) -> bool:
        """Whether the segment is large enough to have indexes."""
        return bool(self._blocks.positions[-1] > DEFAULT_INTERVAL_BYTES)

    def ordinal_of(self, entry: OffsetPosition) -> int:
        """Return the ordinal of the Arrow batch that an entry of the offset index points at."""
        ordinal = self._blocks.ordinal_at(entry.position)
        assert ordinal is not None
        return ordinal

    def offset_index(self) -> OffsetIndex | None:
        """Return the offset index; None without a valid one. The first call reads one file."""
        data = self._read_once(self._name.index)
        if data is not None:
            with self.suppressing(ValueError):
                self._use_offsets(data)
        return self._offsets

    def time_index(self) -> TimeIndex | None:
        """Return the time index; None if one index is not valid. The first call reads two files."""
        if self.offset_index() is None:
            return None
        data = self._read_once(self._name.time_index)
        if data is not None:
            with self.suppressing(ValueError):
                self._times = TimeIndex.from_bytes(
                    self._name.base_offset, data, self._offset_index_data
                )
        return self._times

    def rebuild(self, batches: Iterable[tuple[int, Sequence[BatchHeader]]]) -> None:
        """Rebuild both indexes, and write them if the storage allows it.

        Args:
            batches: position and headers of every Arrow batch.
        """
        builder = IndexBuilder()
        for position, headers in batches:
            builder.add(position, headers)
        offset_index, time_index = builder.files(self._append_id)
        if not time_index:
            return  # a small segment, or one with control records alone
        self._tried = {self._name.index, self._name.time_index}
        self._use_offsets(pa.py_buffer(offset_index))
        self._times = TimeIndex.from_bytes(
            self._name.base_offset, pa.py_buffer(time_index), self._offset_index_data
        )
        # The two files are not replaced together. A reader that gets one of each pair, during a
        # rebuild or after two concurrent ones, detects it by the time index's checksum.
        with self.suppressing(StorageError):
            for name, data in (
                (self._name.index, offset_index),
                (self._name.time_index, time_index),
            ):
                self._store.put(f"{self._directory}/{name}", data, sync=False)

    def _use_offsets(self, data: pa.Buffer) -> None:
        index = OffsetIndex.from_bytes(self._name.base_offset, data, self._append_id)
        wanted, there = index.positions(), self._blocks.positions
        found = np.searchsorted(there, wanted)
        if found[-1] == len(there) or (there[found] != wanted).any():
            raise ValueError("it has positions at which no record batch begins")
        self._offset_index_data, self._offsets = data, index

    def _read_once(self, name: str) -> pa.Buffer | None:
        if name in self._tried or not self.is_indexed:
            return None
        self._tried.add(name)
        try:
            return self._store.open_buffer(f"{self._directory}/{name}")
        except NotFoundError:
            return None  # batch headers hold the same information
        except StorageError as error:
            self._suppressed.add("index", self._directory, error)
            return None

    def suppressing(self, *kinds: type[Exception]) -> AbstractContextManager[None]:
        """Suppress and count these errors: the reader continues without indexes."""
        return self._suppressed.suppress("index", self._directory, *kinds)
