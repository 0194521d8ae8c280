"""Space that is kept for the day on which a disk is full.

Deleting records or a topic, and cleaning, write before they free anything: a marker, a snapshot, a
record in the metadata log. On a disk with no byte left that could never begin. So a local root
keeps a small file of allocated blocks beside its data, ``.reserve``: whoever frees space and finds
none removes it, does what it came for, and allocates it again when there is room.

On storage: ``<root>/.reserve``, of up to `RESERVE_BYTES`; its content means nothing.
It may be missing, and any number of processes may allocate and remove it at once: one that is
killed in between leaves a shorter one, which the next to look at it makes longer.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from spark_log.errors import StorageFullError
from spark_log.storage.os_errors import storage_errors
from spark_log.storage.store import Store

RESERVE_NAME: Final = ".reserve"

RESERVE_BYTES: Final = 2 << 20
"""More than the snapshots and records that a few hundred deletions write."""

_LEAST_BYTES: Final = 4096
_SHARE: Final = 100
"""A small disk gives up one part in so many."""

_ROOM: Final = 4
"""The reserve is allocated where so many times its size are free."""

_NOT_ALLOCATED: Final = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
"""Errors that say that a file system cannot allocate without writing."""

_Answer = TypeVar("_Answer")


def keep_reserve(directory: str) -> bool:
    """Allocate the reserve of a local root if it is not there and there is room.

    Args:
        directory: the root.

    Returns:
        Whether it is there now, whole.

    Raises:
        StorageError: it cannot be written.
    """
    path = Path(directory, RESERVE_NAME)
    with storage_errors(str(path)):
        status = os.statvfs(directory)
        total_bytes = status.f_blocks * status.f_frsize
        size_bytes = min(RESERVE_BYTES, total_bytes // _SHARE)
        with suppress(FileNotFoundError):
            if path.stat().st_size >= size_bytes:
                return True
        if size_bytes < _LEAST_BYTES or status.f_bavail * status.f_frsize < _ROOM * size_bytes:
            return False
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            _allocate(descriptor, size_bytes)
        finally:
            os.close(descriptor)
    return True


def release_reserve(directory: str) -> bool:
    """Remove the reserve of a local root; return whether that freed something.

    Raises:
        StorageError: it cannot be removed.
    """
    path = Path(directory, RESERVE_NAME)
    with storage_errors(str(path)):
        try:
            size_bytes = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return False
    return size_bytes > 0


def with_reserve(store: Store, act: Callable[[], _Answer]) -> _Answer:
    """Do what frees space in the end; where none is left for it, on what the reserve gives.

    Args:
        store: of the root.
        act: may be called twice; a `StorageFullError` of it means that nothing was done.

    Returns:
        What it returns.

    Raises:
        StorageFullError: there is no space, and no reserve any more; says what to do.
    """
    try:
        return act()
    except StorageFullError as error:
        full = error
    is_released = store.release_reserve()
    if is_released:
        try:
            return act()
        except StorageFullError as error:
            full = error
    used = (
        "what was kept in reserve for this is used up" if is_released else "nothing is in reserve"
    )
    raise StorageFullError(
        f"{full.message}. To free space takes a little space first, and {used}: delete or move "
        f"some other file away from where {store.url} lies (a few MiB are enough), stop what fills "
        f"it, and do this again",
        path=full.path,
    ) from full


def _allocate(descriptor: int, size_bytes: int) -> None:
    """Give a file blocks of its own, which no file system can share, leave out or compress."""
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno not in _NOT_ALLOCATED:
            raise
        os.write(descriptor, os.urandom(size_bytes))
