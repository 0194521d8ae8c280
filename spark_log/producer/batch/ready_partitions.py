"""The partitions that have batches to append, by the time when each is ready."""

from __future__ import annotations

import heapq
import math
import threading
from itertools import count

from spark_log.producer.batch.topic_route import NEVER_MS, PartitionQueue


class ReadyPartitions:
    """A priority queue of partitions, and the wakeup of the thread that waits for the next one.

    A partition is ready when ``linger.ms`` or the pause before a retry has passed (Kafka's
    ``RecordAccumulator.ready``). Callers hold ``lock`` for every method.

    Attributes:
        work: condition that wakes the leader, the one thread that waits for ready partitions.
        leader_wakes_ms: monotonic time at which the leader wakes by itself; -inf without a leader.
        muted_until_ms: monotonic time before which no partition is taken; for quotas (KIP-219).
    """

    def __init__(self, lock: threading.Lock) -> None:
        self.work = threading.Condition(lock)
        self.leader_wakes_ms = -math.inf
        self.muted_until_ms = -math.inf
        self._heap: list[tuple[float, int, PartitionQueue]] = []
        self._numbers = count()

    def schedule(self, queue: PartitionQueue, ready_ms: float) -> None:
        """Set the time when a partition is ready; it replaces the time that was set before."""
        if ready_ms == queue.ready_ms:
            return
        queue.ready_ms = ready_ms
        if ready_ms != NEVER_MS:
            heapq.heappush(self._heap, (ready_ms, next(self._numbers), queue))
            self._wake_leader(ready_ms)

    def mute_until(self, until_ms: float) -> None:
        """Take no partition before a time, which replaces the one that was set before."""
        if until_ms != self.muted_until_ms:
            self.muted_until_ms = until_ms
            self._wake_leader(self.next_ready_ms())

    def next_ready_ms(self) -> float:
        """Return the time when the next partition can be taken; `NEVER_MS` if none is scheduled."""
        while self._heap and self._heap[0][0] != self._heap[0][2].ready_ms:
            heapq.heappop(self._heap)  # an entry that a later `schedule` replaced
        return max(self._heap[0][0], self.muted_until_ms) if self._heap else NEVER_MS

    def take(self, now_ms: float) -> PartitionQueue | None:
        """Remove a ready partition, mark it busy and return it; None if none is ready."""
        if self.next_ready_ms() > now_ms:
            return None
        queue = heapq.heappop(self._heap)[2]
        queue.ready_ms = NEVER_MS
        queue.acquire()
        return queue

    def take_one(self, queue: PartitionQueue) -> None:
        """Mark a partition busy that is not, whenever it is ready."""
        self.schedule(queue, NEVER_MS)
        queue.acquire()

    def _wake_leader(self, ready_ms: float) -> None:
        if max(ready_ms, self.muted_until_ms) < self.leader_wakes_ms:
            self.leader_wakes_ms = -math.inf
            self.work.notify()
