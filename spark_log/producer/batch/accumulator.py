"""Records that wait to be appended, by partition (Kafka's ``RecordAccumulator``)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from spark_log.config import ProducerConfig
from spark_log.log import PartitionLog
from spark_log.producer.batch.buffer_pool import BufferPool
from spark_log.producer.batch.in_flight_batches import InFlightBatches
from spark_log.producer.batch.incomplete_batches import IncompleteBatches
from spark_log.producer.batch.producer_batch import ProducerBatch
from spark_log.producer.batch.ready_partitions import ReadyPartitions
from spark_log.producer.batch.topic_route import NEVER_MS, PartitionQueue, TopicRoute
from spark_log.util import Clock

if TYPE_CHECKING:
    from spark_log.transaction import TopicIdPartition

RECORD_OVERHEAD_BYTES: Final = 32
"""Bytes added to the size of each record's key, value and headers: an empty record has a size."""

MAX_APPEND_BYTES: Final = 16_777_216
"""Approximate maximum of the records of one append, which are encoded in memory."""


class Accumulator:
    """The topics of a producer, the waiting batches of their partitions, and the producer's lock.

    Callers hold `lock` for every method except `idle_log`, `wait_until_idle` and
    `wait_until_finished`, which take it.

    Attributes:
        lock: the producer's one lock.
        pool: the memory of the records.
        ready: the partitions that have batches to append, by time.
        incomplete: the batches that are neither acknowledged nor failed.
        routes: the topics by name.
        accepts_records: whether records may be added. False when the accumulator is closing; and
            outside of a transaction, when no batch is open either.
        is_closing: whether the accumulator is closing: every partition is ready.
        is_aborted: whether all waiting records have failed, and nothing is retried.
    """

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        """Begin without topics and records."""
        self.lock = threading.Lock()
        self.ready = ReadyPartitions(self.lock)
        self.incomplete = IncompleteBatches(config.delivery_timeout_ms)
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
        self._partition_released = threading.Condition(self.lock)
        self._flushing = 0
        self._awaited: list[ProducerBatch] = []

    # --- adding batches --------------------------------------------------------------------------

    def new_batch(self, queue: PartitionQueue, size_bytes: int, limit_bytes: int) -> ProducerBatch:
        """Open a batch; `batch_memory` bytes are already allocated for it.

        Args:
            queue: the partition; its open batch is closed.
            size_bytes: size of the batch's first record.
            limit_bytes: size of the largest record that the topic accepts.
        """
        room = max(size_bytes, min(self._config.batch_size, limit_bytes))
        batch = ProducerBatch(
            queue.topic,
            queue.partition,
            created_ms=self._clock.monotonic_ms(),
            room_bytes=room,
            reserved_bytes=self.batch_memory(size_bytes),
        )
        self.incomplete.put(batch, queue)
        queue.open_batch(batch)
        self.schedule(queue)
        return batch

    def add_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Add a full batch after its partition's other batches; its memory is already allocated."""
        self.incomplete.put(batch, queue)
        queue.add_closed(batch)
        self.schedule(queue)

    def batch_memory(self, size_bytes: int) -> int:
        """Return the bytes of memory of a batch whose first record has this size."""
        return max(size_bytes, min(self._config.batch_size, self._config.buffer_memory))

    def refuse_records(self) -> None:
        """Accept no more records until a transaction begins. Waiting records are kept."""
        self.accepts_records = False
        for route in self.routes.values():
            for queue in route.queues:
                route.close_open(queue)

    def close(self) -> None:
        """Accept no more records, and make every partition ready."""
        self.is_closing = True
        self.accepts_records = False
        self.schedule_all()
        self.pool.close()
        self.ready.work.notify_all()

    # --- when partitions are ready ---------------------------------------------------------------

    def schedule(self, queue: PartitionQueue) -> None:
        """Compute when a partition is ready, after it changed."""
        self.ready.schedule(queue, self._ready_ms(queue))

    def schedule_all(self) -> None:
        """Compute when each partition is ready, after a change that concerns all of them."""
        for route in self.routes.values():
            for queue in route.queues:
                self.schedule(queue)

    def _ready_ms(self, queue: PartitionQueue) -> float:
        if queue.is_busy:
            return NEVER_MS
        if queue.in_flight is not None:
            must_end = queue.route.is_deleted or self.is_aborted
            return 0.0 if must_end else queue.in_flight.retry_ms
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

    # --- appending -------------------------------------------------------------------------------

    def take_of_stripe(self, queue: PartitionQueue) -> list[PartitionQueue]:
        """Take the other partitions of a busy partition's stripe that have batches to append.

        They share its put, also those whose ``linger.ms`` is not over, as in Kafka whatever can be
        sent to a broker is in one request. None shares that of a partition log.

        Args:
            queue: the busy partition.
        """
        taken: list[PartitionQueue] = []
        now_ms = self._clock.monotonic_ms()
        for other in queue.route.stripe_of(queue):
            in_flight = other.in_flight
            is_due = in_flight.retry_ms <= now_ms if in_flight else other.open or other.closed
            if not other.is_busy and is_due:
                self.ready.take_one(other)
                taken.append(other)
        return taken

    def drain(self, queue: PartitionQueue, max_bytes: int) -> InFlightBatches | None:
        """Return the batches to retry, or put waiting batches in flight; None without batches.

        A large append costs no more files than a small one: it takes all batches up to a size.

        Args:
            queue: the busy partition.
            max_bytes: maximum size of new batches; at least one is taken.
        """
        if queue.in_flight is not None:
            queue.in_flight.drop_done_batches()
            return queue.in_flight
        queue.route.close_open(queue)
        batches = queue.drain(min(max_bytes, MAX_APPEND_BYTES))
        if not batches:
            return None
        in_flight = InFlightBatches(batches)
        queue.begin_append(in_flight)
        return in_flight

    def release(self, queue: PartitionQueue) -> None:
        """End the turn of a thread with a partition, which can then be taken again."""
        queue.release()
        self._partition_released.notify_all()
        ended = queue.in_flight is None
        if ended and queue.route.is_deleted and self._replacement_of(queue) is not None:
            self.move(queue, ())
            return
        self.schedule(queue)
        if ended and queue.replacement is not None:
            self.schedule(queue.unblock())

    def seal(self, batches: Iterable[ProducerBatch]) -> None:
        """Close open batches, which are about to finish. Batches that are not open are ignored."""
        for batch in batches:
            queue = self.incomplete.queue_of(batch)
            if queue is not None and queue.open is batch:
                queue.close_open()

    def claim(self, batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
        """Return the batches that no other thread is finishing; the caller finishes them."""
        claimed = [batch for batch in batches if batch in self.incomplete and not batch.is_claimed]
        for batch in claimed:
            batch.is_claimed = True
        return claimed

    def finish(self, batches: Iterable[ProducerBatch]) -> None:
        """Remove batches that are acknowledged or failed, and free their memory."""
        removed = [batch for batch in batches if self.incomplete.remove(batch)]
        self.pool.deallocate(sum(batch.reserved_bytes for batch in removed))
        if any(batch in self._awaited for batch in removed):
            self._batch_finished.notify_all()
        if self.is_closing and not self.incomplete:
            self.ready.work.notify_all()

    # --- a topic that is deleted, and created again ----------------------------------------------

    def replace_route(self, route: TopicRoute) -> None:
        """Replace a deleted topic by a new one of its name, and move the waiting batches to it.

        While an append to a partition of the old topic is running, the same partition of the new
        topic is blocked.
        """
        before = self.routes[route.topic.name]
        before.is_deleted = True
        self.routes[route.topic.name] = route
        for queue in before.queues:
            replacement = self._replacement_of(queue)
            if replacement is None:
                self.schedule(queue)  # its append will find that the partition does not exist
            elif queue.is_busy:
                queue.block(replacement)
            else:
                self.move(queue, queue.in_flight.batches if queue.in_flight is not None else ())

    def move(self, source: PartitionQueue, first: Sequence[ProducerBatch]) -> None:
        """Move the waiting batches of a deleted topic's partition before those of its replacement.

        Args:
            source: the partition of the deleted topic.
            first: batches that were drained from this partition earlier; they are appended first.
        """
        # A blocked replacement gets them even if its topic is deleted, too: its records come next.
        target = source.replacement or self._replacement_of(source)
        assert target is not None
        moved = [batch for batch in (*first, *source.take_all()) if not batch.is_over]
        source.end_append()
        source.release()
        self._partition_released.notify_all()
        self.schedule(source)
        target.put_first(moved)
        for batch in moved:
            self.incomplete.put(batch, target)
        if source.replacement is not None:
            source.unblock()
        self.schedule(target)

    def _replacement_of(self, queue: PartitionQueue) -> PartitionQueue | None:
        """Return the same partition of the topic that has the name now; None if none exists."""
        route = self.routes.get(queue.topic)
        if route is None or route is queue.route or queue.partition >= len(route.queues):
            return None
        return route.queues[queue.partition]

    # --- methods that take the lock ---------------------------------------------------------------

    def idle_log(self, partition: TopicIdPartition) -> PartitionLog | None:
        """Return the open log of a partition that has no append in progress."""
        with self.lock:
            queue = self._queue_of(partition)
            return None if queue is None or queue.is_busy else queue.log

    def wait_until_idle(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Wait until the threads have left partitions whose records are acknowledged already."""
        with self.lock:
            for partition in partitions:
                while (queue := self._queue_of(partition)) is not None and queue.is_busy:
                    self._partition_released.wait()

    def wait_until_finished(self, timeout_s: float | None) -> bool:
        """Make every partition ready, and wait for the batches that exist now.

        Returns whether all of them finished in time.
        """
        with self.lock:
            waited_for = list(self.incomplete)
            began_ms = self._clock.monotonic_ms()
            self._flushing += 1
            try:
                self.schedule_all()
                # The newest first: the others are done by then, so that this thread wakes once, and
                # does not take the interpreter's lock from the appends with each batch.
                for batch in reversed(waited_for):
                    while batch in self.incomplete:
                        rest_s = None
                        if timeout_s is not None:
                            rest_s = timeout_s - (self._clock.monotonic_ms() - began_ms) / 1000
                            if rest_s <= 0:
                                return False
                        self._awaited.append(batch)
                        try:
                            self._batch_finished.wait(rest_s)
                        finally:
                            self._awaited.remove(batch)
            finally:
                self._flushing -= 1
        return True

    def _queue_of(self, partition: TopicIdPartition) -> PartitionQueue | None:
        for route in self.routes.values():
            number = partition.partition
            if route.topic.topic_id == partition.topic_id and number < len(route.queues):
                return route.queues[number]
        return None

    def _cause_of_full_pool(self) -> str:
        if self.ready.muted_until_ms > self._clock.monotonic_ms():
            return "The client is held to its quota (producer_byte_rate)"
        return "The storage is slower than the sender"
