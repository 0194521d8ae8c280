"""Variants of a quorum without one of its safety rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from spark_log.storage.quorum import merged_list, quorum_store, reconfiguration
from spark_log.storage.quorum import proposal as proposals
from spark_log.storage.quorum.members import Members, QuorumReplies
from spark_log.storage.quorum.membership import Membership, RootStatus
from spark_log.storage.quorum.proposal import CLOSED, Entry, Proposal, register_path
from spark_log.storage.quorum.read_repair import head_or_none
from spark_log.storage.store import FileInfo, Store
from tests.simulation.patches import Patch, PatchVariant


def _nothing(*_: object, **__: object) -> None:
    return None


def _without(*patches: Patch) -> PatchVariant:
    return PatchVariant(patches)


def _proposing(proposal: type[Proposal]) -> PatchVariant:
    return _without((quorum_store, "Proposal", proposal), (reconfiguration, "Proposal", proposal))


def _asking(members: type[Members]) -> PatchVariant:
    return _without((quorum_store, "Members", members), (reconfiguration, "Members", members))


# --- a ballot ------------------------------------------------------------------------------------


class _OwnsEach(Proposal):
    def _is_owned(self, entry: Entry) -> bool:
        return self._content != CLOSED or self._is_own(entry.claim)


class _OwnsByMajority(Proposal):
    def _owns_all(self, members: Members, entered: QuorumReplies) -> bool:
        return len(entered.of(self._is_owned)) >= members.majority


class _AdoptsItsOwn(Proposal):
    def _adopt(self, entries: Collection[Entry]) -> bytes:
        return self._content


class _AdoptsVotes(Proposal):
    def _adopt(self, entries: Collection[Entry]) -> bytes:
        return super()._adopt([Entry(CLOSED, entry.claim, entry.votes) for entry in entries])


class _AdoptsTheLowest(Proposal):
    def _adopt(self, entries: Collection[Entry]) -> bytes:
        last = self.ballot - 1
        turned = [
            Entry(
                entry.first_claim,
                entry.claim,
                {last - before: vote for before, vote in entry.votes.items()},
            )
            for entry in entries
        ]
        return super()._adopt(turned)


class _EntersWithoutClosing(Proposal):
    def _enter(self, store: Store) -> Entry:
        first = self._write(store, 0, "claim", self._content)
        if not self.ballot:
            return Entry(first, first, {})
        claim = self._write(store, self.ballot, "claim", self._id)
        votes = {}
        for before in range(self.ballot):
            path = register_path(self.path, before, "vote")
            is_there = head_or_none(store, path)
            votes[before] = store.open_buffer(path).to_pybytes() if is_there else CLOSED
        return Entry(first, claim, votes)


class _FinishesAtOnce(Proposal):
    def _finish_if_absent(
        self, members: Members, proposed: bytes, counted: Collection[int]
    ) -> bool:
        value = pa.py_buffer(proposed).slice(33)
        members.broadcast(lambda store: proposals.put_copy(store, self.path, value))
        self._clean_up(members, counted)
        return self._is_own(proposed)


class _FinishesOnAny(Proposal):
    def _finish_if_absent(
        self, members: Members, proposed: bytes, counted: Collection[int]
    ) -> bool | None:
        looked = members.request(lambda store: head_or_none(store, self.path))
        if any(looked.answers.values()):
            return None
        if len(looked.counted & set(counted)) < members.majority:
            raise members.no_majority(self.path, looked)
        value = pa.py_buffer(proposed).slice(33)
        put = members.broadcast(lambda store: proposals.put_copy(store, self.path, value))
        if not put.answers:
            raise members.no_majority(self.path, put)
        return self._is_own(proposed)


class _CleansUpEverywhere(Proposal):
    def _clean_up(self, members: Members, holders: Collection[int]) -> None:
        super()._clean_up(members, range(len(members)))


class _NeverHasWon(Proposal):
    def _has_won(self, members: Members, holders: Mapping[int, FileInfo]) -> bool:
        return False


class _HasWonByAnyVotes(Proposal):
    def _has_won(self, members: Members, holders: Mapping[int, FileInfo]) -> bool:
        return self._may_be_chosen


# --- members -------------------------------------------------------------------------------------


class _CountsRootsWithoutTheirId(Members):
    def _is_same(self, number: int, status: RootStatus) -> bool:
        return True


class _ConfirmsAll(Members):
    def confirm(self, counted: Collection[int], answers: QuorumReplies) -> set[int]:
        return set(counted)


class _InstallsNothing(Members):
    def install(self, changed: Membership) -> None:
        pass


class _KeepsItsMembers(Members):
    def _check_version(self, statuses: Mapping[int, RootStatus]) -> None:
        pass


def _look_at_any(members: Members, path: str, *, from_all: bool = False) -> dict[int, FileInfo]:
    found = members.request(lambda store: head_or_none(store, path))
    if len(found.counted) < members.majority:
        raise members.no_majority(path, found)
    return {number: each for number, each in found.answers.items() if each is not None}


QUORUM_RULES: dict[str, PatchVariant] = {
    "a ballot has one owner": _proposing(_OwnsEach),
    "a vote stands on a majority": _without((Membership, "majority", property(lambda _: 1))),
    "only all claims are a choice": _proposing(_OwnsByMajority),
    "a proposal that may have been chosen is adopted": _proposing(_AdoptsItsOwn),
    "a proposal that all may have claimed is adopted": _proposing(_AdoptsVotes),
    "the highest vote is adopted": _proposing(_AdoptsTheLowest),
    "earlier ballots are closed": _proposing(_EntersWithoutClosing),
    "the file is looked for after the votes": _proposing(_FinishesAtOnce),
    "a put is done when a majority holds the file": _proposing(_FinishesOnAny),
    "objects are deleted only beside the file": _proposing(_CleansUpEverywhere),
    "a proposer asks whether others have finished its proposal": _proposing(_NeverHasWon),
    "votes of others are no proof": _proposing(_HasWonByAnyVotes),
    "a root without its id does not count": _asking(_CountsRootsWithoutTheirId),
    "members that do not agree are asked again": _asking(_ConfirmsAll),
    "a file is shown when a majority holds it": _without(
        (merged_list, "look_up", _look_at_any), (quorum_store, "look_up", _look_at_any)
    ),
    "a newer list of the members is noticed": _asking(_KeepsItsMembers),
    "decisions are finished before the members change": _without(
        (reconfiguration, "synchronize", _nothing)
    ),
    "a list is on a majority of the members before": _asking(_InstallsNothing),
}
"""The name of each safety rule, and the variant without it."""
