"""A staged file of `LocalStore`."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from spark_log.errors import NotFoundError
from spark_log.storage.file_system import make_directories, map_file, share_file, sync_path
from spark_log.storage.known_directories import KnownDirectories
from spark_log.storage.os_errors import storage_errors
from spark_log.storage.store import StagedFile, StagedFileLostError
from spark_log.util import IN_PROCESS

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

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
        data: bytes | pa.Buffer | None = None,
        sync: bool = False,
        target: str | None = None,
    ) -> None:
        """Create the file.

        Args:
            directory: absolute path of its directory.
            make_directory: function called with the directory if it is missing; None creates it.
            is_shared: whether all users who may read the directory may read the file, whatever the
                umask of this process is.
            data: all bytes of the file, which is then complete; None to write to `sink`.
            sync: whether to flush ``data`` to the device.
            target: the path that errors name; None for the directory.

        Raises:
            StorageFullError: no space.
            StorageError: the file cannot be created.
        """
        self.path = f"{directory}/.{os.urandom(16).hex()}.tmp"
        self._synced = False
        self._failed = False
        self._is_sealed = False
        with storage_errors(target or directory, "writing"):
            try:
                self._create(data, sync=sync)
            except FileNotFoundError:
                if make_directory is None:
                    make_directories(directory, KnownDirectories())
                else:
                    make_directory(directory)
                self._create(data, sync=sync)
            if is_shared:
                share_file(self.path, directory)

    def _create(self, data: bytes | pa.Buffer | None, *, sync: bool) -> None:
        """Create the file, and write all of its bytes if they are known."""
        if data is None:
            self.sink = pa.BufferedOutputStream(pa.OSFile(self.path, "wb"), _BUFFER_BYTES)
            return
        descriptor = os.open(self.path, _NEW_FILE, 0o666)
        try:
            try:
                written = os.write(descriptor, data)
                while written < len(data):
                    written += os.write(descriptor, memoryview(data)[written:])
                if sync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except BaseException:
            self._failed = True
            self.discard()
            raise
        self._synced = sync
        self._is_sealed = True

    @property
    def size_bytes(self) -> int:
        """Number of bytes that were written."""
        if not self._is_sealed:
            return int(self.sink.tell())
        with _own_errors(self.path):
            return os.path.getsize(self.path)

    def seal(self) -> None:
        """End writing. Harmless when called twice."""
        if not self._is_sealed or self._failed:
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
        # On a full disk the close fails too; the file is deleted in any case.
        try:
            if not self._is_sealed and not self._failed:
                self.seal()
        except OSError as error:
            IN_PROCESS.add("closing of a temporary file", os.path.dirname(self.path), error)
        # A failed deletion must not fail a put that succeeded: the file is hidden. After a rename
        # the file is gone.
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            IN_PROCESS.add("deletion of a temporary file", os.path.dirname(self.path), error)

    def _close(self) -> None:
        self.sink.close()
        self._is_sealed = True

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
