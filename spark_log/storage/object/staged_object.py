"""A file on its way to an object store."""

from __future__ import annotations

import uuid
from typing import Final

import obstore
import pyarrow as pa

from spark_log.errors import StorageError
from spark_log.storage.object.clients import ObjectClients
from spark_log.storage.object.errors import call_obstore, request_errors
from spark_log.storage.store import StagedFile
from spark_log.storage.unlinked_file import UnlinkedFile
from spark_log.suppressed import IN_PROCESS

_PART_BYTES: Final = 8 << 20
_PARTS_AT_ONCE: Final = 4


class StagedObject(StagedFile):
    """A local temporary file without a name, and, once it was tried as a large one, its upload.

    The upload lies beside where it may end up, under a hidden name, until `discard`.

    Attributes:
        directory: that it was staged for.
    """

    def __init__(self, clients: ObjectClients, directory: str) -> None:
        self._file = UnlinkedFile()
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
            with (
                request_errors(self._hidden, "PUT in parts", writes=True),
                self._file.open() as file,
            ):
                call_obstore(
                    obstore.put,
                    self._clients.bulk,
                    self._hidden,
                    file,
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
            # What stays is hidden, and removed by a cleaner.
            with (
                IN_PROCESS.suppress("deletion of an upload", self.directory, StorageError),
                request_errors(self._hidden),
            ):
                call_obstore(obstore.delete, self._clients.reader, self._hidden)
