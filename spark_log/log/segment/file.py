"""Access to a segment file: mapped into memory, or read from an object store in ranges.

Both classes give the positions of the record batches, the batch headers of each (in the Arrow
message in front of it), and decoded batches. They differ in the reads that this takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from spark_log.errors import CorruptRecordError
from spark_log.record import (
    CHECK_KEY,
    METADATA_KEY,
    arrow_ipc,
    decode_check,
    packed_headers,
)
from spark_log.storage import COPIED_BYTES, Store

WHOLE_BYTES: Final = 1_048_576
"""A file of up to this size is small: one request reads all of it."""

TAIL_BYTES: Final = 65_536
"""Bytes that are read first of a larger file, from its end: the footer."""

RANGE_BYTES: Final = 8_388_608
"""Bytes of one read while batches are read in order. The next range is read in the background."""

FIRST_RANGE_BYTES: Final = 1_048_576
"""Bytes of the first such read, since many readers need a few batches alone."""

PROBE_BYTES: Final = 16_384
"""Number of bytes read for one message. They include the next messages if batches are small."""

_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"

Decode = Callable[[int], pa.RecordBatch]
"""Decodes the batch of an ordinal; raises ValueError, OSError or ArrowException on damage."""


class PackedHeaders(NamedTuple):
    """The batch headers of a record batch, as they are stored.

    Attributes:
        headers: the headers, as `BatchHeader.pack` returns each.
        are_checked: whether they have a check (docs/adr/0017), which files of earlier versions
            lack.
        column_sums: checksum of each column of the file; empty if the batch has none.
    """

    headers: bytes
    are_checked: bool
    column_sums: tuple[int, ...]


class RowStatistics(NamedTuple):
    """The statistics of all rows in the footer of a Parquet file.

    Attributes:
        num_rows: number of rows.
        min_offset: the first offset; -1 without rows, as the next three.
        max_offset: the last offset.
        min_timestamp_us: the smallest timestamp, microseconds since the epoch.
        max_timestamp_us: the largest timestamp.
        uncompressed_bytes: size of the row groups before compression.
        typed_columns: identifies the typed columns, and how values are left out because of them.
            Two files with the same records and the same text have the same rows. Empty without.
    """

    num_rows: int = 0
    min_offset: int = -1
    max_offset: int = -1
    min_timestamp_us: int = -1
    max_timestamp_us: int = -1
    uncompressed_bytes: int = 0
    typed_columns: str = ""


class ColumnStatistics(NamedTuple):
    """The statistics of a typed column in a whole Parquet file.

    Attributes:
        path: the name of the column; for a field of a STRUCT, those of all that contain it, too.
        kind: its type.
        null_count: number of rows without a value.
        least: the smallest value: a bool, an int (days of a date, microseconds of a timestamp, the
            digits of a decimal), a float, or the bytes of a string. None if it is not known, and if
            there is no value. NaN is left out.
        most: the largest value, as ``least``.
        has_nan: whether a value is NaN.
    """

    path: tuple[str, ...]
    kind: pa.DataType
    null_count: int
    least: int | float | bytes | None
    most: int | float | bytes | None
    has_nan: bool = False


class LeftOutColumns(NamedTuple):
    """The columns that give back the values which a Parquet file leaves out.

    Attributes:
        schema: the columns.
        give_back: returns the values of some rows; gets the stored values, and the columns.
    """

    schema: pa.Schema
    give_back: Callable[[pa.Array, Mapping[str, pa.Array]], pa.Array]


class SegmentFile(ABC):
    """A file of record batches.

    Attributes:
        kind: the file's format, for error messages.
        blocks: positions of its record batches.
        schema: the file's schema, with its metadata.
        size_bytes: the file's size.
        base_offset_deltas: the first offset of each record batch, relative to the segment's; None
            if only the batch headers tell.
        min_timestamps_us: the smallest timestamp of each record batch, control records left out;
            None if only the records tell.
        max_timestamps_us: the largest timestamp of each record batch, control records left out;
            None if only the batch headers tell.
    """

    kind: ClassVar[str]
    blocks: arrow_ipc.Blocks
    schema: pa.Schema
    size_bytes: int
    base_offset_deltas: np.ndarray | None = None
    min_timestamps_us: np.ndarray | None = None
    max_timestamps_us: np.ndarray | None = None

    @property
    @abstractmethod
    def is_in_memory(self) -> bool:
        """Whether no request will be made: the file is mapped, or small and was read whole."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Memory of the process that holds bytes of the file; for a mapped file, an upper bound."""

    @abstractmethod
    def packed_headers(self, ordinal: int, append_id: bytes) -> PackedHeaders:
        """Return the batch headers of a record batch.

        Args:
            ordinal: the record batch's number.
            append_id: the segment's append id.

        Raises:
            ValueError: the headers are missing, or do not fit their check.
        """

    @abstractmethod
    def compression(self, ordinal: int) -> str:
        """Return the compression of a record batch: ``none``, ``lz4`` or ``zstd``.

        Raises:
            ValueError: the batch is damaged.
        """

    def custom_metadata(self, ordinal: int) -> dict[bytes, bytes]:
        """Return the custom metadata of a record batch; only an Arrow file has them.

        Raises:
            ValueError: the batch is damaged.
        """
        raise NotImplementedError

    def problem_for_others(self, ordinal: int) -> str | None:
        """Return the problem of a record batch that only other programs would meet.

        They use parts of the file that readers of the log do not use.
        """
        return None

    def to_arrow(self) -> pa.NativeFile:
        """Return the bytes of a Parquet file, for pyarrow's reader."""
        raise TypeError(f"{self.kind} files are read by the log alone")

    @abstractmethod
    def decoder(self, columns: Sequence[str]) -> Decode:
        """Return a function that decodes batches to these columns, zero-copy where possible."""

    def in_order(self, first: int, behind: int | None = None) -> Iterator[int]:
        """Yield ordinals from ``first`` to before ``behind``, to read each message and batch.

        Message and batch of the ordinal that was yielded last are in memory.

        Args:
            first: the first ordinal.
            behind: the ordinal after the last one; None for all.
        """
        return iter(range(first, len(self.blocks) if behind is None else behind))

    def row_statistics(self) -> RowStatistics:
        """Return the statistics of all rows; only a Parquet file has them."""
        raise NotImplementedError

    def column_statistics(self) -> list[ColumnStatistics]:
        """Return the statistics of the typed columns; only a Parquet file has them."""
        raise NotImplementedError

    @property
    def left_out(self) -> LeftOutColumns | None:
        """The columns of values that a Parquet file leaves out; None if it has all values."""
        return None

    def find_pages(self) -> np.ndarray:
        """Return the pages of a Parquet file, for `read_row` (`parquet.pages.PAGE_DTYPE`).

        Raises:
            ValueError: the page index is damaged.
        """
        raise NotImplementedError

    def read_row(self, row: int, pages: np.ndarray) -> tuple[int, pa.RecordBatch]:
        """Return a row of a Parquet file: its offset delta, and the columns of `RECORD_SCHEMA`.

        Args:
            row: the row's number; control records are not counted.
            pages: the array that `find_pages` returned.

        Raises:
            ValueError, OSError, pa.ArrowException: the file is damaged.
        """
        raise NotImplementedError

    def messages_in_order(self, first: int) -> Iterator[int]:
        """Yield ordinals from ``first`` on, to read each message and few of the batches."""
        return iter(range(first, len(self.blocks)))

    def forget(self) -> None:  # noqa: B027 - most files keep nothing
        """Release the memory of data that was read. Data in use stays valid (`Store.forget`)."""


