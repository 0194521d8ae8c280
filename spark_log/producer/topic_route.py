"""Where the records of one topic go: its partitions, each with the records that wait for it."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from spark_log.log import PartitionLog
from spark_log.metadata import TopicImage
from spark_log.producer.partitioner import TopicPartitioner
from spark_log.producer.producer_batch import ProducerBatch

if TYPE_CHECKING:
    from spark_log.producer.delivery import Delivery

NEVER_MS = math.inf


class PartitionQueue:
    """One partition's records that wait; changed under the accumulator's lock alone.

    Attributes:
        route: of the topic.
        partition: the number.
        open: the batch that records are added to.
        closed: the batches before it, in order.
        delivery: what was taken of them and has to be tried again; it goes first.
        is_busy: a thread is appending, or what comes before lies elsewhere still.
        blocked_successor: the queue, of a topic that has the name since, that is busy until this one is not.
        due_ms: when a thread is to take it, on the monotonic clock; `NEVER_MS` without records.
        epoch: producer epoch of the next append, in this partition.
        sequence: sequence number of the next append's first record.
        log: the partition's log, for the next append; None: to be opened.
        acknowledged_offset: the offset behind what was acknowledged last: the log has to reach it.
    """

    __slots__ = (
        "acknowledged_offset",
        "blocked_successor",
        "closed",
        "delivery",
        "due_ms",
        "epoch",
        "is_busy",
        "log",
        "open",
        "partition",
        "route",
        "sequence",
    )

    def __init__(self, route: TopicRoute, partition: int, epoch: int) -> None:
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

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.route.topic.name

    def close_open(self) -> None:
        """Let nothing more into the open batch."""
        if self.open is not None:
            self.closed.append(self.open)
            self.open = None

    def batches(self) -> Iterable[ProducerBatch]:
        """Return the batches that wait, in order, without those of a delivery."""
        return (*self.closed, self.open) if self.open is not None else tuple(self.closed)


class TopicRoute:
    """A topic as the producer knows it.

    Attributes:
        topic: from the metadata log.
        queues: one for each partition.
        partitioner: chooses partitions.
        sticky: where records without a key go for now; None where the partitioner is not sticky.
        sticky_bytes: how much of them it had.
        looked_up_ms: when the metadata log was read.
        max_record_bytes: the topic's ``max.message.bytes``.
        segment_bytes: the topic's.
        is_deleted: the topic was deleted; another one may have its name.
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
        """Take in what the metadata log says of the same topic now: more partitions, configs."""
        is_changed = topic.overrides != self.topic.overrides
        self._set_topic(topic)
        if is_changed:
            for queue in self.queues:
                queue.log = None  # opened anew, with these; an append under way keeps its own
        self.looked_up_ms = looked_up_ms
        self.queues += [
            PartitionQueue(self, number, self.epoch)
            for number in range(len(self.queues), topic.num_partitions)
        ]

    def switch_sticky_partition(self) -> None:
        """Choose another partition for records without a key, at random (KIP-480)."""
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
