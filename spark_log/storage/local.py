"""A store in a directory of a file system with hard links: a local disk, or NFS.

``put_if_absent`` writes a temporary file beside the target, syncs it, and makes a hard link under
the target's name. ``link`` fails when the name is taken, so exactly one writer gets the name, and
the file that appears is complete. A crash leaves at most the temporary file, whose name begins with
a dot.

A file is durable when its bytes, its name in its directory, and the name of every directory above
it are synced. Each of them needs its own ``fsync`` (docs/adr/0018). Deletions are not synced: after
a power cut a deleted file may exist again.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import ClassVar

import pyarrow as pa

from spark_log.errors import (
    AlreadyExistsError,
    InvalidRootError,
    NotFoundError,
    StorageError,
    StorageFullError,
    UnknownOutcomeError,
    UnsupportedStoreError,
)
from spark_log.storage.file_system import (
    appeared_us,
    describe_file_system,
    make_directories,
    make_directories_below,
    map_file,
    release_pages,
    share_file,
    sync_path,
)
from spark_log.storage.known_directories import KnownDirectories
from spark_log.storage.local_staged_file import LocalStagedFile
from spark_log.storage.os_errors import storage_error, storage_errors
from spark_log.storage.reserve import keep_reserve, release_reserve
from spark_log.storage.root_guard import RootGuard
from spark_log.storage.staged_bytes import StagedBytes
from spark_log.storage.store import CheckRoot, FileInfo, StagedFile, StagedFileLostError, Store
from spark_log.util import IN_PROCESS

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV}

_NOT_LINKED = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EMLINK,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EROFS,
}
"""Errors of ``link`` after which the link does not exist. After others (EIO on NFS) it may."""


class LocalStore(Store):
    """Files below a local directory. ``put_if_absent`` makes a hard link.

    A `guarded` store does not make a directory again that it has seen and someone has removed.
    """

    is_mapped: ClassVar[bool] = True
    shows_gone: ClassVar[bool] = True
    stages_ahead: ClassVar[bool] = True

    def __init__(self, root: str) -> None:
        """Open the store; touches nothing.

        Args:
            root: the directory, relative or absolute; need not exist yet.
        """
        self.url = os.path.abspath(root)
        self._synced_names = KnownDirectories()
        self._seen = KnownDirectories()
        self._guard: RootGuard | None = None
        self._remakes_removed = True

    def guarded(self, marker: str, check: CheckRoot, *, remakes_removed: bool = False) -> Store:
        """Return a store of the root that raises an error if another root is in its place."""
        store = type(self)(self.url)
        store._remakes_removed = remakes_removed
        store._guard = RootGuard(self, marker, check)
        return store

    def check_root(self) -> None:
        """Check that the root exists, and is the one that was opened; one ``stat``."""
        if self._guard is not None and not self._guard.check():
            self._synced_names.clear()  # the root may be a copy: what is durable is not known

    def create_root(self) -> None:
        """Create the directory and its parents, and check that put-if-absent works on it.

        Raises:
            UnsupportedStoreError: the file system has no hard links, or links over a taken name.
            InvalidRootError: the directory cannot be created, or the path is a file.
        """
        try:
            with storage_errors(self.url, "making a directory"):
                make_directories(self.url, self._synced_names)
                self._sync_names_above_root()
        except StorageFullError:
            raise
        except StorageError as error:
            if os.path.exists(self.url) and not os.path.isdir(self.url):
                raise InvalidRootError(
                    f"{self.url} is a file, but a root must be a directory; give another path",
                    path=self.url,
                ) from None
            raise InvalidRootError(
                f"cannot create the root {self.url}: {error}; check the path and its permissions",
                path=self.url,
            ) from error
        probe = f".probe-{uuid.uuid4().hex}"
        try:
            self.put_if_absent(probe, b"probe")
            try:
                self.put_if_absent(probe, b"probe")
            except AlreadyExistsError:
                return
        finally:
            self.delete(probe)
        raise UnsupportedStoreError(
            f"{self.url}: two writers could create the same file "
            f"({describe_file_system(self.url)}); spark-log needs a file system where link() fails "
            f"on an existing name",
            path=self.url,
        )

    def keep_reserve(self) -> bool:
        """Allocate the reserve, a hidden file in the root; return whether it exists now."""
        self.check_root()
        return keep_reserve(self.url)

    def release_reserve(self) -> bool:
        """Delete the reserve; return whether that freed space."""
        self.check_root()
        return release_reserve(self.url)

    def make_directory(self, directory: str) -> None:
        """Create a directory that was removed."""
        absolute = self._absolute(directory)
        self._seen.forget(absolute)
        with storage_errors(absolute, "making a directory"):
            self._make_directory(absolute)

    def stage(self, directory: str) -> StagedFile:
        """Return an empty staged file, in ``directory`` itself so that it can be linked.

        Raises:
            NotFoundError: this store has seen the directory, and it was removed.
            StorageUnavailableError: the root is missing.
            StorageError: the file cannot be created.
        """
        return self._stage(self._absolute(directory))

    def _stage(
        self,
        directory: str,
        data: bytes | pa.Buffer | None = None,
        *,
        sync: bool = False,
        target: str | None = None,
    ) -> LocalStagedFile:
        """Return a staged file in a directory, given by its absolute path.

        Args:
            directory: the directory.
            data: all bytes of the file; None to write them later.
            sync: whether to flush ``data`` to the device.
            target: the path that errors name; None for the directory.
        """
        try:
            staged = LocalStagedFile(
                directory,
                self._make_directory,
                is_shared=True,
                data=data,
                sync=sync,
                target=target,
            )
        except StorageError:
            self.check_root()  # if the root itself is missing, raise that error
            raise
        if directory not in self._seen:
            self._seen.add(directory)
        return staged

    def _make_directory(self, directory: str) -> None:
        """Make a missing directory, with its parents.

        Raises:
            FileNotFoundError: someone has removed it since it was seen.
            OSError: it cannot be made.
            StorageError: the root is missing.
        """
        if self._guard is None:
            make_directories(directory, self._synced_names, self.url)
            return
        self.check_root()
        if directory not in self._seen or self._remakes_removed:
            check = self._guard.check_descriptor
            make_directories_below(self.url, directory, self._synced_names, check)
        elif not os.path.isdir(directory):  # no other thread has just made it
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)

    def put_if_absent(
        self, path: str, source: bytes | pa.Buffer | StagedFile, *, sync: bool = True
    ) -> None:
        """Write the file and link it under ``path``, unless the name is taken.

        Raises:
            AlreadyExistsError: the name is taken.
            UnknownOutcomeError: the link may exist, or may not survive a power cut.
            UnsupportedStoreError: the file system has no hard links.
            StorageFullError: no space; nothing is visible.
            StorageError: the file system failed; nothing is visible.
        """
        target = self._absolute(path)
        if isinstance(source, LocalStagedFile):
            self._link(path, target, source, sync)
        elif isinstance(source, StagedBytes):
            self._put_bytes(path, target, source, sync)
        else:
            data = source.read_back() if isinstance(source, StagedFile) else source
            with self._stage(os.path.dirname(target), data, sync=sync, target=path) as staged:
                self._link(path, target, staged, sync)

    def _put_bytes(self, path: str, target: str, source: StagedBytes, sync: bool) -> None:
        """Put bytes; keep their file if the name is taken, because the next put needs it."""
        staged, source.file = source.file, None
        if not isinstance(staged, LocalStagedFile):
            directory = os.path.dirname(target)
            staged = self._stage(directory, source.data, sync=sync, target=path)
        try:
            self._link(path, target, staged, sync)
        except AlreadyExistsError:
            source.file = staged
            raise
        except BaseException:
            staged.discard()
            raise
        staged.discard()

    def put(self, path: str, data: bytes | pa.Buffer, *, sync: bool = True) -> None:
        """Replace the file at ``path`` by a rename."""
        target = self._absolute(path)
        with self.stage(str(PurePosixPath(path).parent)) as staged:
            assert isinstance(staged, LocalStagedFile)
            with self._exchange_errors(path), storage_errors(path, "writing"):
                staged.sink.write(data)
                staged.seal()
                if sync:
                    staged.sync()
                    self._sync_names_to(os.path.dirname(target))
                self.check_root()  # after staging: see RootGuard
                os.replace(staged.path, target)
                if sync:
                    sync_path(os.path.dirname(target))

    def sync(self, path: str) -> None:
        """Make the file or directory at ``path`` durable, with the names of its parents.

        A file that another library of this process wrote gets the permissions of its directory.

        Raises:
            NotFoundError: ``path`` does not exist.
            StorageError: the sync failed; the file may be lost in a power cut.
        """
        absolute = self._absolute(path)
        with storage_errors(path):
            sync_path(absolute)
            if not os.path.isdir(absolute):
                with suppress(PermissionError):  # another user's file
                    share_file(absolute, os.path.dirname(absolute))
                absolute = os.path.dirname(absolute)
                sync_path(absolute)
            self._sync_names_to(absolute)

    def read(self, path: str, start: int, length: int) -> pa.Buffer:
        """Return up to ``length`` bytes from ``start``."""
        self.check_root()
        with storage_errors(path), open(self._absolute(path), "rb", buffering=0) as file:
            return pa.py_buffer(os.pread(file.fileno(), length, start))

    def read_tail(self, path: str, length: int) -> pa.Buffer:
        """Return the last ``length`` bytes, or the whole file if it is shorter."""
        self.check_root()
        with storage_errors(path), open(self._absolute(path), "rb", buffering=0) as file:
            start = max(0, os.fstat(file.fileno()).st_size - length)
            return pa.py_buffer(os.pread(file.fileno(), length, start))

    def open_buffer(self, path: str) -> pa.Buffer:
        """Return the whole file as a memory map; a small file is copied."""
        self.check_root()
        return map_file(self._absolute(path), path)

    def release_memory(self, buffer: pa.Buffer) -> None:
        """Take the pages of a memory map out of the process's memory."""
        release_pages(buffer)

    def list(self, directory: str, start_after: str | None = None) -> Iterator[FileInfo]:
        """Yield the files directly in ``directory`` in byte order of their names."""
        self.check_root()
        prefix = f"{directory}/" if directory else ""
        found = {
            entry.name: entry
            for entry in self._entries(directory)
            if (start_after is None or entry.name > start_after) and not entry.name.startswith(".")
        }
        with storage_errors(directory):
            for name in sorted(found):
                entry = found.pop(name)
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    yield FileInfo(f"{prefix}{name}", status.st_size, appeared_us(status))

    def list_hidden(self, directory: str) -> Iterator[FileInfo]:
        """Yield the hidden files directly in ``directory``, in no particular order."""
        self.check_root()
        prefix = f"{directory}/" if directory else ""
        for entry in self._entries(directory):
            with suppress(NotFoundError), storage_errors(f"{prefix}{entry.name}"):
                if entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
                    status = entry.stat()
                    path = f"{prefix}{entry.name}"
                    yield FileInfo(path, status.st_size, appeared_us(status))

    def list_directories(self, directory: str) -> Iterator[str]:
        """Yield the names of the directories directly in ``directory``, in no particular order."""
        self.check_root()
        for entry in self._entries(directory):
            if entry.is_dir() and not entry.name.startswith("."):
                yield entry.name

    def head(self, path: str) -> FileInfo:
        """Return size and time of the file."""
        self.check_root()
        with storage_errors(path):
            status = os.stat(self._absolute(path))
        return FileInfo(path, status.st_size, appeared_us(status))

    def is_gone(self, path: str) -> bool:
        """Return whether the file does not exist."""
        return not os.path.lexists(self._absolute(path))

    def delete(self, path: str) -> None:
        """Delete the file. Harmless if it does not exist."""
        self.check_root()
        try:
            with storage_errors(path, "deleting"):
                os.unlink(self._absolute(path))
        except StorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise

    def delete_directory(self, directory: str) -> None:
        """Delete the directory and everything below it. A failure is counted and logged."""
        self.check_root()
        absolute = self._absolute(directory)

        def note(_: object, path: str, failure: tuple[object, BaseException, object]) -> None:
            error = failure[1]
            if not isinstance(error, FileNotFoundError):  # another process deletes it too
                IN_PROCESS.add("deletion of a directory", absolute, error)

        shutil.rmtree(absolute, onerror=note)
        self._synced_names.forget(absolute)
        self._seen.forget(absolute)

    def directory_url(self, directory: str) -> str:
        """Return the absolute path of ``directory``."""
        return self._absolute(directory)

    @contextmanager
    def _exchange_errors(self, path: str) -> Iterator[None]:
        """Distinguish the reasons for which a staged file is missing (`_check_directory`)."""
        try:
            yield
        except NotFoundError as error:
            self._check_directory(path, error)
            raise

    def _check_directory(self, path: str, error: NotFoundError) -> None:
        """Check that the directory of a staged file that is missing was removed, not exchanged.

        Raises:
            StorageUnavailableError: the root is missing. Nothing was written.
            StagedFileLostError: another directory has taken the place of the one in which the file
                was staged. Nothing was written.
        """
        self.check_root()
        if self._guard is None or not os.path.isdir(os.path.dirname(self._absolute(path))):
            return
        raise StagedFileLostError(
            f"{path}: its directory was moved or exchanged while the file was written; nothing "
            f"was written",
            path=path,
        ) from error

    def _entries(self, directory: str) -> Iterator[os.DirEntry[str]]:
        absolute = self._absolute(directory)
        with suppress(NotFoundError), storage_errors(directory), os.scandir(absolute) as entries:
            yield from entries

    def _absolute(self, path: str) -> str:
        if not path or path == ".":
            return self.url
        if ".." in path and ".." in path.split("/"):
            raise StorageError(
                f"{path!r} leads out of {self.url} by '..'; give a path below it", path=path
            )
        return f"{self.url}/{path}"

    def _sync_names_to(self, directory: str) -> None:
        """Make the names of a directory and of its parents durable, up to the root.

        Another process may have created one of them without syncing it. Each directory is synced
        once: a durable name stays durable.
        """
        while directory != self.url:
            parent = os.path.dirname(directory)
            if directory not in self._synced_names:
                sync_path(parent)
                self._synced_names.add(directory)
            directory = parent

    def _sync_names_above_root(self) -> None:
        """Make the names of the root and of its parents durable, as far as this user may."""
        directory = os.path.dirname(self.url)
        while True:
            # A directory that may not be opened belongs to another user, who made it long ago. Some
            # file systems above a mount point cannot be synced.
            with suppress(OSError):
                sync_path(directory)
            if directory == os.path.dirname(directory):
                return
            directory = os.path.dirname(directory)

    def _link(self, path: str, target: str, staged: LocalStagedFile, sync: bool) -> None:
        """Give a staged file its name.

        Args:
            path: the name, relative to the root.
            target: the same as an absolute path.
            staged: the file.
            sync: whether the file and its name are durable on return.
        """
        try:
            self._link_once(path, target, staged, sync)
        except NotFoundError as error:
            self._check_directory(path, error)
            raise

    def _link_once(self, path: str, target: str, staged: LocalStagedFile, sync: bool) -> None:
        try:
            staged.seal()
            if sync:
                staged.sync()
                self._sync_names_to(os.path.dirname(target))
        except OSError as error:
            raise storage_error(error, path) from error
        self.check_root()  # after staging: see RootGuard
        try:
            os.link(staged.path, target)
        except FileExistsError:
            # NFS may report "exists" for its own second try, if the answer to the first was lost.
            if not _is_same_file(staged.path, target, path):
                raise AlreadyExistsError(f"{path} exists", path=path) from None
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise UnsupportedStoreError(
                    f"{self.url} lies on {describe_file_system(self.url)}, which cannot promise "
                    f"put-if-absent (no hard links: {os.strerror(error.errno)}); "
                    f"put the root on a file system that has them",
                    path=self.url,
                ) from error
            if error.errno in _NOT_LINKED:
                raise storage_error(error, path, "writing") from error
            if not _is_same_file(staged.path, target, path):
                raise UnknownOutcomeError(
                    f"{path}: {os.strerror(error.errno or 0)}; the file may exist all the same",
                    path=path,
                ) from error
        # The staged file stays: a put that came too late may be repeated under another name.
        if sync:
            try:
                sync_path(os.path.dirname(target))
            except OSError as error:
                raise UnknownOutcomeError(
                    f"{path} is visible, but its directory could not be synced: {error}; it may "
                    f"be lost if the machine crashes",
                    path=path,
                    is_visible=True,
                ) from error


def _is_same_file(staged: str, target: str, path: str) -> bool:
    try:
        return os.path.samefile(staged, target)
    except FileNotFoundError:
        return False  # another writer made the target, and it has been deleted since
    except OSError as error:
        raise UnknownOutcomeError(
            f"{path} exists, but it is unknown whether this put made it: {error}", path=path
        ) from error
