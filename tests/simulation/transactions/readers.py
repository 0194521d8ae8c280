"""Actors that read with either isolation level, and end transactions that block them."""

from __future__ import annotations

from typing import Literal

from spark_log.errors import NotFoundError, OffsetOutOfRangeError, StorageError
from spark_log.log import LogBatch, PartitionLog
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import TopicIdPartition, TransactionObserver
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.records import columns_of
from tests.simulation.transactions.true_transactions import TruePartition
from tests.simulation.transactions.world import OpenLogs, TransactionsWorld
from tests.simulation.violation import ViolationError

IsolationLevel = Literal["read_uncommitted", "read_committed"]

_QUIET_MS = 10 * DELETE_DELAY_MS
"""Readers stay for this time after the faults: processes that stand still and copies of requests
that are on their way continue within it."""

_IDLE_MS = DELETE_DELAY_MS / 4


class PartitionReader:
    """Reads one partition in sequence, as a consumer does.

    With ``read_committed``, it gives a transaction that blocks it to an observer.
    """

    def __init__(
        self,
        world: TransactionsWorld,
        partition: TopicIdPartition,
        isolation_level: IsolationLevel,
        *,
        observes: bool = True,
    ) -> None:
        self._world = world
        self._partition = partition
        self._isolation_level: IsolationLevel = isolation_level
        self._observes = observes
        self._ending_ms: float | None = None

    def run(self) -> None:
        """Read until the simulation is over, and everything is read; again after each crash."""
        world = self._world
        cluster = world.open_cluster()
        log = OpenLogs(cluster, world.image).log(self._partition)
        observer = TransactionObserver(cluster)
        position = 0
        while not self._is_over(position):
            try:
                position = self._read(log, position)
            except OffsetOutOfRangeError as error:
                if position >= world.truth.partition(self._partition).start:
                    raise
                world.scheduler.note(f"read from {position}: goes on at {error.log_start_offset}")
                position = error.log_start_offset
            except NotFoundError as error:
                raise ViolationError(f"a reader was given an error: {error}") from error
            except StorageError as error:
                world.scheduler.note(f"read from {position}: {type(error).__name__}")
            if self._is_committed and self._observes:
                self._resolve(log, observer)
            world.rest(_IDLE_MS if world.is_ending else world.profile.poll_ms)

    def read_all(self) -> None:
        """Read the whole log with a new handle."""
        log = OpenLogs(self._world.open_cluster(), self._world.image).log(self._partition)
        self._read(log, self._world.truth.partition(self._partition).start)

    @property
    def _is_committed(self) -> bool:
        return self._isolation_level == "read_committed"

    def _is_over(self, position: int) -> bool:
        world = self._world
        if not world.is_ending:
            return False
        if self._ending_ms is None:
            self._ending_ms = world.scheduler.now_ms
        is_quiet = world.scheduler.now_ms - self._ending_ms > _QUIET_MS
        return is_quiet and position == world.truth.partition(self._partition).end

    def _read(self, log: PartitionLog, position: int) -> int:
        """Read to the end, or to the first open transaction; return the position there."""
        world, truth = self._world, self._world.truth.partition(self._partition)
        # A blocked reader may learn late that the log start has passed the blocking transaction.
        readable_to = truth.first_open_offset if self._is_committed else truth.end
        begin = position
        batches = log.stream(position, isolation_level=self._isolation_level)
        for batch, end in batches:
            rows: list[tuple[int, bytes]] = []
            if batch is not None and not batch.is_control:
                rows = rows_of(batch)
            world.truth.check_read(
                self._partition, position, end, rows, is_committed=self._is_committed
            )
            position = end
            if world.scheduler.random.random() < 0.1:
                world.rest(world.profile.poll_ms)
        if position > begin:
            world.scheduler.note(f"read {begin} to {position} of {self._partition.partition}")
        if position < readable_to:
            raise ViolationError(
                f"a reader got nothing more at {position}, but could read up to {readable_to}"
            )
        return position

    def _resolve(self, log: PartitionLog, observer: TransactionObserver) -> None:
        blocking = log.blocking_transaction
        if blocking is None:
            return
        is_resolved = observer.resolve(blocking, log, self._partition)
        if is_resolved:
            self._world.scheduler.note(f"has resolved {blocking}")


class Inspector:
    """Compares the transactions that a log's handle knows with the model, and scans the log."""

    def __init__(self, world: TransactionsWorld, partition: TopicIdPartition) -> None:
        self._world = world
        self._partition = partition

    def run(self) -> None:
        """Look until the faults end."""
        world = self._world
        log = OpenLogs(world.open_cluster(), world.image).log(self._partition)
        while not world.is_ending:
            world.rest(world.profile.poll_ms)
            try:
                self._look(log)
            except OffsetOutOfRangeError:
                world.scheduler.note("look: out of range")
            except NotFoundError as error:
                raise ViolationError(f"a reader was given an error: {error}") from error
            except StorageError as error:
                world.scheduler.note(f"look: {type(error).__name__}")

    def _look(self, log: PartitionLog) -> None:
        world = self._world
        truth = world.truth.partition(self._partition)
        if world.scheduler.random.random() < 0.5:
            self._scan(log, truth)
            return
        index = log.transactions()
        found = {
            ProducerIdAndEpoch(each.producer_id, each.producer_epoch): each.first_offset
            for each in index.open
        }
        records = truth.open_before(index.offset)
        # A transaction of which all records are deleted may be known from a snapshot.
        expected = {
            each: found.get(each, offsets[0]) if offsets[0] < truth.start else offsets[0]
            for each, offsets in records.items()
            if offsets[-1] >= truth.start or each in found
        }
        if found != expected:
            raise ViolationError(f"open before {index.offset} are {expected}, but {found} is shown")
        world.scheduler.note(f"{len(found)} transactions are open before {index.offset}")

    def _scan(self, log: PartitionLog, truth: TruePartition) -> None:
        """Read from anywhere to the last stable offset."""
        world = self._world
        since = truth.last_stable_offset
        begin = world.scheduler.random.randint(min(truth.start, since), since)
        rows: list[tuple[int, bytes]] = []
        for batch in log.scan(begin, isolation_level="read_committed"):
            rows += rows_of(batch)
        end = log.end_offset(isolation_level="read_committed")
        if not since <= end <= truth.last_stable_offset:
            raise ViolationError(
                f"{end} is shown as last stable offset, which went on from {since} to "
                f"{truth.last_stable_offset}"
            )
        read_to = max(since, rows[-1][0] + 1 if rows else begin)
        world.truth.check_read(self._partition, begin, read_to, rows, is_committed=True)
        world.scheduler.note(f"scan {begin}: {len(rows)} records")


def rows_of(batch: LogBatch) -> list[tuple[int, bytes]]:
    """Return offsets and values of a batch."""
    offsets, values = columns_of(batch, "value")
    return list(zip(offsets, values, strict=True))
