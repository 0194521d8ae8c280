"""Commits of one process, batched: all that wait at a moment become one version of the table.

Whoever has something to commit puts it into a queue and waits for the lock; who gets it commits
everything that waits, and tells each its own outcome. So no commit waits for longer than the one
before it takes, and the more come at once, the more go together.

A version is made on exactly the state that its commits were checked against. When another process
was faster, the state is read again, and everything is checked again: nothing of an older generation
takes effect behind a newer one (docs/adr/0010).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random

from spark_log.clock import SYSTEM_CLOCK
from spark_log.coordinator.offsets.commit_times import COMMIT_PREFIX
from spark_log.coordinator.offsets.rows import GroupPositions, Row, to_table
from spark_log.coordinator.offsets.store import OffsetsStore
from spark_log.delta.delta_log import Transaction
from spark_log.delta.files import DataFile
from spark_log.errors import (
    CommitFailedError,
    IllegalGenerationError,
    LogEndOffsetMismatchError,
    SparkLogError,
    StorageError,
    StorageTimeoutError,
    StorageUnavailableError,
)
from spark_log.storage import is_listing_valid, listing_validity_ms
from spark_log.suppressed import IN_PROCESS

MAINTENANCE_EVERY = 32
"""Versions after which whoever made the last of them looks for what there is to tidy up."""

_MAX_BATCH_ROWS = 100_000
_BACKOFF_S = 0.003

_MAY_PASS = (LogEndOffsetMismatchError, StorageUnavailableError, StorageTimeoutError)

Stamped = tuple[str, Row, int, str, int]


@dataclass(slots=True, eq=False)
class Request:
    """A commit on its way.

    Attributes:
        group: whose.
        generation: that it is made in.
        member_id: who makes it; empty without membership.
        decide: told the group's positions that the version is made on; returns what to commit.
            Without rows the fence alone is raised.
        deadline_ms: by when others have to have let it through, on the system's monotonic clock.
        needs_positions: ``decide`` looks at them; else it is given none.
    """

    group: str
    generation: int
    member_id: str
    decide: Callable[[GroupPositions], Iterable[Row]]
    deadline_ms: float
    needs_positions: bool = False
    is_done: bool = False
    error: SparkLogError | None = None

    def end(self, error: SparkLogError | None = None) -> None:
        """Say what came of it, unless that was said already."""
        if not self.is_done:
            self.is_done, self.error = True, error


@dataclass(frozen=True, slots=True)
class _Staged:
    """A file that a version may come to name: its rows, and when it was begun (monotonic)."""

    rows: list[Stamped]
    file: DataFile
    staged_ms: float


class OffsetCommits:
    """The queue of one process. Safe to use from any thread."""

    def __init__(self, table: OffsetsStore) -> None:
        """Args: table: what is committed to."""
        self._table = table
        self._waiting: deque[Request] = deque()
        self._staged: _Staged | None = None
        self._now_us = 0
        self._is_due = False

    def submit(self, request: Request) -> None:
        """Commit, together with whatever else waits; durable on return.

        Raises:
            IllegalGenerationError: a higher generation has begun; nothing was committed.
            CommitFailedError: other processes' commits kept coming first; nothing was committed.
            UnknownOutcomeError: it may have been committed; to commit it again is harmless.
            StorageError: nothing was committed.
        """
        self.submit_all([request])
        if self._is_due and self._table.maintain:
            self._is_due = False
            self._table.maintain()
        if request.error is not None:
            raise request.error

    def submit_all(self, requests: Sequence[Request]) -> None:
        """Commit several; each is told its own outcome, and none is raised."""
        self._waiting.extend(requests)
        with self._table.lock:
            while not all(request.is_done for request in requests):
                self._commit_waiting()

    def _commit_waiting(self) -> None:
        batch: list[Request] = []
        retrying = Retrying(
            retry=retry_if_exception_type(_MAY_PASS),
            wait=wait_random(0, _BACKOFF_S),
            stop=lambda attempt: _end_late(batch, attempt),
            reraise=True,
        )
        # wall clock: stamps are data; expiry and compaction ask the storage when they appeared
        self._now_us = self._table.clock.time_us()
        with _ending(batch), self._staging():
            self._take_waiting(batch)
            for attempt in retrying:
                with attempt:
                    self._commit(batch)

    def _take_waiting(self, batch: list[Request]) -> None:
        while self._waiting and len(batch) < _MAX_BATCH_ROWS:
            batch.append(self._waiting.popleft())

    def _commit(self, batch: list[Request]) -> None:
        self._table.refresh(create=True)
        accepted: list[Request] = []
        rows: list[Stamped] = []
        moved: dict[str, Transaction] = {}
        last_us: dict[str, int] = {}
        for request in batch:
            group = request.group
            fence = moved.get(group) or self._table.transaction(group)
            if request.is_done or not _is_allowed(request, fence):
                continue
            if request.needs_positions and group in moved:
                self._waiting.appendleft(request)  # what it looks at is about to change
                continue
            wanted = self._decided(request)
            if wanted is None:
                continue
            if not wanted and request.generation <= max(fence.version, 0):
                request.end()
                continue
            if len(rows) + len(wanted) > _MAX_BATCH_ROWS and rows:
                self._waiting.append(request)
                continue
            # Stamps of a group only go up, whatever the clocks of those who commit say.
            stamp_us = max(self._now_us, last_us.get(group, fence.last_updated_ms * 1000) + 1)
            if wanted:
                last_us[group] = stamp_us
            rows += [
                (group, row, request.generation, request.member_id, stamp_us) for row in wanted
            ]
            updated_ms = -(-stamp_us // 1000) if wanted else fence.last_updated_ms
            moved[group] = Transaction(fence.app_id, request.generation, updated_ms)
            accepted.append(request)
        batch[:] = accepted + [each for each in batch if each.is_done]
        if not accepted:
            return
        actions: list[dict[str, object]] = []
        if rows:
            actions.append(self._stage(rows).to_add(self._now_us // 1000))
        actions += [each.to_action() for each in moved.values()]
        staged, self._staged = self._staged, None  # a version that nobody heard of may name it
        try:
            version = self._table.log.append(actions, "WRITE", {"mode": "Append"})
        except LogEndOffsetMismatchError:  # this one nobody will
            self._staged = staged
            raise
        self._is_due |= version.number % MAINTENANCE_EVERY == 0
        table = to_table(rows)
        self._table.took(dict.fromkeys(moved, table))
        for request in accepted:
            request.end()

    def _decided(self, request: Request) -> tuple[Row, ...] | None:
        """Return what a request commits; None where it is refused, and knows it."""
        positions = GroupPositions()
        if request.needs_positions:
            positions = self._table.positions(request.group)
        try:
            return tuple(request.decide(positions))
        except SparkLogError as error:
            request.end(error)
            return None

    def _stage(self, rows: list[Stamped]) -> DataFile:
        """Return a file with these rows: the one that was written for a version that came late."""
        staged, valid_ms = self._staged, listing_validity_ms(self._table.log.free_delay_ms)
        if staged is not None and not (
            # What no version names is freed some time after it was written.
            staged.rows == rows and is_listing_valid(self._table.clock, staged.staged_ms, valid_ms)
        ):
            self._discard()
        if self._staged is None:
            staged_ms = self._table.clock.monotonic_ms()
            file = self._table.files.write([to_table(rows)], prefix=COMMIT_PREFIX)
            self._staged = _Staged(rows, file, staged_ms)
        return self._staged.file

    @contextmanager
    def _staging(self) -> Iterator[None]:
        """Delete in the end what no version names."""
        try:
            yield
        finally:
            if self._staged is not None:
                self._discard()

    def _discard(self) -> None:
        assert self._staged is not None
        staged, self._staged = self._staged, None
        # No version names it: a later tidying deletes it.
        table = self._table.log.directory
        with IN_PROCESS.suppress("deletion of an offsets file", table, StorageError):
            self._table.files.delete(staged.file)


def _is_allowed(request: Request, fence: Transaction) -> bool:
    if request.generation >= fence.version:
        return True
    request.end(
        IllegalGenerationError(
            f"generation {request.generation} of group {request.group!r} is over: "
            f"{fence.version} has begun; nothing was committed",
            generation=request.generation,
            current=fence.version,
        )
    )
    return False


@contextmanager
def _ending(batch: list[Request]) -> Iterator[None]:
    """See to it that each request is told something, whatever happens."""
    error: SparkLogError = CommitFailedError("the commit was interrupted; commit again")
    try:
        yield
    except SparkLogError as raised:
        error = raised
    finally:
        for request in batch:
            request.end(error)


def _end_late(batch: list[Request], attempt: RetryCallState) -> bool:
    """Give up those whose time is over; whether none is left."""
    now_ms = SYSTEM_CLOCK.monotonic_ms()
    reason = attempt.outcome.exception() if attempt.outcome else None
    for request in batch:
        if now_ms >= request.deadline_ms:
            request.end(
                CommitFailedError(
                    f"offsets of group {request.group!r} could not be committed in time: {reason}; "
                    f"the group stays where it was"
                )
            )
    return all(request.is_done for request in batch)
