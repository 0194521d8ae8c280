"""Simulates power cuts of a local root: synced data survive, and any part of the other data.

POSIX guarantees little for data that was not synced, and file systems make use of that. Without
``fsync``, the bytes of a file may be missing, truncated or zero. Without an ``fsync`` of the
directory, each name that was created, replaced or removed may be in its old or its new state,
independently of the others. If the name of a new directory is lost, so is its content. A rename
replaces a name atomically: the name always exists.

`PowerCut` records the calls by which `LocalStore` changes the file system, in all threads of this
process, and keeps every file. Afterwards it creates, for any moment and seed, a directory in a
state that a power cut might have left::

    with PowerCut(tmp_path / "disk", tmp_path / "kept") as disk:
        store = LocalStore(str(tmp_path / "disk/root"))
        store.put_if_absent("acknowledged", b"content")
        moment = disk.moment()
    disk.restore(moment, random.Random(1), tmp_path / "after")

`PowerCut.scan` finds the changes that other libraries make, such as deltalake.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self

_CALLS: Final = ("link", "replace", "unlink", "mkdir", "rmdir", "fsync")

_ROOT: Final = 0
"""The number of the recorded directory."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file, identified by the number of its kept copy."""

    number: int


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory; a directory that is removed and created again is a new one."""

    number: int


_Entry = _File | _Directory | None


@dataclass(frozen=True, slots=True)
class _NameChanged:
    """A name in a directory was created, replaced or removed."""

    directory: int
    name: str
    entry: _Entry


@dataclass(frozen=True, slots=True)
class _Synced:
    """The bytes of a file, or the names in a directory, were synced."""

    entry: _File | _Directory


class PowerCut:
    """A context manager that records the changes below a directory; one at a time per process.

    Calls of `fsync` are only recorded, so that tests are fast.
    """

    def __init__(self, directory: str | os.PathLike[str], kept: str | os.PathLike[str]) -> None:
        """Return a recorder that does not record yet.

        Args:
            directory: the directory to record; it is created. Its parents count as durable.
            kept: another directory on the same file system, which keeps a link to every file.
        """
        self._directory = os.path.abspath(directory)
        self._kept = os.path.abspath(kept)
        self._lock = threading.RLock()
        self._events: list[_NameChanged | _Synced] = []
        self._now: dict[int, dict[str, _Entry]] = {_ROOT: {}}
        self._inodes: dict[int, _File] = {}
        self._real: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> Self:
        """Begin to record."""
        os.makedirs(self._directory)
        os.makedirs(self._kept)
        self._real = {name: getattr(os, name) for name in _CALLS}
        for name in _CALLS:
            setattr(os, name, getattr(self, f"_{name}"))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Stop recording; the recorded changes stay available."""
        for name, call in self._real.items():
            setattr(os, name, call)

    def moment(self) -> int:
        """Return the current moment: the number of changes and syncs so far."""
        with self._lock:
            return len(self._events)

    def scan(self) -> None:
        """Record changes that were not made by the recorded calls.

        An ``fsync`` of a directory does this for that directory.
        """
        with self._lock:
            self._scan(_ROOT, self._directory, is_deep=True)

    def restore(self, moment: int, random: Random, target: str | os.PathLike[str]) -> None:
        """Create a directory in a state that a power cut at a moment might have left.

        Args:
            moment: a result of `moment`, or a smaller number.
            random: the random numbers that choose the lost unsynced changes.
            target: a directory that does not exist, on the same file system. Its files may be hard
                links to kept files: replace them, but do not write into them.
        """
        histories, synced = self._history(moment)
        # The share of unsynced changes that survive varies from none to all.
        survival = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))

        def choose(history: list[_Entry]) -> _Entry:
            if len(history) == 1 or random.random() >= survival:
                return history[0]
            return history[random.randrange(1, len(history))]

        def make(number: int, path: str) -> None:
            os.makedirs(path)
            for name, history in sorted(histories.get(number, {}).items()):
                entry = choose(history)
                if isinstance(entry, _Directory):
                    make(entry.number, f"{path}/{name}")
                elif entry is not None:
                    whole = entry in synced or random.random() < survival
                    self._make_file(entry, f"{path}/{name}", None if whole else random)

        make(_ROOT, os.path.abspath(target))

    def _history(self, moment: int) -> tuple[dict[int, dict[str, list[_Entry]]], set[_File]]:
        """Return the possible states of each name, the durable one first, and the synced files."""
        histories: dict[int, dict[str, list[_Entry]]] = {}
        synced: set[_File] = set()
        for event in self._events[:moment]:
            if isinstance(event, _NameChanged):
                names = histories.setdefault(event.directory, {})
                names.setdefault(event.name, [None]).append(event.entry)
            elif isinstance(event.entry, _File):
                synced.add(event.entry)
            else:
                names = histories.setdefault(event.entry.number, {})
                for name, history in names.items():
                    names[name] = history[-1:]
        return histories, synced

    def _make_file(self, file: _File, path: str, random: Random | None) -> None:
        kept = f"{self._kept}/{file.number}"
        if random is None:
            os.link(kept, path)
            return
        content = Path(kept).read_bytes()
        cut = random.randrange(len(content) + 1)
        left = random.choice(
            (b"", content[:cut], bytes(len(content)), content[:cut] + bytes(len(content) - cut))
        )
        Path(path).write_bytes(left)

    # --- the calls -------------------------------------------------------------------------------

    def _link(self, source: str, target: str, **options: Any) -> None:
        with self._lock:
            self._real["link"](source, target, **options)
            self._record_name(target)

    def _replace(self, source: str, target: str, **options: Any) -> None:
        with self._lock:
            self._real["replace"](source, target, **options)
            self._record_name(target)

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        with self._lock:
            self._real["unlink"](path, dir_fd=dir_fd)
            self._record_name(_absolute(path, dir_fd))

    def _mkdir(self, path: str, *args: Any, **options: Any) -> None:
        with self._lock:
            self._real["mkdir"](path, *args, **options)
            self._record_name(_absolute(path, options.get("dir_fd")))

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        with self._lock:
            self._real["rmdir"](path, dir_fd=dir_fd)
            self._record_name(_absolute(path, dir_fd))

    def _fsync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        with self._lock:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                number = self._number_of(path)
                if number is not None:
                    self._scan(number, path, is_deep=False)
                    self._events.append(_Synced(_Directory(number)))
            elif self._number_of(os.path.dirname(path)) is not None:
                self._events.append(_Synced(self._file(path)))

    # --- states of names -------------------------------------------------------------------------

    def _record_name(self, path: str | os.PathLike[str]) -> None:
        """Record the current state of a path."""
        path = os.path.abspath(path)
        directory, name = os.path.split(path)
        number = self._number_of(directory)
        if number is not None:
            self._note(number, name, path)

    def _note(self, number: int, name: str, path: str) -> None:
        if name.startswith("."):
            return  # a temporary file: its remains are not read
        entry: _Entry
        try:
            is_directory = stat.S_ISDIR(os.lstat(path).st_mode)
        except FileNotFoundError:
            entry = None
        else:
            entry = self._now[number].get(name)
            if not is_directory:
                entry = self._file(path)
            elif not isinstance(entry, _Directory):
                entry = _Directory(len(self._now))
                self._now[entry.number] = {}
        if entry != self._now[number].get(name):
            self._now[number][name] = entry
            self._events.append(_NameChanged(number, name, entry))

    def _scan(self, number: int, path: str, *, is_deep: bool) -> None:
        """Record the names that unrecorded calls created or removed in a directory."""
        present = set(os.listdir(path))
        for name in sorted(present | self._now[number].keys()):
            self._note(number, name, f"{path}/{name}")
            entry = self._now[number].get(name)
            if is_deep and isinstance(entry, _Directory):
                self._scan(entry.number, f"{path}/{name}", is_deep=True)

    def _file(self, path: str) -> _File:
        """Return the file at a path, and keep a link to it, so that its inode is not reused."""
        inode = os.stat(path).st_ino
        if inode not in self._inodes:
            file = self._inodes[inode] = _File(len(self._inodes))
            self._real["link"](path, f"{self._kept}/{file.number}")
        return self._inodes[inode]

    def _number_of(self, directory: str) -> int | None:
        """Return the number of a directory; None if it is not recorded or was removed."""
        if directory == self._directory:
            return _ROOT
        if not directory.startswith(f"{self._directory}/"):
            return None
        number = _ROOT
        for name in directory[len(self._directory) + 1 :].split("/"):
            entry = self._now[number].get(name)
            if not isinstance(entry, _Directory):
                return None
            number = entry.number
        return number


def _absolute(path: Any, dir_fd: int | None) -> str:
    if dir_fd is None:
        return str(os.path.abspath(path))
    return f"{os.readlink(f'/proc/self/fd/{dir_fd}')}/{path}"
