"""What a power cut leaves of a local root: everything that was synced, and of the rest any part.

POSIX promises little for what was not synced, and file systems use all of the freedom. Of a file
without ``fsync`` the bytes may be missing, cut short or zero. A name that was made, replaced or
removed without an ``fsync`` of its directory may be as before or as after, each name by itself, in
any order. That holds for the name of a new directory, too, which takes along what lies in it.
A rename replaces a name at one moment: at no time there is none.

`PowerCut` records the calls by which `LocalStore` changes the file system, of all threads of this
process, and keeps every file. Afterwards it makes, for any moment and seed, a directory as the
power cut might have left it::

    with PowerCut(tmp_path / "disk", tmp_path / "kept") as disk:
        store = LocalStore(str(tmp_path / "disk/root"))
        store.put_if_absent("acknowledged", b"content")
        moment = disk.moment()
    disk.restore(moment, random.Random(1), tmp_path / "after")

Changes that other libraries make (deltalake) are found by looking: see `PowerCut.scan`.
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
"""The number of the directory that is watched."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file, by the number under which it is kept."""

    number: int


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory; one that is removed and made again is another one."""

    number: int


_Entry = _File | _Directory | None


@dataclass(frozen=True, slots=True)
class _NameChanged:
    """A name in a directory came to stand for something else, or for nothing."""

    directory: int
    name: str
    entry: _Entry


@dataclass(frozen=True, slots=True)
class _Synced:
    """The bytes of a file, or the names of a directory, were synced."""

    entry: _File | _Directory


class PowerCut:
    """Records what is done below a directory, as a context manager; one at a time in a process.

    Nothing is really synced meanwhile, so it is fast.
    """

    def __init__(self, directory: str | os.PathLike[str], kept: str | os.PathLike[str]) -> None:
        """Touches nothing yet.

        Args:
            directory: what is watched; made. What lies above it counts as durable.
            kept: another directory on the same file system, where every file is kept.
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
        """End recording; what was recorded stays."""
        for name, call in self._real.items():
            setattr(os, name, call)

    def moment(self) -> int:
        """Return the present moment: how many changes and syncs there were so far."""
        with self._lock:
            return len(self._events)

    def scan(self) -> None:
        """Note what was changed by other means than the calls that are recorded.

        A sync does so for the directory that it is in: what lies there was made before it.
        """
        with self._lock:
            self._scan(_ROOT, self._directory, is_deep=True)

    def restore(self, moment: int, random: Random, target: str | os.PathLike[str]) -> None:
        """Make a directory as a power cut at a moment might have left it.

        Args:
            moment: what `moment` returned, or any number up to that.
            random: chooses what is lost of what was not synced.
            target: a directory that does not exist, on the same file system. Files may be hard
                links to what is kept: replace them, but do not write into them.
        """
        histories, synced = self._history(moment)
        # How much survives varies: nothing, half, nearly everything, and each by itself.
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
        """Return what each name may stand for, the durable one first; and which files are whole."""
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
            self._named(target)

    def _replace(self, source: str, target: str, **options: Any) -> None:
        with self._lock:
            self._real["replace"](source, target, **options)
            self._named(target)

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        with self._lock:
            self._real["unlink"](path, dir_fd=dir_fd)
            self._named(_absolute(path, dir_fd))

    def _mkdir(self, path: str, *args: Any, **options: Any) -> None:
        with self._lock:
            self._real["mkdir"](path, *args, **options)
            self._named(path)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        with self._lock:
            self._real["rmdir"](path, dir_fd=dir_fd)
            self._named(_absolute(path, dir_fd))

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

    # --- what stands where -----------------------------------------------------------------------

    def _named(self, path: str | os.PathLike[str]) -> None:
        """Note what a path stands for now."""
        path = os.path.abspath(path)
        directory, name = os.path.split(path)
        number = self._number_of(directory)
        if number is not None:
            self._note(number, name, path)

    def _note(self, number: int, name: str, path: str) -> None:
        if name.startswith("."):
            return  # a temporary file: nobody looks at what is left of it
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
        """Note what was made and removed in a directory by calls that are not recorded."""
        present = set(os.listdir(path))
        for name in sorted(present | self._now[number].keys()):
            self._note(number, name, f"{path}/{name}")
            entry = self._now[number].get(name)
            if is_deep and isinstance(entry, _Directory):
                self._scan(entry.number, f"{path}/{name}", is_deep=True)

    def _file(self, path: str) -> _File:
        """Return the file at a path; it is kept, so that its inode is no other file's later."""
        inode = os.stat(path).st_ino
        if inode not in self._inodes:
            file = self._inodes[inode] = _File(len(self._inodes))
            self._real["link"](path, f"{self._kept}/{file.number}")
        return self._inodes[inode]

    def _number_of(self, directory: str) -> int | None:
        """Return the number of a directory, None for one that is not watched or gone."""
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
