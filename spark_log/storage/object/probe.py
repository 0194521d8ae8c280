"""Checks that a server honours conditional writes, before a root is created on it.

Some servers ignore the condition, some refuse it, and some check it before they write, so that two
concurrent writers both succeed. On such a server the log would lose records.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NoReturn

import obstore

from spark_log.errors import (
    AlreadyExistsError,
    InvalidRootError,
    StorageError,
    UnsupportedStoreError,
)
from spark_log.storage.object.clients import ObjectClients
from spark_log.storage.object.errors import REQUEST_ERRORS, Failure, call_obstore
from spark_log.storage.object.location import ObjectLocation
from spark_log.storage.store import Store
from spark_log.util import IN_PROCESS

_RACES: Final = 3
_CONTENDERS: Final = 8


def probe_root(
    store: Store,
    location: ObjectLocation,
    clients: ObjectClients,
    *,
    put_id: Callable[[str], str | None],
) -> None:
    """Test conditional puts, copies and races with a few hidden objects, and delete them.

    Args:
        store: the store of the root.
        location: the root.
        clients: the store's clients.
        put_id: function that returns the id of the put from an object's metadata; None without one.

    Raises:
        UnsupportedStoreError: conditional writes do not work; the message says how they fail.
        InvalidRootError: the bucket does not exist.
        StorageError: the server does not answer, or refuses plain writes.
    """
    names = [f".probe-{uuid.uuid4().hex}" for _ in range(2 + _RACES)]
    put, copy, *races = names
    try:
        _try_put(store, put, put_id)
        if location.service == "s3":
            _try_copy(store, location, clients, put, copy)
        for race in races:
            _try_race(store, race)
    except InvalidRootError:
        raise InvalidRootError(
            f"{store.url}: the bucket {location.bucket!r} does not exist; create it first, or "
            f"check its name",
            path=store.url,
        ) from None
    finally:
        with IN_PROCESS.suppress("deletion of a probe", store.url, StorageError):
            for name in names:
                store.delete(name)


def _try_put(store: Store, name: str, put_id: Callable[[str], str | None]) -> None:
    # Plain writes first: if they fail, the bucket, credentials or permissions are wrong.
    store.put(name, b"")
    store.delete(name)
    try:
        store.put_if_absent(name, b"probe")
    except StorageError as error:
        if error.retriable or isinstance(error, UnsupportedStoreError):
            raise
        _refuse(store, f"it does not accept a conditional put ({error})")
    if put_id(name) is None:
        _refuse(store, "it does not keep the object metadata that identifies a put")
    try:
        store.put_if_absent(name, b"another")
    except AlreadyExistsError:
        return
    _refuse(store, "it ignores the condition of a PUT (If-None-Match)")


def _try_copy(
    store: Store, location: ObjectLocation, clients: ObjectClients, source: str, name: str
) -> None:
    for is_taken in (False, True):
        try:
            call_obstore(obstore.copy, clients.copier, source, name, overwrite=False)
        except REQUEST_ERRORS as error:
            failure = Failure.of(error)
            if failure.is_conflict and is_taken:
                return
            if failure.is_retriable:
                raise failure.error(name, location.server) from None
            _refuse(store, f"it does not complete a multipart upload conditionally ({failure})")
    _refuse(store, "it ignores the condition when it completes a multipart upload")


def _try_race(store: Store, name: str) -> None:
    def contend(number: int) -> bool:
        try:
            store.put_if_absent(name, str(number).encode())
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(_CONTENDERS) as pool:
        winners = sum(pool.map(contend, range(_CONTENDERS)))
    if winners != 1:
        _refuse(store, f"{winners} of {_CONTENDERS} concurrent writers created the same object")


def _refuse(store: Store, reason: str) -> NoReturn:
    raise UnsupportedStoreError(
        f"{store.url} cannot be a root: two writers could create the same object, because "
        f"{reason}; spark-log needs an object store with conditional writes",
        path=store.url,
    )
