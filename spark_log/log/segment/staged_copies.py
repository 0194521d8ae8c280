"""Copies of a segment on the roots of followers, made while the segment is written.

The replicas of a chain put a segment one after the other. On a local file system a put is short if
the root has the bytes already, and they are durable. So each follower's root gets the bytes soon
after the leader's, under a hidden name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import pyarrow as pa

from spark_log.errors import SparkLogError
from spark_log.storage import StagedFile, Store, storage_errors

_LEAST_BYTES: Final = 1_048_576
"""A shorter segment is copied when it is complete."""

_THREADS_PER_ROOT: Final = 4
"""A root that hangs holds up its own threads, and no other root's."""

_pools: dict[str, ThreadPoolExecutor] = {}
_lock = threading.Lock()


class StagedCopies:
    """The staged copies of one segment. For one thread at a time.

    A copy that could not be made does not exist: the put writes the bytes, and tells the error.
    """

    def __init__(self, places: Iterable[tuple[Store, str]], *, sync: bool) -> None:
        """Access no storage yet.

        Args:
            places: store and directory of each follower. On a store that does not stage ahead no
                copy is made, nor in a directory that is missing: it may have been removed, and the
                put finds that out before it makes a new one.
            sync: whether to make the copies durable.
        """
        self._copies = {
            f"{store.url}/{directory}": _Copy(store, directory, sync=sync)
            for store, directory in places
            if store.stages_ahead and not store.is_gone(directory)
        }
        self._source: pa.NativeFile | None = None

    def on_written(self, staged: StagedFile) -> None:
        """Begin to copy what was written of the segment so far, if it is much.

        Args:
            staged: the segment's file.

        Raises:
            StorageError: the file cannot be written or read.
        """
        size_bytes = staged.size_bytes
        if not self._copies or size_bytes < _LEAST_BYTES:
            return
        staged.sink.flush()
        if self._source is None:
            self._source = staged.open_written()
        if self._source is not None:
            self._extend(self._source, size_bytes, is_complete=False)

    def on_complete(self, staged: StagedFile) -> None:
        """Begin to copy the rest of the complete segment.

        Args:
            staged: the segment's sealed file.

        Raises:
            StorageError: the file cannot be read.
        """
        if self._copies:
            source = staged.read_back() if self._source is None else self._source
            self._extend(source, staged.size_bytes, is_complete=True)

    def take(self, url: str) -> StagedFile | None:
        """Wait for a copy of the complete segment, and hand it over to the caller, who discards it.

        Args:
            url: URL of the follower's directory.

        Returns:
            The copy; None if no copy for this directory exists.
        """
        copy = self._copies.pop(url, None)
        return None if copy is None else copy.result()

    def discard(self) -> None:
        """Discard the copies that were not taken. Harmless when called twice."""
        while self._copies:
            self._copies.popitem()[1].discard()

    def _extend(self, source: pa.NativeFile | pa.Buffer, end: int, *, is_complete: bool) -> None:
        try:
            for copy in self._copies.values():
                copy.extend(source, end, is_complete=is_complete)
        except RuntimeError:  # the interpreter ends, and starts no thread: the puts write the bytes
            self.discard()


class _Copy:
    """One copy. Each piece is copied by a thread of the root's pool, after the one before it."""

    def __init__(self, store: Store, directory: str, *, sync: bool) -> None:
        self._store = store
        self._directory = directory
        self._sync = sync
        self._end = 0
        self._last: Future[StagedFile] | None = None

    def extend(self, source: pa.NativeFile | pa.Buffer, end: int, *, is_complete: bool) -> None:
        sync = self._sync and is_complete
        self._last = _pool(self._store.url).submit(
            self._copy, self._last, source, self._end, end, sync=sync
        )
        self._end = end

    def result(self) -> StagedFile | None:
        with suppress(SparkLogError):
            return None if self._last is None else self._last.result()
        return None

    def discard(self) -> None:
        if self._last is not None:
            self._last.add_done_callback(_discard)

    def _copy(
        self,
        before: Future[StagedFile] | None,
        source: pa.NativeFile | pa.Buffer,
        start: int,
        end: int,
        *,
        sync: bool,
    ) -> StagedFile:
        staged = self._store.stage(self._directory) if before is None else before.result()
        try:
            with storage_errors(self._directory, "writing"):
                if isinstance(source, pa.Buffer):
                    staged.sink.write(source)
                else:
                    staged.copy(source, start, end)
                if sync:
                    staged.sync()
        except BaseException:
            staged.discard()
            raise
        return staged


def _discard(copy: Future[StagedFile]) -> None:
    with suppress(SparkLogError):  # it was not made
        copy.result().discard()


def _pool(url: str) -> ThreadPoolExecutor:
    with _lock:
        found = _pools.get(url)
        if found is None:
            found = _pools[url] = ThreadPoolExecutor(_THREADS_PER_ROOT, "spark-log-stage")
        return found


def _forget() -> None:
    """Forget the threads in a child process, where they do not exist."""
    global _lock  # noqa: PLW0603 - once in each child
    _lock = threading.Lock()
    _pools.clear()


os.register_at_fork(after_in_child=_forget)
