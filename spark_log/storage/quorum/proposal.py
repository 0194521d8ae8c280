"""Decides which bytes get a name on a quorum: a register that is written once, by Paxos on disks.

The members are passive: they only promise put-if-absent. This is Disk Paxos (Gafni and Lamport)
with blocks that are written once. A put that loses shows the winner's bytes, so the put is also the
read that Disk Paxos sends after it (docs/adr/0023).

For each name and each ballot 0, 1, 2, … a member has two objects in the directory ``.quorum``
beside the file. The first proposer that puts an object writes it; it never changes:

- ``<name>.<ballot>.claim``: a proposer's id. The proposer with the claims of a majority *owns* the
  ballot. In ballot 0 the claim has the proposer's bytes, too.
- ``<name>.<ballot>.vote``: the id of the ballot's owner, which has put it, and a proposal (an id
  and bytes); or ``closed``, put by a proposer of a later ballot.

A proposal is **chosen** when a majority has it as the vote of one ballot; or when *all* members, of
which there are three or more, have it as the claim of ballot 0 (the fast path). The proposer then
puts its bytes as the ordinary file on all members, and the put is done when a majority holds the
file.

A proposer does this:

1. *Enter.* Put its claim of ballot 0 on all members. All are its own: the proposal is chosen; go to
   4. A majority is its own: it owns ballot 0; go to 3. Otherwise look the file up, wait a little,
   and take the next ballot b: on each member put the claims of 0 and b, and close the votes of all
   ballots before b. Go on if it owns b.
2. *Adopt.* If one of the members that answered has a vote before b, take over the proposal of the
   highest such ballot. Otherwise take over the one that most of them have as the claim of ballot 0.
3. *Vote.* Put the proposal as the vote of the ballot on all members. A majority has to take it.
4. *Look the file up.* If a member has it, the name was decided before: what the member answered in
   1 to 3 does not count, as its objects may have been deleted. If a majority has it, the put ends
   here: it has lost, unless the file has its bytes and another proposer has voted for them.
   Otherwise continue if a majority answers that it does not have the file.
5. *Finish.* Put the file on all members. Then delete its own objects on the members that hold it.
   The votes for another's proposal stay: that proposer learns from them that it was first.

Why a name gets only one proposal, for ever (all objects are written once; two majorities have a
member in common):

- One proposer owns a ballot: claims are written once. It votes for one proposal. So a ballot has at
  most one proposal.
- If P is chosen in ballot b, each later ballot that has a vote votes for P. Take the first later
  ballot c. Its owner closed or read vote b on a majority; each of P's votes was there before, or
  could not be put any more. So it saw P. Between b and c there is no vote, so P is the highest. By
  induction this holds for all later ballots.
- If P is chosen by all claims of ballot 0, only P's proposer can own ballot 0, and each owner of a
  later ballot, which put its own claim of 0 where it was missing, saw P on every member that
  answered (on all but one, if a member was added since): it has most of the claims.
- Objects are deleted on a member only when it holds the file and a majority does. So a file closes
  all ballots of its name on that member: step 4 comes after the votes and sees it. It cannot be
  sent together with the claims: the file may be put, and the objects deleted, between the two. A
  member that gets the file as a copy needs no objects.
- A member that was wiped does not count (`spark_log.storage.quorum.members`). When the members
  change, those of the old list that do not know the new one still share a member with each of its
  majorities; before the next change all decisions are finished on the members that stay.

A crash leaves claims and votes. The next proposer of the name finishes what may have been chosen,
so a put whose answer was lost may take effect later, as with any storage. Two proposers with the
same bytes may both be told that they were first, if one finished the proposal of the other.

The rules: (protocol Q1, Q2, Q3, Q4, Q5).
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final

import pyarrow as pa

from spark_log.errors import (
    AlreadyExistsError,
    NotFoundError,
    StorageError,
    StorageUnavailableError,
    UnknownOutcomeError,
)
from spark_log.storage.quorum.members import Members, MembershipChangedError, QuorumReplies
from spark_log.storage.quorum.read_repair import head_or_none, look_up
from spark_log.storage.root_directories import QUORUM_DIRECTORY
from spark_log.storage.store import FileInfo, Store
from spark_log.util import Clock

_log = logging.getLogger(__name__)

CLOSED: Final = b"closed"
"""The content of a vote for no proposal, and of a claim without bytes."""

_ID_BYTES: Final = 33
_MAX_BALLOTS: Final = 40
_MAX_TRIES: Final = 3
_LOOKUPS: Final = 3
_FAST_MEMBERS: Final = 3


def register_path(path: str, ballot: int, kind: str) -> str:
    """Return the path of an object that belongs to a name.

    Args:
        path: the file's path.
        ballot: the ballot.
        kind: ``claim`` or ``vote``.
    """
    directory, _, name = path.rpartition("/")
    return f"{directory}/{QUORUM_DIRECTORY}/{name}.{ballot}.{kind}".lstrip("/")


def write_once(store: Store, path: str, content: bytes) -> bytes:
    """Put an object if it is absent, and return what it holds then.

    Raises:
        StorageError: the member does not answer.
    """
    for tries_left in reversed(range(_MAX_TRIES)):
        lost: StorageError | None = None
        try:
            store.put_if_absent(path, content)
            return content
        except AlreadyExistsError:
            pass
        except UnknownOutcomeError as error:
            if error.is_visible:
                raise
            lost = error
        try:
            found: bytes = store.open_buffer(path).to_pybytes()
            return found
        except NotFoundError:  # deleted since: the name is decided, and a file closes it here
            if lost or not tries_left:
                raise lost or StorageUnavailableError(
                    f"{path} is written and deleted again and again", path=path
                ) from None
    raise AssertionError


@dataclass(frozen=True, slots=True)
class Entry:
    """Claims and votes that a proposer found on a member when it entered a ballot.

    Attributes:
        first_claim: the claim of ballot 0.
        claim: the claim of the ballot.
        votes: by ballot, the votes of all ballots before.
    """

    first_claim: bytes
    claim: bytes
    votes: Mapping[int, bytes]


class Proposal:
    """One put of one name. Use it once, also across changes of the members.

    Attributes:
        path: the file's path.
        ballot: the ballot that it tries.
        holders: the file on the members that hold it, if others have put it; empty otherwise.
        backoff: mean pause after a lost ballot, as a multiple of the time that it took. The other
            proposer's requests take about as long.
    """

    backoff: ClassVar[float] = 1.0

    def __init__(
        self, path: str, value: bytes | pa.Buffer | None, *, clock: Clock, random: Random
    ) -> None:
        """Prepare a proposal.

        Args:
            path: the file's path.
            value: its bytes; None to finish what others have proposed.
            clock: waits between ballots.
            random: source of random pauses.
        """
        self.path = path
        self.ballot = 0
        self.holders: Mapping[int, FileInfo] = {}
        self._id = uuid.uuid4().hex.encode() + b"\n"
        self._content = CLOSED if value is None else b"".join((self._id, memoryview(value)))
        self._clock = clock
        self._random = random
        self._may_be_chosen = False
        self._written: dict[int, set[str]] = {}

    def run(self, members: Members) -> bool:
        """Decide the name, and put the file on a majority.

        Returns:
            Whether the file holds the bytes of this proposal.

        Raises:
            MembershipChangedError: run it again with the new members.
            UnknownOutcomeError: a majority does not answer, and the bytes may have been chosen.
            StorageError: a majority does not answer, and the bytes were not chosen.
        """
        for attempt in range(_MAX_BALLOTS):
            if attempt:
                _log.debug("%s: ballot %d, as others propose, too", self.path, self.ballot)
            began_ms = self._clock.monotonic_ms()
            try:
                is_own = self._run_ballot(members)
                for wait in range(_LOOKUPS if is_own is None else 0):
                    is_own = self._look_up(members)
                    if is_own is not None:
                        break
                    if not wait:
                        took_ms = self._clock.monotonic_ms() - began_ms
                    self._wait(self.backoff * took_ms * 2.0 ** min(attempt + wait, 6))
                if is_own is not None:
                    return is_own
            except MembershipChangedError:
                self.ballot += 1  # with other members it might adopt another proposal
                self._may_be_chosen |= self._content != CLOSED
                raise
            except StorageError as error:
                if not self._may_be_chosen or isinstance(error, UnknownOutcomeError):
                    raise
                raise self._unknown(str(error)) from error
            self.ballot += 1
        raise self._unknown("others propose other bytes again and again")

    # --- one ballot ------------------------------------------------------------------------------

    def _run_ballot(self, members: Members) -> bool | None:
        """Try one ballot.

        Returns:
            Whether the file has this proposal's bytes; None if the ballot was lost.
        """
        entered = members.request(self._enter)
        self._note_sent(entered)
        if len(entered.counted) < members.majority:
            raise members.no_majority(self.path, entered)
        if self.ballot == 0 and self._owns_all(members, entered):
            return self._finish_if_absent(members, self._content, entered.counted)
        counted = members.confirm(entered.of(self._is_owned), entered)
        if len(counted) < members.majority:
            return None
        if self.ballot:
            proposed = self._adopt([entered.answers[each] for each in counted])
        else:
            proposed = self._content
        if proposed == CLOSED:
            return False
        self._may_be_chosen |= self._is_own(proposed)
        vote = self._id + proposed
        voted = members.request(lambda store: self._write(store, self.ballot, "vote", vote))
        taken = voted.of(lambda found: bool(found == vote))
        if len(taken) < members.majority:
            if len(voted.counted) < members.majority:
                raise members.no_majority(self.path, voted)
            return None
        return self._finish_if_absent(members, proposed, taken)

    def _enter(self, store: Store) -> Entry:
        first = self._write(store, 0, "claim", self._content)
        if not self.ballot:
            return Entry(first, first, {})
        claim = self._write(store, self.ballot, "claim", self._id)
        votes = {
            before: self._write(store, before, "vote", CLOSED) for before in range(self.ballot)
        }
        return Entry(first, claim, votes)

    def _adopt(self, entries: Collection[Entry]) -> bytes:
        """Return the proposal that this ballot has to vote for."""
        for before in reversed(range(self.ballot)):
            for entry in entries:
                if entry.votes[before] != CLOSED:
                    return entry.votes[before][_ID_BYTES:]
        claims = Counter(entry.first_claim for entry in entries if entry.first_claim != CLOSED)
        if not claims:
            return self._content
        return max(
            claims, key=lambda claim: (claims[claim], self._is_own(claim), claim[:_ID_BYTES])
        )

    def _finish_if_absent(
        self, members: Members, proposed: bytes, counted: Collection[int]
    ) -> bool | None:
        """Put the file, unless the name was decided before.

        Returns:
            Whether the file has this proposal's bytes; None if only a minority holds the file.
        """
        looked = members.request(lambda store: head_or_none(store, self.path))
        holders = {number: file for number, file in looked.answers.items() if file is not None}
        if holders:
            return self._is_decided(members, holders) if len(holders) >= members.majority else None
        if len(looked.counted & set(counted)) < members.majority:
            raise members.no_majority(self.path, looked)
        value = pa.py_buffer(proposed).slice(_ID_BYTES)
        put = members.broadcast(lambda store: put_copy(store, self.path, value))
        if len(put.answers) < members.majority:
            self._may_be_chosen |= self._is_own(proposed)
            raise members.no_majority(self.path, put)
        self._clean_up(members, put.answers)
        return self._is_own(proposed)

    # --- a name that is decided ------------------------------------------------------------------

    def _look_up(self, members: Members) -> bool | None:
        """Look the file up; return whether it has this proposal's bytes, None if it is absent."""
        holders = look_up(members, self.path)
        return self._is_decided(members, holders) if holders else None

    def _is_decided(self, members: Members, holders: Mapping[int, FileInfo]) -> bool:
        """Return whether a file that a majority holds has this proposal's bytes; clean up."""
        self.holders = holders
        is_own = self._has_won(members, holders)
        self._clean_up(members, holders)
        return is_own

    def _has_won(self, members: Members, holders: Mapping[int, FileInfo]) -> bool:
        """Return whether another proposer has finished this proposal.

        The file has its bytes then, and the other one has left its votes on a majority. They alone
        are no proof: it may have found the file, too.
        """
        value = self._content[_ID_BYTES:]
        number = min(holders)
        if not self._may_be_chosen or holders[number].size_bytes != len(value):
            return False
        if members.stores[number].open_buffer(self.path).to_pybytes() != value:
            return False
        found = members.request(self._is_adopted)
        if len(found.counted) < members.majority:
            raise members.no_majority(self.path, found)
        return any(found.answers.values())

    def _is_adopted(self, store: Store) -> bool:
        """Return whether a member has a vote of another proposer for this proposal."""
        directory, _, name = register_path(self.path, 0, "vote").rpartition("/")
        name = name.removesuffix("0.vote")
        is_adopted = False
        for file in store.list(directory, start_after=name):
            if not file.name.startswith(name):
                break
            vote = store.read(file.path, 0, 2 * _ID_BYTES).to_pybytes()
            if file.name.endswith(".vote") and self._is_vote_for_this(vote):
                self._written.setdefault(id(store), set()).add(file.path)
                is_adopted |= not self._is_own(vote)
        return is_adopted

    def _clean_up(self, members: Members, holders: Collection[int]) -> None:
        """Delete the objects of this proposal, on members that hold the file.

        The votes for another proposal stay: its proposer reads them.
        """

        def delete(store: Store) -> None:
            for path in sorted(self._written.pop(id(store), ())):
                store.delete(path)

        members.forget(delete, holders)

    def _write(self, store: Store, ballot: int, kind: str, content: bytes) -> bytes:
        path = register_path(self.path, ballot, kind)
        found = write_once(store, path, content)
        if found == CLOSED or (
            self._is_vote_for_this(found) if kind == "vote" else self._is_own(found)
        ):
            self._written.setdefault(id(store), set()).add(path)
        return found

    # --- helpers ---------------------------------------------------------------------------------

    def _is_owned(self, entry: Entry) -> bool:
        return self._is_own(entry.claim)

    def _is_own(self, content: bytes) -> bool:
        return content[:_ID_BYTES] == self._id

    def _is_vote_for_this(self, vote: bytes) -> bool:
        return self._is_own(vote[_ID_BYTES:])

    def _owns_all(self, members: Members, entered: QuorumReplies) -> bool:
        owned = entered.of(self._is_owned)
        return len(members) >= _FAST_MEMBERS and len(owned) == len(members)

    def _note_sent(self, entered: QuorumReplies) -> None:
        """Remember whether others may have found this proposal on a member."""
        is_lost = any(isinstance(each, UnknownOutcomeError) for each in entered.errors.values())
        is_there = any(self._is_own(each.first_claim) for each in entered.answers.values())
        if self._content != CLOSED:
            self._may_be_chosen |= is_lost or is_there or entered.has_unanswered

    def _wait(self, mean_ms: float) -> None:
        """Wait for the other proposer, whose requests take about as long as this one's."""
        self._clock.sleep_ms((1 + mean_ms) * self._random.uniform(0.5, 1.5))

    def _unknown(self, reason: str) -> UnknownOutcomeError:
        return UnknownOutcomeError(
            f"{reason}; it is not known whether {self.path} was put", path=self.path
        )


def put_copy(store: Store, path: str, value: bytes | pa.Buffer) -> None:
    """Put a file whose bytes are decided; harmless if the member holds it."""
    try:
        store.put_if_absent(path, value)
    except AlreadyExistsError:
        return
    except UnknownOutcomeError as error:
        if error.is_visible or head_or_none(store, path) is None:
            raise
