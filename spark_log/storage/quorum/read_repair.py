"""Read repair: finds a file on the members, and puts it on a majority before a caller gets it.

A file exists only after its bytes were chosen, so one copy is proof. A file that only a minority
holds is copied before it is returned: otherwise the next read could miss it. A file that is being
deleted disappears from one member after the other, so all members are asked again before it is
copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from spark_log.errors import AlreadyExistsError, NotFoundError, StorageUnavailableError
from spark_log.storage.quorum.members import Members
from spark_log.storage.store import FileInfo, Store

_MAX_TRIES: Final = 5


def look_up(members: Members, path: str, *, from_all: bool = False) -> dict[int, FileInfo]:
    """Return the file on the members that hold it, a majority; empty if no member holds it.

    Args:
        members: the members.
        path: the file's path.
        from_all: whether to wait for all members that answer. Otherwise a majority that holds the
            file is enough.

    Raises:
        MembershipChangedError: a member has a newer list of the members.
        StorageError: a majority does not answer, or copies of the file cannot be put.
    """
    for tries in range(_MAX_TRIES):
        holders = _heads(members, path, from_all=from_all)
        if not holders or len(holders) >= members.majority:
            return holders
        if tries:
            # The file may be gone now: it was deleted, or its holder was wiped. The next try of
            # this loop shows which.
            copied = copy_file(members, path, holders)
            if copied:
                return copied
    raise StorageUnavailableError(f"{path} appears and disappears", path=path)


def copy_file(members: Members, path: str, holders: Mapping[int, FileInfo]) -> dict[int, FileInfo]:
    """Put a file on the members that do not hold it; return the members that hold it.

    A majority suffices. The result is empty if the file was deleted meanwhile.

    Args:
        members: the members.
        path: the file's path.
        holders: the members that hold it.

    Raises:
        StorageError: they do not answer.
    """
    source = None
    for number in sorted(holders, key=lambda each: (-holders[each].modified_us, each)):
        try:
            source = members.stores[number].open_buffer(path)
            break
        except NotFoundError:
            continue
    if source is None:
        return {}  # they do not hold it any more
    missing = set(range(len(members))) - holders.keys()

    def copy(store: Store) -> FileInfo:
        with suppress(AlreadyExistsError):
            store.put_if_absent(path, source)
        return store.head(path)

    copied = members.broadcast(copy, missing)
    found = {**holders, **copied.answers}
    if len(found) < members.majority:
        if any(isinstance(error, NotFoundError) for error in copied.errors.values()):
            return {}  # the copies are gone again
        raise members.no_majority(path, copied)
    return found


def head_or_none(store: Store, path: str) -> FileInfo | None:
    """Return a file's size and time; None if it does not exist."""
    try:
        return store.head(path)
    except NotFoundError:
        return None


def _heads(members: Members, path: str, *, from_all: bool) -> dict[int, FileInfo]:
    def is_settled(answers: Sequence[Any]) -> bool:
        return sum(each is not None for each in answers) >= members.majority

    found = members.request(
        lambda store: head_or_none(store, path), is_done=None if from_all else is_settled
    )
    holders = {number: each for number, each in found.answers.items() if each is not None}
    if max(len(holders), len(found.counted)) >= members.majority:
        return holders
    if not from_all:  # one of the members that answered first does not count
        return _heads(members, path, from_all=True)
    raise members.no_majority(path, found)
