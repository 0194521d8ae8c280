"""Batches the commits of one process: all waiting commits become one version of the table.

A thread puts its request into a queue and waits for the lock. The thread that gets the lock commits
all waiting requests, and gives each its own outcome. So a commit waits at most for the one before
it, and the more requests wait, the more share one version.

On an object store the file of the rows is written while the table's log is read, as it would be
without new versions. Rows that turn out different are written again.

A version is made on exactly the state that its requests were checked on. If another process was
first, the state is read again and all requests are checked again: no commit of an older generation
takes effect after a newer one (docs/adr/0010).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random

from spark_log.clock import SYSTEM_CLOCK
from spark_log.coordinator.offsets.commit_times import COMMIT_PREFIX
from spark_log.coordinator.offsets.rows import GroupPositions, Row, to_table
from spark_log.coordinator.offsets.store import OffsetsStore
from spark_log.delta import DataFile, Transaction
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
_BACKOFF_S = 0.003

_RETRIABLE_ERRORS = (LogEndOffsetMismatchError, StorageUnavailableError, StorageTimeoutError)

StampedRow = tuple[str, Row, int, str, int]


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
        needs_positions: ``decide`` uses the offsets; if not, it is called with none.
        is_fenced: it is refused if a higher generation has started. Without it the fence stays.
        is_done: it has an outcome.
        error: why it failed; None if it did not.
    """

    group: str
    generation: int
    member_id: str
    decide: Callable[[GroupPositions], Iterable[Row]]
    deadline_ms: float
    needs_positions: bool = False
    is_fenced: bool = True
    is_done: bool = False
    error: SparkLogError | None = None

    def end(self, error: SparkLogError | None = None) -> None:
        """Set the outcome, unless there is one."""
        if not self.is_done:
            self.is_done, self.error = True, error


@dataclass(frozen=True, slots=True)
class _Staged:
    """A written file that no version holds yet: its rows, and the monotonic time of its start."""

    rows: list[StampedRow]
    file: DataFile
    staged_ms: float


class CommitQueue:
    """The commits of one process. Safe to use from any thread."""

    def __init__(self, table: OffsetsStore) -> None:
        """Return an empty queue.

        Args:
            table: the table to commit to.
        """
        self._table = table
        self._waiting: deque[CommitRequest] = deque()
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
        with self._table.lock:
            while not all(request.is_done for request in requests):
                self._commit_waiting()

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
                    self._commit(batch)

    def _take_waiting(self, batch: list[CommitRequest]) -> None:
        while self._waiting and len(batch) < _MAX_BATCH_ROWS:
            batch.append(self._waiting.popleft())

    def _refresh(self, batch: Sequence[CommitRequest]) -> None:
        """Read new versions; on an object store, write the rows of the batch meanwhile."""
        table = self._table
        is_early = not table.store.is_mapped and table.state.version >= 0
        rows = self._expected_rows(batch) if is_early else []
        if not rows:
            table.refresh(create=True)
            return
        with ThreadPoolExecutor(1, "spark-log-offsets") as thread:
            staging = thread.submit(self._stage, rows)
            table.refresh(create=True)
            staging.result()

    def _expected_rows(self, batch: Sequence[CommitRequest]) -> list[StampedRow]:
        """Return the rows of the next version, if no other one was made; empty if not known."""
        rows: list[StampedRow] = []
        last_timestamps_us: dict[str, int] = {}
        for request in batch:
            fence = self._table.transaction(request.group)
            if request.needs_positions or request.generation < fence.version:
                return []
            if not request.is_done and (wanted := tuple(request.decide(GroupPositions()))):
                rows += self._stamped(request, wanted, fence, last_timestamps_us)
        return rows if len(rows) <= _MAX_BATCH_ROWS else []

    def _stamped(
        self,
        request: CommitRequest,
        wanted: Sequence[Row],
        fence: Transaction,
        last_timestamps_us: dict[str, int],
    ) -> list[StampedRow]:
        """Return rows with their timestamp, and make it the last one of the group.

        The timestamps of a group only increase, also if the clocks of processes differ.
        """
        group = request.group
        before_us = last_timestamps_us.get(group, fence.last_updated_ms * 1000)
        timestamp_us = last_timestamps_us[group] = max(self._now_us, before_us + 1)
        return [(group, row, request.generation, request.member_id, timestamp_us) for row in wanted]

    def _commit(self, batch: list[CommitRequest]) -> None:
        self._refresh(batch)
        accepted: list[CommitRequest] = []
        rows: list[StampedRow] = []
        transactions: dict[str, Transaction] = {}
        last_timestamps_us: dict[str, int] = {}
        for request in batch:
            group = request.group
            fence = transactions.get(group) or self._table.transaction(group)
            if request.is_done or not _is_allowed(request, fence):
                continue
            if request.needs_positions and group in transactions:
                self._waiting.appendleft(request)  # this version changes the offsets it decides on
                continue
            wanted = self._decide(request)
            if wanted is None:
                continue
            if not wanted and request.generation <= max(fence.version, 0):
                request.end()
                continue
            if len(rows) + len(wanted) > _MAX_BATCH_ROWS and rows:
                self._waiting.append(request)
                continue
            updated_ms = fence.last_updated_ms
            if wanted:
                rows += self._stamped(request, wanted, fence, last_timestamps_us)
                updated_ms = -(-last_timestamps_us[group] // 1000)
            generation = max(request.generation, fence.version)
            transactions[group] = Transaction(fence.app_id, generation, updated_ms)
            accepted.append(request)
        batch[:] = accepted + [each for each in batch if each.is_done]
        if not accepted:
            return
        actions: list[dict[str, object]] = []
        if rows:
            actions.append(self._stage(rows).to_add(self._now_us // 1000))
        actions += [each.to_action() for each in transactions.values()]
        staged, self._staged = self._staged, None  # after a lost answer a version may hold it
        try:
            version = self._table.log.append(actions, "WRITE", {"mode": "Append"})
        except LogEndOffsetMismatchError:  # no version holds it: use it for the next try
            self._staged = staged
            raise
        self._is_due |= version.number % MAINTENANCE_EVERY == 0
        table = to_table(rows)
        self._table.on_appended(dict.fromkeys(transactions, table))
        for request in accepted:
            request.end()

    def _decide(self, request: CommitRequest) -> tuple[Row, ...] | None:
        """Return the rows that a request commits; None if it was refused, with its outcome set."""
        positions = GroupPositions()
        if request.needs_positions:
            positions = self._table.positions(request.group)
        try:
            return tuple(request.decide(positions))
        except SparkLogError as error:
            request.end(error)
            return None

    def _stage(self, rows: list[StampedRow]) -> DataFile:
        """Return a file with these rows: the staged one of the last try if it has the same rows."""
        staged, valid_ms = self._staged, listing_validity_ms(self._table.log.free_delay_ms)
        if staged is not None and not (
            # Cleanup deletes a file without a version some time after it was written.
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
        """Delete the staged file in the end if no version holds it."""
        try:
            yield
        finally:
            if self._staged is not None:
                self._discard()

    def _discard(self) -> None:
        assert self._staged is not None
        staged, self._staged = self._staged, None
        if staged.file.path in self._table.log.state.files:
            return  # the file times of a clock that jumped made a version of ours look void
        # After a failure maintenance deletes it later: no version holds it.
        table = self._table.log.directory
        with IN_PROCESS.suppress("deletion of an offsets file", table, StorageError):
            self._table.files.delete(staged.file)


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
