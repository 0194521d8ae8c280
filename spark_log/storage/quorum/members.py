"""Calls the members of a quorum, and counts the answers of the members that were not wiped.

Faults: at any time a minority of the members does not answer, or has lost its files. (A wiped root
does not count until ``spark-log quorum remove`` and ``add`` have replaced it.) Each round of calls
also reads the status of the members, which finds a member that was wiped before the round. A member
that is wiped during the round belongs to the minority, too: if all members that answered agree, a
majority agrees without it. If they do not agree, `Members.confirm` reads the status of the counted
members once more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from spark_log.errors import (
    StorageError,
    StorageFullError,
    StorageUnavailableError,
    UnknownOutcomeError,
)
from spark_log.storage.quorum.membership import Membership, RootStatus, lost_id_error
from spark_log.storage.store import Store
from spark_log.threads import Call, FanOut, Outcome, Replies
from spark_log.util import IN_PROCESS

_log = logging.getLogger(__name__)


class MembershipChangedError(Exception):
    """A member has a newer list of the members: read the list, and call those members."""


@dataclass(frozen=True, slots=True)
class QuorumReplies:
    """The answers of one round of calls.

    Attributes:
        answers: member number → the result of the call; without the members that were wiped.
        counted: the numbers of the members in `answers` whose status shows that they were not
            wiped.
        errors: member number → the reason why it has no answer.
        has_unanswered: whether a call was sent whose answer has not arrived.
    """

    answers: Mapping[int, Any]
    counted: frozenset[int]
    errors: Mapping[int, BaseException]
    has_unanswered: bool

    def of(self, accepted: Callable[[Any], bool]) -> set[int]:
        """Return the members that count and whose answer is accepted."""
        return {each for each in self.counted if accepted(self.answers[each])}


class Members:
    """The stores of a quorum's members.

    Attributes:
        membership: the list of the members.
        stores: their stores, in the order of the list.
        fan_out: sends calls to the members.
    """

    def __init__(self, membership: Membership, stores: Sequence[Store], fan_out: FanOut) -> None:
        self.membership = membership
        self.stores = tuple(stores)
        self.fan_out = fan_out

    @property
    def majority(self) -> int:
        """Number of members that are a majority."""
        return self.membership.majority

    def __len__(self) -> int:
        return len(self.stores)

    def request(
        self,
        call: Callable[[Store], Any],
        *,
        is_done: Callable[[Sequence[Any]], bool] | None = None,
    ) -> QuorumReplies:
        """Call all members at once, and read their status at the same time.

        Args:
            call: the call; what it raises counts as no answer.
            is_done: the function that returns whether the answers so far suffice, without others
                and without any status; None to wait for a majority.

        Raises:
            MembershipChangedError: a member has a newer list.
        """
        count = len(self)
        calls = self._calls(call) + self._calls(RootStatus.of)

        def answered(replies: Replies) -> bool:
            both = zip(replies[:count], replies[count:], strict=True)
            return (
                sum(_is_answer(one) and _is_answer(other) for one, other in both) >= self.majority
            )

        def done(replies: Replies) -> bool:
            if is_done is None:
                return False
            return is_done([each.value for each in replies[:count] if each and not each.error])

        replies = self.fan_out.request(calls, is_done=done, suffices=answered)
        statuses = {
            number: each.result()
            for number, each in enumerate(replies[count:])
            if each is not None and each.error is None
        }
        self._check_version(statuses)
        answers, errors = self._answers(range(count), replies[:count])
        for number, status in statuses.items():
            if number in answers and not self._is_same(number, status):
                del answers[number]
                errors[number] = lost_id_error(
                    self.stores[number].url, is_replaced=bool(status.directory_ids)
                )
        counted = frozenset(answers.keys() & statuses.keys())
        return QuorumReplies(answers, counted, errors, None in replies[:count])

    def confirm(self, counted: Collection[int], answers: QuorumReplies) -> set[int]:
        """Return the members that were not wiped during a round, by reading their status again.

        Args:
            counted: the members whose answers agree.
            answers: the answers of the round. If all members agree, nothing is read.

        Raises:
            MembershipChangedError: a member has a newer list.
        """
        if len(counted) == len(answers.answers):
            return set(counted)
        numbers = sorted(counted)
        calls = [self._call(number, RootStatus.of) for number in numbers]
        replies = self.fan_out.request(calls, is_done=_never, suffices=self._has_majority)
        statuses = {
            number: reply.result()
            for number, reply in zip(numbers, replies, strict=True)
            if reply is not None and reply.error is None
        }
        self._check_version(statuses)
        return {number for number, each in statuses.items() if self._is_same(number, each)}

    def broadcast(
        self, call: Callable[[Store], Any], numbers: Collection[int] | None = None
    ) -> QuorumReplies:
        """Call members at once, without reading their status.

        Args:
            call: the call; what it raises counts as no answer.
            numbers: the members; None for all.
        """
        called = sorted(range(len(self)) if numbers is None else numbers)
        calls = [self._call(number, call) for number in called]
        replies = self.fan_out.request(calls, is_done=_never, suffices=self._has_majority)
        answers, errors = self._answers(called, replies)
        return QuorumReplies(answers, frozenset(answers), errors, None in replies)

    def request_one(
        self, number: int, call: Callable[[Store], Any], *, is_last: bool
    ) -> Outcome[Any] | None:
        """Call one member; return None if it hangs. The last one (``is_last``) is waited for."""
        call_one = self._call(number, call)
        return self.fan_out.request([call_one], is_done=_never, suffices=lambda _: not is_last)[0]

    def install(self, changed: Membership) -> None:
        """Put a list of the members on a majority of these, which may have an older one.

        Raises:
            StorageError: a majority does not answer.
        """
        done = self.broadcast(changed.install)
        if len(done.answers) < self.majority:
            raise self.no_majority(self.membership.url, done)

    def forget(self, call: Callable[[Store], Any], numbers: Collection[int]) -> None:
        """Call members to delete objects that are not needed any more; count and log failures.

        On local roots this returns when it is done, otherwise at once.
        """

        def run(store: Store) -> None:
            with IN_PROCESS.suppress("deletion of a quorum's votes", store.url, StorageError):
                call(store)

        if all(store.is_local for store in self.stores):
            self.broadcast(run, numbers)
        else:
            self.fan_out.send([self._call(number, run) for number in sorted(numbers)])

    def no_majority(self, path: str, answers: QuorumReplies) -> StorageError:
        """Return the error for a round that a majority did not answer."""
        causes = "; ".join(
            f"{self.stores[number].url}: {error}"
            for number, error in sorted(answers.errors.items())
        )
        text = (
            f"{path}: fewer than {self.majority} of the {len(self)} roots of the quorum answer "
            f"({causes})"
        )
        is_full = any(isinstance(error, StorageFullError) for error in answers.errors.values())
        return (StorageFullError if is_full else StorageUnavailableError)(text, path=path)

    def failed_write(self, path: str, answers: QuorumReplies) -> StorageError:
        """Return the error for a write that a majority has not confirmed."""
        error = self.no_majority(path, answers)
        lost = any(isinstance(each, UnknownOutcomeError) for each in answers.errors.values())
        if not answers.answers and not answers.has_unanswered and not lost:
            return error
        return UnknownOutcomeError(f"{error}; some of them may have written it", path=path)

    def _answers(
        self, numbers: Iterable[int], replies: Replies
    ) -> tuple[dict[int, Any], dict[int, BaseException]]:
        """Return the answers and the errors of members, by number."""
        answers: dict[int, Any] = {}
        errors: dict[int, BaseException] = {}
        for number, reply in zip(numbers, replies, strict=True):
            if reply is None:
                errors[number] = StorageUnavailableError(f"{self.stores[number].url}: no answer")
            elif reply.error is not None:
                errors[number] = reply.error
                _log.debug("quorum: %s: %s", self.stores[number].url, reply.error)
            else:
                answers[number] = reply.result()
        return answers, errors

    def _calls(self, call: Callable[[Store], Any]) -> list[Call]:
        return [self._call(number, call) for number in range(len(self))]

    def _call(self, number: int, call: Callable[[Store], Any]) -> Call:
        return Call(self.membership.voters[number].root, partial(call, self.stores[number]))

    def _has_majority(self, replies: Replies) -> bool:
        return sum(_is_answer(each) for each in replies) >= self.majority

    def _check_version(self, statuses: Mapping[int, RootStatus]) -> None:
        for number, each in statuses.items():
            if each.version > self.membership.version and self._is_same(number, each):
                raise MembershipChangedError

    def _is_same(self, number: int, status: RootStatus) -> bool:
        return self.membership.voters[number].directory_id in status.directory_ids


def _is_answer(reply: Outcome[Any] | None) -> bool:
    return reply is not None and reply.error is None


def _never(_: Replies) -> bool:
    return False