def open_segment_file(store: Store, path: str, size_bytes: int | None = None) -> SegmentFile:
    """Open a segment file.

    Args:
        store: the store that holds the file.
        path: the file's path, relative to the store's root.
        size_bytes: the file's size in a listing; None if not known. It shows whether a damaged
            footer lacks the last batches. A mapped file has its size; other stores may return it
            with a read.

    Raises:
        NotFoundError: the file does not exist.
        ValueError, OSError, pa.ArrowException: the file is not an Arrow file, or its footer is
            damaged.
    """
    if store.is_mapped:
        return mapped_segment_file(store, store.open_buffer(path))
    return _RangedFile(store, path, size_bytes)


def mapped_segment_file(store: Store, buffer: pa.Buffer) -> SegmentFile:
    """Return the segment file that a store has mapped into memory.

    Raises:
        ValueError, OSError, pa.ArrowException: the file is not an Arrow file, or its footer is
            damaged.
    """
    return _MappedFile(store, buffer)


class _ArrowFile(SegmentFile):
    """An Arrow file. The message in front of each record batch has its batch headers."""

    kind = "Arrow"

    @abstractmethod
    def message(self, ordinal: int) -> memoryview:
        """Return the Arrow message of a batch: the bytes in front of its body."""

    def custom_metadata(self, ordinal: int) -> dict[bytes, bytes]:
        return arrow_ipc.custom_metadata(self.message(ordinal))

    def packed_headers(self, ordinal: int, append_id: bytes) -> PackedHeaders:
        metadata = self.custom_metadata(ordinal)
        value, check = metadata.get(METADATA_KEY), metadata.get(CHECK_KEY)
        if value is None:
            raise ValueError("no batch header")
        if check is None:
            return PackedHeaders(packed_headers(value), are_checked=False, column_sums=())
        sums = decode_check(check, append_id, value, len(self.schema))
        return PackedHeaders(packed_headers(value), are_checked=True, column_sums=sums)

    def compression(self, ordinal: int) -> str:
        return arrow_ipc.codec(self.message(ordinal))


