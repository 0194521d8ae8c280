"""Creates a quorum: the first list of its members.

On storage: ``.quorum/founding.json`` on the first root (in order of their URLs) is the first list.
It is put by put-if-absent, so of several processes one decides the ids of the roots. Then each root
gets the list (`spark_log.storage.quorum.membership`). After a crash the next creation installs it
on the rest.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from spark_log.errors import InvalidConfigurationError, InvalidRootError
from spark_log.storage.quorum.membership import Membership, RootStatus, Voter
from spark_log.storage.quorum.proposal import write_once
from spark_log.storage.root_directories import QUORUM_DIRECTORY, is_of_file_system
from spark_log.storage.store import Store, has_files

_FOUNDING: Final = f"{QUORUM_DIRECTORY}/founding.json"


def found_quorum(stores: Mapping[str, Store], *, keeps_files: bool = False) -> Membership:
    """Make roots the members of a new quorum, and return the list.

    Args:
        stores: by its URL, the store of each root.
        keeps_files: whether the roots may have files, which is possible for a single root only.

    Raises:
        InvalidConfigurationError: the number of roots is even.
        InvalidRootError: a root has files already, is inside of another one, or belongs to another
            quorum.
        StorageError: a root does not answer.
    """
    for root in stores:
        outer = next((each for each in stores if root.startswith(f"{each.rstrip('/')}/")), None)
        if outer is not None:
            raise InvalidRootError(f"{root} is inside of {outer}; give separate roots", path=root)
    if not len(stores) % 2:
        raise InvalidConfigurationError(
            f"a quorum of {len(stores)} roots survives no more losses than one of "
            f"{len(stores) - 1}: give an odd number of roots, such as 3",
            key="root",
        )
    for root, store in stores.items():
        store.create_root()
        if not keeps_files and not RootStatus.of(store).version:
            check_is_empty(root, store)
    voters = tuple(Voter(root, uuid.uuid4().hex) for root in sorted(stores))
    first = stores[min(stores)]
    decided = write_once(first, _FOUNDING, Membership(1, voters).to_json())
    membership = Membership.parse(decided, f"{first.url}/{_FOUNDING}")
    if {voter.root for voter in membership.voters} != set(stores):
        raise InvalidRootError(
            f"{first.url} belongs to the quorum {membership.url}; give these roots", path=first.url
        )
    for voter in membership.voters:
        voter.give_id(stores[voter.root])
        membership.install(stores[voter.root])
    return membership


def check_is_empty(root: str, store: Store) -> None:
    """Check that a root has no files that would be taken for files of the quorum.

    Empty directories are allowed: they remain after all files of a member were removed.

    Raises:
        InvalidRootError: it has files.
    """
    names = [each for each in store.list_directories("") if not is_of_file_system(each)]
    has_file = next(iter(store.list("")), None) is not None
    if has_file or any(has_files(store, each) for each in names):
        raise InvalidRootError(
            f"{root} has files already, and is no member of a quorum; give it alone, give empty "
            f"roots, or make the quorum from this root: spark-log quorum add OTHER --root {root}",
            path=root,
        )
