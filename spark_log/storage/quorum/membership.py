"""Membership of a quorum: the list of its roots, on each of them, and on each root its id.

On storage, in ``.quorum/voters`` of each root: ``id.<id>``, which the root gets when it becomes a
member (Kafka's ``directory.id``, KIP-853) and never again; and ``<version>.json``, a file for each
version of the list. One listing tells whether a root still is what it was: a root that lost its
files has no id, and one that was replaced has another. Such a root may have forgotten what it
promised, so its answers do not count. Files are only added. A crash while a version is installed
leaves some roots with an older list: they count, and the next change of the members installs the
list on them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import partial

from spark_log.errors import CorruptRecordError, NotFoundError, StorageUnavailableError
from spark_log.storage.root_directories import QUORUM_CHANGES, VOTERS
from spark_log.storage.store import Store
from spark_log.util import parse_json

_LIST = re.compile(r"(\d{10})\.json")
_ID = re.compile(r"id\.([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of a quorum.

    Attributes:
        root: its path or URL, without credentials.
        directory_id: a random id that the root got when it became a member.
    """

    root: str
    directory_id: str

    @property
    def id_path(self) -> str:
        """Path of the file that shows that the root has this id."""
        return f"{VOTERS}/id.{self.directory_id}"

    def guarded(self, store: Store) -> Store:
        """Return a store of the root that raises an error if the root has lost the id.

        Clients that do not know yet that a member was wiped or removed would otherwise write to it,
        and no reader counts what it answers. On an object store nothing is checked.

        Args:
            store: the store of the root.
        """
        check = partial(_check_has_id, path=self.id_path)
        return store.guarded(self.id_path, check, remakes_removed=True)

    def give_id(self, store: Store) -> None:
        """Give the root the id with which it becomes a member; harmless if it has it.

        Args:
            store: the store of the root.

        Raises:
            StorageError: the root may not have it.
        """
        store.put(self.id_path, b"")

    def take_id(self, store: Store) -> None:
        """Take the id from a root that is no member any more; harmless if it does not have it.

        Args:
            store: the store of the root.

        Raises:
            StorageError: the root may have it.
        """
        store.delete(self.id_path)


@dataclass(frozen=True, slots=True)
class Membership:
    """The members of a quorum.

    Attributes:
        version: 1 for the first list; each change adds 1.
        voters: the members. A change adds or removes one, so a majority of one version has a member
            in common with each majority of the next.
    """

    version: int
    voters: tuple[Voter, ...]

    @property
    def majority(self) -> int:
        """Number of members that are a majority."""
        return len(self.voters) // 2 + 1

    @property
    def url(self) -> str:
        """The roots, separated by commas."""
        return ",".join(voter.root for voter in self.voters)

    @property
    def change_path(self) -> str:
        """The file by which the members of the version before decided on this version."""
        return f"{QUORUM_CHANGES}/{self.version:010}.json"

    def to_json(self) -> bytes:
        """Return the content of the list's files."""
        voters = [{"root": each.root, "directory.id": each.directory_id} for each in self.voters]
        return json.dumps({"version": self.version, "voters": voters}, indent=2).encode()

    @classmethod
    def parse(cls, data: bytes, path: str) -> Membership:
        """Return the list of a file.

        Raises:
            CorruptRecordError: it is no list of members.
        """
        try:
            found = parse_json(data)
            voters = tuple(Voter(each["root"], each["directory.id"]) for each in found["voters"])
            return cls(int(found["version"]), voters)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptRecordError(f"{path} is no list of the members of a quorum") from error

    def install(self, store: Store) -> None:
        """Put the list on a root; harmless if the root has it. This does not make it a member.

        Raises:
            StorageError: the list may not be on the root.
        """
        store.put(f"{VOTERS}/{self.version:010}.json", self.to_json())


@dataclass(frozen=True, slots=True)
class RootStatus:
    """The newest list version of its quorum that a root has, and the ids of the root.

    Attributes:
        version: the newest version of the list on the root; 0 without a list.
        directory_ids: the ids of the root. It has several if the answer to one was lost.
    """

    version: int = 0
    directory_ids: frozenset[str] = frozenset()

    @classmethod
    def of(cls, store: Store) -> RootStatus:
        """Return the list version and the ids of a root; one listing.

        Raises:
            StorageError: the root does not answer.
        """
        names = [file.name for file in store.list(VOTERS)]
        versions = [int(found[1]) for name in names if (found := _LIST.fullmatch(name))]
        ids = frozenset(found[1] for name in names if (found := _ID.fullmatch(name)))
        return cls(max(versions, default=0), ids)


def lost_id_error(root: str, *, is_replaced: bool = False) -> StorageUnavailableError:
    """Return the error for a member that is not what it was.

    Args:
        root: its URL.
        is_replaced: whether it has another id.
    """
    found = "has another id" if is_replaced else "has lost its id"
    return StorageUnavailableError(
        f"the root {found}: it was wiped or replaced, or is not mounted, and does not count "
        f"until spark-log quorum remove and add have renewed it",
        path=root,
    )


def _check_has_id(store: Store, path: str) -> None:
    try:
        store.head(path)
    except NotFoundError:
        raise lost_id_error(store.url) from None


def read_membership(store: Store, version: int) -> Membership:
    """Return a version of the list that a root has.

    Raises:
        StorageError: it cannot be read.
        CorruptRecordError: the file is no list of members.
    """
    path = f"{VOTERS}/{version:010}.json"
    return Membership.parse(store.open_buffer(path).to_pybytes(), f"{store.url}/{path}")
