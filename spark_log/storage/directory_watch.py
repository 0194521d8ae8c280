"""Hints from the operating system that a file was put into a directory.

A hint only says that listing the directory is worth while. Nothing may depend on it: writes of
another machine to a shared file system give no hint, a full queue drops hints, and only a local
directory has any. Therefore a caller that waits for a hint also lists the directory from time to
time.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import ClassVar, Final

from spark_log.storage.file_system import file_system_type
from spark_log.storage.local import LocalStore
from spark_log.storage.store import Store
from spark_log.util import IN_PROCESS

_LOCAL_FILE_SYSTEMS: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
)
"""Types of file systems to which only this machine writes: its kernel sees every new file."""

_IN_MOVED_TO: Final = 0x80
_IN_CREATE: Final = 0x100
_IN_Q_OVERFLOW: Final = 0x4000
_IN_IGNORED: Final = 0x8000
_IN_ONLYDIR: Final = 0x1000000
_EVENT: Final = struct.Struct("iIII")
_READ_BYTES: Final = 65_536


class DirectoryWatch(ABC):
    """Waits for hints or for `wake`. One thread waits; any thread may wake it.

    Attributes:
        gives_hints: False if this watch never returns a hint.
    """

    gives_hints: ClassVar[bool]

    @abstractmethod
    def add(self, directory: str) -> bool:
        """Watch a directory. It need not exist yet.

        List the directory after this call, not before it: otherwise a file may be missed.

        Args:
            directory: the directory's path, relative to the store's root.

        Returns:
            Whether files that appear in it will give hints.
        """

    @abstractmethod
    def remove(self, directory: str) -> None:
        """Stop watching a directory. Harmless if it is not watched."""

    @abstractmethod
    def wait(self, timeout_ms: float) -> set[str]:
        """Wait for hints; return the directories in which a file may have appeared.

        Returns at the first hint; when `wake` was called since the last return; or when
        ``timeout_ms`` have passed. The set is empty without a hint. Names are those given to `add`.
        """

    @abstractmethod
    def wake(self) -> None:
        """End the current wait, or the next one."""

    @abstractmethod
    def close(self) -> None:
        """Release the watch. Harmless when called twice."""


def watch_directories(store: Store) -> DirectoryWatch:
    """Return a watch for a store's directories; without hints if the system gives none."""
    if (
        sys.platform == "linux"
        and isinstance(store, LocalStore)
        and file_system_type(store.url) in _LOCAL_FILE_SYSTEMS
    ):
        # The user may have no inotify instance left (fs.inotify.max_user_instances).
        with IN_PROCESS.suppress("watching of files", store.url, OSError):
            return InotifyWatch(store.url)
    return SilentWatch()


class SilentWatch(DirectoryWatch):
    """A watch without hints: it only waits until it is woken."""

    gives_hints: ClassVar[bool] = False

    def __init__(self) -> None:
        self._woken = threading.Event()

    def add(self, directory: str) -> bool:
        """Do nothing; return False."""
        return False

    def remove(self, directory: str) -> None:
        """Do nothing."""

    def wait(self, timeout_ms: float) -> set[str]:
        """Wait for `wake`, up to ``timeout_ms``; return the empty set."""
        self._woken.wait(max(0.0, timeout_ms) / 1000)
        self._woken.clear()
        return set()

    def wake(self) -> None:
        """End the wait that is under way, or the next one."""
        self._woken.set()

    def close(self) -> None:
        """End the wait that is under way."""
        self.wake()


class InotifyWatch(DirectoryWatch):
    """Hints from Linux' inotify: one instance for all directories.

    For a directory that does not exist yet, its nearest existing parent is watched until the
    directory appears.
    """

    gives_hints: ClassVar[bool] = True

    def __init__(self, root: str) -> None:
        """Open an inotify instance.

        Args:
            root: the root's absolute path; directories are relative to it.

        Raises:
            OSError: the system has no instance left for this user.
        """
        self._root = root
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._inotify < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._inotify, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)
        self._paths: dict[int, str] = {}
        self._added: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, directory: str) -> bool:
        """Watch a directory, or its nearest existing parent; return False if neither works."""
        with self._lock:
            path = directory
            while not self._is_closed:
                number = self._add_watch(path)
                if number >= 0:
                    self._paths[number] = path
                    self._added[directory] = number
                    return True
                if not path or ctypes.get_errno() not in (errno.ENOENT, errno.ENOTDIR):
                    break
                path = path.rpartition("/")[0]
            self._added.pop(directory, None)
            return False

    def remove(self, directory: str) -> None:
        """Stop watching a directory. Harmless if it is not watched."""
        with self._lock:
            number = self._added.pop(directory, None)
            if number is None or self._is_closed or number in self._added.values():
                return
            self._paths.pop(number, None)
            self._libc.inotify_rm_watch(self._inotify, number)

    def wait(self, timeout_ms: float) -> set[str]:
        """Wait for inotify events or `wake`; return the directories that the events are about."""
        if self._is_closed:
            return set()
        hints: set[str] = set()
        for descriptor, _ in self._poll.poll(max(0.0, timeout_ms)):
            if descriptor == self._woken:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._woken)
            else:
                hints |= self._read()
        return hints

    def wake(self) -> None:
        """End the wait that is under way, or the next one."""
        with self._lock:
            if not self._is_closed:
                os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        """Close the inotify instance. No thread may be waiting."""
        with self._lock:
            if not self._is_closed:
                os.close(self._inotify)
                os.close(self._woken)
                self._inotify = -1

    @property
    def _is_closed(self) -> bool:
        return bool(self._inotify < 0)

    def _add_watch(self, path: str) -> int:
        absolute = os.fsencode(f"{self._root}/{path}" if path else self._root)
        mask = _IN_CREATE | _IN_MOVED_TO | _IN_ONLYDIR
        return int(self._libc.inotify_add_watch(self._inotify, absolute, mask))

    def _read(self) -> set[str]:
        """Return the added directories that the queued events are about."""
        try:
            data = os.read(self._inotify, _READ_BYTES)
        except BlockingIOError:
            return set()
        hinted: set[int] = set()
        at = 0
        while at < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            name = at + _EVENT.size
            at = name + length
            if mask & _IN_Q_OVERFLOW:
                with self._lock:
                    hinted.update(self._paths)
            elif mask & _IN_IGNORED:
                hinted.add(number)
                with self._lock:
                    self._paths.pop(number, None)
            elif data[name : name + 1] != b".":  # the name of a staged file begins with a dot
                hinted.add(number)
        with self._lock:
            found = {name for name, number in self._added.items() if number in hinted}
            # The watch of these is at a parent, or has ended: the directory may exist again now.
            displaced = [name for name in found if self._paths.get(self._added[name]) != name]
        for directory in displaced:
            self.add(directory)
        return found
