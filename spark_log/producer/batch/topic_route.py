"""A topic as the producer sees it: its metadata, and a queue of batches for each partition."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from spark_log.log import (
    LogAppendInfo,
    PartitionLog,
)
from spark_log.log.stripe import stripe_of
from spark_log.metadata import TopicImage
from spark_log.producer.batch.in_flight_batches import InFlightBatches
from spark_log.producer.batch.partitioner import TopicPartitioner
from spark_log.producer.batch.producer_batch import ProducerBatch
from spark_log.record import ProducerAppend, sequence_after

NEVER_MS = math.inf


@dataclass(slots=True, eq=False, repr=False)
class PartitionQueue:
    """One partition as the producer sees it: its waiting batches, its append, and its log.

    Other files read the attributes; the methods set them, except ``ready_ms``, which only
    `ReadyPartitions` sets. Callers hold the accumulator's lock, except for the attributes from
    ``epoch`` on: these are for the thread that has acquired the partition.

    Attributes:
        route: the topic.
        partition: the partition's number.
        open: the batch to which records are added; None without one.
        closed: the full batches before the open one, in order.
        in_flight: the batches of the append that runs or is to be retried; they go before
            ``closed``. None without an append.
        is_busy: whether a thread has acquired the partition and appends to it, or an append to the
            same partition of a deleted topic of this name is still running.
        replacement: the same partition of a new topic with the same name, which stays busy until
            this partition's append ends; None without one.
        ready_ms: monotonic time at which a thread takes the partition; `NEVER_MS` without batches.
        epoch: producer epoch of the next append to this partition.
        sequence: sequence number of the next append's first record.
        log: the partition's log for the next append; None: the next append opens it.
        acknowledged_offset: the offset after the last acknowledged record; the log must reach it.
        end_observed_ms: monotonic time at which the log's end was last known to be the newest, or
            an earlier time.
    """

    route: TopicRoute
    partition: int
    epoch: int
    sequence: int = 0
    open: ProducerBatch | None = None
    closed: deque[ProducerBatch] = field(default_factory=deque)
    in_flight: InFlightBatches | None = None
    is_busy: bool = False
    replacement: PartitionQueue | None = None
    ready_ms: float = NEVER_MS
    log: PartitionLog | None = None
    acknowledged_offset: int = 0
    end_observed_ms: float = 0.0

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.route.topic.name

    @property
    def is_idle(self) -> bool:
        """Whether no batch waits, and no append runs or is to be retried."""
        return not (self.is_busy or self.in_flight or self.open or self.closed)

    # --- waiting batches -------------------------------------------------------------------------

    def batches(self) -> Iterable[ProducerBatch]:
        """Return the waiting batches in order, without those in flight."""
        return (*self.closed, self.open) if self.open is not None else tuple(self.closed)

    def open_batch(self, batch: ProducerBatch) -> None:
        """Add records to this batch from now on; the open batch is closed."""
        self.close_open()
        self.open = batch

    def add_closed(self, batch: ProducerBatch) -> None:
        """Add a full batch after all others; the open batch is closed."""
        self.close_open()
        self.closed.append(batch)

    def close_open(self) -> None:
        """Close the open batch, if one is open: no more records are added to it."""
        if self.open is not None:
            self.closed.append(self.open)
            self.open = None

    def drain(self, max_bytes: int) -> list[ProducerBatch]:
        """Take closed batches up to a size, but at least one. Finished batches are dropped."""
        drained: list[ProducerBatch] = []
        total_bytes = 0
        while self.closed:
            batch = self.closed[0]
            if not batch.is_over:
                if drained and total_bytes + batch.reserved_bytes > max_bytes:
                    break
                drained.append(batch)
                total_bytes += batch.reserved_bytes
            self.closed.popleft()
        return drained

    def take_all(self) -> list[ProducerBatch]:
        """Take all waiting batches, and leave none."""
        taken = list(self.batches())
        self.open, self.closed = None, deque()
        return taken

    def put_first(self, batches: Sequence[ProducerBatch]) -> None:
        """Put batches before all waiting ones."""
        self.closed.extendleft(reversed(batches))

    # --- its append ------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Mark the partition busy: one thread alone appends to it."""
        self.is_busy = True

    def release(self) -> None:
        """Mark the partition free: another thread may append to it."""
        self.is_busy = False

    def begin_append(self, in_flight: InFlightBatches) -> None:
        """Put batches in flight; they stay until they are appended or given up."""
        self.in_flight = in_flight

    def end_append(self) -> None:
        """Have no batches in flight: they were appended, given up, or moved to another topic."""
        self.in_flight = None

    def has_in_flight(self, batch: ProducerBatch) -> bool:
        """Return whether a batch is in flight."""
        return self.in_flight is not None and batch in self.in_flight.batches

    def block(self, replacement: PartitionQueue) -> None:
        """Keep the partition of a new topic busy until this partition's append ends."""
        replacement.acquire()
        self.replacement = replacement

    def unblock(self) -> PartitionQueue:
        """Release the partition that `block` kept busy, and return it."""
        replacement, self.replacement = self.replacement, None
        assert replacement is not None
        replacement.release()
        return replacement

    # --- its log, and the identity of its next append --------------------------------------------

    def use_log(self, log: PartitionLog, opened_ms: float) -> None:
        """Append to a log that was opened at a monotonic time, until `forget_log`."""
        self.log, self.end_observed_ms = log, opened_ms

    def forget_log(self) -> None:
        """Let the next append open the log anew: its memory may be wrong, or its configs old."""
        self.log = None

    def begin_epoch(self, epoch: int) -> None:
        """Set the producer epoch, in which sequence numbers begin with 0."""
        self.epoch, self.sequence = epoch, 0

    def on_appended(
        self, info: LogAppendInfo, producer: ProducerAppend | None, began_ms: float
    ) -> None:
        """Set the log's end and the next sequence number after a successful append.

        Args:
            info: the offsets of the append.
            producer: the identity of the append; None without idempotence.
            began_ms: monotonic time at which the attempt began.
        """
        self.acknowledged_offset = info.last_offset + 1
        if not info.is_duplicate:  # no segment had the next name before this one was put
            self.end_observed_ms = began_ms
        if producer is not None:
            count = info.last_offset - info.base_offset + 1
            self.epoch = producer.producer_epoch
            self.sequence = sequence_after(producer.base_sequence, count)


