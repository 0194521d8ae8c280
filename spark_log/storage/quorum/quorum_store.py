"""A store on an odd number of roots, of which any minority may be lost.

A put-if-absent is done when a majority of the roots holds the file. The module
`spark_log.storage.quorum.proposal` decides which bytes get the name. The data of a cluster root
(the metadata log, the logs of groups and transactions, the offsets table, existence markers)
therefore need no protocol of their own.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar, Final, TypeVar

import pyarrow as pa

from spark_log.errors import (
    AlreadyExistsError,
    NotFoundError,
    StorageError,
    StorageUnavailableError,
    UnsupportedStoreError,
)
from spark_log.storage.quorum.founding import check_is_empty, found_quorum
from spark_log.storage.quorum.members import Members, MembershipChangedError
from spark_log.storage.quorum.membership import Membership, RootStatus, read_membership
from spark_log.storage.quorum.merged_list import Holders, merged_list, newest
from spark_log.storage.quorum.proposal import Proposal
from spark_log.storage.quorum.read_repair import look_up
from spark_log.storage.store import FileInfo, StagedFile, StorageOptions, Store
from spark_log.storage.unlinked_file import UnlinkedFile
from spark_log.threads import Call, FanOut, Replies
from spark_log.util import IN_PROCESS, SYSTEM_CLOCK, Clock

_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

OpenMember = Callable[[str, StorageOptions | None], Store]
"""A function that opens the store of one member, from its root and the storage options."""

_REMEMBERED: Final = 65_536
_MAX_CHANGES: Final = 10


class QuorumStore(Store):
    """Files on the members of a quorum.

    The members are read from the roots on the first call. One known member is enough to find all.

    `put` and `delete` change the file on all members that answer. A member that did not answer may
    show the old file again, as a disk may after a power cut; a name is not used for other bytes
    after its deletion. The time of a file is the newest one among its copies: the clocks of the
    members have to agree within ``max.clock.skew.ms``.
    """

    is_mapped: ClassVar[bool] = False

    def __init__(
        self,
        roots: Sequence[str],
        options: StorageOptions | None,
        open_root: OpenMember,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
        fan_out: FanOut | None = None,
    ) -> None:
        """Open the store; sends no request.

        Args:
            roots: some of the members, or all roots of a quorum that is to be created.
            options: storage options; pickled with the store, never printed or logged.
            open_root: opens the store of one root; can be pickled.
            clock: waits between tries to take a name that others try to take.
            random: source of random pauses; None for one of its own.
            fan_out: sends calls to the members; None for one of its own.
        """
        self.url = ",".join(roots)
        self._roots = tuple(roots)
        self._options = options
        self._open_root = open_root
        self._clock = clock
        self._random = random or Random()
        self._fan_out = fan_out or FanOut("spark-log-quorum")
        self._lock = threading.Lock()
        self._stores: dict[str, Store] = {}
        self._members: Members | None = None
        self._holders: OrderedDict[str, Holders] = OrderedDict()

    def __reduce__(self) -> tuple[Callable[..., Store], tuple[object, ...]]:
        return _reopened, (type(self), self._roots, self._options, self._open_root, self._clock)

    # --- members ---------------------------------------------------------------------------------

    def members(self) -> Members:
        """Return the members.

        Raises:
            NotFoundError: the roots have no list of members: the quorum is not created yet.
            StorageUnavailableError: no root with a list answers.
        """
        if self._members is None:
            self._members = self._read_members(self._roots)
        return self._members

    def reload(self) -> Members:
        """Read the list of the members again, and return them.

        Raises:
            StorageUnavailableError: no member answers.
        """
        before = self.members()
        roots = [voter.root for voter in before.membership.voters]
        found = self._read_members([*roots, *sorted(set(self._roots) - set(roots))])
        if found.membership.version <= before.membership.version:
            return before
        with self._lock:
            self._members = found
            self._holders.clear()  # they have the members' old numbers
        return found

    def open_member(self, root: str) -> Store:
        """Return the store of one root."""
        with self._lock:
            if root not in self._stores:
                self._stores[root] = self._open_root(root, self._options)
            return self._stores[root]

    def _read_members(self, roots: Sequence[str]) -> Members:
        def read(store: Store) -> Membership | None:
            status = RootStatus.of(store)
            return read_membership(store, status.version) if status.version else None

        def is_enough(replies: Replies) -> bool:
            return any(each is not None and each.value is not None for each in replies)

        stores = [self.open_member(root) for root in roots]
        calls = [
            Call(root, partial(read, store)) for root, store in zip(roots, stores, strict=True)
        ]
        replies = self._fan_out.request(calls, is_done=lambda _: False, suffices=is_enough)
        lists = [each.value for each in replies if each is not None and each.value is not None]
        if not lists:
            errors = [str(each.error) for each in replies if each is not None and each.error]
            if errors or None in replies:
                raise StorageUnavailableError(
                    f"none of the roots {self.url} that answer is a member of a quorum "
                    f"({'; '.join(errors)})",
                    path=self.url,
                )
            for root, store in zip(roots, stores, strict=True):
                check_is_empty(root, store)
            raise NotFoundError(f"{self.url}: no quorum was created on these roots", path=self.url)
        membership = max(lists, key=lambda each: each.version)
        found = [voter.guarded(self.open_member(voter.root)) for voter in membership.voters]
        return Members(membership, found, self._fan_out)

    def with_members(self, call: Callable[[Members], _Answer]) -> _Answer:
        """Call with the members, and again if they have changed.

        Raises:
            StorageUnavailableError: they change again and again.
        """
        members = self.members()
        for _ in range(_MAX_CHANGES):
            try:
                return call(members)
            except MembershipChangedError:
                members = self.reload()
                _log.info(
                    "the members of the quorum are now %s (version %d)",
                    ", ".join(voter.root for voter in members.membership.voters),
                    members.membership.version,
                )
        raise StorageUnavailableError(
            f"the members of the quorum {self.url} change again and again", path=self.url
        )

    # --- the root --------------------------------------------------------------------------------

    def create_root(self) -> None:
        """Create the quorum on its roots, all of which have to answer; harmless if it exists.

        Raises:
            UnsupportedStoreError: one of the roots does not support put-if-absent.
            InvalidRootError: one of them cannot be created, or has files of another root.
            StorageError: one of them does not answer.
        """
        try:
            self.members()
        except NotFoundError:
            found_quorum({root: self.open_member(root) for root in self._roots})

    def keep_reserve(self) -> bool:
        """Reserve space on each root, as far as it has some."""
        kept = self._each(Store.keep_reserve)
        return any(kept.values())

    def release_reserve(self) -> bool:
        """Delete the reserve of each root; return whether that freed space on one of them."""
        return any(self._each(Store.release_reserve).values())

    # --- writing ---------------------------------------------------------------------------------

    def make_directory(self, directory: str) -> None:
        """Create a directory that was removed, on all members that answer."""
        self._each(lambda store: store.make_directory(directory))

    def stage(self, directory: str) -> StagedFile:
        """Return an empty staged file: an unlinked temporary file on this machine (``TMPDIR``)."""
        return UnlinkedFile("spark-log-quorum-")

    def put_if_absent(
        self, path: str, source: bytes | pa.Buffer | StagedFile, *, sync: bool = True
    ) -> None:
        """Put the file on a majority, unless the name is taken; ``sync`` makes no difference.

        Raises:
            AlreadyExistsError: other bytes were chosen for the name, and a majority holds them.
            UnknownOutcomeError: a majority did not answer; the file may exist, or appear later.
            StorageFullError: no space on a majority.
            StorageError: a majority did not answer; the file does not exist.
        """
        value = source.read_back() if isinstance(source, StagedFile) else source
        proposal = Proposal(path, value, clock=self._clock, random=self._random)
        if not self.with_members(proposal.run):
            if proposal.holders:  # the caller reads the winner's file next
                self._remember(path, dict(proposal.holders))
            raise AlreadyExistsError(f"{path} exists", path=path)

    def put(self, path: str, data: bytes | pa.Buffer, *, sync: bool = True) -> None:
        """Create or replace the file on all members that answer, a majority."""

        def put(members: Members) -> None:
            done = members.broadcast(lambda store: store.put(path, data, sync=sync))
            self._forget(path)
            if len(done.answers) < members.majority:
                raise members.failed_write(path, done)

        self.with_members(put)

    def sync(self, path: str) -> None:
        """Make a file durable on a majority."""

        def sync(members: Members) -> None:
            done = members.broadcast(lambda store: store.sync(path))
            if len(done.answers) < members.majority:
                missing = [each for each in done.errors.values() if isinstance(each, NotFoundError)]
                raise missing[0] if missing else members.no_majority(path, done)

        self.with_members(sync)

    # --- reading ---------------------------------------------------------------------------------

    def read(self, path: str, start: int, length: int) -> pa.Buffer:
        """Return ``length`` bytes from ``start``; fewer if the file ends before."""
        return self._read(path, lambda store: store.read(path, start, length))

    def read_tail(self, path: str, length: int) -> pa.Buffer:
        """Return the last ``length`` bytes, or the whole file if it is shorter."""
        return self._read(path, lambda store: store.read_tail(path, length))

    def read_tail_and_size(self, path: str, length: int) -> tuple[pa.Buffer, int | None]:
        """Return the last ``length`` bytes, and the file's size if the answer includes it."""
        return self._read(path, lambda store: store.read_tail_and_size(path, length))

    def open_buffer(self, path: str) -> pa.Buffer:
        """Return the whole file; a local file as a memory map."""
        return self._read(path, lambda store: store.open_buffer(path))

    def release_memory(self, buffer: pa.Buffer) -> None:
        """Take the pages of a memory map out of the process's memory."""
        next(iter(self.members().stores)).release_memory(buffer)

    def list(self, directory: str, start_after: str | None = None) -> Iterator[FileInfo]:
        """Yield the files of a majority; each of them is on a majority when it is yielded."""

        def files(members: Members) -> list[tuple[FileInfo, Holders]]:
            return [*merged_list(members, directory, start_after)]

        for file, holders in self._if_created(files) or ():
            self._remember(file.path, holders)
            yield file

    def list_hidden(self, directory: str) -> Iterator[FileInfo]:
        """Yield the temporary files of all members that answer."""
        found: dict[str, Holders] = {}
        each_root = self._each(lambda store: [*store.list_hidden(directory)])
        for number, files in each_root.items():
            for file in files:
                found.setdefault(file.path, {})[number] = file
        yield from map(newest, found.values())

    def list_directories(self, directory: str) -> Iterator[str]:
        """Yield the names of the directories on a majority of the members."""

        def names(members: Members) -> set[str]:
            found = members.request(lambda store: [*store.list_directories(directory)])
            if len(found.counted) < members.majority:
                raise members.no_majority(directory, found)
            return {name for each in found.answers.values() for name in each}

        yield from self._if_created(names) or ()

    def head(self, path: str) -> FileInfo:
        """Return size and time of the file, which is on a majority then."""
        return newest(self._look_up(path, from_all=True))

    def is_gone(self, path: str) -> bool:
        """Return whether the file is known to be deleted on a majority, without a request."""
        if not self.is_mapped:
            return False
        gone = self._each(lambda store: store.is_gone(path))
        return bool(gone) and sum(gone.values()) >= self.members().majority

    # --- deleting --------------------------------------------------------------------------------

    def delete(self, path: str) -> None:
        """Delete the file on all members that answer, a majority."""
        self._delete(path, lambda store: store.delete(path))

    def delete_directory(self, directory: str) -> None:
        """Delete everything below a directory on all members that answer, a majority."""
        self._delete(directory, lambda store: store.delete_directory(directory))
        with self._lock:
            for path in [each for each in self._holders if each.startswith(f"{directory}/")]:
                del self._holders[path]

    # --- for others ------------------------------------------------------------------------------

    def directory_url(self, directory: str) -> str:
        """Return the directory's URL on a member that does not hang, for readers of Delta tables.

        Its newest files may be missing if that member was away. Nothing may be written there.
        """
        try:
            return self._live_member().directory_url(directory)
        except UnsupportedStoreError as error:
            raise UnsupportedStoreError(f"{self.url}: {error}", path=self.url) from error

    def delta_options(self) -> dict[str, str]:
        """Return the storage options of the member that `directory_url` names."""
        return self._live_member().delta_options()

    # --- helpers ---------------------------------------------------------------------------------

    def _live_member(self) -> Store:
        late = self._fan_out.late()
        try:
            voters = self.members().membership.voters
        except NotFoundError:
            return self.open_member(self._roots[0])
        roots = [voter.root for voter in voters]
        return self.open_member(next((root for root in roots if root not in late), roots[0]))

    def _read(self, path: str, read: Callable[[Store], _Answer]) -> _Answer:
        """Read from a member that holds the file, and from the next if that does not answer."""
        error: StorageError = NotFoundError(f"{path}: no such file", path=path)
        for is_known in (True, False):
            if not is_known:
                self._look_up(path, from_all=False)
            holders = self._holders.get(path)
            if holders is None:
                continue
            turns = self._in_turn(holders)
            for number in turns:
                reply = self.members().request_one(number, read, is_last=number == turns[-1])
                if reply is None:
                    continue
                if reply.error is None:
                    return reply.result()  # type: ignore[no-any-return]
                if not isinstance(reply.error, StorageError):
                    raise reply.error
                error = reply.error
            self._forget(path)
        raise error

    def _in_turn(self, holders: Holders) -> Sequence[int]:
        """Return the members to read from: those that do not hang, and the newest copy first."""
        late, voters = self._fan_out.late(), self.members().membership.voters
        return sorted(
            holders,
            key=lambda number: (voters[number].root in late, -holders[number].modified_us, number),
        )

    def _look_up(self, path: str, *, from_all: bool) -> Holders:
        def holders_of(members: Members) -> Holders:
            return look_up(members, path, from_all=from_all)

        holders = self._if_created(holders_of)
        if not holders:
            self._forget(path)
            raise NotFoundError(f"{path}: no such file", path=path)
        self._remember(path, holders)
        return holders

    def _remember(self, path: str, holders: Holders) -> None:
        with self._lock:
            self._holders[path] = holders
            self._holders.move_to_end(path)
            while len(self._holders) > _REMEMBERED:
                self._holders.popitem(last=False)

    def _forget(self, path: str) -> None:
        with self._lock:
            self._holders.pop(path, None)

    def _each(self, call: Callable[[Store], Any]) -> dict[int, Any]:
        """Call all members; return the answers of those that answer."""

        def each(members: Members) -> dict[int, Any]:
            found = members.broadcast(call)
            if len(found.answers) < members.majority:
                raise members.no_majority(self.url, found)
            return dict(found.answers)

        return self._if_created(each) or {}

    def _if_created(self, call: Callable[[Members], _Answer]) -> _Answer | None:
        """Call with the members; return None where no quorum was created yet."""
        try:
            self.members()
        except NotFoundError:
            return None
        return self.with_members(call)

    def _delete(self, path: str, delete: Callable[[Store], None]) -> None:
        def run(members: Members) -> None:
            done = members.broadcast(delete)
            self._forget(path)
            if len(done.answers) < members.majority:
                raise members.failed_write(path, done)
            for error in done.errors.values():
                IN_PROCESS.add("deletion on a root of a quorum", self.url, error)

        self._if_created(run)


class MappedQuorumStore(QuorumStore):
    """A quorum whose members are all local, so that its files are memory-mapped."""

    is_mapped: ClassVar[bool] = True
    shows_gone: ClassVar[bool] = True


def _reopened(
    kind: type[QuorumStore],
    roots: Sequence[str],
    options: StorageOptions | None,
    open_root: OpenMember,
    clock: Clock,
) -> Store:
    return kind(roots, options, open_root, clock=clock)
