"""A file on its way to an object store."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Final

import obstore
import pyarrow as pa

from spark_log.errors import StorageError
from spark_log.storage.local import LocalStagedFile
from spark_log.storage.object_clients import ObjectClients
from spark_log.storage.object_errors import request_errors
from spark_log.storage.store import StagedFile

_PART_BYTES: Final = 8 << 20
_PARTS_AT_ONCE: Final = 4


class StagedObject(StagedFile):
    """A local temporary file, and, once it was tried as a large one, its upload.

    The upload lies beside where it may end up, under a hidden name, until `discard`.

    Attributes:
        directory: that it was staged for.
    """

    def __init__(self, clients: ObjectClients, directory: str) -> None:
        self._file = LocalStagedFile(gettempdir())
        self._clients = clients
        self.directory = directory
        self._hidden = f"{directory}/.{uuid.uuid4().hex}.tmp".lstrip("/")
        self._is_uploaded = self._may_be_there = False
        self.sink = self._file.sink

    @property
    def size_bytes(self) -> int:
        """See `StagedFile.size_bytes`."""
        return self._file.size_bytes

    def seal(self) -> None:
        """See `StagedFile.seal`."""
        self._file.seal()

    def read_back(self) -> pa.Buffer:
        """See `StagedFile.read_back`."""
        return self._file.read_back()

    def upload(self) -> str:
        """Upload it, once, in parts and in constant memory, and return under which name."""
        if not self._is_uploaded:
            self._may_be_there = True
            with request_errors(self._hidden):
                obstore.put(
                    self._clients.bulk,
                    self._hidden,
                    Path(self._file.path),
                    use_multipart=True,
                    chunk_size=_PART_BYTES,
                    max_concurrency=_PARTS_AT_ONCE,
                )
            self._is_uploaded = True
        return self._hidden

    def discard(self) -> None:
        """See `StagedFile.discard`."""
        self._file.discard()
        if self._may_be_there:
            self._is_uploaded = self._may_be_there = False
            with suppress(StorageError), request_errors(self._hidden):  # what stays is hidden
                obstore.delete(self._clients.reader, self._hidden)
