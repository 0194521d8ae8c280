"""A staged file of `LocalStore`."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from spark_log.storage.file_system import make_directories, map_file, sync_path
from spark_log.storage.os_errors import storage_errors
from spark_log.storage.store import StagedFile
from spark_log.suppressed import IN_PROCESS


class LocalStagedFile(StagedFile):
    """A temporary file.

    Attributes:
        path: where it lies; gone after `discard`.
    """

    def __init__(self, directory: str, synced_names: set[str] | None = None) -> None:
        """Create it.

        Args:
            directory: where; made if it is missing.
            synced_names: directories whose names are durable; those that are made are added.
        """
        self.path = f"{directory}/.{uuid.uuid4().hex}.tmp"
        self._synced = False
        self._failed = False
        with storage_errors(directory, "writing"):
            try:
                self.sink = pa.OSFile(self.path, "wb")
            except FileNotFoundError:
                make_directories(directory, set() if synced_names is None else synced_names)
                self.sink = pa.OSFile(self.path, "wb")

    @property
    def size_bytes(self) -> int:
        """See `StagedFile.size_bytes`."""
        if not self.sink.closed:
            return int(self.sink.tell())
        with storage_errors(self.path):
            return os.path.getsize(self.path)

    def seal(self) -> None:
        """See `StagedFile.seal`."""
        self._once(self._close)

    def read_back(self) -> pa.Buffer:
        """See `StagedFile.read_back`."""
        self.seal()
        return map_file(self.path, self.path)

    def sync(self) -> None:
        """Flush the bytes to the device, once."""
        if not self._synced:
            self._once(self._fsync)
            self._synced = True

    def discard(self) -> None:
        """See `StagedFile.discard`."""
        directory = os.path.dirname(self.path)
        # A full disk also fails the close; the file goes either way.
        with IN_PROCESS.suppress("closing of a temporary file", directory, OSError):
            self.seal()
        # What stays is hidden, and must not undo a put that is done. A rename has taken it away.
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
        """Flush, unless that failed before: a system reports a lost write once and forgets it."""
        if self._failed:
            raise OSError(errno.EIO, "an earlier flush of these bytes failed; write them again")
        try:
            flush()
        except OSError:
            self._failed = True
            raise