class _MappedFile(_ArrowFile):
    """A file that is mapped into memory: zero-copy, and pages that are not used are not read."""

    def __init__(self, store: Store, buffer: pa.Buffer) -> None:
        self._store = store
        self._buffer = buffer
        self._view = memoryview(buffer)
        self.size_bytes = len(self._view)
        footer = arrow_ipc.footer_bytes(self._view)
        self.blocks = arrow_ipc.read_blocks(self._view[max(0, self.size_bytes - footer) :])
        arrow_ipc.check_blocks(self.blocks, self.size_bytes - footer)
        self._reader = ipc.open_file(buffer, options=ipc.IpcReadOptions(use_threads=False))
        self.schema = self._reader.schema

    @property
    def is_in_memory(self) -> bool:
        return True

    @property
    def memory_bytes(self) -> int:
        return self.size_bytes if self.size_bytes <= COPIED_BYTES else 0

    def forget(self) -> None:
        self._store.release_memory(self._buffer)

    def message(self, ordinal: int) -> memoryview:
        block = self.blocks[ordinal]
        return self._view[block.position : block.position + block.metadata_bytes]

    def decoder(self, columns: Sequence[str]) -> Decode:
        reader, names = self._reader, self.schema.names
        # To pick fields Arrow copies the whole body. This only pays if it saves decompression; an
        # uncompressed batch is never copied.
        if set(columns) < set(names) and arrow_ipc.codec(self.message(0)) != "none":
            fields = sorted(map(self.schema.get_field_index, columns))
            options = ipc.IpcReadOptions(use_threads=False, included_fields=fields)
            reader = ipc.open_file(self._buffer, options=options)
        if list(columns) == names:
            decode: Decode = reader.get_batch
            return decode
        return lambda ordinal: reader.get_batch(ordinal).select(columns)


class Range(NamedTuple):
    """A range of the file: its position and its bytes."""

    start: int
    data: pa.Buffer

    def covers(self, start: int, end: int) -> bool:
        """Return whether the range has the bytes between two positions of the file."""
        return self.start <= start and end <= self.start + int(self.data.size)

    def cut(self, start: int, end: int) -> pa.Buffer:
        """Return the bytes between two positions of the file."""
        return self.data.slice(start - self.start, end - start)


_NOTHING: Final = Range(0, pa.py_buffer(b""))


def fetch_range(store: Store, path: str, start: int, end: int) -> Range:
    """Read a range of a file by one request.

    Raises:
        CorruptRecordError: the file ends before ``end``.
    """
    data = store.read(path, start, end - start)
    if data.size != end - start:
        raise CorruptRecordError(
            f"{path} has {data.size} bytes from position {start} on, but its footer speaks of "
            f"{end - start}. Restore the file from a copy",
            path=path,
            position=start,
        )
    return Range(start, data)


def read_end(store: Store, path: str, size_bytes: int | None) -> tuple[pa.Buffer, int | None]:
    """Return the last bytes of a file, and its size if the storage returns it, by one request.

    Args:
        store: the store that holds the file.
        path: the file's path, relative to the store's root.
        size_bytes: the file's size in a listing; None if not known.
    """
    if size_bytes is None:
        return store.read_tail_and_size(path, WHOLE_BYTES)
    if size_bytes > WHOLE_BYTES:
        return store.read(path, size_bytes - TAIL_BYTES, TAIL_BYTES), size_bytes
    whole = store.open_buffer(path)
    return whole, int(whole.size)


