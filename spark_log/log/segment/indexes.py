"""The two indexes of one segment file as its reader uses them: found, or made again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

import numpy as np
import pyarrow as pa

from spark_log.errors import NotFoundError, StorageError
from spark_log.log.file_names import SegmentName
from spark_log.log.segment.index_builder import DEFAULT_INTERVAL_BYTES, IndexBuilder
from spark_log.log.segment.offset_index import OffsetIndex, OffsetPosition
from spark_log.log.segment.time_index import TimeIndex
from spark_log.record.arrow_ipc import Blocks
from spark_log.record.batch_header import BatchHeader
from spark_log.storage import Store
from spark_log.suppressed import IN_PROCESS, SuppressedErrors


class SegmentIndexes:
    """Offset index and time index: each read once, whole, and kept.

    One that is missing, damaged or another file's is as if it were not there. It can be made again
    from batch headers: in memory for this reader, and written back for the others as far as the
    storage allows. Neither changes an answer, only what it costs.
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
        """Touches nothing yet.

        Args:
            store: where it lies.
            directory: the partition's.
            name: of the segment.
            append_id: the segment's.
            blocks: likewise.
            suppressed: counts what fails; readers do without.
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
        """Whether the segment is large enough: in a small one all headers lie close together."""
        return bool(self._blocks.positions[-1] > DEFAULT_INTERVAL_BYTES)

    def ordinal_of(self, entry: OffsetPosition) -> int:
        """Return which Arrow batch an entry of the offset index leads to."""
        ordinal = self._blocks.ordinal_at(entry.position)
        assert ordinal is not None
        return ordinal

    def offset_index(self) -> OffsetIndex | None:
        """Return the offset index, None without a sound one. At most one read, the first time."""
        data = self._read_once(self._name.index)
        if data is not None:
            with self.suppressing(ValueError):
                self._use_offsets(data)
        return self._offsets

    def time_index(self) -> TimeIndex | None:
        """Return the time index, None without a sound pair. At most two reads, the first time."""
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
        """Make both again, and write them back if the storage lets us.

        Args:
            batches: position and headers of every Arrow batch.
        """
        builder = IndexBuilder()
        for position, headers in batches:
            builder.add(position, headers)
        offset_index, time_index = builder.files(self._append_id)
        if not time_index:
            return  # nothing but control records, or nothing worth it
        self._tried = {self._name.index, self._name.time_index}
        self._use_offsets(pa.py_buffer(offset_index))
        self._times = TimeIndex.from_bytes(
            self._name.base_offset, pa.py_buffer(time_index), self._offset_index_data
        )
        # One after the other, not together: whoever sees a new half with an old one, or of two
        # rebuilds at once one half each, sees by its checksum that they do not belong together.
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
            raise ValueError("it points at something else than record batches")
        self._offset_index_data, self._offsets = data, index

    def _read_once(self, name: str) -> pa.Buffer | None:
        if name in self._tried or not self.is_indexed:
            return None
        self._tried.add(name)
        try:
            return self._store.open_buffer(f"{self._directory}/{name}")
        except NotFoundError:
            return None  # headers tell the same
        except StorageError as error:
            self._suppressed.add("index", self._directory, error)
            return None

    def suppressing(self, *kinds: type[Exception]) -> AbstractContextManager[None]:
        """Do without indexes where one of these errors is raised; it is counted."""
        return self._suppressed.suppress("index", self._directory, *kinds)
