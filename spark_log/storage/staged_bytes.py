"""A small staged file in memory: no store has its bytes before they are put."""

from __future__ import annotations

from typing import NoReturn

import pyarrow as pa

from spark_log.errors import StorageError
from spark_log.storage.store import StagedFile


class StagedBytes(StagedFile):
    """The complete bytes of a small file. Every store takes them.

    Attributes:
        file: a file of a store that has the bytes already, from a put that found its name taken.
            `discard` deletes it.
    """

    file: StagedFile | None = None

    def __init__(self, data: bytes) -> None:
        """Stage these bytes."""
        self._data: bytes | None = data
        self._size_bytes = len(data)

    @property
    def size_bytes(self) -> int:
        """Number of bytes."""
        return self._size_bytes

    @property
    def sink(self) -> NoReturn:
        """Refuse: the file is complete."""
        raise TypeError("a staged file in memory is complete")

    @property
    def data(self) -> bytes:
        """The bytes.

        Raises:
            StorageError: they were discarded.
        """
        if self._data is None:
            raise StorageError("a discarded staged file cannot be put; stage the bytes again")
        return self._data

    def seal(self) -> None:
        """Do nothing: the file is complete."""

    def read_back(self) -> pa.Buffer:
        """Return the bytes, without a copy."""
        return pa.py_buffer(self.data)

    def discard(self) -> None:
        """Forget the bytes, and delete the file that a store has made of them."""
        self._data = None
        if self.file is not None:
            self.file.discard()
            self.file = None
