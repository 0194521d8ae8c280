"""The partitions that have batches to append, by the time when each is due."""

from __future__ import annotations

import heapq
import math
import threading
from itertools import count

from spark_log.producer.batch.topic_route import NEVER_MS, PartitionQueue


class DuePartitions:
    """A priority queue of partitions, and the wakeup of the thread that waits for the next one.

    Callers hold ``lock`` for every method.

    Attributes:
        work: condition that wakes the leader, the one thread that waits for due partitions.
        leader_wakes_ms: monotonic time at which the leader wakes by itself; -inf without a leader.
        muted_until_ms: monotonic time before which no partition is taken; for quotas (KIP-219).
    """

    def __init__(self, lock: threading.Lock) -> None:
        self.work = threading.Condition(lock)
        self.leader_wakes_ms = -math.inf
        self.muted_until_ms = -math.inf
        self._heap: list[tuple[float, int, PartitionQueue]] = []
        self._numbers = count()

    def schedule(self, queue: PartitionQueue, due_ms: float) -> None:
        """Set the time when a partition is due; it replaces the time that was set before."""
        if due_ms == queue.due_ms:
            return
        queue.due_ms = due_ms
        if due_ms != NEVER_MS:
            heapq.heappush(self._heap, (due_ms, next(self._numbers), queue))
            self._wake_leader(due_ms)

    def mute_until(self, until_ms: float) -> None:
        """Take no partition before a time, which replaces the one that was set before."""
        if until_ms != self.muted_until_ms:
            self.muted_until_ms = until_ms
            self._wake_leader(self.next_due_ms())

    def next_due_ms(self) -> float:
        """Return the time when the next partition can be taken; `NEVER_MS` if none is scheduled."""
        while self._heap and self._heap[0][0] != self._heap[0][2].due_ms:
            heapq.heappop(self._heap)  # an entry that a later `schedule` replaced
        return max(self._heap[0][0], self.muted_until_ms) if self._heap else NEVER_MS

    def take(self, now_ms: float) -> PartitionQueue | None:
        """Remove a due partition, mark it busy and return it; None if none is due."""
        if self.next_due_ms() > now_ms:
            return None
        queue = heapq.heappop(self._heap)[2]
        queue.is_busy = True
        queue.due_ms = NEVER_MS
        return queue

    def _wake_leader(self, due_ms: float) -> None:
        if max(due_ms, self.muted_until_ms) < self.leader_wakes_ms:
            self.leader_wakes_ms = -math.inf
            self.work.notify()
