"""Opens the store of a root, with the backend that the URL's scheme names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from spark_log.errors import InvalidConfigurationError, UnsupportedStoreError
from spark_log.storage.local import LocalStore
from spark_log.storage.root_directories import VOTERS
from spark_log.storage.store import StorageOptions, Store

if TYPE_CHECKING:  # imported for type checkers only
    from spark_log.storage.quorum import QuorumStore


def open_store(
    root: str | os.PathLike[str] | None,
    storage_options: StorageOptions | None = None,
    *,
    request_timeout_ms: int | None = None,
) -> Store:
    """Return the store for ``root``: a local path, or a URL, or several with commas between them.

    Args:
        root: a path, ``file://…``, ``memory://name`` (this process only), or a bucket and prefix:
            ``s3://…``, ``gs://…``, ``az://…``, ``abfs://…``. Several are the members of a quorum.
            A local root that is a member opens the whole quorum; one on an object store does not,
            as that takes a request (`find_quorum`).
        storage_options: options of an object store, with the names of s3fs, gcsfs and adlfs; never
            printed or logged. For a quorum the value of a key that is a member's root is a mapping
            with options of this member.
        request_timeout_ms: time limit of a request to an object store; a put may take twice as
            long. None for the default of ``request.timeout.ms``.

    Raises:
        UnsupportedStoreError: no backend of this scheme can promise put-if-absent, or a package
            that the backend needs is not installed.
        InvalidRootError: the URL names no bucket.
        InvalidConfigurationError: the root is not a path, or a storage option is unknown.
    """
    url = checked_root(root)
    roots = [each.strip() for each in url.split(",") if each.strip()]
    if len(roots) > 1:
        return open_quorum(roots, storage_options, request_timeout_ms=request_timeout_ms)
    store = open_one_root(url, storage_options, request_timeout_ms)
    if isinstance(store, LocalStore) and os.path.isdir(f"{store.url}/{VOTERS}"):
        return open_quorum([store.url], storage_options, request_timeout_ms=request_timeout_ms)
    return store


def find_quorum(
    store: Store,
    storage_options: StorageOptions | None = None,
    *,
    request_timeout_ms: int | None = None,
) -> Store:
    """Return the quorum that a root on an object store belongs to, or ``store``; one request.

    Args:
        store: the store that `open_store` returned for a root.
        storage_options: options as `open_store` takes them.
        request_timeout_ms: time limit of a request as `open_store` takes it.

    Raises:
        StorageError: the root does not answer.
        CorruptRecordError: the root's list of the members is damaged.
        InvalidConfigurationError: another member needs a storage option, which the error names.
    """
    from spark_log.storage.quorum import QuorumStore, RootStatus, read_membership

    if store.is_mapped or isinstance(store, QuorumStore):
        return store
    status = RootStatus.of(store)
    if not status.version:
        return store
    roots = [voter.root for voter in read_membership(store, status.version).voters]
    try:
        return open_quorum(roots, storage_options, request_timeout_ms=request_timeout_ms)
    except InvalidConfigurationError as error:
        raise InvalidConfigurationError(
            f"{store.url} is a member of the quorum {','.join(roots)}, and not all of these roots "
            f"have the same storage options ({error.message}); give the options of such a root "
            f"under its URL: storage_options={{URL: {{...}}}}",
            key=error.key,
        ) from error


def open_one_root(
    url: str, storage_options: StorageOptions | None, request_timeout_ms: int | None = None
) -> Store:
    """Return the store for one root, also if it is a member of a quorum.

    Raises:
        UnsupportedStoreError: no backend of a root's scheme can promise put-if-absent, or a package
            that the backend needs is not installed.
        InvalidRootError: a URL names no bucket.
        InvalidConfigurationError: a root is not a path, or a storage option is unknown.
    """
    protocol, path = None, url
    if "://" in url or "::" in url:
        import fsspec.core  # importing it takes as long as appending a record

        protocol, path = fsspec.core.split_protocol(url)
    if protocol in (None, "file", "local"):
        return LocalStore(path)
    if protocol == "memory":
        from spark_log.storage.memory import MemoryStore

        return MemoryStore(path)
    from spark_log.storage.object import SERVICES

    if protocol in SERVICES:
        return _open_object_store(url, storage_options, request_timeout_ms)
    raise UnsupportedStoreError(
        f"{protocol}:// cannot be a root: spark-log needs storage with put-if-absent; "
        f"use a local path, file://, memory://, {', '.join(f'{name}://' for name in SERVICES)}",
        path=f"{protocol}://",
    )


def open_quorum(
    roots: Sequence[str],
    storage_options: StorageOptions | None = None,
    *,
    request_timeout_ms: int | None = None,
) -> QuorumStore:
    """Return the store of a quorum.

    Args:
        roots: one or more members of the quorum; or all roots from which `Store.create_root` is to
            make a quorum.
        storage_options: options as `open_store` takes them.
        request_timeout_ms: time limit of a request as `open_store` takes it.

    Raises:
        UnsupportedStoreError: no backend of a root's scheme can promise put-if-absent, or a package
            that the backend needs is not installed.
        InvalidRootError: a URL names no bucket.
        InvalidConfigurationError: a root is not a path, or a storage option is unknown.
    """
    from spark_log.storage.quorum import MappedQuorumStore, QuorumStore

    open_root = partial(_open_member, request_timeout_ms=request_timeout_ms)
    stores = [open_root(root, storage_options) for root in roots]
    twice = [url for url, count in Counter(store.url for store in stores).items() if count > 1]
    if twice:
        raise InvalidConfigurationError(
            f"the root {twice[0]} is given twice; give each member of the quorum once", key="root"
        )
    kind = MappedQuorumStore if all(store.is_mapped for store in stores) else QuorumStore
    return kind([store.url for store in stores], storage_options, open_root)


def _open_member(
    root: str, options: StorageOptions | None, *, request_timeout_ms: int | None
) -> Store:
    """Open a member with the options that are for all roots, and those that are for this one.

    Raises:
        InvalidConfigurationError: the root is in this process's memory, is not a path, or a storage
            option is unknown.
    """
    if root.startswith("memory://"):
        raise InvalidConfigurationError(
            f"{root} cannot be a member of a quorum: it ends with this process, and counts as lost "
            f"from then on; give a path or the URL of an object store",
            key="root",
        )
    given = options or {}
    common = {key: value for key, value in given.items() if not isinstance(value, Mapping)}
    own = given.get(root)
    return open_one_root(
        root, {**common, **(own if isinstance(own, Mapping) else {})}, request_timeout_ms
    )


def checked_root(root: object) -> str:
    """Return a root that a user gave, a path or URL, as text.

    Raises:
        InvalidConfigurationError: the root is missing, or not a path.
    """
    if not isinstance(root, str | os.PathLike) or root == "":
        given = "is missing" if root in (None, "") else f"is a {type(root).__name__}"
        settings = (
            "; settings are keyword arguments, such as linger_ms=5"
            if isinstance(root, Mapping)
            else ""
        )
        raise InvalidConfigurationError(
            f"root {given}; give the path or URL of the storage that holds the log, such as "
            f"root='/data/log' or root='s3://bucket/log'{settings}",
            key="root",
        )
    return os.fspath(root)


def _open_object_store(
    url: str, storage_options: StorageOptions | None, request_timeout_ms: int | None
) -> Store:
    from spark_log.storage.object import SERVICES, ObjectLocation

    location = ObjectLocation.parse(url, storage_options)
    try:
        from spark_log.storage.object import ObjectStore
    except ModuleNotFoundError as error:
        raise UnsupportedStoreError(
            f"{location.url} needs {error.name}: pip install "
            f"'spark-log[{SERVICES[url.partition('://')[0]]}]'",
            path=location.url,
        ) from error
    if request_timeout_ms is None:
        return ObjectStore(location)
    return ObjectStore(location, request_timeout_ms=request_timeout_ms)
