"""Errors of the operating system, and what this package raises instead of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from spark_log.errors import NotFoundError, SparkLogError, StorageError, StorageFullError

TRANSIENT_ERRNOS: Final = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EINTR,
        errno.EIO,
        errno.EMFILE,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENFILE,
        errno.ENODEV,
        errno.ENOTCONN,
        errno.ENXIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
"""What a file system says while its server, its disk or its mount is away."""


@contextmanager
def storage_errors(path: str, action: str = "") -> Iterator[None]:
    """Turn the operating system's errors inside the block into this package's.

    Args:
        path: for the message.
        action: what is being done, such as ``writing``; told where it is not allowed.
    """
    try:
        yield
    except SparkLogError:
        raise
    except OSError as error:
        raise _translated(error, path, action) from error


def _translated(error: OSError, path: str, action: str) -> StorageError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno == errno.ENOENT:
        return NotFoundError(f"{path}: no such file", path=path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFullError(
            f"{path}: {reason}; nothing of it is visible, free space and write it again", path=path
        )
    if action and error.errno == errno.EROFS:
        return StorageError(
            f"{path}: {action} failed ({reason}): the file system is mounted read-only. Reading "
            f"goes on; to write, mount it for writing (mount -o remount,rw)",
            path=path,
        )
    if action and error.errno in (errno.EACCES, errno.EPERM):
        return StorageError(
            f"{path}: {action} failed ({reason}): user {_user()} may not do that here. Change the "
            f"permissions or the owner of this and of the directories above it (chmod, chown), or "
            f"run as a user who may",
            path=path,
        )
    return StorageError(f"{path}: {reason}", path=path)


def _user() -> str:
    return str(os.geteuid()) if hasattr(os, "geteuid") else "of this process"
