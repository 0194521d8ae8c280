"""The storage port: the only operations on storage that the rest of the package uses.

Paths are POSIX-style and relative to the store's root (``flights.<id>/flights-0/….log``). A name
that begins with a dot is a temporary file of the store: `Store.list` leaves it out.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import pyarrow as pa

from spark_log.errors import StorageError, StorageUnavailableError

_COPIED_BYTES: Final = 1_048_576
"""Maximum number of bytes that `StagedFile.copy` holds in memory."""

StorageOptions = Mapping[str, object]

CheckRoot = Callable[["Store"], None]
"""Function that gets a store without a guard, and raises a `StorageError` if its root is missing or
is not the expected one.
"""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file as a listing shows it.

    Attributes:
        path: the file's path, relative to the store's root.
        size_bytes: the file's size.
        modified_us: time at which the file appeared, by the storage's clock, microseconds since
            the epoch.
    """

    path: str
    size_bytes: int
    modified_us: int

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rpartition("/")[2]


class StagedFileLostError(StorageUnavailableError):
    """A staged file is missing: its directory was moved, exchanged or deleted; nothing was written.

    Staging the file again succeeds, unless the directory was deleted with its topic.
    """


class StagedFile(ABC):
    """Bytes on their way into the store: written once, in order, then put under a name.

    A staged file may be put under several names, also after a put that succeeded, without being
    written again. `discard`, or leaving it as a context manager, ends it; files that were put stay.
    A crash leaves at most a temporary file that `Store.list` does not show.

    Attributes:
        sink: the file to write to.
    """

    sink: pa.NativeFile

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Number of bytes that were written."""

    @abstractmethod
    def seal(self) -> None:
        """End writing. A put does this by itself. Harmless when called twice."""

    def sync(self) -> None:
        """Make the written bytes durable before they have a name, where the store can; seal first.

        A put does this by itself. Harmless when called twice.

        Raises:
            StorageError: the bytes may not be durable.
        """
        self.seal()

    @abstractmethod
    def read_back(self) -> pa.Buffer:
        """Return the written bytes (sealed first), as a memory map if they are in a file."""

    def open_written(self) -> pa.NativeFile | None:
        """Return a file that reads the bytes while more are written, also after `discard`.

        The file has a descriptor, and the bytes written before the last ``flush`` of `sink`. None
        if the store cannot do this; `read_back` returns the whole file when it is sealed.

        Raises:
            StorageError: the file cannot be opened.
        """
        return None

    def copy(self, source: pa.NativeFile, start: int, end: int) -> None:
        """Append bytes of another staged file, in place of writing to `sink`.

        Args:
            source: the other file, from its `open_written`. Several threads may copy from it.
            start: position in both files: this one has the bytes before it.
            end: position after the last byte.

        Raises:
            StorageFullError: no space.
            StorageError: the bytes cannot be read or written.
        """
        while start < end:
            piece = os.pread(source.fileno(), min(end - start, _COPIED_BYTES), start)
            if not piece:
                raise StorageError(f"a staged file ends at {start}, before {end}")
            self.sink.write(piece)
            start += len(piece)

    @abstractmethod
    def discard(self) -> None:
        """Delete the staged bytes. Harmless after a put."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.discard()


