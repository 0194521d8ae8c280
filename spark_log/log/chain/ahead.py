"""Stages a segment on several roots at once, before it is put on them one after the other.

The order of the chain is the order of the puts. On a local file system a put is short when the
bytes are there and durable already. So they are written to all roots while the leader's are synced.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import pyarrow as pa

from spark_log.errors import SparkLogError
from spark_log.log.replica import Replica
from spark_log.storage import StagedFile, Store, storage_errors

_THREADS_PER_ROOT: Final = 4
"""A root that hangs holds up its own threads, and no other root's."""

_pools: dict[str, ThreadPoolExecutor] = {}
_lock = threading.Lock()


class StagedAhead:
    """The staged files of one segment on the roots of followers. For one thread at a time."""

    def __init__(self) -> None:
        self._files: dict[int, Future[StagedFile]] = {}

    def begin(self, broker_id: int, replica: Replica, data: pa.Buffer, *, sync: bool) -> None:
        """Begin to stage a segment, where that is of use.

        Args:
            broker_id: of the follower.
            replica: the follower.
            data: the segment's file.
            sync: whether to make it durable.
        """
        store, directory = replica.files.store, replica.files.path
        if not store.stages_ahead:
            return
        with suppress(RuntimeError):  # the interpreter ends: it is staged when it is put
            self._files[broker_id] = _pool(store.url).submit(_stage, store, directory, data, sync)

    def take(self, broker_id: int) -> StagedFile | None:
        """Return the staged file of a follower; None if there is none. The caller discards it.

        Raises:
            StorageError: it could not be staged.
        """
        future = self._files.pop(broker_id, None)
        return None if future is None else future.result()

    def discard(self) -> None:
        """Discard the staged files that were not taken."""
        while self._files:
            _, future = self._files.popitem()
            future.add_done_callback(_discard)


def _stage(store: Store, directory: str, data: pa.Buffer, sync: bool) -> StagedFile:
    staged = store.stage(directory)
    try:
        with storage_errors(directory, "writing"):
            staged.sink.write(data)
            staged.seal()
            if sync:
                staged.sync()
    except BaseException:
        staged.discard()
        raise
    return staged


def _discard(future: Future[StagedFile]) -> None:
    with suppress(SparkLogError):  # it was not staged; the put tells
        future.result().discard()


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
