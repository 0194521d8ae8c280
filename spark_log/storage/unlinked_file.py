"""A staged file without a name, in this machine's temporary directory."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import IO

import pyarrow as pa

from spark_log.storage.os_errors import storage_errors
from spark_log.storage.store import StagedFile
from spark_log.util import IN_PROCESS


class UnlinkedFile(StagedFile):
    """A local temporary file for bytes that are to be uploaded; no other process can read them.

    The file is created with mode 0600, and its name is deleted before the first byte is written.
    The system deletes it when the process ends in any way. A crash leaves at most an empty file.
    """

    def __init__(self, prefix: str = "spark-log-upload-") -> None:
        """Create the file in ``tempfile.gettempdir()`` (``TMPDIR``).

        Args:
            prefix: the beginning of the name that the file has for a moment.

        Raises:
            StorageFullError: no space is left in that directory.
            StorageError: no file can be created in that directory.
        """
        self._directory = tempfile.gettempdir()
        with storage_errors(self._directory):
            self._descriptor, path = tempfile.mkstemp(prefix=prefix, dir=self._directory)
            try:
                self.sink = pa.OSFile(path, "wb")
            except BaseException:
                os.close(self._descriptor)
                raise
            finally:
                os.unlink(path)

    @property
    def size_bytes(self) -> int:
        """Number of bytes that were written."""
        if self.sink.closed:
            return os.fstat(self._descriptor).st_size
        return int(self.sink.tell())

    def seal(self) -> None:
        """End writing. Harmless when called twice."""
        if not self.sink.closed:
            self.sink.close()

    def read_back(self) -> pa.Buffer:
        """Return the written bytes (sealed first) as a memory map, which outlives `discard`."""
        with storage_errors(self._directory):
            self.seal()
            if not self.size_bytes:
                return pa.py_buffer(b"")
            return pa.py_buffer(mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ))

    def open(self) -> IO[bytes]:
        """Return a file object over the bytes (sealed first), from their start; one at a time."""
        self.seal()
        file = os.fdopen(os.dup(self._descriptor), "rb", buffering=0)
        file.seek(0)
        return file

    def discard(self) -> None:
        """Delete the staged bytes. Harmless when called twice."""
        # On a full disk the close fails too; the file is deleted in any case.
        with IN_PROCESS.suppress("closing of a temporary file", self._directory, OSError):
            self.seal()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
