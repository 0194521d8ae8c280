"""Describes the members of a quorum: id, list version, and whether each of them answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from spark_log.storage.quorum.membership import RootStatus
from spark_log.storage.quorum.quorum_store import QuorumStore
from spark_log.threads import Call


@dataclass(frozen=True, slots=True)
class VoterDescription:
    """A member of a quorum.

    Attributes:
        root: its path or URL.
        directory_id: the id that it has in the list of the members.
        version: the newest version of the list that the root has.
        state: ``current``; ``behind``: it has an older list, and counts; ``lost``: it has lost its
            id, and does not count; ``unreachable``.
    """

    root: str
    directory_id: str
    version: int
    state: str


def describe_voters(store: QuorumStore) -> tuple[VoterDescription, ...]:
    """Return a description of each member.

    Raises:
        StorageUnavailableError: no member answers.
    """
    members = store.reload()
    newest, voters = members.membership.version, members.membership.voters
    calls = [
        Call(voter.root, partial(RootStatus.of, store.open_member(voter.root))) for voter in voters
    ]
    replies = members.fan_out.request(
        calls, is_done=lambda _: False, suffices=lambda got: any(each is not None for each in got)
    )
    found = []
    for voter, reply in zip(voters, replies, strict=True):
        status = reply.value if reply is not None and reply.error is None else None
        if status is None:
            state = "unreachable"
        elif voter.directory_id not in status.directory_ids:
            state = "lost"
        else:
            state = "current" if status.version >= newest else "behind"
        version = status.version if status else 0
        found.append(VoterDescription(voter.root, voter.directory_id, version, state))
    return tuple(found)
