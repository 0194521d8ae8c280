"""Batches the commits of one process: all waiting commits become one version of the table.

A thread puts its request into a queue and waits for its turn. The thread whose turn it is commits
all waiting requests, and gives each its own outcome; threads whose requests are done return at
once. A commit therefore waits for one earlier version at most, and all requests that wait at the
same time share the next version.

The data file and the version are written before the table's log is read (on an object store, while
it is read), on the assumption that no other process has changed the same groups. After the read,
the version only has to get its name, so that other processes are rarely faster. If the assumption
turns out wrong, they are written again.

If other processes commit, too, a process pauses after each of its versions (`CommitThrottle`).

A version is made on exactly the state that its requests were checked on. If another process was
first, the state is read again and all requests are checked again: no commit of an older generation
takes effect after a newer one (docs/adr/0010).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random

from spark_log.coordinator.offsets.commit_throttle import CommitThrottle
from spark_log.coordinator.offsets.commit_times import COMMIT_PREFIX
from spark_log.coordinator.offsets.rows import CommittedOffsets, Row, StampedRow, to_table
from spark_log.coordinator.offsets.store import OffsetsStore
from spark_log.delta import DataFile, SetTransaction, StagedVersion, Version
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
from spark_log.util import IN_PROCESS, SYSTEM_CLOCK, shown

_log = logging.getLogger(__name__)

_MAX_BATCH_ROWS = 100_000
_SMALL_ROWS = 500

_RETRIABLE_ERRORS = (LogEndOffsetMismatchError, StorageUnavailableError, StorageTimeoutError)


@dataclass(slots=True, eq=False)
class CommitRequest:
    """A commit of one group that waits for its version.

    Attributes:
        group: the group's id.
        generation: the generation of the commit.
        member_id: the id of the committing member; empty without membership.
        decide: the function that is called with the group's offsets on which the version is made,
            and returns the rows to commit. Without rows only the fence is raised.
        deadline_ms: the monotonic time at which the commit fails if other commits kept winning.
        expected: the rows that ``decide`` returns unless the metadata have changed; ``decide`` is
            then called with no offsets. None if ``decide`` uses the offsets.
        is_fenced: whether the commit is refused if a higher generation has started. If false, the
            commit does not change the fence.
        is_done: whether the request has an outcome.
        error: the error of a failed commit; None without one.
    """

    group: str
    generation: int
    member_id: str
    decide: Callable[[CommittedOffsets], Iterable[Row]]
    deadline_ms: float
    expected: tuple[Row, ...] | None = None
    is_fenced: bool = True
    is_done: bool = False
    error: SparkLogError | None = None

    def is_allowed(self, fence: SetTransaction) -> bool:
        """Return whether a group's fence allows the commit: no higher generation has started."""
        return self.generation >= fence.version or not self.is_fenced

    def end(self, error: SparkLogError | None = None) -> None:
        """Set the outcome, unless the request has one."""
        if not self.is_done:
            self.is_done, self.error = True, error


