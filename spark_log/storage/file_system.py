"""Operations of a local file system: sync, memory map, and its type."""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final, cast

import pyarrow as pa

from spark_log.storage.known_directories import KnownDirectories
from spark_log.storage.os_errors import storage_errors

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY

COPIED_BYTES: Final = 65_536
"""A file up to this size is copied: that takes less time than mapping and unmapping it."""


def appeared_us(status: os.stat_result) -> int:
    """Return when a file got its name, in microseconds since the epoch.

    That may be long after its bytes were written. A file whose writer paused before the link must
    not look old, because cleaners free names by this time.
    """
    return max(status.st_mtime_ns, status.st_ctime_ns) // 1000


def map_file(absolute: str, path: str) -> pa.Buffer:
    """Return a file's bytes: a memory map, or a copy if the file is small.

    Args:
        absolute: absolute path of the file.
        path: the path that errors name.

    Raises:
        NotFoundError: the file does not exist.
        StorageError: the file cannot be read.
    """
    with storage_errors(path):
        descriptor = os.open(absolute, os.O_RDONLY)
        try:
            size_bytes = os.fstat(descriptor).st_size
            if size_bytes <= COPIED_BYTES:
                return pa.py_buffer(os.pread(descriptor, size_bytes, 0))
        finally:
            os.close(descriptor)
        with pa.memory_map(absolute, "r") as file:
            return file.read_buffer()


def make_directories(
    directory: str, synced_names: KnownDirectories, root: str | None = None
) -> None:
    """Create a directory and its parents, and make the names of new ones durable.

    Args:
        directory: absolute path.
        synced_names: directories whose names are durable; new ones are added.
        root: absolute path of the root. A new directory below it gets the permissions of its
            parent, so that the same users may write there; a crash may leave one directory with the
            permissions of this process's umask. None to use the umask everywhere.
    """
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    make_directories(parent, synced_names, root)
    descriptor = os.open(parent, _DIRECTORY)
    try:
        is_below = root is not None and f"{parent}/".startswith(f"{root}/")
        _make_directory(os.path.basename(directory), descriptor, shared=is_below)
    finally:
        os.close(descriptor)
    synced_names.add(directory)


def make_directories_below(
    root: str, directory: str, synced_names: KnownDirectories, check: Callable[[int], None]
) -> None:
    """Create a directory and its parents below a root that exists, as `make_directories` does.

    Nothing is created anywhere else: each directory is made relative to the open one above it.

    Args:
        root: absolute path of the root.
        directory: absolute path of the directory, below the root.
        synced_names: directories whose names are durable; new ones are added.
        check: function that gets the root's descriptor before anything is created, and raises if
            this is not the right root.
    """
    made, descriptor = root, os.open(root, _DIRECTORY)
    try:
        check(descriptor)
        for name in directory[len(root) :].strip("/").split("/"):
            made = f"{made}/{name}"
            with suppress(FileExistsError):
                _make_directory(name, descriptor, shared=True)
            synced_names.add(made)
            below = os.open(name, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    finally:
        os.close(descriptor)


def _make_directory(name: str, parent: int, *, shared: bool) -> None:
    """Create a directory, and make its name durable; harmless if it exists.

    Args:
        name: the last component of its path.
        parent: the descriptor of its parent directory.
        shared: whether the new directory gets the permissions of its parent.
    """
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent).st_mode):
            raise
    else:
        if shared:
            _copy_permissions(os.fstat(parent), name, 0o777, parent)
    os.fsync(parent)


def share_file(path: str, directory: str) -> None:
    """Give a new file the permissions of its directory, if this process's umask does not.

    A user who may read the directory may read the file; a user who may not write to the directory
    may not write to the file. Further write permissions have no meaning: no file is changed in
    place. With the usual umask of 022 this makes no system call.

    Args:
        path: absolute path of a file that this process has made.
        directory: absolute path of its directory.
    """
    if _umask() & 0o666 != 0o022:
        _copy_permissions(os.stat(directory), path, 0o666)


def _copy_permissions(
    source: os.stat_result, target: str, bits: int, parent: int | None = None
) -> None:
    """Copy permission bits of a directory to a path, which its owner may always read and write.

    Args:
        source: the status of the directory.
        target: the path, relative to ``parent`` if that is given.
        bits: the permission bits.
        parent: the descriptor of a directory.
    """
    mode = stat.S_IMODE(os.stat(target, dir_fd=parent).st_mode)
    copied = mode & ~bits | source.st_mode & bits | 0o600
    if copied != mode:
        os.chmod(target, copied, dir_fd=parent)


@cache
def _umask() -> int:
    """Return the umask that this process had at the first call.

    ``os.umask`` would change it for all threads for a moment.
    """
    try:
        with open("/proc/self/status", encoding="utf-8") as status:
            lines = dict(line.partition(":")[::2] for line in status)
        return int(lines["Umask"], 8)
    except (OSError, KeyError):
        return 0o777  # not Linux: compare the permissions of each file


def sync_path(path: str) -> None:
    """Flush a file's bytes, or a directory's names, to the device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def describe_file_system(path: str) -> str:
    """Return the type of the file system of ``path`` as words for an error message."""
    kind = file_system_type(path)
    return f"a file system of {f'type {kind}' if kind else 'unknown type'}"


def file_system_type(path: str) -> str:
    """Return the type of the file system of ``path``; empty if it is unknown."""
    try:
        with open("/proc/self/mounts", encoding="utf-8") as mounts:
            found = [line.split()[1:3] for line in mounts]
    except OSError:
        return ""
    real = os.path.realpath(path)
    best = max(
        (pair for pair in found if real == pair[0] or real.startswith(pair[0].rstrip("/") + "/")),
        key=lambda pair: len(pair[0]),
        default=["/", ""],
    )
    return best[1]


def _find_madvise() -> Callable[[int, int, int], object] | None:
    """Return the system's ``madvise``; None if ``MADV_DONTNEED`` does not exist here."""
    if not hasattr(mmap, "MADV_DONTNEED"):
        return None
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return cast("Callable[[int, int, int], object]", madvise)


_MADVISE: Final = _find_madvise()


def release_pages(buffer: pa.Buffer) -> None:
    """Take the pages of a memory map out of the process's memory; they are read again when used.

    Args:
        buffer: all of what `map_file` returned.
    """
    # A small file was copied, not mapped: madvise would clear memory that others use.
    if buffer.size > COPIED_BYTES and _MADVISE is not None:
        _MADVISE(buffer.address, buffer.size, mmap.MADV_DONTNEED)
