"""`BackgroundRecovery`: returns replicas to the ISR on other threads, and retries failures."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from random import Random
from typing import Final

from spark_log.errors import SparkLogError
from spark_log.replication.cluster_recovery import RecoveredReplica, TopicPartitionReplica
from spark_log.types import TopicPartition
from spark_log.util import Clock, retry_pause_ms

_FIRST_PAUSE_MS: Final = 5_000
_LONGEST_PAUSE_MS: Final = 300_000

RecoverPartition = Callable[
    [TopicPartition, Collection[TopicPartitionReplica]], Iterable[RecoveredReplica]
]
"""A function that returns replicas of one partition to the in-sync replicas, in turn."""


class BackgroundRecovery:
    """Returns the replicas of several partitions to the in-sync replicas at the same time.

    The threads are daemons: a root that hangs does not keep the process from ending, and the next
    process continues an interrupted copy.
    """

    def __init__(
        self, recover: RecoverPartition, *, threads: int, clock: Clock, random: Random
    ) -> None:
        """Return the recovery; no thread is started yet.

        Args:
            recover: returns replicas of one partition to the in-sync replicas.
            threads: the number of partitions that are copied at the same time.
            clock: measures the pauses between tries.
            random: varies the pauses.
        """
        self._recover = recover
        self._clock = clock
        self._random = random
        self._threads = threads
        self._running = 0
        self._pending: dict[TopicPartition, list[TopicPartitionReplica]] = {}
        self._busy: set[TopicPartition] = set()
        self._lock = threading.Lock()
        self._failures: dict[TopicPartitionReplica, int] = {}
        self._next_try_ms: dict[TopicPartitionReplica, float] = {}
        self._done: queue.SimpleQueue[tuple[TopicPartition, list[RecoveredReplica]]]
        self._done = queue.SimpleQueue()

    @property
    def is_idle(self) -> bool:
        """Whether no partition is being copied or waits for a thread."""
        with self._lock:
            return not self._busy and not self._pending

    def begin(self, replicas: Collection[TopicPartitionReplica]) -> None:
        """Begin to copy replicas, except those being copied and those in a pause after a failure.

        Args:
            replicas: all replicas that are not in sync. The failures of other replicas are
                forgotten.
        """
        for known in (self._failures, self._next_try_ms):
            for gone in known.keys() - set(replicas):
                del known[gone]
        now_ms = self._clock.monotonic_ms()
        due: dict[TopicPartition, list[TopicPartitionReplica]] = {}
        for replica in replicas:
            if self._next_try_ms.get(replica, now_ms) <= now_ms:
                due.setdefault(TopicPartition(*replica[:2]), []).append(replica)
        with self._lock:
            self._pending = {tp: due[tp] for tp in due if tp not in self._busy}
            new_threads = min(self._threads - self._running, len(self._pending))
            self._running += new_threads
        for _ in range(new_threads):
            threading.Thread(target=self._run, name="spark-log-replicate", daemon=True).start()

    def has_failed(self, replica: TopicPartitionReplica) -> bool:
        """Return whether the last try for a replica failed."""
        return replica in self._failures

    def take_results(self) -> Iterator[RecoveredReplica]:
        """Yield the results since the last call."""
        while True:
            try:
                tp, results = self._done.get_nowait()
            except queue.Empty:
                return
            with self._lock:
                self._busy.discard(tp)
            for result in results:
                if result.error is None:
                    self._failures.pop(result.replica, None)
                    self._next_try_ms.pop(result.replica, None)
                else:
                    self._on_failure(result.replica)
                yield result

    def _on_failure(self, replica: TopicPartitionReplica) -> None:
        failures = self._failures[replica] = self._failures.get(replica, 0) + 1
        pause_ms = retry_pause_ms(
            failures, initial_ms=_FIRST_PAUSE_MS, max_ms=_LONGEST_PAUSE_MS, random=self._random
        )
        self._next_try_ms[replica] = self._clock.monotonic_ms() + pause_ms

    def _run(self) -> None:
        """Copy one partition after the other until none is left."""
        while True:
            with self._lock:
                if not self._pending:
                    self._running -= 1
                    return
                tp = next(iter(self._pending))
                replicas = self._pending.pop(tp)
                self._busy.add(tp)
            results: list[RecoveredReplica] = []
            try:
                results += self._recover(tp, replicas)
            except Exception as error:
                text = str(error) if isinstance(error, SparkLogError) else repr(error)
                results += [RecoveredReplica(each, None, text) for each in replicas]
            self._done.put((tp, results))
