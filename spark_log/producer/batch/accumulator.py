"""Records that wait to be appended, by partition (Kafka's ``RecordAccumulator``)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from spark_log.config import ProducerConfig
from spark_log.log import PartitionLog
from spark_log.producer.batch.buffer_pool import BufferPool
from spark_log.producer.batch.producer_batch import ProducerBatch
from spark_log.producer.batch.ready_partitions import DuePartitions
from spark_log.producer.batch.topic_route import NEVER_MS, PartitionQueue, TopicRoute
from spark_log.transaction import TopicIdPartition
from spark_log.util import Clock

RECORD_OVERHEAD_BYTES: Final = 32
"""Bytes added to the size of each record's key, value and headers: an empty record has a size."""

MAX_APPEND_BYTES: Final = 16_777_216
"""Approximate maximum of the records of one append, which are encoded in memory."""


class Accumulator:
    """The batches that are neither acknowledged nor failed, and the queues of their partitions.

    Callers hold `lock` for every method except the two that wait and
    `idle_log`, which take it.

    Attributes:
        lock: the producer's one lock.
        pool: the memory of the records.
        due: the partitions that have batches to append.
        routes: the topics by name.
        accepts_records: whether records may be added. False when the accumulator is closing; and
            outside of a transaction, when no batch is open either.
        is_closing: whether the accumulator is closing: every partition is due.
        is_aborted: whether all waiting records have failed, and nothing is retried.
    """

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        """Begin without topics and records."""
        self.lock = threading.Lock()
        self.due = DuePartitions(self.lock)
        self.pool = BufferPool(
            self.lock,
            clock,
            total_bytes=config.buffer_memory,
            max_block_ms=config.max_block_ms,
            on_full=self.schedule_all,
            cause=self._cause_of_full_pool,
        )
        self.routes: dict[str, TopicRoute] = {}
        self.accepts_records = config.transactional_id is None
        self.is_closing = False
        self.is_aborted = False
        self._config = config
        self._clock = clock
        self._batch_finished = threading.Condition(self.lock)
        self._unfinished: dict[ProducerBatch, PartitionQueue] = {}  # oldest first
        self._flushing = 0

    def unfinished(self) -> list[ProducerBatch]:
        """Return the batches that are neither acknowledged nor failed, oldest first."""
        return list(self._unfinished)

    def unfinished_records(self) -> int:
        """Return the number of records that are neither acknowledged nor failed."""
        return sum(batch.record_count for batch in self._unfinished)

    def unfinished_of(self, queue: PartitionQueue) -> list[ProducerBatch]:
        """Return the unfinished batches of one partition, oldest first."""
        return [batch for batch, of in self._unfinished.items() if of is queue]

    def queues_of(
        self, batches: Iterable[ProducerBatch]
    ) -> list[tuple[ProducerBatch, PartitionQueue]]:
        """Return the batches that are unfinished, each with its partition."""
        found = ((batch, self._unfinished.get(batch)) for batch in batches)
        return [(batch, queue) for batch, queue in found if queue is not None]

    def waiting(self) -> list[tuple[ProducerBatch, PartitionQueue]]:
        """Return the unfinished batches that no append in progress has, with their partitions."""
        return [
            (batch, queue)
            for batch, queue in self._unfinished.items()
            if not (queue.is_busy and queue.delivery and batch in queue.delivery.batches)
        ]

    def idle_log(self, place: TopicIdPartition) -> PartitionLog | None:
        """Return the open log of a partition that has no append in progress. Takes the lock."""
        with self.lock:
            queue = self._queue_of(place)
            return None if queue is None or queue.is_busy else queue.log

    def wait_until_idle(self, places: Iterable[TopicIdPartition]) -> None:
        """Wait until the threads have left partitions whose records are acknowledged already."""
        with self.lock:
            self._flushing += 1
            try:
                for place in places:
                    while (queue := self._queue_of(place)) is not None and queue.is_busy:
                        self._batch_finished.wait()
            finally:
                self._flushing -= 1

    def _queue_of(self, place: TopicIdPartition) -> PartitionQueue | None:
        for route in self.routes.values():
            if route.topic.topic_id == place.topic_id and place.partition < len(route.queues):
                return route.queues[place.partition]
        return None

    # --- adding batches --------------------------------------------------------------------------

    def new_batch(self, queue: PartitionQueue, size_bytes: int, limit_bytes: int) -> ProducerBatch:
        """Open a batch; `batch_memory` bytes are already allocated for it.

        Args:
            queue: the partition; its open batch is closed.
            size_bytes: size of the batch's first record.
            limit_bytes: size of the largest record that the topic accepts.
        """
        queue.close_open()
        room = max(size_bytes, min(self._config.batch_size, limit_bytes))
        batch = ProducerBatch(
            queue.topic,
            queue.partition,
            created_ms=self._clock.monotonic_ms(),
            room_bytes=room,
            reserved_bytes=self.batch_memory(size_bytes),
        )
        self._unfinished[batch] = queue
        queue.open = batch
        self.schedule(queue)
        return batch

    def add_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Add a full batch after its partition's other batches; its memory is already allocated."""
        queue.close_open()
        queue.closed.append(batch)
        self._unfinished[batch] = queue
        self.schedule(queue)

    def batch_memory(self, size_bytes: int) -> int:
        """Return the bytes of memory of a batch whose first record has this size."""
        return max(size_bytes, min(self._config.batch_size, self._config.buffer_memory))

    # --- appending -------------------------------------------------------------------------------

    def schedule(self, queue: PartitionQueue) -> None:
        """Compute when a partition is due, after it changed."""
        self.due.schedule(queue, self._due_ms(queue))

    def schedule_all(self) -> None:
        """Compute when each partition is due, after a change that concerns all of them."""
        for route in self.routes.values():
            for queue in route.queues:
                self.schedule(queue)

    def drain(self, queue: PartitionQueue, max_bytes: int) -> list[ProducerBatch]:
        """Take the batches of a busy partition, up to a size, but at least one.

        A large append costs no more files than a small one. Finished batches are left out.
        """
        max_bytes = min(max_bytes, MAX_APPEND_BYTES)
        taken: list[ProducerBatch] = []
        total_bytes = 0
        _close_open(queue)
        while queue.closed:
            batch = queue.closed[0]
            if not batch.is_over:
                if taken and total_bytes + batch.reserved_bytes > max_bytes:
                    break
                taken.append(batch)
                total_bytes += batch.reserved_bytes
            queue.closed.popleft()
        return taken

    def release(self, queue: PartitionQueue) -> None:
        """End the append of a partition: it is no longer busy and can be taken again."""
        queue.is_busy = False
        if self._flushing:
            self._batch_finished.notify_all()
        is_deleted = queue.route.is_deleted
        if is_deleted and queue.delivery is None and self.successor(queue) is not None:
            self.move(queue, ())
            return
        self.schedule(queue)
        if queue.blocked_successor is not None and queue.delivery is None:
            self._unblock_successor(queue)

    # --- a topic that is deleted, and created again ----------------------------------------------

    def successor(self, queue: PartitionQueue) -> PartitionQueue | None:
        """Return the same partition of the topic that has the name now; None if none exists."""
        route = self.routes.get(queue.topic)
        if route is None or route is queue.route or queue.partition >= len(route.queues):
            return None
        return route.queues[queue.partition]

    def replace_route(self, route: TopicRoute) -> None:
        """Replace a deleted topic by a new one of its name, and move the waiting batches to it.

        While an append to a partition of the old topic is running, the same partition of the new
        topic is blocked.
        """
        before = self.routes[route.topic.name]
        before.is_deleted = True
        self.routes[route.topic.name] = route
        for queue in before.queues:
            successor = self.successor(queue)
            if successor is None:
                self.schedule(queue)  # its append will find that the partition does not exist
            elif queue.is_busy:
                successor.is_busy = True
                queue.blocked_successor = successor
            else:
                self.move(queue, queue.delivery.batches if queue.delivery is not None else ())

    def move(self, source: PartitionQueue, first: Sequence[ProducerBatch]) -> None:
        """Move the waiting batches of a deleted topic's partition in front of its successor's.

        Args:
            source: the partition of the deleted topic.
            first: batches that were drained from this partition earlier; they are appended first.
        """
        # The blocked successor gets them even if its topic is deleted, too: its records come next.
        queue = source.blocked_successor or self.successor(source)
        assert queue is not None
        source.close_open()
        moved = [batch for batch in (*first, *source.closed) if not batch.is_over]
        source.closed = deque()
        source.delivery = None
        source.is_busy = False
        if self._flushing:
            self._batch_finished.notify_all()
        self.schedule(source)
        queue.closed.extendleft(reversed(moved))
        for batch in moved:
            self._unfinished[batch] = queue
        if source.blocked_successor is None:
            self.schedule(queue)
        else:
            self._unblock_successor(source)

    def _unblock_successor(self, queue: PartitionQueue) -> None:
        successor, queue.blocked_successor = queue.blocked_successor, None
        assert successor is not None
        successor.is_busy = False
        self.schedule(successor)

    # --- finishing -------------------------------------------------------------------------------

    def seal(self, batches: Iterable[ProducerBatch]) -> None:
        """Close open batches, which are about to finish. Batches that are not open are ignored."""
        for batch in batches:
            queue = self._unfinished.get(batch)
            if queue is not None and queue.open is batch:
                queue.close_open()

    def claim(self, batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
        """Return the batches that no other thread is finishing; the caller finishes them."""
        claimed = [batch for batch in batches if batch in self._unfinished and not batch.is_claimed]
        for batch in claimed:
            batch.is_claimed = True
        return claimed

    def finish(self, batches: Iterable[ProducerBatch]) -> None:
        """Remove batches that are acknowledged or failed, and free their memory."""
        freed_bytes = 0
        for batch in batches:
            if self._unfinished.pop(batch, None) is not None:
                freed_bytes += batch.reserved_bytes
        self.pool.deallocate(freed_bytes)
        if self._flushing:
            self._batch_finished.notify_all()
        if self.is_closing and not self._unfinished:
            self.due.work.notify_all()

    def expired(self, now_ms: float) -> list[tuple[ProducerBatch, PartitionQueue]]:
        """Return the batches whose ``delivery.timeout.ms`` has passed, oldest first."""
        found = []
        for batch, queue in self._unfinished.items():
            if batch.created_ms + self._config.delivery_timeout_ms > now_ms:
                break
            found.append((batch, queue))
        return found

    def next_expiry_ms(self) -> float:
        """Return when ``delivery.timeout.ms`` of the oldest batch will have passed."""
        oldest = next(iter(self._unfinished), None)
        if oldest is None:
            return NEVER_MS
        return oldest.created_ms + self._config.delivery_timeout_ms

    def wait_until_finished(self, timeout_s: float | None) -> bool:
        """Make every partition due, and wait for the batches that exist now. Takes the lock.

        Returns whether all of them finished in time.
        """
        with self.lock:
            waited_for = self.unfinished()
            began_ms = self._clock.monotonic_ms()
            self._flushing += 1
            try:
                self.schedule_all()
                for batch in waited_for:
                    while batch in self._unfinished:
                        rest_s = None
                        if timeout_s is not None:
                            rest_s = timeout_s - (self._clock.monotonic_ms() - began_ms) / 1000
                            if rest_s <= 0:
                                return False
                        self._batch_finished.wait(rest_s)
            finally:
                self._flushing -= 1
        return True

    def refuse_records(self) -> None:
        """Accept no more records until a transaction begins. Waiting records are kept."""
        self.accepts_records = False
        for route in self.routes.values():
            for queue in route.queues:
                _close_open(queue)

    def close(self) -> None:
        """Accept no more records, and make every partition due."""
        self.is_closing = True
        self.accepts_records = False
        self.schedule_all()
        self.pool.close()
        self.due.work.notify_all()

    def _due_ms(self, queue: PartitionQueue) -> float:
        if queue.is_busy:
            return NEVER_MS
        if queue.delivery is not None:
            must_end = queue.route.is_deleted or self.is_aborted
            return 0.0 if must_end else queue.delivery.due_ms
        if queue.open is None and not queue.closed:
            return NEVER_MS
        # The oldest batch goes first, so that under a quota no partition starves.
        if queue.closed:
            return queue.closed[0].created_ms
        assert queue.open is not None
        is_hurried = self._flushing or self.pool.waiting_threads or self.is_closing
        if is_hurried or queue.route.is_deleted:
            return queue.open.created_ms
        return queue.open.created_ms + self._config.linger_ms

    def _cause_of_full_pool(self) -> str:
        if self.due.muted_until_ms > self._clock.monotonic_ms():
            return "The client is held to its quota (producer_byte_rate)"
        return "The storage is slower than the sender"


def _close_open(queue: PartitionQueue) -> None:
    """Close the open batch of a partition, and count its bytes if the partition is sticky."""
    batch, route = queue.open, queue.route
    if batch is not None:
        if route.sticky is queue:
            route.sticky_bytes += batch.reserved_bytes - max(0, batch.room_bytes)
        queue.close_open()
