"""A staged file of `ObjectStore`."""

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
from spark_log.util import IN_PROCESS

_PART_BYTES: Final = 8 << 20
_PARTS_AT_ONCE: Final = 4


class StagedObject(StagedFile):
    """An unlinked local temporary file and, if it is large, its upload under a hidden name.

    The uploaded object is in ``directory`` until `discard`.

    Attributes:
        directory: the directory that the file was staged for.
    """

    def __init__(self, clients: ObjectClients, directory: str) -> None:
        self._file = UnlinkedFile()
        self._clients = clients
        self.directory = directory
        self._hidden = f"{directory}/.{uuid.uuid4().hex}.tmp".lstrip("/")
        self._is_uploaded = self._may_exist = False
        self.sink = self._file.sink

    @property
    def size_bytes(self) -> int:
        """Number of bytes that were written."""
        return self._file.size_bytes

    def seal(self) -> None:
        """End writing. Harmless when called twice."""
        self._file.seal()

    def read_back(self) -> pa.Buffer:
        """Return the written bytes (sealed first) as a memory map."""
        return self._file.read_back()

    def upload(self) -> str:
        """Upload the file in parts, once and in constant memory; return its hidden path."""
        if not self._is_uploaded:
            self._may_exist = True
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
        """Delete the local file and the uploaded object."""
        self._file.discard()
        if self._may_exist:
            self._is_uploaded = self._may_exist = False
            # An object that stays is hidden, and a cleaner deletes it.
            with (
                IN_PROCESS.suppress("deletion of an upload", self.directory, StorageError),
                request_errors(self._hidden),
            ):
                call_obstore(obstore.delete, self._clients.reader, self._hidden)
