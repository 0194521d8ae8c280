"""Recognises a local root by a file in it, so that nothing is done if another root took its place.

A root's file system may be unmounted, and its directory may be moved, removed, or replaced by that
of another root. Without a guard, a writer would then create new directories at the root's path.
"""

from __future__ import annotations

import os

from spark_log.errors import StorageUnavailableError
from spark_log.storage.store import CheckRoot, Store

_Identity = tuple[int, int, int]
"""Device, inode, and the time at which the inode changed, in nanoseconds."""


class RootGuard:
    """Checks that a root is the one that was opened. Costs one ``stat`` while nothing has changed.

    Safe in several threads. A check and the operation after it are two steps: `LocalStore` stages a
    file before the check, and links it after. If the root is exchanged between them, the staged
    file is not in the new one, and the link fails.
    """

    def __init__(self, store: Store, marker: str, check: CheckRoot) -> None:
        """Access nothing yet.

        Args:
            store: the store of the root, without a guard.
            marker: path of a file that the root has from its creation on, relative to the root.
            check: function that reads the marker. It is called when the marker is missing, or is
                not the file that was checked last: the file system was mounted again, or a copy was
                restored.
        """
        self._store = store
        self._marker = marker
        self._check = check
        self._checked: _Identity | None = None

    def check(self) -> bool:
        """Check the root; return whether the marker is the file that was checked last.

        Raises:
            StorageError: the root is missing, or is another one.
        """
        found = self._identity(f"{self._store.url}/{self._marker}")
        if found is not None and found == self._checked:
            return True
        self._check(self._store)
        self._checked = found
        return False

    def check_descriptor(self, descriptor: int) -> None:
        """Check that an open directory is the root that was checked last.

        Args:
            descriptor: the directory's file descriptor. A file made relative to it is made in this
                root, whatever happens to the root's path.

        Raises:
            StorageUnavailableError: the root was exchanged or removed meanwhile.
        """
        if self._identity(self._marker, descriptor) != self._checked:
            raise StorageUnavailableError(
                f"the root {self._store.url} was exchanged or removed while it was written to; "
                f"nothing was written",
                path=self._store.url,
            )

    @staticmethod
    def _identity(path: str, descriptor: int | None = None) -> _Identity | None:
        try:
            status = os.stat(path, dir_fd=descriptor)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_ctime_ns
