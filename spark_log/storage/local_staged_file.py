"""A staged file of `LocalStore`."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pyarrow as pa

from spark_log.errors import NotFoundError
from spark_log.storage.file_system import make_directories, map_file, share_file, sync_path
from spark_log.storage.known_directories import KnownDirectories
from spark_log.storage.os_errors import storage_errors
from spark_log.storage.store import StagedFile, StagedFileLostError
from spark_log.util import IN_PROCESS

_BUFFER_BYTES: Final = 65_536
"""Size of the write buffer: Arrow writes a small segment in some thirty pieces. A piece larger than
the buffer is not copied.
"""


class _own_errors(storage_errors):  # noqa: N801 - as its base class
    """Turn the system's errors about a staged file into this package's.

    Raises:
        NotFoundError: the directory of the file was removed.
        StagedFileLostError: the file's directory was moved or exchanged, and lacks the file.
        StorageError: any other error.
    """

    __slots__ = ()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        is_missing = isinstance(error, FileNotFoundError | NotFoundError)
        if is_missing and os.path.isdir(os.path.dirname(self.path)):
            raise StagedFileLostError(
                f"{self.path}: this file's directory was moved or exchanged meanwhile; nothing "
                f"was written",
                path=self.path,
            ) from error
        super().__exit__(kind, error, traceback)


class LocalStagedFile(StagedFile):
    """A hidden temporary file in the directory of its target. `discard` deletes it.

    Attributes:
        path: absolute path of the temporary file.
    """

    def __init__(
        self,
        directory: str,
        make_directory: Callable[[str], None] | None = None,
        *,
        is_shared: bool = False,
    ) -> None:
        """Create the empty file.

        Args:
            directory: absolute path of its directory.
            make_directory: function called with the directory if it is missing; None creates it.
            is_shared: whether all users who may read the directory may read the file, whatever the
                umask of this process is.

        Raises:
            StorageFullError: no space.
            StorageError: the file cannot be created.
        """
        self.path = f"{directory}/.{uuid.uuid4().hex}.tmp"
        self._synced = False
        self._failed = False
        with storage_errors(directory, "writing"):
            try:
                file = pa.OSFile(self.path, "wb")
            except FileNotFoundError:
                if make_directory is None:
                    make_directories(directory, KnownDirectories())
                else:
                    make_directory(directory)
                file = pa.OSFile(self.path, "wb")
            if is_shared:
                share_file(self.path, directory)
        self.sink = pa.BufferedOutputStream(file, _BUFFER_BYTES)

    @property
    def size_bytes(self) -> int:
        """Number of bytes that were written."""
        if not self.sink.closed:
            return int(self.sink.tell())
        with _own_errors(self.path):
            return os.path.getsize(self.path)

    def seal(self) -> None:
        """End writing. Harmless when called twice."""
        self._once(self._close)

    def read_back(self) -> pa.Buffer:
        """Return the written bytes as a memory map (sealed first)."""
        with _own_errors(self.path):
            self.seal()
            return map_file(self.path, self.path)

    def open_written(self) -> pa.NativeFile:
        """Return a file that reads the bytes while more are written."""
        with _own_errors(self.path):
            return pa.OSFile(self.path, "rb")

    def copy(self, source: pa.NativeFile, start: int, end: int) -> None:
        """Append bytes of another staged file; the system copies them where it can."""
        with _own_errors(self.path, "writing"), open(self.path, "r+b", buffering=0) as target:
            target.seek(start)
            while start < end:
                copied = os.sendfile(target.fileno(), source.fileno(), start, end - start)
                if not copied:
                    raise OSError(errno.EIO, "the file to be copied ends too early")
                start += copied

    def sync(self) -> None:
        """Flush the bytes to the device, once."""
        with _own_errors(self.path, "writing"):
            self.seal()
            if not self._synced:
                self._once(self._fsync)
                self._synced = True

    def discard(self) -> None:
        """Delete the temporary file. A put under another name stays."""
        directory = os.path.dirname(self.path)
        # On a full disk the close fails too; the file is deleted in any case.
        with IN_PROCESS.suppress("closing of a temporary file", directory, OSError):
            self.seal()
        # A failed deletion must not fail a put that succeeded: the file is hidden. After a rename
        # the file is gone.
        with (
            IN_PROCESS.suppress("deletion of a temporary file", directory, OSError),
            suppress(FileNotFoundError),
        ):
            os.unlink(self.path)

    def _close(self) -> None:
        if not self.sink.closed:
            self.sink.close()

    def _fsync(self) -> None:
        sync_path(self.path)

    def _once(self, flush: Callable[[], None]) -> None:
        """Flush, unless an earlier flush failed: the system reports a lost write only once."""
        if self._failed:
            raise OSError(errno.EIO, "an earlier flush of these bytes failed; write them again")
        try:
            flush()
        except OSError:
            self._failed = True
            raise