@dataclass(slots=True)
class _Content:
    """The content of the next version.

    Attributes:
        rows: the rows of its data file.
        transactions: group → its fence, with the time of its last commit.
    """

    rows: list[StampedRow] = field(default_factory=list)
    transactions: dict[str, SetTransaction] = field(default_factory=dict)

    def add(
        self, request: CommitRequest, wanted: Sequence[Row], fence: SetTransaction, now_us: int
    ) -> None:
        """Add the rows of a request.

        The timestamps of a group only increase, even if the clocks of processes differ.

        Args:
            request: the request, whose generation the fence allows.
            wanted: the request's rows; empty to raise the fence alone.
            fence: the group's fence before the request.
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
        self.transactions[request.group] = SetTransaction(fence.app_id, generation, updated_ms)


@dataclass(slots=True)
class _Staged:
    """The files that were written for the next version, and that no version holds yet.

    Attributes:
        content: the content of the version.
        staged_ms: the monotonic time before the data file was written.
        file: the data file with the rows; None without rows.
        version: the version, without a number.
    """

    content: _Content
    staged_ms: float
    file: DataFile | None = None
    version: StagedVersion | None = None


class CommitQueue:
    """The commits of one process. Safe to use from any thread.

    Attributes:
        maintenance_every: the number of versions after which the process that made the last one
            starts maintenance.
        max_backoff_ms: the maximum pause before a version is made again after another process was
            first.
    """

    maintenance_every: ClassVar[int] = 32
    max_backoff_ms: ClassVar[float] = 1.0

    def __init__(self, table: OffsetsStore) -> None:
        """Return an empty queue.

        Args:
            table: the table to commit to.
        """
        self._table = table
        self._waiting: deque[CommitRequest] = deque()
        self._turns = threading.Condition()
        self._is_committing = False
        self._throttle = CommitThrottle()
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
        """Commit several requests. Each gets its own outcome; no error is raised."""
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
            Whether it may commit; if so, it has to end its turn.
        """
        with self._turns:
            self._turns.wait_for(lambda: _are_done(requests) or not self._is_committing)
            if _are_done(requests):
                return False
            self._is_committing = True
            return True

    def _let_others_commit(self) -> None:
        pause_ms = self._throttle.pause_ms(SYSTEM_CLOCK.monotonic_ms())
        if pause_ms > 0:
            SYSTEM_CLOCK.sleep_ms(pause_ms)

    def _commit_waiting(self) -> None:
        batch: list[CommitRequest] = []
        retrying = Retrying(
            retry=retry_if_exception_type(_RETRIABLE_ERRORS),
            wait=wait_random(0, self.max_backoff_ms / 1000),
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

        On an object store new versions are not looked up right after a commit of this process: the
        put of the next version fails if there are any.
        """
        table = self._table
        expected = self._expected(batch)
        if not expected.transactions:
            table.refresh(create=True)
        elif table.store.is_local:
            self._stage(expected)
            table.refresh(create=True)
        elif table.is_fresh() and not is_retry:
            self._stage(expected)
        else:
            with table.store.executor_class(1, "spark-log-offsets") as thread:
                staging = thread.submit(self._stage, expected)
                table.refresh(create=True)
                staging.result()

    def _expected(self, batch: Sequence[CommitRequest]) -> _Content:
        """Return the next version's content if no other process commits; empty if not known."""
        content = _Content()
        for request in batch:
            fence = self._fence(request, content)
            wanted = request.expected if self._table.state.version >= 0 else None
            if wanted is None or request.generation < fence.version:
                return _Content()
            if not request.is_done and (wanted or request.generation > max(fence.version, 0)):
                content.add(request, wanted, fence, self._now_us)
        return content if len(content.rows) <= _MAX_BATCH_ROWS else _Content()

    def _fence(self, request: CommitRequest, content: _Content) -> SetTransaction:
        """Return the fence of a request's group after the requests in a version's content."""
        return content.transactions.get(request.group) or self._table.transaction(request.group)

    def _commit(self, batch: list[CommitRequest], *, is_retry: bool) -> None:
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        self._refresh(batch, is_retry=is_retry)
        accepted: list[CommitRequest] = []
        content = _Content()
        for request in batch:
            fence = self._fence(request, content)
            if request.is_done:
                continue
            if not request.is_allowed(fence):
                request.end(_fenced_error(request, fence))
                continue
            if request.expected is None and request.group in content.transactions:
                self._waiting.appendleft(request)  # decides on offsets that this version changes
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
        _log.debug(
            "%s: version %d has %d commits, of %s: %d offsets, after %.0f ms",
            self._table.log.directory,
            version.number,
            len(accepted),
            shown(content.transactions),
            len(content.rows),
            now_ms - began_ms,
        )
        self._throttle.on_appended(version.number, now_ms - began_ms, now_ms)
        self._is_due |= version.number % self.maintenance_every == 0
        self._table.on_appended(content.transactions.keys(), content.rows)
        for request in accepted:
            request.end()

    def _append(self, content: _Content) -> Version:
        """Commit the next version, if it is still the next one."""
        version = self._stage(content)
        staged, self._staged = self._staged, None
        try:
            return self._table.log.append_staged(version)
        except LogEndOffsetMismatchError as error:
            _log.debug("checking the commits again: %s", error)
            if not version.is_put:
                self._staged = staged  # for the next try: no version holds the file
            raise
        finally:
            if self._staged is None:  # the file stays: a version may hold it
                version.discard()

    def _decide(self, request: CommitRequest) -> tuple[Row, ...] | None:
        """Return the rows that a request commits; None if it was refused, with its outcome set."""
        positions = CommittedOffsets()
        if request.expected is None:
            positions = self._table.committed_offsets(request.group)
        try:
            return tuple(request.decide(positions))
        except SparkLogError as error:
            request.end(error)
            return None

    def _stage(self, content: _Content) -> StagedVersion:
        """Return a written version with this content: the last attempt's, if it is the same."""
        valid_ms = listing_validity_ms(self._table.log.deletion_delay_ms)
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
        """Delete the staged files on exit if no version holds them."""
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
            # If this fails, maintenance deletes the file later: no version holds it.
            table = self._table.log.directory
            with IN_PROCESS.suppress("deletion of an offsets file", table, StorageError):
                self._table.files.delete(staged.file)


def _are_done(requests: Sequence[CommitRequest]) -> bool:
    return all(request.is_done for request in requests)


def _fenced_error(request: CommitRequest, fence: SetTransaction) -> IllegalGenerationError:
    return IllegalGenerationError(
        f"generation {request.generation} of group {request.group!r} has ended: "
        f"{fence.version} has started; nothing was committed",
        generation=request.generation,
        current=fence.version,
    )


@contextmanager
def _with_outcomes(batch: list[CommitRequest]) -> Iterator[None]:
    """Give each request an outcome, even if an error is raised."""
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
