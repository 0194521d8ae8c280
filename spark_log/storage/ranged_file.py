"""A stored file as pyarrow's readers take one: they seek in it, and read the ranges they need."""

from __future__ import annotations

import io
from collections.abc import Callable

import pyarrow as pa


class RangedFile(io.RawIOBase):
    """A file of which only the requested ranges are read."""

    def __init__(self, size_bytes: int, read_range: Callable[[int, int], pa.Buffer]) -> None:
        """Begin at the start of the file; nothing is read yet.

        Args:
            size_bytes: the size of the file.
            read_range: returns the bytes of the file from one position up to another one.
        """
        self._size_bytes = size_bytes
        self._read_range = read_range
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte that is read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}
        self._position = start[whence] + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return up to ``size`` bytes; all that are left if it is negative or None."""
        end = self._size_bytes
        if size is not None and size >= 0:
            end = min(end, self._position + size)
        if end <= self._position:
            return b""
        data: bytes = self._read_range(self._position, end).to_pybytes()
        self._position += len(data)
        return data
