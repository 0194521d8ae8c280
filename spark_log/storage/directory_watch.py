"""Hints that something was put into a directory, where the operating system gives them.

A hint says only that looking may pay: nothing depends on its coming. Another machine's writes to a
shared file system give none, a full queue drops them, and a store that is not a local directory has
none at all. So who waits here looks by itself from time to time as well.
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
from spark_log.suppressed import IN_PROCESS

_LOCAL_FILE_SYSTEMS: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
)
"""Only this machine writes to these, so that the kernel sees every file that appears."""

_IN_MOVED_TO: Final = 0x80
_IN_CREATE: Final = 0x100
_IN_Q_OVERFLOW: Final = 0x4000
_IN_IGNORED: Final = 0x8000
_IN_ONLYDIR: Final = 0x1000000
_EVENT: Final = struct.Struct("iIII")
_READ_BYTES: Final = 65_536


class DirectoryWatch(ABC):
    """Waits for hints, or to be woken. One thread waits; any thread wakes.

    Attributes:
        gives_hints: whether there can be any.
    """

    gives_hints: ClassVar[bool]

    @abstractmethod
    def add(self, directory: str) -> bool:
        """Watch a directory, which need not exist yet; look into it after this, not before.

        Args:
            directory: relative to the store's root.

        Returns:
            Whether hints of it will come.
        """

    @abstractmethod
    def remove(self, directory: str) -> None:
        """Stop watching; harmless where that was never begun."""

    @abstractmethod
    def wait(self, timeout_ms: float) -> set[str]:
        """Return the directories in which something may have appeared, as they were added.

        Returns as soon as there is a hint, or `wake` was called since the last return, or the time
        is up; then it is empty.
        """

    @abstractmethod
    def wake(self) -> None:
        """End a wait that is under way, or the next one."""

    @abstractmethod
    def close(self) -> None:
        """End; harmless when done twice."""


def watch_directories(store: Store) -> DirectoryWatch:
    """Return what watches a store's directories: without hints, where there can be none."""
    if (
        sys.platform == "linux"
        and isinstance(store, LocalStore)
        and file_system_type(store.url) in _LOCAL_FILE_SYSTEMS
    ):
        # The user's share of watches may be used up (max_user_instances).
        with IN_PROCESS.suppress("watching of files", store.url, OSError):
            return InotifyWatch(store.url)
    return SilentWatch()


class SilentWatch(DirectoryWatch):
    """No hints: waits until it is woken."""

    gives_hints: ClassVar[bool] = False

    def __init__(self) -> None:
        self._woken = threading.Event()

    def add(self, directory: str) -> bool:
        """See `DirectoryWatch.add`."""
        return False

    def remove(self, directory: str) -> None:
        """See `DirectoryWatch.remove`."""

    def wait(self, timeout_ms: float) -> set[str]:
        """See `DirectoryWatch.wait`."""
        self._woken.wait(max(0.0, timeout_ms) / 1000)
        self._woken.clear()
        return set()

    def wake(self) -> None:
        """See `DirectoryWatch.wake`."""
        self._woken.set()

    def close(self) -> None:
        """See `DirectoryWatch.close`."""
        self.wake()


class InotifyWatch(DirectoryWatch):
    """Linux' inotify: one instance for all directories.

    A directory that does not exist yet is watched by the nearest one above it that does, until it
    appears.
    """

    gives_hints: ClassVar[bool] = True

    def __init__(self, root: str) -> None:
        """Args: root: absolute path that directories are relative to.

        Raises:
            OSError: the system has no instance left.
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
        """See `DirectoryWatch.add`."""
        with self._lock:
            path = directory
            while not self._is_closed:
                number = self._place(path)
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
        """See `DirectoryWatch.remove`."""
        with self._lock:
            number = self._added.pop(directory, None)
            if number is None or self._is_closed or number in self._added.values():
                return
            self._paths.pop(number, None)
            self._libc.inotify_rm_watch(self._inotify, number)

    def wait(self, timeout_ms: float) -> set[str]:
        """See `DirectoryWatch.wait`."""
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
        """See `DirectoryWatch.wake`."""
        with self._lock:
            if not self._is_closed:
                os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        """See `DirectoryWatch.close`. Not while another thread waits."""
        with self._lock:
            if not self._is_closed:
                os.close(self._inotify)
                os.close(self._woken)
                self._inotify = -1

    @property
    def _is_closed(self) -> bool:
        return bool(self._inotify < 0)

    def _place(self, path: str) -> int:
        absolute = os.fsencode(f"{self._root}/{path}" if path else self._root)
        mask = _IN_CREATE | _IN_MOVED_TO | _IN_ONLYDIR
        return int(self._libc.inotify_add_watch(self._inotify, absolute, mask))

    def _read(self) -> set[str]:
        """Return the directories that the waiting events are about."""
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
            elif data[name : name + 1] != b".":  # a staged file has a dot before its name
                hinted.add(number)
        with self._lock:
            found = {name for name, number in self._added.items() if number in hinted}
            misplaced = [name for name in found if self._paths.get(self._added[name]) != name]
        for directory in misplaced:
            self.add(directory)
        return found
