"""A consumer's fetching of one partition, run by an actor instead of by the fetching thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, cast

from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch.completed_fetch import BatchSlice
from spark_log.consumer.fetch.fetch_cursor import FetchCursor
from spark_log.consumer.fetch.fetch_loop import FetchLoop
from spark_log.errors import NotFoundError, OffsetOutOfRangeError, StorageError
from spark_log.log import PartitionLog
from spark_log.storage.directory_watch import DirectoryWatch
from spark_log.types import TopicPartition
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.true_log import DIRECTORY
from tests.simulation.log.world import World
from tests.simulation.violation import ViolationError

_PARTITION: Final = TopicPartition("flights", 0)

_LONGEST_WAIT_MS = DELETE_DELAY_MS / 10
_TIMER_MS = 1.0
"""Resolution of a timer: by a clock that is slow, a wait would end a little too early each time."""


@dataclass(frozen=True, slots=True)
class _ReadBegin:
    """When the loop opened a stream of batches: no batch of it shows an older state of the log.

    Attributes:
        offset: the first offset of the stream.
        extent: index of the log's extent (`TrueLog.now`) at that moment.
        at_ms: simulated time.
    """

    offset: int
    extent: int
    at_ms: float


class SimulatedFetcher:
    """Fetches one partition by the consumer's `FetchLoop`, `FetchBuffer` and `FetchCursor`.

    Between two takes the loop runs a turn, as the fetching thread does beside the consumer. On an
    object store a partition that has more is read beside that thread: the actor runs such a turn
    when it polls the next time, and may seek before. The loop's findings are checked when it makes
    them: that the log ends, that an offset is out of range, and that an error may be retried.

    Attributes:
        position: the offset after the rows that were handed out.
        read_began_ms: when the loop began to read the rows that were handed out last.
    """

    def __init__(self, world: World, offset: int) -> None:
        """Start at an offset. Accesses no storage yet."""
        random = world.scheduler.random
        config = ConsumerConfig(max_partition_fetch_bytes=random.choice((1, 1000, 1_048_576)))
        self._world = world
        self._max_records = random.choice((1, 3, None))
        self._cursor = FetchCursor(_PARTITION, cast(PartitionLog, world.open_log()), offset)
        self._loop = _CheckedLoop(world, config)
        self._loop.add(self._cursor)
        self._begins: list[_ReadBegin] = []
        self.position = offset
        self.read_began_ms = 0.0

    def poll(self, timeout_ms: float) -> list[BatchSlice]:
        """Return the next rows; wait for some, and return none after ``timeout_ms``.

        Raises:
            OffsetOutOfRangeError: the records at `position` were deleted; has the valid range.
            ViolationError: the loop found something about the log that is not true.
        """
        clock, buffer = self._world.clock, self._loop.buffer
        deadline_ms = clock.monotonic_ms() + timeout_ms
        while True:
            self._run_loop()
            fetch = buffer.take(self._max_records)
            if fetch.failure is not None:
                raise fetch.failure[1]
            if fetch.positions or clock.monotonic_ms() >= deadline_ms:
                self._on_taken(fetch.positions.get(_PARTITION, self.position))
                return fetch.rows

    def seek(self, offset: int) -> None:
        """Continue at another offset, and drop what was fetched."""
        self._loop.buffer.discard(self._cursor, offset)
        self._loop.enqueue(self._cursor)
        self.position = offset

    def _run_loop(self) -> None:
        """Run one turn of the loop."""
        cursor = self._cursor
        if cursor.stream(cursor.version) is None:
            begin = _ReadBegin(
                cursor.offset, self._world.true_log.now, self._world.scheduler.now_ms
            )
            self._begins = [each for each in self._begins if each.offset < begin.offset]
            self._begins.append(begin)
            self._loop.since = begin.extent
        if self._loop.beside:
            self._loop.beside.pop()()
        else:
            self._loop.run_once()

    def _on_taken(self, position: int) -> None:
        while len(self._begins) > 1 and self._begins[1].offset <= self.position:
            self._begins.pop(0)
        self.read_began_ms = self._begins[0].at_ms
        self.position = position


class _CheckedLoop(FetchLoop):
    """The consumer's loop, whose findings are compared with the log's history.

    Attributes:
        since: index of the log's extent when the current stream of batches began.
        beside: the turn that another thread would run.
    """

    def __init__(self, world: World, config: ConsumerConfig) -> None:
        self.beside: list[Callable[[], None]] = []
        super().__init__(
            world.store,
            config,
            threading.Condition(),
            _SimulatedWatch(world, self),
            also_watched="",
            on_hint=lambda: None,
            now_ms=world.clock.monotonic_ms,
            random=world.scheduler.random,
            read_beside=None if world.store.is_mapped else self.beside.append,
        )
        self._true_log = world.true_log
        self.since = 0

    def _at_end(self, cursor: FetchCursor, version: int, began_ms: float, seen_end: int) -> None:
        self._true_log.check_read(cursor.offset, [], self.since)
        super()._at_end(cursor, version, began_ms, seen_end)

    def _failed(self, cursor: FetchCursor, version: int, error: Exception) -> None:
        if isinstance(error, OffsetOutOfRangeError):
            self._true_log.check_out_of_range(cursor.offset, self.since)
        elif isinstance(error, NotFoundError):
            raise ViolationError(f"a reader was given an error: {error}") from error
        elif not isinstance(error, StorageError):
            raise error
        super()._failed(cursor, version, error)


class _SimulatedWatch(DirectoryWatch):
    """Waits by the simulated clock. Half of its waits end with a hint if the store is local.

    Hints are lost, and given for no reason: no result may depend on them.
    """

    gives_hints: ClassVar[bool] = True

    def __init__(self, world: World, loop: FetchLoop) -> None:
        """Return a watch that only waits while the loop has nothing to hand out."""
        self._world = world
        self._loop = loop

    def add(self, directory: str) -> bool:
        """Return whether the store is local."""
        return self._world.store.is_mapped

    def remove(self, directory: str) -> None:
        """Do nothing."""

    def wait(self, timeout_ms: float) -> set[str]:
        """Let other actors run; return the partition's directory, or nothing."""
        if timeout_ms <= 0 or not self._loop.buffer.is_empty():
            return set()
        self._world.clock.sleep_ms(min(max(timeout_ms, _TIMER_MS), _LONGEST_WAIT_MS))
        is_hinted = self._world.store.is_mapped and self._world.scheduler.random.random() < 0.5
        return {DIRECTORY} if is_hinted else set()

    def wake(self) -> None:
        """Do nothing: the actor that waits is the one that takes."""

    def close(self) -> None:
        """Do nothing."""
