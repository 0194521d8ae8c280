"""Variants of a quorum without one of its safety rules."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from spark_log.storage.quorum import changes, merged_list, quorum_store
from spark_log.storage.quorum import proposal as proposals
from spark_log.storage.quorum.members import Members, QuorumReplies
from spark_log.storage.quorum.membership import Membership
from spark_log.storage.quorum.proposal import CLOSED, Entry, Proposal, register_path
from spark_log.storage.store import FileInfo, Store
from tests.simulation.patches import Patch, PatchVariant


def _always(*_: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


def _nothing(*_: object, **__: object) -> None:
    return None


def _without(*patches: Patch) -> PatchVariant:
    return PatchVariant(patches)


# --- a ballot ------------------------------------------------------------------------------------


def _owns_each(self: Proposal, entry: Entry) -> bool:
    return self._content != CLOSED or self._is_own(entry.claim)


def _owns_by_majority(self: Proposal, members: Members, entered: QuorumReplies) -> bool:
    return len(entered.of(self._is_owned)) >= members.majority


def _adopt_own(self: Proposal, entries: Collection[Entry]) -> bytes:
    return self._content


_adopt = Proposal._adopt


def _adopt_votes(self: Proposal, entries: Collection[Entry]) -> bytes:
    without = [Entry(CLOSED, entry.claim, entry.votes) for entry in entries]
    return _adopt(self, without)


def _adopt_lowest(self: Proposal, entries: Collection[Entry]) -> bytes:
    last = self.ballot - 1
    turned = [
        Entry(
            entry.first_claim,
            entry.claim,
            {last - before: vote for before, vote in entry.votes.items()},
        )
        for entry in entries
    ]
    return _adopt(self, turned)


def _enter_without_closing(self: Proposal, store: Store) -> Entry:
    first = self._write(store, 0, "claim", self._content)
    if not self.ballot:
        return Entry(first, first, {})
    claim = self._write(store, self.ballot, "claim", self._id)
    votes = {}
    for before in range(self.ballot):
        path = register_path(self.path, before, "vote")
        is_there = proposals.head_or_none(store, path)
        votes[before] = store.open_buffer(path).to_pybytes() if is_there else CLOSED
    return Entry(first, claim, votes)


def _finish_at_once(
    self: Proposal, members: Members, proposed: bytes, counted: Collection[int]
) -> bool:
    value = pa.py_buffer(proposed).slice(33)
    members.broadcast(lambda store: proposals.put_copy(store, self.path, value))
    self._clean_up(members, counted)
    return self._is_own(proposed)


def _finish_on_any(
    self: Proposal, members: Members, proposed: bytes, counted: Collection[int]
) -> bool | None:
    looked = members.request(lambda store: proposals.head_or_none(store, self.path))
    if any(looked.answers.values()):
        return None
    if len(looked.counted & set(counted)) < members.majority:
        raise members.no_majority(self.path, looked)
    value = pa.py_buffer(proposed).slice(33)
    put = members.broadcast(lambda store: proposals.put_copy(store, self.path, value))
    if not put.answers:
        raise members.no_majority(self.path, put)
    return self._is_own(proposed)


def _clean_up_everywhere(self: Proposal, members: Members, holders: Collection[int]) -> None:
    _clean_up(self, members, range(len(members)))


_clean_up = Proposal._clean_up


# --- members -------------------------------------------------------------------------------------


def _counted(self: Members, counted: Collection[int], answers: QuorumReplies) -> set[int]:
    return set(counted)


def _look_at_any(members: Members, path: str, *, from_all: bool = False) -> dict[int, FileInfo]:
    found = members.request(lambda store: proposals.head_or_none(store, path))
    if len(found.counted) < members.majority:
        raise members.no_majority(path, found)
    return {number: each for number, each in found.answers.items() if each is not None}


QUORUM_RULES: dict[str, PatchVariant] = {
    "a ballot has one owner": _without((Proposal, "_is_owned", _owns_each)),
    "a vote stands on a majority": _without((Membership, "majority", property(lambda _: 1))),
    "only all claims are a choice": _without((Proposal, "_owns_all", _owns_by_majority)),
    "what may have been chosen is adopted": _without((Proposal, "_adopt", _adopt_own)),
    "what all may have claimed is adopted": _without((Proposal, "_adopt", _adopt_votes)),
    "the highest vote is adopted": _without((Proposal, "_adopt", _adopt_lowest)),
    "earlier ballots are closed": _without((Proposal, "_enter", _enter_without_closing)),
    "the file is looked for after the votes": _without(
        (Proposal, "_finish_if_absent", _finish_at_once)
    ),
    "a put is done when a majority holds the file": _without(
        (Proposal, "_finish_if_absent", _finish_on_any)
    ),
    "objects are deleted only beside the file": _without(
        (Proposal, "_clean_up", _clean_up_everywhere)
    ),
    "a proposer asks whether others have finished its proposal": _without(
        (Proposal, "_has_won", _never)
    ),
    "votes of others are no proof": _without(
        (Proposal, "_has_won", lambda self, members, holders: self._may_be_chosen)
    ),
    "a root without its id does not count": _without((Members, "_is_same", _always)),
    "who does not agree is asked again": _without((Members, "confirm", _counted)),
    "a file is shown when a majority holds it": _without(
        (merged_list, "look_up", _look_at_any), (quorum_store, "look_up", _look_at_any)
    ),
    "a newer list of the members is noticed": _without((Members, "_check_version", _nothing)),
    "decisions are finished before the members change": _without(
        (changes, "synchronize", _nothing)
    ),
    "a list is on a majority of the members before": _without((changes, "_install", _nothing)),
}
"""The name of each safety rule, and the variant without it."""
