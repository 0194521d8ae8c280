"""Reconfiguration: adds a member to a quorum, or removes one, one at a time (as KIP-853).

A change is a file ``__quorum/<version>.json``. The members of the version before decide its
content, as for any other put. Then the list is installed on them, and on a new member. From then
on, each majority that a client with the older list calls has a member that knows the newer list.

A majority of one version has a member in common with each majority of the next version, but not
with those of later versions. Before a change takes effect, `synchronize` therefore finishes all
decisions, and copies all files to the members that stay.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from random import Random
from typing import Final

from spark_log.errors import (
    AlreadyExistsError,
    ConcurrentModificationError,
    InvalidConfigurationError,
    InvalidRootError,
    StorageError,
    StorageUnavailableError,
)
from spark_log.storage.quorum.founding import check_is_empty, found_quorum
from spark_log.storage.quorum.members import Members
from spark_log.storage.quorum.membership import (
    Membership,
    RootStatus,
    Voter,
    read_membership,
)
from spark_log.storage.quorum.merged_list import merged_list
from spark_log.storage.quorum.proposal import Proposal
from spark_log.storage.quorum.quorum_store import QuorumStore
from spark_log.storage.quorum.read_repair import copy_file
from spark_log.storage.root_directories import QUORUM_CHANGES, QUORUM_DIRECTORY, is_of_file_system
from spark_log.threads import Call
from spark_log.util import IN_PROCESS, SYSTEM_CLOCK, Clock

_CLAIM_OR_VOTE: Final = re.compile(r"(.+)\.\d+\.(claim|vote)")


def add_voter(store: QuorumStore, root: str, *, clock: Clock = SYSTEM_CLOCK) -> Membership:
    """Make an empty root a member, with a copy of all files; return the new list.

    Args:
        store: the quorum.
        root: the path or URL of the new member.
        clock: waits where others propose at the same time.

    Raises:
        InvalidConfigurationError: it is a member that has lost its files.
        InvalidRootError: it has files.
        ConcurrentModificationError: another process changed the members.
        StorageError: a majority, or the new root, does not answer.
    """
    members = _finish_last_change(store, clock)
    voters = members.membership.voters
    joining = store.open_member(root)
    known = next((voter for voter in voters if voter.root == joining.url), None)
    if known is None:
        joining.create_root()
    status = RootStatus.of(joining)
    if known is None:
        if status.version and status.directory_ids:
            raise InvalidRootError(
                f"{joining.url} was a member of a quorum; give an empty root", path=joining.url
            )
        check_is_empty(joining.url, joining)
        # Give the id before the decision: the root counts from the decision on.
        directory_id = min(status.directory_ids, default=uuid.uuid4().hex)
        voter = Voter(joining.url, directory_id)
        voter.give_id(joining)
        # Copy what clients have put that had the list before this one.
        store.with_members(lambda members: synchronize(members, clock=clock))
        changed = _decide(store, members, (*voters, voter))
        members.install(changed)
        store.reload()
    elif known.directory_id in status.directory_ids:
        changed = members.membership  # an earlier call was interrupted
    else:
        raise InvalidConfigurationError(
            f"{joining.url} is a member of the quorum and has lost its files: remove it first, "
            f"with spark-log quorum remove {joining.url}",
            key="quorum",
        )
    changed.install(joining)
    store.with_members(lambda members: synchronize(members, clock=clock))
    store.put(_note_path(changed), b"")
    return changed


def remove_voter(store: QuorumStore, root: str, *, clock: Clock = SYSTEM_CLOCK) -> Membership:
    """Remove a member, which need not answer; return the new list.

    If it answers, it loses its id, so that clients with the older list write nothing into it.

    Args:
        store: the quorum.
        root: the path or URL of the member, as the list has it.
        clock: waits where others propose at the same time.

    Raises:
        InvalidConfigurationError: it is not a member, or the only one.
        ConcurrentModificationError: another process changed the members.
        StorageError: a majority of the other members does not answer.
    """
    members = _finish_last_change(store, clock)
    voters = members.membership.voters
    staying = tuple(voter for voter in voters if voter.root != root)
    if len(staying) == len(voters):
        raise InvalidConfigurationError(
            f"{root} is no member of the quorum {members.membership.url}", key="quorum"
        )
    if not staying:
        raise InvalidConfigurationError(f"{root} is the only member of the quorum", key="quorum")
    store.with_members(lambda members: synchronize(members, clock=clock, without=root))
    changed = _decide(store, members, staying)
    members.install(changed)
    store.reload()
    store.put(_note_path(changed), b"")
    _take_ids(store, members, set(voters) - set(staying))
    return changed


def found_from_root(store: QuorumStore) -> Membership:
    """Make a root with its files the only member of a new quorum; return the list.

    Clients that have the root open do not notice: end them first.
    """
    return found_quorum({store.url: store.open_member(store.url)}, keeps_files=True)


def synchronize(
    members: Members, *, clock: Clock = SYSTEM_CLOCK, without: str | None = None
) -> None:
    """Finish all decisions, and put all files on all members that answer.

    Args:
        members: the members.
        clock: waits where others propose at the same time.
        without: the root of the member that will be removed; None without one. Its copies of files
            do not count.

    Raises:
        StorageError: a majority of the members, or of those that stay, does not answer.
    """
    random = Random()
    staying = {
        number for number, voter in enumerate(members.membership.voters) if voter.root != without
    }
    for directory in _directories(members, ""):
        for path in sorted(_undecided(members, directory)):
            Proposal(path, None, clock=clock, random=random).run(members)
        for file, holders in merged_list(members, directory, None):
            if not staying <= holders.keys():
                copied = copy_file(members, file.path, holders)
                if copied and len(staying & copied.keys()) <= len(staying) // 2:
                    raise StorageUnavailableError(
                        f"{file.path} is not on a majority of the roots that stay", path=file.path
                    )


def _undecided(members: Members, directory: str) -> set[str]:
    """Return the paths in a directory that have a claim or a vote on some member."""
    below = f"{directory}/{QUORUM_DIRECTORY}".lstrip("/")
    found = members.request(lambda store: [file.name for file in store.list(below)])
    if len(found.counted) < members.majority:
        raise members.no_majority(below, found)
    names = (_CLAIM_OR_VOTE.fullmatch(name) for each in found.answers.values() for name in each)
    return {f"{directory}/{name[1]}".lstrip("/") for name in names if name}


def _directories(members: Members, directory: str) -> Iterator[str]:
    """Yield a directory and all below it that a majority shows."""
    yield directory
    found = members.request(lambda store: [*store.list_directories(directory)])
    if len(found.counted) < members.majority:
        raise members.no_majority(directory, found)
    for name in sorted({name for each in found.answers.values() for name in each}):
        if not directory and is_of_file_system(name):
            continue  # the file system often permits no listing of it
        yield from _directories(members, f"{directory}/{name}".lstrip("/"))


def _finish_last_change(store: QuorumStore, clock: Clock) -> Members:
    """Finish the last change of the members if its process has ended; return the newest members.

    The change is finished when its list is on a majority of the members before it. The file
    ``<version>.json.installed`` says so.
    """
    members = store.reload()
    membership = members.membership
    note = _note_path(membership)
    if membership.version == 1 or note in {file.path for file in store.list(QUORUM_CHANGES)}:
        return members
    before = _list_before(members)
    stores = [store.open_member(voter.root) for voter in before.voters]
    Members(before, stores, members.fan_out).install(membership)
    store.with_members(partial(synchronize, clock=clock))
    store.put(note, b"")
    return members


def _note_path(membership: Membership) -> str:
    return f"{membership.change_path}.installed"


def _list_before(members: Members) -> Membership:
    version = members.membership.version - 1
    for store in members.stores:
        with IN_PROCESS.suppress("reading of a list of members", store.url, StorageError):
            return read_membership(store, version)
    raise StorageUnavailableError(
        f"none of the roots that answer has list {version} of the members",
        path=members.membership.url,
    )


def _decide(store: QuorumStore, members: Members, voters: tuple[Voter, ...]) -> Membership:
    changed = Membership(members.membership.version + 1, voters)
    try:
        store.put_if_absent(changed.change_path, changed.to_json())
    except AlreadyExistsError:
        decided = store.open_buffer(changed.change_path).to_pybytes()
        members.install(Membership.parse(decided, changed.change_path))
        store.reload()
        raise ConcurrentModificationError(
            "another process has changed the members of the quorum at the same time; see them with "
            "spark-log quorum describe, then try again"
        ) from None
    return changed


def _take_ids(store: QuorumStore, members: Members, removed: Iterable[Voter]) -> None:
    """Take the ids from roots that are no members any more; a root that hangs is left out."""
    for voter in removed:
        take = Call(voter.root, partial(voter.take_id, store.open_member(voter.root)))
        replies = members.fan_out.request([take], is_done=lambda _: False, suffices=lambda _: True)
        for reply in replies:
            if reply is not None and reply.error is not None:
                IN_PROCESS.add("taking of a removed member's id", voter.root, reply.error)
