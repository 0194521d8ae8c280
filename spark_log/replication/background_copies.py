"""`BackgroundCopies`: brings replicas back on other threads, and tries again after a failure."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from random import Random
from typing import Final

from spark_log.backoff import retry_pause_ms
from spark_log.clock import Clock
from spark_log.errors import SparkLogError
from spark_log.replication.cluster_replicator import ReplicatedPartition, TopicPartitionReplica
from spark_log.types import TopicPartition

_FIRST_PAUSE_MS: Final = 5_000
_LONGEST_PAUSE_MS: Final = 300_000

CopyPartition = Callable[
    [TopicPartition, Collection[TopicPartitionReplica]], Iterable[ReplicatedPartition]
]
"""Brings replicas of one partition back, one after the other."""


class BackgroundCopies:
    """Brings the replicas of several partitions back at the same time.

    The threads are daemons: a root that hangs does not keep the process from ending, and whatever
    is interrupted then is continued by the next process.
    """

    def __init__(self, copy: CopyPartition, *, threads: int, clock: Clock, random: Random) -> None:
        """Start no thread yet.

        Args:
            copy: brings replicas of one partition back.
            threads: how many partitions are copied at the same time.
            clock: measures the pauses between tries.
            random: varies the pauses.
        """
        self._copy = copy
        self._clock = clock
        self._random = random
        self._free_threads = threads
        self._busy: set[TopicPartition] = set()
        self._failures: dict[TopicPartitionReplica, int] = {}
        self._next_try_ms: dict[TopicPartitionReplica, float] = {}
        self._done: queue.SimpleQueue[tuple[TopicPartition, list[ReplicatedPartition]]]
        self._done = queue.SimpleQueue()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being copied."""
        return not self._busy

    def begin(self, replicas: Collection[TopicPartitionReplica]) -> None:
        """Begin to bring replicas back, unless it is done already or a pause after a failure.

        Args:
            replicas: all that are not in sync. What is known of others is forgotten.
        """
        for known in (self._failures, self._next_try_ms):
            for gone in known.keys() - set(replicas):
                del known[gone]
        now_ms = self._clock.monotonic_ms()
        due: dict[TopicPartition, list[TopicPartitionReplica]] = {}
        for replica in replicas:
            if self._next_try_ms.get(replica, now_ms) <= now_ms:
                due.setdefault(TopicPartition(*replica[:2]), []).append(replica)
        for tp, chosen in due.items():
            if self._free_threads and tp not in self._busy:
                self._free_threads -= 1
                self._busy.add(tp)
                threading.Thread(
                    target=self._run, args=(tp, chosen), name=f"replicate-{tp}", daemon=True
                ).start()

    def has_failed(self, replica: TopicPartitionReplica) -> bool:
        """Whether the last try for a replica failed."""
        return replica in self._failures

    def finished(self) -> Iterator[ReplicatedPartition]:
        """Yield what was finished since the last call."""
        while True:
            try:
                tp, results = self._done.get_nowait()
            except queue.Empty:
                return
            self._busy.discard(tp)
            self._free_threads += 1
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

    def _run(self, tp: TopicPartition, replicas: list[TopicPartitionReplica]) -> None:
        results: list[ReplicatedPartition] = []
        try:
            results += self._copy(tp, replicas)
        except Exception as error:
            text = str(error) if isinstance(error, SparkLogError) else repr(error)
            results += [ReplicatedPartition(each, None, text) for each in replicas]
        finally:
            self._done.put((tp, results))
