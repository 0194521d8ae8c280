"""The bytes of a Parquet file: mapped into memory, or read from an object store in ranges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Executor, Future

import pyarrow as pa

from spark_log.log.segment.file import FIRST_RANGE_BYTES, Range, fetch_range, read_end
from spark_log.log.segment.parquet.footer import check_footer, checked_footer_bytes
from spark_log.storage import COPIED_BYTES, RangedFile, Store

Chunks = Sequence[tuple[int, int]]
"""Parts of a file: position of the first byte, and position behind the last."""


def open_source(store: Store, path: str, size_bytes: int | None) -> ParquetSource:
    """Open a Parquet file, and check its footer.

    Args:
        store: the store that holds the file.
        path: the file's path, relative to the store's root.
        size_bytes: the file's size in a listing; None if not known.

    Raises:
        NotFoundError: the file does not exist.
        ValueError: the footer is damaged, or not a segment's.
    """
    if store.is_mapped:
        return _MappedSource(store, store.open_buffer(path))
    return _RangedSource(store, path, size_bytes)


class ParquetSource(ABC):
    """The bytes of a Parquet file.

    Attributes:
        size_bytes: the file's size.
        is_in_memory: whether no request will be made.
    """

    size_bytes: int
    is_in_memory: bool

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Memory of the process that holds bytes of the file; for a mapped file, an upper bound."""

    @abstractmethod
    def to_arrow(self) -> pa.NativeFile:
        """Return a file for pyarrow's reader."""

    @abstractmethod
    def read(self, start: int, end: int) -> pa.Buffer:
        """Return a part of the file, from what was prepared if that has it.

        Raises:
            ValueError: the file ends before.
        """

    @abstractmethod
    def part(self, start: int, end: int, near_end: int) -> pa.Buffer:
        """Return a part of the file.

        Args:
            start: position of its first byte.
            end: position behind its last byte.
            near_end: position behind what will be wanted next; some of it is read, too.
        """

    def footer(self) -> bytes:
        """Return the footer of the Parquet format, without what follows it."""
        size_bytes = self.size_bytes
        length = int.from_bytes(self.read(size_bytes - 8, size_bytes - 4).to_pybytes(), "little")
        return bytes(self.read(size_bytes - 8 - length, size_bytes - 8).to_pybytes())

    def prepare(self, chunks: Chunks) -> None:  # noqa: B027 - a mapped file needs no preparation
        """Read parts of the file that pyarrow's reader will ask for."""

    def read_ahead(self, chunks: Chunks) -> None:  # noqa: B027
        """Begin to read the parts that will be prepared next, in the background."""

    def end_reading_ahead(self) -> None:  # noqa: B027
        """Drop what was read."""

    def forget(self) -> None:  # noqa: B027
        """Release the memory of data that was read."""


class _MappedSource(ParquetSource):
    """A file that is mapped into memory."""

    is_in_memory = True

    def __init__(self, store: Store, buffer: pa.Buffer) -> None:
        self._store = store
        self._buffer = buffer
        self.size_bytes = int(buffer.size)
        check_footer(buffer)

    @property
    def memory_bytes(self) -> int:
        return self.size_bytes if self.size_bytes <= COPIED_BYTES else 0

    def to_arrow(self) -> pa.NativeFile:
        return pa.BufferReader(self._buffer)

    def read(self, start: int, end: int) -> pa.Buffer:
        if not 0 <= start <= end <= self.size_bytes:
            raise ValueError(f"it has no bytes {start} to {end}")
        return self._buffer.slice(start, end - start)

    def part(self, start: int, end: int, near_end: int) -> pa.Buffer:
        return self._buffer.slice(start, end - start)

    def forget(self) -> None:
        self._store.release_memory(self._buffer)


class _RangedSource(ParquetSource):
    """A file that is read by requests: a small one whole by one request, else the needed ranges."""

    def __init__(self, store: Store, path: str, size_bytes: int | None) -> None:
        self._store = store
        self._path = path
        tail, size_bytes = read_end(store, path, size_bytes)
        if size_bytes is None:
            size_bytes = store.head(path).size_bytes
        self.size_bytes = size_bytes
        wanted = checked_footer_bytes(tail)
        if tail.size < wanted <= size_bytes:
            tail = store.read_tail(path, wanted)
        check_footer(tail)
        self._tail = Range(size_bytes - int(tail.size), tail)
        self.is_in_memory = self._tail.start == 0
        self._headers = Range(0, pa.py_buffer(b""))
        self._recent: list[Range] = []
        self._ahead: tuple[Chunks, Future[list[Range]]] | None = None
        self._background: Executor | None = None

    @property
    def memory_bytes(self) -> int:
        held = (self._tail, self._headers, *self._recent)
        return sum(int(each.data.size) for each in held)

    def to_arrow(self) -> pa.NativeFile:
        return pa.PythonFile(RangedFile(self.size_bytes, self.read), mode="r")

    def part(self, start: int, end: int, near_end: int) -> pa.Buffer:
        for held in (self._tail, self._headers):
            if held.covers(start, end):
                return held.cut(start, end)
        behind = max(end, min(near_end, start + FIRST_RANGE_BYTES))
        self._headers = fetch_range(self._store, self._path, start, behind)
        return self._headers.cut(start, end)

    def prepare(self, chunks: Chunks) -> None:
        if self._ahead is not None:
            known, future = self._ahead
            self._ahead = None
            fetched = future.result()
            if known == chunks:
                self._recent = fetched
                return
        if not all(self._find(start, end) for start, end in chunks):
            self._recent = self._fetch_all(chunks)

    def read_ahead(self, chunks: Chunks) -> None:
        if not all(self._tail.covers(start, end) for start, end in chunks):
            if self._background is None:
                self._background = self._store.executor_class(1, "spark-log-read-ahead")
            self._ahead = chunks, self._background.submit(self._fetch_all, chunks)

    def end_reading_ahead(self) -> None:
        self._recent, self._ahead = [], None
        if self._background is not None:
            self._background.shutdown(wait=False, cancel_futures=True)
            self._background = None

    def forget(self) -> None:
        self._recent = []

    def read(self, start: int, end: int) -> pa.Buffer:
        if not 0 <= start <= end <= self.size_bytes:
            raise ValueError(f"it has no bytes {start} to {end}")
        found = self._find(start, end)
        return (found or fetch_range(self._store, self._path, start, end)).cut(start, end)

    def _find(self, start: int, end: int) -> Range | None:
        held = (*self._recent, self._tail)
        return next((each for each in held if each.covers(start, end)), None)

    def _fetch_all(self, chunks: Chunks) -> list[Range]:
        return [fetch_range(self._store, self._path, start, end) for start, end in chunks]
