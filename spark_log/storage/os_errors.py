"""Translation of the operating system's errors into this package's errors."""

from __future__ import annotations

import errno
import os
from typing import Final

from spark_log.errors import (
    AuthorizationError,
    NotFoundError,
    SparkLogError,
    StorageError,
    StorageFullError,
)

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
"""Errors of a file system whose server, disk or mount is away for a while."""


class storage_errors:  # noqa: N801 - used as a function; a generator would take four times as long
    """Turn the operating system's errors inside the block into this package's.

    Raises:
        NotFoundError: the file does not exist.
        StorageFullError: no space or quota is left.
        AuthorizationError: the user is not permitted to do this.
        StorageError: any other ``OSError``.
    """

    __slots__ = ("_action", "path")

    def __init__(self, path: str, action: str = "") -> None:
        """Begin a block.

        Args:
            path: the path that messages name.
            action: the action of the block, such as ``writing``, for the message of a refusal.
        """
        self.path = path
        self._action = action

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, SparkLogError):
            raise storage_error(error, self.path, self._action) from error


def storage_error(error: OSError, path: str, action: str = "") -> StorageError:
    """Return this package's error for one of the operating system (`storage_errors`).

    Args:
        error: the system's error.
        path: the path that the message names.
        action: the action that failed, such as ``writing``, for the message of a refusal.
    """
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno == errno.ENOENT:
        return NotFoundError(f"{path}: no such file", path=path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFullError(
            f"{path}: {reason}; nothing was written: free space and try again", path=path
        )
    if action and error.errno == errno.EROFS:
        return StorageError(
            f"{path}: {action} failed ({reason}): the file system is mounted read-only. Reading "
            f"still works; to write, mount it for writing (mount -o remount,rw)",
            path=path,
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return AuthorizationError(
            f"{path}: {action or 'access'} failed ({reason}): user {_user()} is not permitted to "
            f"do this. Change the permissions or the owner of the path and of the directories "
            f"above it (chmod, chown), or run as a user who is permitted (docs/security.md lists "
            f"the rights that each role needs)",
            path=path,
        )
    return StorageError(f"{path}: {reason}", path=path)


def _user() -> str:
    return str(os.geteuid()) if hasattr(os, "geteuid") else "of this process"
