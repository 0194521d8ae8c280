"""Registers a broker: gives a storage root its identity, and then a record in the metadata log.

On storage: first ``meta.properties`` in the broker's root, by put-if-absent, and then a
``RegisterBrokerRecord`` with the same incarnation id. Only one of two registrations of one
root succeeds. A crash between the two leaves a root with an incarnation id that is not registered;
registering it again continues with this id.
"""

from __future__ import annotations

import logging
import os

from spark_log.cluster.cluster import Cluster
from spark_log.cluster.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    create_meta_properties,
    read_meta_properties,
)
from spark_log.errors import InvalidRootError, NotFoundError, StorageError
from spark_log.metadata import (
    ROOT_BROKER_ID,
    MetadataImage,
    MetadataRecord,
    check_has_no_credentials,
    check_is_outside_of_other_roots,
    register_broker_records,
)
from spark_log.storage import (
    QuorumStore,
    Store,
    checked_root,
    has_files,
    is_own_directory,
    with_reserve,
)
from spark_log.util import random_id

_log = logging.getLogger(__name__)


def register_broker(
    cluster: Cluster, broker_id: int, root: str | os.PathLike[str], *, rack: str | None = None
) -> None:
    """Register a storage root as a broker of a cluster; it is not fenced.

    A fenced broker whose data was lost is registered again with an empty root, the same or another.

    Args:
        cluster: the cluster. Its ``broker_options`` for this id open the root.
        broker_id: the broker's id, from 1 on.
        root: the root's path or URL, without credentials. It is created if it does not exist.
        rack: the rack that the root is in; None without one.

    Raises:
        DuplicateBrokerRegistrationError: the id or the root is registered; or the broker is fenced,
            and some partition has no other replica that may lead.
        InvalidRootError: the root is inside of another broker's root or around it, belongs to
            another cluster or broker, has the data of an earlier registration, or its URL has
            credentials.
        InvalidConfigurationError: the id is out of range, the rack is empty, or a storage option
            is unknown.
        UnsupportedStoreError: the storage does not support put-if-absent.
        UnknownOutcomeError: it is not known whether the broker was registered.
        StorageError: one of the two roots cannot be reached.
    """
    given = checked_root(root)
    check_has_no_credentials(given)
    store = cluster.unchecked_broker_store(broker_id, given)
    cluster_root = _roots_of(cluster.store)

    def records(image: MetadataImage, incarnation_id: str) -> list[MetadataRecord]:
        return register_broker_records(
            image,
            broker_id,
            store.url,
            cluster_root=cluster_root,
            incarnation_id=incarnation_id,
            rack=rack,
        )

    image = cluster.image()
    new = MetaProperties(cluster.cluster_id, broker_id, random_id())
    records(image, new.incarnation_id)  # refuse before anything is written
    _check_links(image, broker_id, store.url, cluster_root)
    incarnation_id = _take_root(store, new)
    with cluster.suppressed.suppress("reserve", store.url, StorageError):
        store.keep_reserve()
    with_reserve(
        cluster.store,
        lambda: cluster.metadata.commit(lambda image: records(image, incarnation_id)),
    )
    _log.info("%s: registered broker %d with the root %s", cluster.root, broker_id, store.url)


def check_new_voter(cluster: Cluster, root: str) -> None:
    """Check that a new member of the quorum shares no files with other roots.

    Args:
        cluster: the cluster, whose root is the quorum, or will be a member of it.
        root: the URL of the new member. Nothing is checked if it is a member already.

    Raises:
        InvalidRootError: the root is inside of a member or of a broker's root, or has one inside.
        StorageError: the metadata cannot be read.
    """
    image, members = cluster.image(), _roots_of(cluster.store)
    if isinstance(cluster.store, QuorumStore) and root in members.split(","):
        return
    check_is_outside_of_other_roots(image, ROOT_BROKER_ID, root, members)
    _check_links(image, ROOT_BROKER_ID, root, members)


def _check_links(image: MetadataImage, broker_id: int, root: str, cluster_root: str) -> None:
    """Check a local root for a link that leads into another root."""
    if "://" not in root:
        real_roots = ",".join(os.path.realpath(each) for each in cluster_root.split(","))
        check_is_outside_of_other_roots(image, broker_id, os.path.realpath(root), real_roots)


def _roots_of(store: Store) -> str:
    """Return the URL of a root; for a quorum, the URLs of all its members, separated by commas."""
    return store.members().membership.url if isinstance(store, QuorumStore) else store.url


def _take_root(store: Store, new: MetaProperties) -> str:
    """Create ``meta.properties`` in a root, unless it has the file; return the incarnation id.

    Raises:
        InvalidRootError: the root belongs to another broker or cluster, or has data.
    """
    try:
        found = read_meta_properties(store)
    except NotFoundError:
        _check_has_no_data(store)
        found = create_meta_properties(store, new)
    if (found.cluster_id, found.broker_id) != (new.cluster_id, new.broker_id):
        raise InvalidRootError(
            f"{store.url} is {found}; give another root for broker {new.broker_id}, or, if nothing "
            f"in it is needed, remove its files",
            path=store.url,
        )
    _check_has_no_data(store)
    return found.incarnation_id


def _check_has_no_data(store: Store) -> None:
    """Refuse a root with files that were written before this registration.

    Directories without files are ignored: they remain when a user removes all files of a root.
    """
    for name in store.list_directories(""):
        if is_own_directory(name) and has_files(store, name):
            raise InvalidRootError(
                f"{store.url} has data of an earlier registration (directory {name}); give an "
                f"empty root, or, if nothing in it is needed, remove its files and "
                f"{META_PROPERTIES}",
                path=store.url,
            )
