"""The store port: the only operations on storage that the rest of the package may use.

Paths are POSIX-style and relative to the store's root (``flights.<id>/flights-0/….log``). Names
that begin with a dot are the store's own temporary files: they are never listed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self

import pyarrow as pa

StorageOptions = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file as a listing shows it.

    Attributes:
        path: relative to the store's root.
        size_bytes: its length.
        modified_us: when it appeared, in microseconds since the epoch, by the storage's clock.
    """

    path: str
    size_bytes: int
    modified_us: int

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rpartition("/")[2]


class StagedFile(ABC):
    """Bytes on their way into the store: written once, in order, then put under a name.

    It may be put under one name after another, also after a put that succeeded, without being
    written again. Leaving it as a context manager, or `discard`, ends it; what was put stays. A
    crash leaves at most a temporary file that no listing shows.
    """

    sink: pa.NativeFile

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """How much has been written."""

    @abstractmethod
    def seal(self) -> None:
        """End writing. Putting it does this by itself; doing it twice is harmless."""

    @abstractmethod
    def read_back(self) -> pa.Buffer:
        """Return what was written (sealed first), memory-mapped where it is a file."""

    @abstractmethod
    def discard(self) -> None:
        """Give up the bytes. Harmless after a put."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.discard()


class Store(ABC):
    """Files under one root, with put-if-absent.

    Every backend passes ``spark_log.testing.store_suite.StoreSuite``. A store is used by many
    threads at once, pickles, and holds nothing that needs closing.

    Attributes:
        url: the root as users name it; carries no credentials.
        is_mapped: `open_buffer` copies nothing (a memory map, or memory itself). Where it is
            false the whole file crosses a network: read the ranges that are wanted instead.
    """

    is_mapped: ClassVar[bool]
    url: str

    @abstractmethod
    def create_root(self) -> None:
        """Make the root ready for files, and find out whether put-if-absent holds on it.

        Harmless on a root that exists.

        Raises:
            UnsupportedStoreError: the storage cannot promise put-if-absent.
            InvalidRootError: something that is not a directory is in the way.
        """

    def keep_reserve(self) -> bool:
        """Keep some space for the day on which there is none (`storage.reserve`).

        Returns:
            Whether there is such a reserve now. False where this storage has none.

        Raises:
            StorageError: it cannot be written.
        """
        return False

    def release_reserve(self) -> bool:
        """Give up the reserve; return whether that freed something.

        Raises:
            StorageError: it cannot be removed.
        """
        return False

    @abstractmethod
    def stage(self, directory: str) -> StagedFile:
        """Return an empty staged file that can be put into ``directory``."""

    @abstractmethod
    def put_if_absent(
        self, path: str, source: bytes | pa.Buffer | StagedFile, *, sync: bool = True
    ) -> None:
        """Make ``source`` visible as ``path``, whole or not at all, unless the name is taken.

        On return the file is durable (on a local file system only with ``sync``), and its
        directories exist. A staged file that lost to another may be put under the next name.

        Raises:
            AlreadyExistsError: another put made the file; it was not touched.
            UnknownOutcomeError: the answer was lost; the bytes may be there.
            StorageFullError: no space; nothing is visible.
            StorageError: the storage failed; nothing is visible.
        """

    @abstractmethod
    def put(self, path: str, data: bytes | pa.Buffer, *, sync: bool = True) -> None:
        """Replace the file at ``path`` atomically: for derived files and checkpoints only.

        Args:
            path: of the file.
            data: its new content.
            sync: whether the file is durable on return, on a local file system. Without, a power
                cut may leave the old file, the new one, a damaged one or none: only for what is
                checked when it is read, and made again.
        """

    def sync(self, path: str) -> None:  # noqa: B027 - object stores answer when it is durable
        """Make durable what stands at ``path``: what another process or library put there.

        Args:
            path: of a file, whose bytes and name become durable; or of a directory, whose names do.

        Raises:
            NotFoundError: nothing stands there.
            StorageError: it may be gone after a power cut.
        """

    @abstractmethod
    def read(self, path: str, start: int, length: int) -> pa.Buffer:
        """Return up to ``length`` bytes from ``start``; fewer where the file ends.

        Raises:
            NotFoundError: no such file.
        """

    @abstractmethod
    def read_tail(self, path: str, length: int) -> pa.Buffer:
        """Return the last ``length`` bytes, or the whole file if it is shorter.

        Raises:
            NotFoundError: no such file.
        """

    def read_tail_and_size(self, path: str, length: int) -> tuple[pa.Buffer, int | None]:
        """Return what `read_tail` returns, and the file's size; None where the answer has none.

        Raises:
            NotFoundError: no such file.
        """
        tail = self.read_tail(path, length)
        return tail, int(tail.size) if tail.size < length else None

    @abstractmethod
    def open_buffer(self, path: str) -> pa.Buffer:
        """Return the whole file: a memory map where it is local, so that nothing is copied.

        The buffer stays valid when the file is deleted.

        Raises:
            NotFoundError: no such file.
        """

    def release_memory(self, buffer: pa.Buffer) -> None:  # noqa: B027 - most stores keep nothing
        """Give back the memory that holds what was read of a map; it is read again when needed.

        For who goes through a large file once: what is mapped counts as memory of the process.

        Args:
            buffer: all of what this store's `open_buffer` returned. It stays valid, and its slices.
        """

    @abstractmethod
    def list(self, directory: str, start_after: str | None = None) -> Iterator[FileInfo]:
        """Yield the files directly in ``directory`` in byte order of their names.

        Everything that was there before the call and still is when it ends is yielded; what
        comes or goes meanwhile may or may not be. A directory that does not exist is empty.

        Args:
            directory: relative to the root; ``""`` is the root itself.
            start_after: yield only names that sort after this one.
        """

    @abstractmethod
    def list_hidden(self, directory: str) -> Iterator[FileInfo]:
        """Yield what `list` leaves out: the temporary files directly in ``directory``.

        In no particular order. Of writers at work, and of those that have died.
        """

    @abstractmethod
    def list_directories(self, directory: str) -> Iterator[str]:
        """Yield the names of the directories directly in ``directory``, in no particular order.

        On an object store those that have files in them.
        """

    @abstractmethod
    def head(self, path: str) -> FileInfo:
        """Return size and time of the file.

        Raises:
            NotFoundError: no such file.
        """

    def is_gone(self, path: str) -> bool:
        """Whether a file that was there is known to be gone, where that costs no request.

        False where it would cost one: on an object store.
        """
        return False

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove the file; harmless when it is not there."""

    @abstractmethod
    def delete_directory(self, directory: str) -> None:
        """Remove everything below ``directory``, and it; harmless when it is not there.

        Not atomic: readers see files vanish one by one. For the data of deleted topics only.
        """

    @abstractmethod
    def directory_url(self, directory: str) -> str:
        """Return ``directory`` as a URL or path that other libraries (deltalake) understand."""

    def delta_options(self) -> dict[str, str]:
        """Return what deltalake needs besides `directory_url`: may hold credentials."""
        return {}
