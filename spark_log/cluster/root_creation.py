"""Finds the id of a cluster's root, or creates the root.

On storage: ``meta.properties`` with the cluster id and the format version, created once by
put-if-absent, before anything else. A crash after it leaves an empty, valid cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from spark_log.cluster.meta_properties import (
    FORMAT_VERSION,
    META_PROPERTIES,
    MetaProperties,
    create_meta_properties,
    read_meta_properties,
)
from spark_log.errors import (
    InvalidRootError,
    NotFoundError,
    RootNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from spark_log.storage import Store, has_files, is_own_directory
from spark_log.util import SuppressedErrors, random_id

_log = logging.getLogger(__name__)


def find_or_create_root(
    store: Store,
    *,
    create: bool,
    is_open_elsewhere: Callable[[], bool],
    suppressed: SuppressedErrors,
) -> str:
    """Return the cluster id of a root.

    Args:
        store: the store of the root.
        create: whether to create the root if it does not exist.
        is_open_elsewhere: returns whether another client of this process has the root open.
        suppressed: counts a failure to reserve disk space for deletions on a full disk.

    Raises:
        RootNotFoundError: the root does not exist, and ``create`` is false.
        InvalidRootError: it has files of a root, and no ``meta.properties``; or it is the root of a
            broker other than 0.
        StorageUnavailableError: this process has a root open at this path, which is missing now.
        StorageError: it cannot be read or created.
    """
    try:
        return read_cluster_id(store)
    except NotFoundError:
        own = _own_directory(store)
        if own:
            return _read_beside_files(store, own)
        if not create:
            raise RootNotFoundError(
                f"there is no spark-log root at {store.url}; check the path, or create a "
                f"topic there: spark-log topics create NAME --root {store.url}",
                path=store.url,
            ) from None
    if is_open_elsewhere():
        raise StorageUnavailableError(
            f"the root {store.url} cannot be found (no {META_PROPERTIES}): mount it again, or "
            f"move it back. No new root is created there as long as this process has the old "
            f"one open: close its clients first, or start another process",
            path=store.url,
        )
    create_meta_properties(store, MetaProperties(random_id()))
    with suppressed.suppress("reserve", store.url, StorageError):
        store.keep_reserve()
    cluster_id = read_cluster_id(store)
    _log.info("%s: created a new root, of the cluster %s", store.url, cluster_id)
    return cluster_id


def read_cluster_id(store: Store) -> str:
    """Return the cluster id in a root's ``meta.properties``.

    Raises:
        NotFoundError: the root has no such file, or does not exist.
        InvalidRootError: it is the root of a broker other than 0.
        StorageError: the root cannot be read.
    """
    found = read_meta_properties(store)
    if found.broker_id is not None:
        raise InvalidRootError(
            f"{store.url} is {found}, and not of the cluster itself; give the root that has "
            f"the metadata log",
            path=store.url,
        )
    return found.cluster_id


def _own_directory(store: Store) -> str:
    """Return the name of a directory with files that only a root has; empty without one.

    A directory without files may have been made beforehand, with permissions of its own.
    """
    names = filter(is_own_directory, store.list_directories(""))
    return next((name for name in names if has_files(store, name)), "")


def _read_beside_files(store: Store, directory: str) -> str:
    """Read ``meta.properties`` again: another process may just have created the root.

    Raises:
        InvalidRootError: the root was created, and ``meta.properties`` was removed.
    """
    try:
        return read_cluster_id(store)
    except NotFoundError:
        raise InvalidRootError(
            f"{store.url} has the directory {directory} of a root, but no {META_PROPERTIES}: "
            f"the file was removed, or only a part of a root was restored. "
            f"Restore it from a copy; it has two lines, version={FORMAT_VERSION} and "
            f"cluster.id=, with 22 letters and digits of your choice if the id is not known",
            path=store.url,
        ) from None