class TopicRoute:
    """A topic as the producer sees it.

    Attributes:
        topic: the topic's metadata.
        queues: the partitions, by number.
        partitioner: the partitioner of the topic's records.
        sticky: the partition for records without a key; None if the partitioner is not sticky.
        sticky_bytes: bytes that the sticky partition has received since it was chosen.
        looked_up_ms: monotonic time at which the metadata were read.
        max_record_bytes: the topic's ``max.message.bytes``.
        segment_bytes: the topic's ``segment.bytes``.
        stripes: the topic's number of stripes; 0 if each partition has a log of its own.
        is_deleted: whether the topic was deleted. A new topic may have its name.
    """

    __slots__ = (
        "epoch",
        "is_deleted",
        "looked_up_ms",
        "max_record_bytes",
        "partitioner",
        "queues",
        "segment_bytes",
        "sticky",
        "sticky_bytes",
        "stripes",
        "topic",
    )

    def __init__(
        self, topic: TopicImage, partitioner: TopicPartitioner, *, looked_up_ms: float, epoch: int
    ) -> None:
        """Create the route of a topic without records; ``epoch`` is the producer's first epoch."""
        self._set_topic(topic)
        self.partitioner = partitioner
        self.epoch = epoch
        numbers = range(topic.num_partitions)
        self.queues = [PartitionQueue(self, number, epoch) for number in numbers]
        self.sticky: PartitionQueue | None = None
        self.sticky_bytes = 0
        self.looked_up_ms = looked_up_ms
        self.is_deleted = False
        if partitioner.is_sticky:
            self.switch_sticky_partition()

    def update(self, topic: TopicImage, looked_up_ms: float) -> None:
        """Update from newer metadata of the same topic: added partitions, changed configs."""
        is_changed = not topic.has_same_logs(self.topic)
        self._set_topic(topic)
        if is_changed:
            for queue in self.queues:
                queue.forget_log()  # a running append keeps its log
        self.looked_up_ms = looked_up_ms
        self.queues += [
            PartitionQueue(self, number, self.epoch)
            for number in range(len(self.queues), topic.num_partitions)
        ]

    @property
    def is_idle(self) -> bool:
        """Whether no partition has waiting batches or a running append."""
        return all(queue.is_idle for queue in self.queues)

    def stripe_of(self, queue: PartitionQueue) -> Iterable[PartitionQueue]:
        """Return the partitions of a partition's stripe; none in a topic without stripes."""
        if not self.stripes:
            return ()
        return self.queues[stripe_of(queue.partition, self.stripes) :: self.stripes]

    def switch_sticky_partition(self) -> None:
        """Choose another sticky partition at random (KIP-480)."""
        others = len(self.queues) - (self.sticky is not None)
        chosen = random.randrange(others) if others else 0
        if self.sticky is not None and others and chosen >= self.sticky.partition:
            chosen += 1
        self.sticky = self.queues[chosen]
        self.sticky_bytes = 0

    def close_open(self, queue: PartitionQueue) -> None:
        """Close the open batch of a partition, and count its bytes if the partition is sticky."""
        batch = queue.open
        if batch is not None:
            if self.sticky is queue:
                self.sticky_bytes += batch.reserved_bytes - max(0, batch.room_bytes)
            queue.close_open()

    def _set_topic(self, topic: TopicImage) -> None:
        config = topic.config()
        self.topic = topic
        self.max_record_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.stripes = config.stripes
