"""The ends at which ``console-consumer --exit-at-end`` stops reading a subscription's topics."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.admin import Admin
from spark_log.cluster import Cluster
from spark_log.consumer import Consumer
from spark_log.types import TopicPartition

_LOOK_EVERY_MS: Final = 1_000
"""Time between two checks for deleted topics, and for the progress of the group's other members."""


class SubscriptionEnds:
    """The ends that the partitions of a subscription had when this object was created.

    Partitions that are created later are not read. Partitions of a deleted topic count as read.
    """

    def __init__(self, consumer: Consumer, cluster: Cluster, admin: Admin) -> None:
        """Read the ends.

        Args:
            consumer: a consumer with a subscription. Its isolation level decides at which offset a
                partition ends.
            cluster: the opened root.
            admin: an `Admin` of the same root.

        Raises:
            SparkLogError: an error of `Consumer.end_offsets`.
        """
        self._consumer = consumer
        self._cluster = cluster
        self._admin = admin
        image = cluster.image()
        topics = [image.topic(name) for name in consumer.subscription() or ()]
        partitions = [TopicPartition(topic.name, n) for topic in topics for n in topic.partitions]
        self._topic_ids = {topic.name: topic.topic_id for topic in topics}
        self._ends = consumer.end_offsets(partitions)
        starts = consumer.beginning_offsets(partitions)
        self._unread = {tp for tp, end in self._ends.items() if starts[tp] < end}
        self._due_ms = -math.inf

    def cut(self, table: pa.Table) -> pa.Table:
        """Return the rows before the ends, and stop reading partitions that have reached theirs.

        The other rows are not committed: the position is moved back to the partition's end.

        Args:
            table: the result of the last `Consumer.poll_table`.

        Raises:
            SparkLogError: an error of `Consumer.position`.
        """
        consumer = self._consumer
        kept = np.ones(table.num_rows, bool)
        for tp in consumer.assignment() - consumer.paused():
            end, position = self._ends.get(tp, 0), consumer.position(tp)
            if position < end:
                continue
            self._unread.discard(tp)
            consumer.pause(tp)
            if position > end:
                kept &= ~_is_past(table, tp, end)
                if tp in self._ends:
                    consumer.seek(tp, end)
        return table if kept.all() else table.filter(pa.array(kept))

    def are_reached(self) -> bool:
        """Return whether all partitions are read up to their ends, here or by other members.

        Raises:
            SparkLogError: the metadata or the committed offsets cannot be read.
        """
        clock = self._cluster.clock
        if self._unread and clock.monotonic_ms() >= self._due_ms:
            self._unread -= self._read_elsewhere()
            self._due_ms = clock.monotonic_ms() + _LOOK_EVERY_MS
        return not self._unread

    def _read_elsewhere(self) -> set[TopicPartition]:
        """Return unread partitions of deleted topics, and those that the group has read."""
        image, group_id = self._cluster.image(), self._consumer.group_id
        topics = {name: image.find(name) for name in {tp.topic for tp in self._unread}}
        ids = {name: topic.topic_id for name, topic in topics.items() if topic is not None}
        gone = {tp for tp in self._unread if ids.get(tp.topic) != self._topic_ids[tp.topic]}
        others = self._unread - self._consumer.assignment() - gone
        if group_id is None or not others:
            return gone
        committed = self._admin.list_group_offsets(group_id)
        return gone | {
            tp for tp in others if tp in committed and committed[tp].offset >= self._ends[tp]
        }


def _is_past(table: pa.Table, tp: TopicPartition, end: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each row whether it belongs to a partition, and is at or after its end."""
    found = pc.and_(
        pc.and_(pc.equal(table["topic"], tp.topic), pc.equal(table["partition"], tp.partition)),
        pc.greater_equal(table["offset"], end),
    )
    return np.asarray(found)
