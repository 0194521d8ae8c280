"""A topic as the producer sees it: its metadata, and a queue of batches for each partition."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from spark_log.log import PartitionLog
from spark_log.metadata import TopicImage
from spark_log.producer.batch.partitioner import TopicPartitioner
from spark_log.producer.batch.producer_batch import ProducerBatch

if TYPE_CHECKING:
    from spark_log.producer.batch.in_flight_batches import Delivery

NEVER_MS = math.inf


class PartitionQueue:
    """The waiting batches of one partition; callers hold the accumulator's lock.

    Attributes:
        route: the topic.
        partition: the partition's number.
        open: the batch to which records are added; None without one.
        closed: the full batches before the open one, in order.
        delivery: the append that runs or is to be retried; it goes before ``closed``. None without
            one.
        is_busy: whether a thread is appending to the partition, or an append to the same partition
            of a deleted topic of this name is still running.
        blocked_successor: the same partition of a new topic with the same name, which stays busy
            until this partition's append ends; None without one.
        due_ms: monotonic time at which a thread takes the partition; `NEVER_MS` without batches.
        epoch: producer epoch of the next append to this partition.
        sequence: sequence number of the next append's first record.
        log: the partition's log for the next append; None: the next append opens it.
        acknowledged_offset: the offset after the last acknowledged record; the log must reach it.
        known_ms: monotonic time at which the log's end was last known to be new, or an earlier
            time.
    """

    __slots__ = (
        "acknowledged_offset",
        "blocked_successor",
        "closed",
        "delivery",
        "due_ms",
        "epoch",
        "is_busy",
        "known_ms",
        "log",
        "open",
        "partition",
        "route",
        "sequence",
    )

    def __init__(self, route: TopicRoute, partition: int, epoch: int) -> None:
        """Create an empty queue, whose first append has this producer epoch."""
        self.route = route
        self.partition = partition
        self.open: ProducerBatch | None = None
        self.closed: deque[ProducerBatch] = deque()
        self.delivery: Delivery | None = None
        self.is_busy = False
        self.blocked_successor: PartitionQueue | None = None
        self.due_ms = NEVER_MS
        self.epoch = epoch
        self.sequence = 0
        self.log: PartitionLog | None = None
        self.acknowledged_offset = 0
        self.known_ms = 0.0

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.route.topic.name

    def close_open(self) -> None:
        """Close the open batch, if one is open: no more records are added to it."""
        if self.open is not None:
            self.closed.append(self.open)
            self.open = None

    def batches(self) -> Iterable[ProducerBatch]:
        """Return the waiting batches in order, without the delivery's batches."""
        return (*self.closed, self.open) if self.open is not None else tuple(self.closed)


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
        is_changed = topic.overrides != self.topic.overrides
        self._set_topic(topic)
        if is_changed:
            for queue in self.queues:
                queue.log = None  # reopened with the new configs; a running append keeps its log
        self.looked_up_ms = looked_up_ms
        self.queues += [
            PartitionQueue(self, number, self.epoch)
            for number in range(len(self.queues), topic.num_partitions)
        ]

    @property
    def is_idle(self) -> bool:
        """Whether no partition has waiting batches or a running append."""
        return not any(
            each.is_busy or each.delivery is not None or each.batches() for each in self.queues
        )

    def switch_sticky_partition(self) -> None:
        """Choose another sticky partition at random (KIP-480)."""
        others = len(self.queues) - (self.sticky is not None)
        chosen = random.randrange(others) if others else 0
        if self.sticky is not None and others and chosen >= self.sticky.partition:
            chosen += 1
        self.sticky = self.queues[chosen]
        self.sticky_bytes = 0

    def _set_topic(self, topic: TopicImage) -> None:
        config = topic.config()
        self.topic = topic
        self.max_record_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
