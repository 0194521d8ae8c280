"""Reserved disk space, so that space can be freed on a full disk.

Deleting records or a topic, and cleaning, write before they free anything: a marker, a snapshot, a
record in the metadata log. On a full disk they could never start. Therefore a local root has a
small file of allocated blocks, ``.reserve``. An operation that frees space, but finds none to
write, deletes this file and starts again. The file is allocated again when space is free.

On storage: ``<root>/.reserve``, up to `RESERVE_BYTES` long; its content has no meaning. The file
may be missing, and any number of processes may allocate and delete it at once. A process that is
killed while it allocates leaves a shorter file, which the next `keep_reserve` makes longer, or
replaces if it is another user's. Its permissions are those of all files (`share_file`).
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from spark_log.errors import StorageError, StorageFullError
from spark_log.storage.file_system import share_file
from spark_log.storage.os_errors import storage_errors
from spark_log.storage.store import Store
from spark_log.util import IN_PROCESS

_log = logging.getLogger(__name__)

RESERVE_NAME: Final = ".reserve"

RESERVE_BYTES: Final = 2 << 20
"""Size of the reserve: more than a few hundred deletions write in snapshots and records."""

_LEAST_BYTES: Final = 4096
_SHARE: Final = 100
"""On a small disk the reserve is one hundredth of the disk's size."""

_ROOM: Final = 4
"""The reserve is allocated only if four times its size are free."""

_NOT_ALLOCATED: Final = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
"""Errors of a file system that cannot allocate blocks without writing them."""

_Answer = TypeVar("_Answer")


def keep_reserve(directory: str) -> bool:
    """Allocate the reserve of a local root, if it is missing and there is room.

    Args:
        directory: the root's path.

    Returns:
        Whether the reserve exists now, at its full size.

    Raises:
        StorageError: the file cannot be written.
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
        try:
            descriptor = _open(path)
        except PermissionError:
            path.unlink(missing_ok=True)
            descriptor = _open(path)
        try:
            with suppress(PermissionError):  # another user made it
                share_file(str(path), directory)
            _allocate(descriptor, size_bytes)
        finally:
            os.close(descriptor)
    return True


def release_reserve(directory: str) -> bool:
    """Delete the reserve of a local root; return whether that freed space.

    Raises:
        StorageError: the file cannot be deleted.
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
    """Call ``act``, which frees space in the end; on a full disk release the reserve and repeat.

    Args:
        store: the root's store.
        act: function that may be called twice: it raises `StorageFullError` only if it has done
            nothing.

    Returns:
        The result of ``act``.

    Raises:
        StorageFullError: no space is left, even with the reserve; the message says what to do.
    """
    try:
        return act()
    except StorageFullError as error:
        full = error
    is_released = False
    # In a directory with the sticky bit only the reserve's owner may delete it.
    with IN_PROCESS.suppress("release of the reserve", store.url, StorageError):
        is_released = store.release_reserve()
    if is_released:
        _log.warning("the disk of %s is full: its reserve is used, to free space", store.url)
        try:
            return act()
        except StorageFullError as error:
            full = error
    used = (
        "the space reserved for this is used up" if is_released else "no space is reserved for this"
    )
    raise StorageFullError(
        f"{full.message}. Freeing space needs a little space first, and {used}: delete or move "
        f"another file on the disk of {store.url} (a few MiB are enough), stop the process that "
        f"fills the disk, and try again",
        path=full.path,
    ) from full


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)


def _allocate(descriptor: int, size_bytes: int) -> None:
    """Give a file its own blocks, which a file system cannot share, leave out or compress."""
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno not in _NOT_ALLOCATED:
            raise
        os.write(descriptor, os.urandom(size_bytes))
