"""A store in the memory of this process: for tests, simulations and experiments."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from spark_log.errors import (
    AlreadyExistsError,
    NotFoundError,
    StorageError,
    UnsupportedStoreError,
)
from spark_log.storage.store import FileInfo, StagedFile, Store
from spark_log.util import SYSTEM_CLOCK, Clock


@dataclass(slots=True)
class _Files:
    data: dict[str, pa.Buffer] = field(default_factory=dict)
    modified_us: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_ROOTS: dict[str, _Files] = {}
_ROOTS_LOCK = threading.Lock()


class MemoryStore(Store):
    """A named set of files. All stores of the same name in this process share their files."""

    is_mapped: ClassVar[bool] = True

    def __init__(self, name: str, clock: Clock = SYSTEM_CLOCK) -> None:
        """Open the set of files of this name, creating it if it does not exist.

        Args:
            name: the part of the URL after ``memory://``.
            clock: the clock of modification times.
        """
        self._clock = clock
        self.name = name.strip("/")
        self.url = f"memory://{self.name}"
        with _ROOTS_LOCK:
            self._files = _ROOTS.setdefault(self.name, _Files())

    def __reduce__(self) -> tuple[type[MemoryStore], tuple[str, Clock]]:
        return MemoryStore, (self.name, self._clock)

    def create_root(self) -> None:
        """Do nothing: the root exists when the store is opened."""

    def stage(self, directory: str) -> StagedFile:
        """Return an empty staged file."""
        return _MemoryStagedFile()

    def put_if_absent(
        self, path: str, source: bytes | pa.Buffer | StagedFile, *, sync: bool = True
    ) -> None:
        """Add the file, unless the name is taken.

        Raises:
            AlreadyExistsError: the name is taken.
        """
        data = source.read_back() if isinstance(source, StagedFile) else _frozen(source)
        with self._files.lock:
            if path in self._files.data:
                raise AlreadyExistsError(f"{path} exists", path=path)
            self._set(path, data)

    def put(self, path: str, data: bytes | pa.Buffer, *, sync: bool = True) -> None:
        """Add or replace the file."""
        with self._files.lock:
            self._set(path, _frozen(data))

    def read(self, path: str, start: int, length: int) -> pa.Buffer:
        """Return up to ``length`` bytes from ``start``."""
        buffer = self.open_buffer(path)
        start = min(start, buffer.size)
        return buffer.slice(start, min(length, buffer.size - start))

    def read_tail(self, path: str, length: int) -> pa.Buffer:
        """Return the last ``length`` bytes, or the whole file if it is shorter."""
        buffer = self.open_buffer(path)
        return buffer.slice(max(0, buffer.size - length))

    def read_tail_and_size(self, path: str, length: int) -> tuple[pa.Buffer, int | None]:
        """Return the last ``length`` bytes, and the size of the file."""
        buffer = self.open_buffer(path)
        return buffer.slice(max(0, buffer.size - length)), int(buffer.size)

    def open_buffer(self, path: str) -> pa.Buffer:
        """Return the whole file, without a copy."""
        try:
            return self._files.data[path]
        except KeyError:
            raise NotFoundError(f"{path}: no such file", path=path) from None

    def list(self, directory: str, start_after: str | None = None) -> Iterator[FileInfo]:
        """Yield the files directly in ``directory`` in byte order of their names."""
        prefix = f"{directory}/" if directory else ""
        with self._files.lock:
            paths = sorted(
                path
                for path in self._files.data
                if path.startswith(prefix)
                and "/" not in path[len(prefix) :]
                and not path.startswith(f"{prefix}.")
            )
        first = 0 if start_after is None else bisect.bisect_right(paths, prefix + start_after)
        for path in paths[first:]:
            try:
                yield self.head(path)
            except NotFoundError:
                continue

    def list_hidden(self, directory: str) -> Iterator[FileInfo]:
        """Yield the files whose names begin with a dot. Staged files have no name here."""
        prefix = f"{directory}/." if directory else "."
        for path in list(self._files.data):
            if path.startswith(prefix) and "/" not in path[len(prefix) :]:
                with suppress(NotFoundError):
                    yield self.head(path)

    def list_directories(self, directory: str) -> Iterator[str]:
        """Yield the names of the directories that have files below them."""
        prefix = f"{directory}/" if directory else ""
        below = (path[len(prefix) :] for path in list(self._files.data) if path.startswith(prefix))
        names = {path.partition("/")[0] for path in below if "/" in path}
        yield from (name for name in names if not name.startswith("."))

    def head(self, path: str) -> FileInfo:
        """Return size and time of the file."""
        with self._files.lock:
            if path not in self._files.data:
                raise NotFoundError(f"{path}: no such file", path=path)
            return FileInfo(path, self._files.data[path].size, self._files.modified_us[path])

    def delete(self, path: str) -> None:
        """Delete the file. Harmless if it does not exist."""
        with self._files.lock:
            self._files.data.pop(path, None)
            self._files.modified_us.pop(path, None)

    def delete_directory(self, directory: str) -> None:
        """Delete all files below ``directory``."""
        with self._files.lock:
            for path in [path for path in self._files.data if path.startswith(f"{directory}/")]:
                del self._files.data[path]
                del self._files.modified_us[path]

    def directory_url(self, directory: str) -> str:
        """Refuse: no other library can read the memory of this process.

        Raises:
            UnsupportedStoreError: always.
        """
        raise UnsupportedStoreError(
            f"{self.url} is in the memory of this process and has no URL for Delta; "
            f"use a directory as the root",
            path=self.url,
        )

    def _set(self, path: str, data: pa.Buffer) -> None:
        self._files.data[path] = data
        self._files.modified_us[path] = self._clock.time_us()


class _MemoryStagedFile(StagedFile):
    """Staged bytes in memory."""

    def __init__(self) -> None:
        self.sink = pa.BufferOutputStream()
        self._sealed: pa.Buffer | None = None
        self._is_discarded = False

    @property
    def size_bytes(self) -> int:
        return self._sealed.size if self._sealed is not None else int(self.sink.tell())

    def seal(self) -> None:
        if self._sealed is None:
            self._sealed = self.sink.getvalue()

    def read_back(self) -> pa.Buffer:
        if self._is_discarded:
            raise StorageError("a discarded staged file cannot be put; stage the bytes again")
        self.seal()
        assert self._sealed is not None
        return self._sealed

    def discard(self) -> None:
        self._sealed = pa.py_buffer(b"")
        self._is_discarded = True


def _frozen(data: bytes | pa.Buffer) -> pa.Buffer:
    """Return a copy of a buffer that no caller can change."""
    return pa.py_buffer(data if isinstance(data, bytes) else data.to_pybytes())
