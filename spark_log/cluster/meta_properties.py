"""``meta.properties``: the file with the cluster and the broker that a storage root belongs to.

On storage: lines ``key=value`` in the root, created once by put-if-absent and never changed. They
are ``version=1`` and ``cluster.id``. The root of a broker other than 0 also has ``broker.id`` and
``incarnation.id``, the id of the broker's registration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from spark_log.errors import (
    AlreadyExistsError,
    InvalidRootError,
    NotFoundError,
    StorageError,
    StorageUnavailableError,
)
from spark_log.storage import TRANSIENT_ERRNOS, Store

META_PROPERTIES: Final = "meta.properties"
FORMAT_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of ``meta.properties``.

    Attributes:
        cluster_id: the id of the cluster.
        broker_id: the id of the broker; None in the root of the cluster, which is broker 0.
        incarnation_id: the id of the broker's registration; empty in the root of the cluster.
    """

    cluster_id: str
    broker_id: int | None = None
    incarnation_id: str = ""

    def __str__(self) -> str:
        """Return a description of the root for messages: its broker and its cluster."""
        if self.broker_id is None:
            return f"the root of the cluster {self.cluster_id}"
        return f"the root of broker {self.broker_id} of the cluster {self.cluster_id}"


def read_meta_properties(store: Store) -> MetaProperties:
    """Return the content of a root's ``meta.properties``.

    Raises:
        NotFoundError: the root has no such file, or does not exist.
        StorageUnavailableError: the storage does not answer; try again.
        InvalidRootError: the root is a file, or an incompatible version created it.
    """
    store.check_root()
    try:
        text: str = store.open_buffer(META_PROPERTIES).to_pybytes().decode("utf-8", "replace")
    except NotFoundError:
        raise
    except StorageError as error:
        raise unreadable_root(store, error) from error
    lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    properties = {key.strip(): value.strip() for key, _, value in lines}
    if properties.get("version") != FORMAT_VERSION or not properties.get("cluster.id"):
        raise InvalidRootError(
            f"{store.url}/{META_PROPERTIES} has version {properties.get('version')!r}; "
            f"this spark-log reads version {FORMAT_VERSION!r}",
            path=store.url,
        )
    broker_id, incarnation_id = properties.get("broker.id"), properties.get("incarnation.id", "")
    if broker_id is not None and not (broker_id.isdecimal() and incarnation_id):
        raise InvalidRootError(
            f"{store.url}/{META_PROPERTIES} has broker.id {broker_id!r} and incarnation.id "
            f"{incarnation_id!r}; expected a number and an id: the file is damaged",
            path=store.url,
        )
    return MetaProperties(
        properties["cluster.id"], None if broker_id is None else int(broker_id), incarnation_id
    )


def check_is_root(store: Store, expected: MetaProperties) -> None:
    """Check that a root exists, and belongs to the expected cluster and registration.

    Args:
        store: the store of the root.
        expected: the content that ``meta.properties`` must have.

    Raises:
        StorageUnavailableError: the root has no such file, does not exist, or does not answer.
        InvalidRootError: it is another root.
    """
    broker_id = expected.broker_id
    try:
        found = read_meta_properties(store)
    except NotFoundError:
        whose, if_lost = "", ""
        if broker_id is not None:
            whose = f" of broker {broker_id}"
            if_lost = (
                f"; if its data is lost, fence the broker and register it again: spark-log brokers "
                f"fence {broker_id}"
            )
        raise StorageUnavailableError(
            f"the root {store.url}{whose} cannot be found (no {META_PROPERTIES}): mount it again, "
            f"or move it back{if_lost}",
            path=store.url,
        ) from None
    if found == expected:
        return
    if str(found) == str(expected):
        raise InvalidRootError(
            f"{store.url} is of another registration of broker {broker_id} (incarnation.id "
            f"{found.incarnation_id}, registered is {expected.incarnation_id}): it was emptied or "
            f"replaced, or a copy was restored; mount or move the right storage there",
            path=store.url,
        )
    known_as = "was opened as" if broker_id is None else "is registered as"
    raise InvalidRootError(
        f"{store.url} {known_as} {expected}, but is {found}: mount or move the right storage there",
        path=store.url,
    )


def guarded_root(store: Store, expected: MetaProperties) -> Store:
    """Return a store that refuses calls while its root is missing, or is another root.

    The calls raise the errors of `check_is_root`. On an object store nothing is checked.

    Args:
        store: the store of the root.
        expected: the content that ``meta.properties`` must have.
    """
    return store.guarded(META_PROPERTIES, partial(check_is_root, expected=expected))


def unreadable_root(store: Store, error: StorageError) -> StorageError:
    """Return the error for a root that cannot be read, now or ever."""
    if _is_transient(error):
        return StorageUnavailableError(
            f"the root {store.url} cannot be reached: {error}", path=store.url
        )
    if isinstance(error, InvalidRootError):  # raised for the members of a quorum
        return error
    # An object store has no directories that a file could replace.
    hint = "; a root is a directory" if store.is_local else ""
    return InvalidRootError(f"{store.url} cannot be read as a root: {error}{hint}", path=store.url)


def create_meta_properties(store: Store, properties: MetaProperties) -> MetaProperties:
    """Create a root and its ``meta.properties``, unless it has the file; return the file's content.

    If another process is first, this is the content that the other process wrote. A crash leaves an
    empty root or a complete file.

    Raises:
        InvalidRootError: the root cannot be created, or an incompatible version created it.
        UnsupportedStoreError: the storage does not support put-if-absent.
        UnknownOutcomeError: the answer was lost; the file may exist. Call this again.
    """
    store.create_root()
    kind = "cluster" if properties.broker_id is None else "broker"
    lines = [
        f"# spark-log {kind} root",
        f"version={FORMAT_VERSION}",
        f"cluster.id={properties.cluster_id}",
    ]
    if properties.broker_id is not None:
        lines += [
            f"broker.id={properties.broker_id}",
            f"incarnation.id={properties.incarnation_id}",
        ]
    try:
        store.put_if_absent(META_PROPERTIES, "".join(f"{line}\n" for line in lines).encode())
    except AlreadyExistsError:  # another process was first
        store.sync(META_PROPERTIES)
    return read_meta_properties(store)


def _is_transient(error: StorageError) -> bool:
    """Return whether a retry may find the root."""
    cause = error.__cause__
    return error.retriable or (isinstance(cause, OSError) and cause.errno in TRANSIENT_ERRNOS)
