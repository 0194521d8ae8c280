"""Records that wait, by partition, in bounded memory (Kafka's ``RecordAccumulator``)."""

from __future__ import annotations

import heapq
import math
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Final

from spark_log.clock import Clock
from spark_log.config import ProducerConfig
from spark_log.errors import BufferExhaustedError
from spark_log.producer.producer_batch import ProducerBatch
from spark_log.producer.topic_route import NEVER_MS, PartitionQueue, TopicRoute

RECORD_OVERHEAD_BYTES: Final = 32
"""What a record counts for besides its key, value and headers, so that empty ones have a size."""

MAX_APPEND_BYTES: Final = 16_777_216
"""Of records that one append takes, about: they are encoded in memory."""


class Accumulator:
    """What was sent and is not acknowledged, and when each partition is due.

    Everything here is changed under `lock`; methods whose name says so take it themselves, all
    others want it held.

    Attributes:
        lock: the producer's one lock.
        work: what the thread that waits for work is woken by.
        routes: the topics by name.
        held_until_ms: nothing is taken before, whatever is due.
        leader_wakes_ms: until when that thread sleeps at most; -inf while none does.
        is_closing: nothing more is taken in, and all is due at once.
        is_aborted: what waits has failed; nothing is tried again.
    """

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        self.lock = threading.Lock()
        self.work = threading.Condition(self.lock)
        self.routes: dict[str, TopicRoute] = {}
        self.held_until_ms = -math.inf
        self.leader_wakes_ms = -math.inf
        self.is_closing = False
        self.is_aborted = False
        self._config = config
        self._clock = clock
        self._progress = threading.Condition(self.lock)
        self._unfinished: dict[ProducerBatch, PartitionQueue] = {}  # oldest first
        self._due: list[tuple[float, int, PartitionQueue]] = []
        self._numbers = count()
        self._used_bytes = 0
        self._waiting_for_memory = 0
        self._flushing = 0
        self.blocked_ms = 0.0

    # --- what there is ---------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        """How much of ``buffer.memory`` is taken."""
        return self._used_bytes

    @property
    def is_empty(self) -> bool:
        """Whether everything that was sent is acknowledged or has failed."""
        return not self._unfinished

    @property
    def waiting_threads(self) -> int:
        """How many threads wait for room in the buffer."""
        return self._waiting_for_memory

    def unfinished(self) -> list[ProducerBatch]:
        """Return the batches that are neither acknowledged nor failed, oldest first."""
        return list(self._unfinished)

    def unfinished_records(self) -> int:
        """Return how many records those hold."""
        return sum(batch.record_count for batch in self._unfinished)

    # --- putting in ------------------------------------------------------------------------------

    def new_batch(self, queue: PartitionQueue, size_bytes: int, limit_bytes: int) -> ProducerBatch:
        """Open a batch with room for a record of this size; memory was reserved for it.

        Args:
            queue: whose open batch is closed for it.
            size_bytes: of the record that it is for.
            limit_bytes: largest record.
        """
        queue.close_open()
        room = max(size_bytes, min(self._config.batch_size, limit_bytes))
        batch = ProducerBatch(
            queue.topic,
            queue.partition,
            created_ms=self._clock.monotonic_ms(),
            room_bytes=room,
            reserved_bytes=self.reserve_for(size_bytes),
        )
        self._unfinished[batch] = queue
        queue.open = batch
        self.schedule(queue)
        return batch

    def add_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Put a batch that is full behind those of its queue; memory was reserved for it."""
        queue.close_open()
        queue.closed.append(batch)
        self._unfinished[batch] = queue
        self.schedule(queue)

    def reserve_for(self, size_bytes: int) -> int:
        """Return how much memory a batch takes whose first record has this size."""
        return max(size_bytes, min(self._config.batch_size, self._config.buffer_memory))

    def reserve(self, size_bytes: int) -> bool:
        """Take memory; wait for it up to ``max.block.ms``.

        What is larger than the whole buffer waits until that is empty.

        Returns:
            Whether it had to wait: then the lock was let go of.

        Raises:
            BufferExhaustedError: nothing was taken.
        """
        most = self._config.buffer_memory
        must_wait = bool(self._used_bytes and self._used_bytes + size_bytes > most)
        if must_wait:
            began_ms = self._clock.monotonic_ms()
            self._waiting_for_memory += 1
            try:
                self.schedule_all()
                while (
                    self._used_bytes
                    and self._used_bytes + size_bytes > most
                    and not self.is_closing
                ):
                    waited_ms = self._clock.monotonic_ms() - began_ms
                    if waited_ms >= self._config.max_block_ms:
                        raise BufferExhaustedError(
                            f"no room for {size_bytes} bytes within max.block.ms "
                            f"({self._config.max_block_ms}): {self._used_bytes} of {most} bytes "
                            f"(buffer.memory) wait to be acknowledged. {self._slowness()}: "
                            f"send less at once, or raise buffer.memory",
                            size_bytes=size_bytes,
                            buffer_bytes=most,
                        )
                    self._progress.wait((self._config.max_block_ms - waited_ms) / 1000)
            finally:
                self._waiting_for_memory -= 1
                self.blocked_ms += self._clock.monotonic_ms() - began_ms
        self._used_bytes += size_bytes
        return must_wait

    def _slowness(self) -> str:
        if self.held_until_ms > self._clock.monotonic_ms():
            return "The client is held to its quota (producer_byte_rate)"
        return "The storage is slower than the sender"

    def unreserve(self, size_bytes: int) -> None:
        """Give memory back that no batch came to use."""
        self._used_bytes -= size_bytes
        self._progress.notify_all()

    # --- taking out ------------------------------------------------------------------------------

    def schedule(self, queue: PartitionQueue) -> None:
        """Note when the queue is due, after it changed."""
        due_ms = self._due_ms(queue)
        if due_ms == queue.due_ms:
            return
        queue.due_ms = due_ms
        if due_ms != NEVER_MS:
            heapq.heappush(self._due, (due_ms, next(self._numbers), queue))
            self._wake_leader(due_ms)

    def schedule_all(self) -> None:
        """Note when each queue is due, after something changed for all."""
        for route in self.routes.values():
            for queue in route.queues:
                self.schedule(queue)

    def hold(self, until_ms: float) -> None:
        """Let nothing be taken before a time: an earlier or a later one than was said before."""
        if until_ms != self.held_until_ms:
            self.held_until_ms = until_ms
            self._wake_leader(self.next_due_ms())

    def next_due_ms(self) -> float:
        """Return when the next queue is due and may be taken."""
        while self._due and self._due[0][0] != self._due[0][2].due_ms:
            heapq.heappop(self._due)  # it has become due at another time
        return max(self._due[0][0], self.held_until_ms) if self._due else NEVER_MS

    def take_due(self, now_ms: float) -> PartitionQueue | None:
        """Return a queue that is due, which is busy from now on; None if none is."""
        if self.next_due_ms() > now_ms:
            return None
        queue = heapq.heappop(self._due)[2]
        queue.is_busy = True
        queue.due_ms = NEVER_MS
        return queue

    def take_batches(self, queue: PartitionQueue, most_bytes: int) -> list[ProducerBatch]:
        """Take all that waits in a busy queue, up to so many bytes, at least one batch.

        For an append of more records makes no more files. Batches that have ended are left out.
        """
        most_bytes = min(most_bytes, MAX_APPEND_BYTES)
        taken: list[ProducerBatch] = []
        total_bytes = 0
        route = queue.route
        if queue.open is not None:
            if route.sticky is queue:
                route.sticky_bytes += queue.open.reserved_bytes - max(0, queue.open.room_bytes)
            queue.close_open()
        while queue.closed:
            batch = queue.closed[0]
            if not batch.is_done:
                if taken and total_bytes + batch.reserved_bytes > most_bytes:
                    break
                taken.append(batch)
                total_bytes += batch.reserved_bytes
            queue.closed.popleft()
        return taken

    def release(self, queue: PartitionQueue) -> None:
        """Let a queue be taken again."""
        queue.is_busy = False
        if queue.route.is_gone and queue.delivery is None and self.successor(queue) is not None:
            self.move(queue, ())
            return
        self.schedule(queue)
        if queue.heir is not None and queue.delivery is None:
            self._free_heir(queue)

    def successor(self, queue: PartitionQueue) -> PartitionQueue | None:
        """Return the same partition of the topic that has the name now; None if there is none."""
        route = self.routes.get(queue.topic)
        if route is None or route is queue.route or queue.partition >= len(route.queues):
            return None
        return route.queues[queue.partition]

    def replace_route(self, route: TopicRoute) -> None:
        """Let a topic take the place of one that was deleted, and what waits for that.

        Where an append is still under way in the old one, the new one's queue waits for its end.
        """
        before = self.routes[route.topic.name]
        before.is_gone = True
        self.routes[route.topic.name] = route
        for queue in before.queues:
            successor = self.successor(queue)
            if successor is None:
                self.schedule(queue)  # it will be found that there is no such partition
            elif queue.is_busy:
                successor.is_busy = True
                queue.heir = successor
            else:
                self.move(queue, queue.delivery.batches if queue.delivery is not None else ())

    def move(self, source: PartitionQueue, first: Sequence[ProducerBatch]) -> None:
        """Move what waits to the successor of a queue, before what was sent to that since.

        Args:
            source: a queue of a topic that is gone.
            first: what was taken of it before.
        """
        # To the heir even if that is of a topic that is gone, too: its own records come next.
        queue = source.heir or self.successor(source)
        assert queue is not None
        source.close_open()
        moved = [batch for batch in (*first, *source.closed) if not batch.is_done]
        source.closed = deque()
        source.delivery = None
        source.is_busy = False
        self.schedule(source)
        queue.closed.extendleft(reversed(moved))
        for batch in moved:
            self._unfinished[batch] = queue
        if source.heir is None:
            self.schedule(queue)
        else:
            self._free_heir(source)

    def _free_heir(self, queue: PartitionQueue) -> None:
        """Let the queue be taken that waited for this one."""
        heir, queue.heir = queue.heir, None
        assert heir is not None
        heir.is_busy = False
        self.schedule(heir)

    # --- ending ----------------------------------------------------------------------------------

    def unfinished_of(self, queue: PartitionQueue) -> list[ProducerBatch]:
        """Return the batches of one queue that have not ended, oldest first."""
        return [batch for batch, of in self._unfinished.items() if of is queue]

    def seal(self, batches: Iterable[ProducerBatch]) -> None:
        """Let nothing more into batches that are about to end."""
        for batch in batches:
            queue = self._unfinished.get(batch)
            if queue is not None and queue.open is batch:
                queue.close_open()

    def claim(self, batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
        """Return those whose end nobody has seen to yet; the caller does."""
        claimed = [batch for batch in batches if batch in self._unfinished and not batch.is_claimed]
        for batch in claimed:
            batch.is_claimed = True
        return claimed

    def finish(self, batches: Iterable[ProducerBatch]) -> None:
        """Forget batches that have ended, and give their memory back."""
        for batch in batches:
            if self._unfinished.pop(batch, None) is not None:
                self._used_bytes -= batch.reserved_bytes
        if self._waiting_for_memory or self._flushing:
            self._progress.notify_all()
        if self.is_closing and not self._unfinished:
            self.work.notify_all()

    def expired(self, now_ms: float) -> list[tuple[ProducerBatch, PartitionQueue]]:
        """Return the batches whose ``delivery.timeout.ms`` is over, oldest first."""
        found = []
        for batch, queue in self._unfinished.items():
            if batch.created_ms + self._config.delivery_timeout_ms > now_ms:
                break
            found.append((batch, queue))
        return found

    def next_expiry_ms(self) -> float:
        """Return when the oldest batch will have waited for ``delivery.timeout.ms``."""
        oldest = next(iter(self._unfinished), None)
        if oldest is None:
            return NEVER_MS
        return oldest.created_ms + self._config.delivery_timeout_ms

    def wait_until_finished(self, timeout_s: float | None) -> bool:
        """Make all that waits due, and wait for it; takes the lock itself.

        What is sent meanwhile is not waited for. Returns whether all of it has ended in time.
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
                        self._progress.wait(rest_s)
            finally:
                self._flushing -= 1
        return True

    def close(self) -> None:
        """Take nothing more in; all that waits is due."""
        self.is_closing = True
        self.schedule_all()
        self._progress.notify_all()
        self.work.notify_all()

    def _due_ms(self, queue: PartitionQueue) -> float:
        if queue.is_busy:
            return NEVER_MS
        if queue.delivery is not None:
            return 0.0 if queue.route.is_gone or self.is_aborted else queue.delivery.due_ms
        if queue.open is None and not queue.closed:
            return NEVER_MS
        # Of what is due the oldest goes first: where a quota holds all back no partition starves.
        if queue.closed:
            return queue.closed[0].created_ms
        assert queue.open is not None
        if self._flushing or self._waiting_for_memory or self.is_closing or queue.route.is_gone:
            return queue.open.created_ms
        return queue.open.created_ms + self._config.linger_ms

    def _wake_leader(self, due_ms: float) -> None:
        if max(due_ms, self.held_until_ms) < self.leader_wakes_ms:
            self.leader_wakes_ms = -math.inf
            self.work.notify()
