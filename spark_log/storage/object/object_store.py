"""A store below a prefix of a bucket: on S3 and its imitations, Google Cloud Storage or Azure.

``put_if_absent`` is a PUT on the condition that no object of that name exists. Each put carries a
random put id as object metadata, which tells a second delivery of the same put from the put of
another writer. On S3 a large staged file is uploaded in parts under a hidden name beside the target
and then copied to its name on the same condition, so that a retry under another name does not
upload again. A crash leaves at most the hidden object, which `list` does not show.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import obstore
import pyarrow as pa

from spark_log.errors import NotFoundError
from spark_log.storage.object.clients import REQUEST_TIMEOUT_MS, ObjectClients
from spark_log.storage.object.conditional_put import ConditionalPut
from spark_log.storage.object.errors import REQUEST_ERRORS, Failure, call_obstore, request_errors
from spark_log.storage.object.location import ObjectLocation
from spark_log.storage.object.probe import probe_root
from spark_log.storage.object.staged_object import StagedObject
from spark_log.storage.os_errors import storage_errors
from spark_log.storage.store import FileInfo, StagedFile, Store

if TYPE_CHECKING:  # imported for type checkers only
    from obstore import GetOptions

PUT_ID: Final = "sparklogput"
"""Key of the object metadata. Letters only: Azure refuses hyphens, and proxies drop ``_``."""

MULTIPART_BYTES: Final = 64 << 20
_READ_BYTES: Final = 8 << 20
_PAGE: Final = 1_000
_AFTER_ALL: Final = "\U0010ffff"
"""The last character in sort order."""

_BEFORE_HIDDEN: Final = f"-{_AFTER_ALL}"
"""Sorts right before every name that begins with a dot."""


class ObjectStore(Store):
    """Objects below a prefix of a bucket. ``put_if_absent`` is a conditional PUT."""

    is_mapped: ClassVar[bool] = False

    def __init__(
        self,
        location: ObjectLocation,
        *,
        multipart_bytes: int = MULTIPART_BYTES,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Open the store; sends no request.

        Args:
            location: the root; is pickled with the store, including its credentials.
            multipart_bytes: minimum size of staged files that are uploaded in parts (on S3).
            request_timeout_ms: time limit of a request; a put may take twice as long.
        """
        self.url = location.url
        self._location = location
        self._clients = ObjectClients(location, request_timeout_ms)
        self._multipart_bytes = multipart_bytes
        self._request_timeout_ms = request_timeout_ms

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self._location, self._multipart_bytes, self._request_timeout_ms)

    # --- the root --------------------------------------------------------------------------------

    def create_root(self) -> None:
        """Check that conditional puts work, with a few hidden objects that are deleted again.

        Raises:
            UnsupportedStoreError: the server does not honour conditions.
            InvalidRootError: the bucket does not exist.
            StorageError: the server does not answer, or refuses to write.
        """
        probe_root(self, self._location, self._clients, put_id=self.put_id)

    # --- writing ---------------------------------------------------------------------------------

    def stage(self, directory: str) -> StagedFile:
        """Return an empty staged file: an unlinked temporary file on this machine (``TMPDIR``)."""
        return StagedObject(self._clients, directory)

    def put_if_absent(
        self, path: str, source: bytes | pa.Buffer | StagedFile, *, sync: bool = True
    ) -> None:
        """Put the object, unless the name is taken; ``sync`` makes no difference.

        Raises:
            AlreadyExistsError: another put has taken the name.
            UnknownOutcomeError: the answer was lost; the object may exist.
            StorageFullError: no space; no object was created.
            StorageError: the store failed; no object was created.
        """
        if isinstance(source, StagedObject) and self._is_large(source):
            self._copy_if_absent(path, source)
            return
        data = _array(source.read_back() if isinstance(source, StagedFile) else source)
        put_id = uuid.uuid4().hex

        def send() -> None:
            obstore.put(
                self._clients.writer,
                path,
                data,
                mode="create",
                attributes={PUT_ID: put_id},
                use_multipart=False,
            )

        def is_ours() -> bool | None:
            try:
                return self.put_id(path) == put_id
            except NotFoundError:
                return None

        ConditionalPut(path, send, is_ours, server=self._location.server).run()

    def put(self, path: str, data: bytes | pa.Buffer, *, sync: bool = True) -> None:
        """Create or replace the object; ``sync`` makes no difference."""
        with self._request("PUT", path, writes=True):
            call_obstore(obstore.put, self._clients.reader, path, _array(data), use_multipart=False)

    def _is_large(self, staged: StagedObject) -> bool:
        # GCS and Azure accept 4 GiB in one PUT, which no segment exceeds; and Azure's copies are
        # not atomic.
        with storage_errors(staged.directory):
            staged.seal()
            is_large = staged.size_bytes >= self._multipart_bytes
        return is_large and self._location.service == "s3"

    def _copy_if_absent(self, path: str, staged: StagedObject) -> None:
        uploaded = staged.upload()

        def is_ours() -> bool | None:
            # A copy has no metadata on S3, so compare the bytes: those of two segments always
            # differ (docs/adr/0003), and already in the first chunk.
            try:
                return self._holds(path, staged.read_back())
            except NotFoundError:
                return None

        ConditionalPut(
            path,
            lambda: obstore.copy(self._clients.copier, uploaded, path, overwrite=False),
            is_ours,
            server=self._location.server,
        ).run()

    # --- reading ---------------------------------------------------------------------------------

    def read(self, path: str, start: int, length: int) -> pa.Buffer:
        """Return ``length`` bytes from ``start``; fewer if the object ends before."""
        if length <= 0:
            self.head(path)
            return pa.py_buffer(b"")
        with self._request("GET", path):
            try:
                return pa.py_buffer(
                    call_obstore(
                        obstore.get_range,
                        self._clients.reader,
                        path,
                        start=start,
                        length=length,
                    )
                )
            except REQUEST_ERRORS as error:
                # Servers refuse a range that begins at or after the end, in several ways.
                failure = Failure.of(error)
                is_final = isinstance(error, FileNotFoundError) or failure.is_unanswered
                if is_final or start < self.head(path).size_bytes:
                    raise failure.error(path, self._location.server) from None
                return pa.py_buffer(b"")

    def read_tail(self, path: str, length: int) -> pa.Buffer:
        """Return the last ``length`` bytes: one request, as `read_tail_and_size`."""
        return self.read_tail_and_size(path, length)[0]

    def read_tail_and_size(self, path: str, length: int) -> tuple[pa.Buffer, int | None]:
        """Return the last ``length`` bytes and the object's size, which the answer contains.

        This is one request. Azure has no suffix ranges: if the object is longer than ``length``,
        its first bytes are read, and then the last ones by a second request.
        """
        has_suffixes = self._location.service != "azure"
        if length > 0:
            with self._request("GET", path):
                try:
                    options: GetOptions = {
                        "range": {"suffix": length} if has_suffixes else (0, length)
                    }
                    result = call_obstore(obstore.get, self._clients.reader, path, options=options)
                    size_bytes = result.meta["size"]
                    if has_suffixes or size_bytes <= length:
                        return pa.py_buffer(call_obstore(result.bytes)), size_bytes
                    return self.read(path, size_bytes - length, length), size_bytes
                except REQUEST_ERRORS as error:
                    # Refused for an empty object, and by servers without suffix ranges.
                    failure = Failure.of(error)
                    is_transient = failure.status and failure.is_retriable
                    if failure.is_missing or failure.is_unanswered or is_transient:
                        raise failure.error(path, self._location.server) from None
        size_bytes = self.head(path).size_bytes
        tail = self.read(path, max(0, size_bytes - length), min(length, size_bytes))
        return tail, size_bytes

    def open_buffer(self, path: str) -> pa.Buffer:
        """Return the whole object, read by one request."""
        with self._request("GET", path):
            return pa.py_buffer(
                call_obstore(call_obstore(obstore.get, self._clients.reader, path).bytes)
            )

    def list(self, directory: str, start_after: str | None = None) -> Iterator[FileInfo]:
        """Yield the files directly in ``directory``: pages of 1,000; subdirectories are skipped."""
        for name, info in self._children(directory, start_after or ""):
            if info is not None and not name.startswith("."):
                yield info

    def list_hidden(self, directory: str) -> Iterator[FileInfo]:
        """Yield the hidden objects: multipart uploads that are not done, and probes."""
        for name, info in self._children(directory, _BEFORE_HIDDEN):
            if not name.startswith("."):
                return
            if info is not None:
                yield info

    def list_with_hidden(self, directory: str) -> tuple[Sequence[FileInfo], Sequence[FileInfo]]:
        """Return the files and the hidden objects directly in ``directory``, by one listing."""
        found: tuple[list[FileInfo], list[FileInfo]] = [], []
        for name, info in self._children(directory, ""):
            if info is not None:
                found[name.startswith(".")].append(info)
        return found

    def list_directories(self, directory: str) -> Iterator[str]:
        """Yield the names of the directories directly in ``directory``.

        One request for each 1,000 objects below it, or for each directory, whichever are fewer.
        """
        for name, info in self._children(directory, ""):
            if info is None and not name.startswith("."):
                yield name

    def head(self, path: str) -> FileInfo:
        """Return size and time of the object."""
        with self._request("HEAD", path):
            return _file_info(call_obstore(obstore.head, self._clients.reader, path))

    def put_id(self, path: str) -> str | None:
        """Return the id of the put that made the object, None if it has none.

        Raises:
            NotFoundError: no such object.
        """
        with self._request("HEAD", path):
            found = call_obstore(obstore.get, self._clients.reader, path, options={"head": True})
            return found.attributes.get(PUT_ID)

    # --- deleting --------------------------------------------------------------------------------

    def delete(self, path: str) -> None:
        """Delete the object. Harmless if it does not exist."""
        with suppress(NotFoundError), self._request("DELETE", path, writes=True):
            call_obstore(obstore.delete, self._clients.reader, path)

    def delete_directory(self, directory: str) -> None:
        """Delete all objects below ``directory``, 1,000 at a time."""
        while found := [info.path for info in islice(self._objects(directory, None), _PAGE)]:
            # Another process may delete at the same time: the next listing shows what is left.
            with suppress(NotFoundError), self._request("DELETE below", directory, writes=True):
                call_obstore(obstore.delete, self._clients.reader, found)

    # --- for others ------------------------------------------------------------------------------

    def directory_url(self, directory: str) -> str:
        """Return the URL of ``directory`` for deltalake."""
        return self._location.delta_url(directory)

    def delta_options(self) -> dict[str, str]:
        """Return the storage options for deltalake; they may contain credentials."""
        return self._location.delta_options()

    # --- helpers ---------------------------------------------------------------------------------

    def _request(
        self, request: str, path: str, *, writes: bool = False
    ) -> AbstractContextManager[None]:
        """Record a request and translate its errors."""
        return request_errors(path, request, server=self._location.server, writes=writes)

    def _holds(self, path: str, expected: pa.Buffer) -> bool:
        """Return whether the object has exactly these bytes, in constant memory."""
        if self.head(path).size_bytes != expected.size:
            return False
        position, view = 0, memoryview(expected).cast("B")
        with self._request("GET", path):
            for chunk in call_obstore(obstore.get, self._clients.reader, path).stream(_READ_BYTES):
                if view[position : position + len(chunk)] != memoryview(chunk):
                    return False
                position += len(chunk)
        return position == len(view)

    def _children(self, directory: str, start_after: str) -> Iterator[tuple[str, FileInfo | None]]:
        """Yield the files and directories directly in a directory, in order of names.

        A file is yielded with its `FileInfo`, a directory with None. A page also has the objects of
        subdirectories. If a page ends within a subdirectory, a new listing starts after it.
        """
        prefix = f"{directory}/" if directory else ""
        after = f"{prefix}{start_after}" if start_after else ""
        # Only some versions of Azure support a start, and they include it. So names up to it are
        # filtered here, and a subdirectory is not skipped by a new listing.
        starts_after = self._location.service != "azure"
        is_done = False
        while not is_done:
            is_done = True
            for page in self._pages(directory, after or None):
                for info in page:
                    name, is_deeper, _ = info.path[len(prefix) :].partition("/")
                    if info.path <= after:
                        continue
                    if not is_deeper:
                        yield name, info
                        continue
                    yield name, None
                    after = f"{prefix}{name}/{_AFTER_ALL}"
                if starts_after and len(page) == _PAGE and page[-1].path <= after:
                    is_done = False
                    break

    def _objects(self, directory: str, after: str | None) -> Iterator[FileInfo]:
        """Yield all objects below a directory, however deep."""
        return chain.from_iterable(self._pages(directory, after))

    def _pages(self, directory: str, after: str | None) -> Iterator[Sequence[FileInfo]]:
        """Yield all objects below a directory, however deep, by page: one request for each."""
        with request_errors(directory, server=self._location.server):
            pages = call_obstore(
                obstore.list,
                self._clients.reader,
                directory or None,
                offset=after,
                chunk_size=_PAGE,
            )
        while True:
            with self._request("LIST", directory):
                page = call_obstore(next, pages, None)
            if page is None:
                return
            yield [_file_info(each) for each in page]


def _file_info(meta: obstore.ObjectMeta) -> FileInfo:
    # HEAD gives whole seconds, listings often fractions: both are rounded up to the second's end,
    # so that they agree and no file looks older than it is.
    moment: datetime = meta["last_modified"]
    return FileInfo(meta["path"], meta["size"], (int(moment.timestamp()) + 1) * 1_000_000)


def _array(data: bytes | pa.Buffer) -> bytes | np.ndarray:
    """Return ``data`` in a form that obstore reads without copying."""
    if isinstance(data, bytes):
        return data
    return np.frombuffer(data, np.uint8) if data.size else b""


def _reopened(
    location: ObjectLocation, multipart_bytes: int, request_timeout_ms: int
) -> ObjectStore:
    return ObjectStore(
        location, multipart_bytes=multipart_bytes, request_timeout_ms=request_timeout_ms
    )
