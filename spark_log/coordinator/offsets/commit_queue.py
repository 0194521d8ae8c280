"""Batches the commits of one process: all waiting commits become one version of the table.

A thread puts its request into a queue and waits for its turn. The thread whose turn it is commits
all waiting requests, and gives each its own outcome; threads whose requests are done return at
once. So a commit waits at most for the one before it, and the more requests wait, the more share
one version.

The file of the rows and the version are written before the table's log is read, on an object store
meanwhile: as they will be if no other process has changed the same groups. Then a version only gets
its name after the log was read, so that other processes are rarely faster. What turns out different
is written again.

Where other processes commit too, a process pauses after each of its versions (`CommitPace`).

A version is made on exactly the state that its requests were checked on. If another process was
first, the state is read again and all requests are checked again: no commit of an older generation
takes effect after a newer one (docs/adr/0010).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random

from spark_log.clock import SYSTEM_CLOCK
from spark_log.coordinator.offsets.commit_pace import CommitPace
from spark_log.coordinator.offsets.commit_times import COMMIT_PREFIX
from spark_log.coordinator.offsets.rows import GroupPositions, Row, StampedRow, to_table
from spark_log.coordinator.offsets.store import OffsetsStore
from spark_log.delta import DataFile, StagedVersion, Transaction, Version
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
"""Number of versions after which the process that made the last one starts maintenance."""

_MAX_BATCH_ROWS = 100_000
_SMALL_ROWS = 500
_BACKOFF_S = 0.001

_RETRIABLE_ERRORS = (LogEndOffsetMismatchError, StorageUnavailableError, StorageTimeoutError)


@dataclass(slots=True, eq=False)
class CommitRequest:
    """A commit of one group that waits for its version.

    Attributes:
        group: the group's id.
        generation: generation of the commit.
        member_id: id of the committing member; empty without membership.
        decide: called with the group's offsets on which the version is made; returns the rows to
            commit. Without rows only the fence is raised.
        deadline_ms: the commit fails if other commits came first until this monotonic time.
        expected: what ``decide`` returns, unless the metadata have changed. ``decide`` is called
            with no offsets then. None: it uses the offsets.
        is_fenced: it is refused if a higher generation has started. Without it the fence stays.
        is_done: it has an outcome.
        error: why it failed; None if it did not.
    """

    group: str
    generation: int
    member_id: str
    decide: Callable[[GroupPositions], Iterable[Row]]
    deadline_ms: float
    expected: tuple[Row, ...] | None = None
    is_fenced: bool = True
    is_done: bool = False
    error: SparkLogError | None = None

    def end(self, error: SparkLogError | None = None) -> None:
        """Set the outcome, unless there is one."""
        if not self.is_done:
            self.is_done, self.error = True, error


@dataclass(slots=True)
class _Content:
    """What a version is going to contain.

    Attributes:
        rows: the rows of its file.
        transactions: by group, the fence and the time of the last commit.
    """

    rows: list[StampedRow] = field(default_factory=list)
    transactions: dict[str, Transaction] = field(default_factory=dict)

    def add(
        self, request: CommitRequest, wanted: Sequence[Row], fence: Transaction, now_us: int
    ) -> None:
        """Add the rows of a request.

        The timestamps of a group only increase, also if the clocks of processes differ.

        Args:
            request: of a generation that the fence allows.
            wanted: its rows; none to raise the fence alone.
            fence: of the group, before the request.
            now_us: the present time.
        """
        updated_ms = fence.last_updated_ms
        if wanted:
            timestamp_us = max(now_us, updated_ms * 1000 + 1)
            updated_ms = -(-timestamp_us // 1000)
            self.rows += [
                StampedRow(request.group, row, request.generation, request.member_id, timestamp_us)
                for row in wanted
            ]
        generation = max(request.generation, fence.version)
        self.transactions[request.group] = Transaction(fence.app_id, generation, updated_ms)


@dataclass(slots=True)
class _Staged:
    """What was written for the next version, and no version holds yet.

    Attributes:
        content: of the version.
        staged_ms: monotonic time before the file was written.
        file: of the rows; None without rows.
        version: the version, without a number.
    """

    content: _Content
    staged_ms: float
    file: DataFile | None = None
    version: StagedVersion | None = None


class CommitQueue:
    """The commits of one process. Safe to use from any thread."""

    def __init__(self, table: OffsetsStore) -> None:
        """Return an empty queue.

        Args:
            table: the table to commit to.
        """
        self._table = table
        self._waiting: deque[CommitRequest] = deque()
        self._turns = threading.Condition()
        self._is_committing = False
        self._pace = CommitPace()
        self._staged: _Staged | None = None
        self._now_us = 0
        self._is_due = False

    def submit(self, request: CommitRequest) -> None:
        """Commit a request, together with other waiting ones; durable on return.

        Raises:
            IllegalGenerationError: a higher generation has started; nothing was committed.
            CommitFailedError: other processes' commits kept coming first; nothing was committed.
            UnknownOutcomeError: it may be committed; it is safe to commit it again.
            StorageError: nothing was committed.
        """
        self.submit_all([request])
        if self._is_due and self._table.maintain:
            self._is_due = False
            self._table.maintain()
        if request.error is not None:
            raise request.error

    def submit_all(self, requests: Sequence[CommitRequest]) -> None:
        """Commit several requests. Each holds its own outcome; no error is raised."""
        self._waiting.extend(requests)
        while self._take_turn(requests):
            try:
                self._let_others_commit()
                with self._table.lock:
                    self._commit_waiting()
            finally:
                with self._turns:
                    self._is_committing = False
                    self._turns.notify_all()

    def _take_turn(self, requests: Sequence[CommitRequest]) -> bool:
        """Wait until this thread may commit all waiting requests, or its own ones are done.

        Returns:
            Whether it may commit; then it has to end its turn.
        """
        with self._turns:
            self._turns.wait_for(lambda: _are_done(requests) or not self._is_committing)
            if _are_done(requests):
                return False
            self._is_committing = True
            return True

    def _let_others_commit(self) -> None:
        pause_ms = self._pace.pause_ms(SYSTEM_CLOCK.monotonic_ms())
        if pause_ms > 0:
            SYSTEM_CLOCK.sleep_ms(pause_ms)

    def _commit_waiting(self) -> None:
        batch: list[CommitRequest] = []
        retrying = Retrying(
            retry=retry_if_exception_type(_RETRIABLE_ERRORS),
            wait=wait_random(0, _BACKOFF_S),
            stop=lambda attempt: _fail_late_requests(batch, attempt),
            reraise=True,
        )
        # wall clock: timestamps are data; expiry and compaction use the storage's time
        self._now_us = self._table.clock.time_us()
        with _with_outcomes(batch), self._staging():
            self._take_waiting(batch)
            for attempt in retrying:
                with attempt:
                    self._commit(batch, is_retry=attempt.retry_state.attempt_number > 1)

    def _take_waiting(self, batch: list[CommitRequest]) -> None:
        while self._waiting and len(batch) < _MAX_BATCH_ROWS:
            batch.append(self._waiting.popleft())

    def _refresh(self, batch: Sequence[CommitRequest], *, is_retry: bool) -> None:
        """Write what the batch is expected to commit, and read new versions.

        On an object store new versions are not looked for right after a commit of this process: the
        put of the next one tells whether there are any.
        """
        table = self._table
        expected = self._expected(batch)
        if not expected.transactions:
            table.refresh(create=True)
        elif table.store.is_mapped:
            self._stage(expected)
            table.refresh(create=True)
        elif table.is_fresh() and not is_retry:
            self._stage(expected)
        else:
            with ThreadPoolExecutor(1, "spark-log-offsets") as thread:
                staging = thread.submit(self._stage, expected)
                table.refresh(create=True)
                staging.result()

    def _expected(self, batch: Sequence[CommitRequest]) -> _Content:
        """Return what the next version contains if no other one is made; empty if not known."""
        content = _Content()
        for request in batch:
            fence = self._fence(request, content)
            wanted = request.expected if self._table.state.version >= 0 else None
            if wanted is None or request.generation < fence.version:
                return _Content()
            if not request.is_done and (wanted or request.generation > max(fence.version, 0)):
                content.add(request, wanted, fence, self._now_us)
        return content if len(content.rows) <= _MAX_BATCH_ROWS else _Content()

    def _fence(self, request: CommitRequest, content: _Content) -> Transaction:
        """Return the fence of a group behind what a version is going to contain."""
        return content.transactions.get(request.group) or self._table.transaction(request.group)

    def _commit(self, batch: list[CommitRequest], *, is_retry: bool) -> None:
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        self._refresh(batch, is_retry=is_retry)
        accepted: list[CommitRequest] = []
        content = _Content()
        for request in batch:
            fence = self._fence(request, content)
            if request.is_done or not _is_allowed(request, fence):
                continue
            if request.expected is None and request.group in content.transactions:
                self._waiting.appendleft(request)  # this version changes the offsets it decides on
                continue
            wanted = self._decide(request)
            if wanted is None:
                continue
            if not wanted and request.generation <= max(fence.version, 0):
                request.end()
                continue
            if len(content.rows) + len(wanted) > _MAX_BATCH_ROWS and content.rows:
                self._waiting.append(request)
                continue
            content.add(request, wanted, fence, self._now_us)
            accepted.append(request)
        batch[:] = accepted + [each for each in batch if each.is_done]
        if not accepted:
            return
        version = self._append(content)
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        self._pace.on_appended(version.number, now_ms - began_ms, now_ms)
        self._is_due |= version.number % MAINTENANCE_EVERY == 0
        self._table.on_appended(content.transactions.keys(), content.rows)
        for request in accepted:
            request.end()

    def _append(self, content: _Content) -> Version:
        """Commit the next version, if it is still the next one."""
        version = self._stage(content)
        staged, self._staged = self._staged, None
        try:
            return self._table.log.append_staged(version)
        except LogEndOffsetMismatchError:
            if not version.is_put:
                self._staged = staged  # for the next try: no version holds the file
            raise
        finally:
            if self._staged is None:  # the file stays: a version may hold it
                version.discard()

    def _decide(self, request: CommitRequest) -> tuple[Row, ...] | None:
        """Return the rows that a request commits; None if it was refused, with its outcome set."""
        positions = GroupPositions()
        if request.expected is None:
            positions = self._table.positions(request.group)
        try:
            return tuple(request.decide(positions))
        except SparkLogError as error:
            request.end(error)
            return None

    def _stage(self, content: _Content) -> StagedVersion:
        """Return a written version with this content: that of the last try if it is the same."""
        valid_ms = listing_validity_ms(self._table.log.free_delay_ms)
        if self._staged is not None and not (
            # Cleanup deletes a file without a version some time after it was written.
            self._staged.content == content
            and is_listing_valid(self._table.clock, self._staged.staged_ms, valid_ms)
        ):
            self._discard()
        if self._staged is None:
            self._staged = _Staged(content, self._table.clock.monotonic_ms())
        staged = self._staged
        if staged.file is None and content.rows:
            staged.file = self._table.files.write(
                [to_table(content.rows)],
                prefix=COMMIT_PREFIX,
                is_small=len(content.rows) <= _SMALL_ROWS,
            )
        if staged.version is None:
            actions = [each.to_action() for each in content.transactions.values()]
            if staged.file is not None:
                actions.insert(0, staged.file.to_add(self._now_us // 1000))
            staged.version = self._table.log.stage(actions, "WRITE", {"mode": "Append"})
        return staged.version

    @contextmanager
    def _staging(self) -> Iterator[None]:
        """Delete what was written in the end if no version holds it."""
        try:
            yield
        finally:
            if self._staged is not None:
                self._discard()

    def _discard(self) -> None:
        assert self._staged is not None
        staged, self._staged = self._staged, None
        if staged.version is not None:
            staged.version.discard()
        if staged.file is not None:
            # After a failure maintenance deletes it later: no version holds it.
            table = self._table.log.directory
            with IN_PROCESS.suppress("deletion of an offsets file", table, StorageError):
                self._table.files.delete(staged.file)


def _are_done(requests: Sequence[CommitRequest]) -> bool:
    return all(request.is_done for request in requests)


def _is_allowed(request: CommitRequest, fence: Transaction) -> bool:
    if request.generation >= fence.version or not request.is_fenced:
        return True
    request.end(
        IllegalGenerationError(
            f"generation {request.generation} of group {request.group!r} has ended: "
            f"{fence.version} has started; nothing was committed",
            generation=request.generation,
            current=fence.version,
        )
    )
    return False


@contextmanager
def _with_outcomes(batch: list[CommitRequest]) -> Iterator[None]:
    """Give each request an outcome, whatever is raised."""
    error: SparkLogError = CommitFailedError("the commit was interrupted; commit again")
    try:
        yield
    except SparkLogError as raised:
        error = raised
    finally:
        for request in batch:
            request.end(error)


def _fail_late_requests(batch: list[CommitRequest], attempt: RetryCallState) -> bool:
    """Fail requests whose deadline has passed; return whether none is left."""
    now_ms = SYSTEM_CLOCK.monotonic_ms()
    reason = attempt.outcome.exception() if attempt.outcome else None
    for request in batch:
        if now_ms >= request.deadline_ms:
            request.end(
                CommitFailedError(
                    f"offsets of group {request.group!r} could not be committed in time: {reason}; "
                    f"nothing was committed"
                )
            )
    return all(request.is_done for request in batch)
