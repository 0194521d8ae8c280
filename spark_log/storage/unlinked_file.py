"""A staged file without a name, in this machine's temporary directory."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import IO

import pyarrow as pa

from spark_log.storage.os_errors import storage_errors
from spark_log.storage.store import StagedFile
from spark_log.suppressed import IN_PROCESS


class UnlinkedFile(StagedFile):
    """Bytes that wait on this machine until they are uploaded; nobody else can read them.

    The file is made with mode 0600 and loses its name before the first byte is written: it goes
    with the process, however that ends. A crash leaves at most an empty file.
    """

    def __init__(self, prefix: str = "spark-log-upload-") -> None:
        """Make it in ``tempfile.gettempdir()`` (``TMPDIR``).

        Args:
            prefix: of the name that it has for a moment.

        Raises:
            StorageFullError: no space there.
            StorageError: nothing can be made there.
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
        """See `StagedFile.size_bytes`."""
        if self.sink.closed:
            return os.fstat(self._descriptor).st_size
        return int(self.sink.tell())

    def seal(self) -> None:
        """See `StagedFile.seal`."""
        if not self.sink.closed:
            self.sink.close()

    def read_back(self) -> pa.Buffer:
        """See `StagedFile.read_back`: a memory map, valid after `discard`."""
        with storage_errors(self._directory):
            self.seal()
            if not self.size_bytes:
                return pa.py_buffer(b"")
            return pa.py_buffer(mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ))

    def open(self) -> IO[bytes]:
        """Return a file object over the bytes (sealed first), at their start; one at a time."""
        self.seal()
        file = os.fdopen(os.dup(self._descriptor), "rb", buffering=0)
        file.seek(0)
        return file

    def discard(self) -> None:
        """See `StagedFile.discard`."""
        # A full disk also fails the close; the file goes either way.
        with IN_PROCESS.suppress("closing of a temporary file", self._directory, OSError):
            self.seal()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
