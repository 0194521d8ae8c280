"""Which roots form a quorum: a list on each of them, and on each root its id.

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
from typing import Final

from spark_log.errors import CorruptRecordError
from spark_log.storage.root_directories import QUORUM_CHANGES
from spark_log.storage.store import Store
from spark_log.untrusted_json import parse_json

DIRECTORY: Final = ".quorum"
"""Directory of what the quorum keeps beside the files of a directory."""

VOTERS: Final = f"{DIRECTORY}/voters"

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
        """How many members are more than half."""
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
class Standing:
    """What a root knows of its quorum.

    Attributes:
        version: the newest version of the list on it; 0: it has none.
        directory_ids: the ids of the root. It has several if the answer to one was lost.
    """

    version: int = 0
    directory_ids: frozenset[str] = frozenset()

    @classmethod
    def of(cls, store: Store) -> Standing:
        """Return what a root knows; one listing.

        Raises:
            StorageError: the root does not answer.
        """
        names = [file.name for file in store.list(VOTERS)]
        versions = [int(found[1]) for name in names if (found := _LIST.fullmatch(name))]
        ids = frozenset(found[1] for name in names if (found := _ID.fullmatch(name)))
        return cls(max(versions, default=0), ids)


def give_id(store: Store, directory_id: str) -> None:
    """Give a root the id with which it becomes a member; harmless if it has it.

    Raises:
        StorageError: the root may not have it.
    """
    store.put(f"{VOTERS}/id.{directory_id}", b"")


def read_membership(store: Store, version: int) -> Membership:
    """Return a version of the list that a root has.

    Raises:
        StorageError: it cannot be read.
        CorruptRecordError: the file is no list of members.
    """
    path = f"{VOTERS}/{version:010}.json"
    return Membership.parse(store.open_buffer(path).to_pybytes(), f"{store.url}/{path}")