class Store(ABC):
    """Files under one root, with put-if-absent.

    Every backend passes ``spark_log.testing.store_suite.StoreSuite``. A store is thread-safe, can
    be pickled, and holds nothing that needs closing.

    Attributes:
        url: the root as users name it, without credentials.
        is_mapped: whether `open_buffer` returns a file without a copy (a memory map, or memory). If
            False, `open_buffer` transfers the whole file over a network: read ranges instead.
        shows_gone: whether `is_gone` detects deleted files.
        executor_class: the class of the thread pools that send several requests at once.
        stages_ahead: whether syncing a staged file before its put makes the put short.
        time_resolution_us: maximum difference between `FileInfo.modified_us` and the time at which
            the file appeared. Some storages give file times in whole seconds.
    """

    is_mapped: ClassVar[bool]
    shows_gone: ClassVar[bool] = False
    stages_ahead: ClassVar[bool] = False
    executor_class: ClassVar[type[ThreadPoolExecutor]] = ThreadPoolExecutor
    time_resolution_us: ClassVar[int] = 1_000_000
    url: str

    def __repr__(self) -> str:
        return f"<{type(self).__name__} url={self.url!r}>"

    @property
    def is_local(self) -> bool:
        """Whether the files are on this machine, or on a file system that it has mounted.

        Then no call is a request, which would cost milliseconds and money. But the root may look
        empty because its file system is not mounted.
        """
        return self.is_mapped

    @abstractmethod
    def create_root(self) -> None:
        """Make the root ready for files, and check that put-if-absent works on it.

        Harmless on a root that exists.

        Raises:
            UnsupportedStoreError: the storage cannot promise put-if-absent.
            InvalidRootError: the root cannot be created, or is not a directory.
        """

    def guarded(self, marker: str, check: CheckRoot, *, remakes_removed: bool = False) -> Store:
        """Return a store of the same root that raises an error if another root is in its place.

        The file system of a local root can be unmounted, and its directory moved or exchanged. Its
        path then leads to an empty directory or to another root, and the returned store reads,
        writes and deletes nothing. On an object store the check would take a request for each
        call: the store returns itself.

        Args:
            marker: path of a file that identifies the root, and that the root has from its creation
                on.
            check: function that reads the marker in a given store, and raises a `StorageError` if
                the root is missing or is another one. The returned store raises this error. The
                function can be pickled.
            remakes_removed: whether a put makes a directory again that the returned store has seen
                and someone else has removed.
        """
        return self

    def check_root(self) -> None:  # noqa: B027 - most stores are not guarded
        """Check that the root of a `guarded` store is the one that was opened; sends no request.

        Raises:
            StorageError: the root is missing or is another one.
        """

    def keep_reserve(self) -> bool:
        """Reserve some space, so that space can be freed on a full disk (`storage.reserve`).

        Returns:
            Whether the reserve exists now. False if this storage needs none.

        Raises:
            StorageError: the reserve cannot be written.
        """
        return False

    def release_reserve(self) -> bool:
        """Delete the reserve; return whether that freed space.

        Raises:
            StorageError: the reserve cannot be deleted.
        """
        return False

    def make_directory(self, directory: str) -> None:  # noqa: B027 - object stores have none
        """Create a directory that was removed, so that puts of a `guarded` store succeed again.

        Only for code that repairs a root: nothing else may write where files were removed.

        Args:
            directory: the directory's path, relative to the store's root.

        Raises:
            StorageError: the directory cannot be created.
        """

    @abstractmethod
    def stage(self, directory: str) -> StagedFile:
        """Return an empty staged file that can be put into ``directory``."""

    @abstractmethod
    def put_if_absent(
        self, path: str, source: bytes | pa.Buffer | StagedFile, *, sync: bool = True
    ) -> None:
        """Make ``source`` visible as ``path``, whole or not at all, unless the name is taken.

        On return the file is durable (on a local file system only with ``sync``), and its
        directories exist. After `AlreadyExistsError` a staged file may be put under another name.

        Raises:
            AlreadyExistsError: the name is taken; that file was not touched.
            UnknownOutcomeError: the answer was lost; the file may exist.
            StorageFullError: no space; nothing is visible.
            StorageError: the storage failed; nothing is visible.
        """

    @abstractmethod
    def put(self, path: str, data: bytes | pa.Buffer, *, sync: bool = True) -> None:
        """Create or replace a file atomically: for derived files and checkpoints only.

        Args:
            path: the file's path.
            data: its new content.
            sync: whether the file is durable on return, on a local file system. Without it a power
                cut may leave the old file, the new one, a damaged one or none: use that only for a
                file that is checked when it is read and can be made again.
        """

    def sync(self, path: str) -> None:  # noqa: B027 - object stores answer when it is durable
        """Make a file durable that another process or library wrote.

        Args:
            path: a file, whose bytes and name become durable; or a directory, whose names do.

        Raises:
            NotFoundError: ``path`` does not exist.
            StorageError: the sync failed; the file may be lost in a power cut.
        """

    @abstractmethod
    def read(self, path: str, start: int, length: int) -> pa.Buffer:
        """Return ``length`` bytes from ``start``; fewer if the file ends before.

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
        """Return the last ``length`` bytes, and the file's size.

        The size is None if the storage's answer does not include it.

        Raises:
            NotFoundError: no such file.
        """
        tail = self.read_tail(path, length)
        return tail, int(tail.size) if tail.size < length else None

    @abstractmethod
    def open_buffer(self, path: str) -> pa.Buffer:
        """Return the whole file; a local file as a memory map, without a copy.

        The buffer stays valid after the file is deleted.

        Raises:
            NotFoundError: no such file.
        """

    def release_memory(self, buffer: pa.Buffer) -> None:  # noqa: B027 - most stores keep nothing
        """Take the pages of a memory map out of the process's memory.

        They are read again when they are used. A caller that reads a large file once calls this,
        since mapped pages count as memory of the process.

        Args:
            buffer: the whole buffer that `open_buffer` returned. It and its slices stay valid.
        """

    @abstractmethod
    def list(self, directory: str, start_after: str | None = None) -> Iterator[FileInfo]:
        """Yield the files directly in ``directory`` in byte order of their names.

        A file that exists before the call and until its end is yielded. A file that appears or is
        deleted during the call may or may not be. A directory that does not exist has no files.

        Args:
            directory: the directory's path, relative to the root; ``""`` is the root itself.
            start_after: yield only names that sort after this one.
        """

    @abstractmethod
    def list_hidden(self, directory: str) -> Iterator[FileInfo]:
        """Yield the temporary files directly in ``directory``, which `list` leaves out.

        In no particular order. They belong to running writers and to writers that crashed.
        """

    def list_with_hidden(self, directory: str) -> tuple[Sequence[FileInfo], Sequence[FileInfo]]:
        """Return what `list` and `list_hidden` yield; on an object store by one listing."""
        return tuple(self.list(directory)), tuple(self.list_hidden(directory))

    @abstractmethod
    def list_directories(self, directory: str) -> Iterator[str]:
        """Yield the names of the directories directly in ``directory``, in no particular order.

        On an object store a directory exists only while it has files.
        """

    @abstractmethod
    def head(self, path: str) -> FileInfo:
        """Return size and time of the file.

        Raises:
            NotFoundError: no such file.
        """

    def is_gone(self, path: str) -> bool:
        """Return whether a file that existed is known to be deleted, without sending a request.

        Always False on an object store, where this would need a request.
        """
        return False

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete the file. Harmless if it does not exist."""

    @abstractmethod
    def delete_directory(self, directory: str) -> None:
        """Delete ``directory`` and everything below it. Harmless if it does not exist.

        Not atomic: readers see the files vanish one by one. For the data of deleted topics only.
        """

    @abstractmethod
    def directory_url(self, directory: str) -> str:
        """Return ``directory`` as a URL or path for other libraries (deltalake)."""

    def delta_options(self) -> dict[str, str]:
        """Return the storage options that deltalake needs; they may contain credentials."""
        return {}


def has_files(store: Store, directory: str) -> bool:
    """Return whether a directory has a file, in itself or at any depth.

    Args:
        store: the store that has the directory.
        directory: the directory's path, relative to the root; ``""`` is the root itself.

    Raises:
        StorageError: the storage does not answer.
    """
    if next(iter(store.list(directory)), None) is not None:
        return True
    below = f"{directory}/" if directory else ""
    return any(has_files(store, f"{below}{name}") for name in store.list_directories(directory))