class _RangedFile(_ArrowFile):
    """A file that is read by requests: a small one whole by one request, else the needed ranges.

    It holds at most two ranges in memory, or two batches if they are larger.
    """

    def __init__(self, store: Store, path: str, size_bytes: int | None) -> None:
        self._store = store
        self._path = path
        tail, size_bytes = read_end(store, path, size_bytes)
        footer = arrow_ipc.footer_bytes(memoryview(tail))
        wanted = footer + arrow_ipc.END_OF_STREAM_BYTES
        if wanted > tail.size and tail.size != size_bytes:
            tail = store.read_tail(path, wanted)
        view = memoryview(tail)
        if bytes(view[max(0, len(view) - wanted) : max(0, len(view) - footer)]) != _END_OF_STREAM:
            raise ValueError("its record batches have no end")
        self.blocks = arrow_ipc.read_blocks(view[len(view) - footer :])
        arrow_ipc.check_blocks(self.blocks, None if size_bytes is None else size_bytes - footer)
        self.schema = ipc.open_file(tail, footer_offset=tail.size).schema
        if size_bytes is None:
            size_bytes = wanted + (int(self.blocks.ends[-1]) if self.blocks else 0)
        self.size_bytes = size_bytes
        self._tail = Range(self.size_bytes - int(tail.size), tail)
        self._recent = _NOTHING

    @property
    def is_in_memory(self) -> bool:
        return self._tail.start == 0

    @property
    def memory_bytes(self) -> int:
        return int(self._tail.data.size) + int(self._recent.data.size)

    def message(self, ordinal: int) -> memoryview:
        block = self.blocks[ordinal]
        behind = block.position + block.metadata_bytes
        self._ensure_read(block.position, behind, PROBE_BYTES)
        return memoryview(self._bytes(block.position, behind))

    def decoder(self, columns: Sequence[str]) -> Decode:
        def decode(ordinal: int) -> pa.RecordBatch:
            block = self.blocks[ordinal]
            try:
                message = ipc.read_message(self._bytes(block.position, block.end))
            except EOFError as error:  # a length of 0, Arrow's mark of the end
                raise ValueError("there is no message") from error
            return ipc.read_record_batch(message, self.schema).select(columns)

        return decode

    def in_order(self, first: int, behind: int | None = None) -> Iterator[int]:
        """Yield ordinals from ``first`` to before ``behind``, to read each message and batch.

        While one range is decoded, the next one is read in the background. This begins after the
        first range, since many readers need a few batches alone.
        """
        background = self._store.executor_class(1, "spark-log-read-ahead")
        ahead: Future[Range] | None = None
        spans = self._spans(first, len(self.blocks) if behind is None else behind)
        try:
            for number, ordinals in enumerate(spans):
                if ahead is not None:
                    self._recent = ahead.result()
                else:
                    start, end = self._extent(ordinals)
                    self._ensure_read(start, end)
                ahead = None
                if 0 < number < len(spans) - 1:
                    start, end = self._extent(spans[number + 1])
                    if not self._tail.covers(start, end):
                        ahead = background.submit(fetch_range, self._store, self._path, start, end)
                yield from ordinals
        finally:
            self._recent = _NOTHING
            background.shutdown(wait=False, cancel_futures=True)

    def messages_in_order(self, first: int) -> Iterator[int]:
        """Yield ordinals from ``first`` on, to read each message and few of the batches.

        Small batches are read together with their messages.
        """
        for ordinal in range(first, len(self.blocks)):
            block = self.blocks[ordinal]
            is_small = block.end - block.position <= PROBE_BYTES
            behind = block.position + block.metadata_bytes
            self._ensure_read(block.position, behind, FIRST_RANGE_BYTES if is_small else 0)
            yield ordinal

    def _spans(self, first: int, behind: int) -> list[range]:
        """Return the ordinals in runs. The batches of a run are read by one request."""
        spans = []
        limit = FIRST_RANGE_BYTES
        while first < behind:
            end = self.blocks[first].position + limit
            following = int(np.searchsorted(self.blocks.ends, end, side="right"))
            spans.append(range(first, min(behind, max(first + 1, following))))
            first, limit = spans[-1].stop, RANGE_BYTES
        return spans

    def _extent(self, ordinals: range) -> tuple[int, int]:
        return self.blocks[ordinals[0]].position, self.blocks[ordinals[-1]].end

    def _ensure_read(self, start: int, end: int, read_bytes: int = 0) -> None:
        """Read a range of the file, and at least ``read_bytes``, unless it is in memory."""
        if not (self._tail.covers(start, end) or self._recent.covers(start, end)):
            behind = min(self.size_bytes, max(end, start + read_bytes))
            self._recent = fetch_range(self._store, self._path, start, behind)

    def _bytes(self, start: int, end: int) -> pa.Buffer:
        for at_hand in (self._recent, self._tail):
            if at_hand.covers(start, end):
                return at_hand.cut(start, end)
        return fetch_range(self._store, self._path, start, end).data
