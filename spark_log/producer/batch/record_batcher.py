"""Adds records to the batches of their partitions (Kafka's ``RecordAccumulator.append``)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spark_log.config import ProducerConfig
from spark_log.errors import InvalidPartitionsError
from spark_log.producer.batch.accumulator import RECORD_OVERHEAD_BYTES, Accumulator
from spark_log.producer.batch.producer_batch import Record
from spark_log.producer.batch.record_future import RecordFuture, refused_future
from spark_log.producer.batch.topic_route import PartitionQueue, TopicRoute
from spark_log.producer.batch.topic_router import TopicRouter
from spark_log.producer.validation import too_large


class RecordBatcher:
    """Chooses the partition of a record, and adds it to that partition's open batch.

    Safe to use from several threads.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        router: TopicRouter,
        config: ProducerConfig,
        check_can_send: Callable[[], None],
        on_refused: Callable[[Exception], None],
    ) -> None:
        """Create a batcher; no topic is looked up yet.

        `check_can_send` raises an error if the producer is closed, fenced or forked, or if it is
        transactional and no transaction is open. `on_refused` is called with the error of a record
        whose future has failed already.
        """
        self._accumulator = accumulator
        self._router = router
        self._config = config
        self._check_can_send = check_can_send
        self._on_refused = on_refused

    def add(
        self, topic: str, record: Record, size_bytes: int, partition: int | None
    ) -> RecordFuture:
        """Add a record to a batch; wait for memory if it begins a batch and the buffer is full.

        Args:
            topic: the topic's name.
            record: key, value, headers and timestamp.
            size_bytes: the record's size with `RECORD_OVERHEAD_BYTES`.
            partition: the partition's number; None: the partitioner chooses.

        Returns:
            The record's future, which has failed already if the record is too large.

        Raises:
            SparkLogError: the record was not added; for the reasons that `Producer.send` lists.
        """
        accumulator = self._accumulator
        allocated = 0
        chosen: tuple[TopicRoute, PartitionQueue | None] | None = None
        try:
            while True:
                self._check_can_send()
                route = self._router.route(topic)
                limit_bytes = min(self._config.max_request_size, route.max_record_bytes)
                if size_bytes - RECORD_OVERHEAD_BYTES > limit_bytes:
                    error = too_large(size_bytes - RECORD_OVERHEAD_BYTES, limit_bytes)
                    self._on_refused(error)
                    return refused_future(topic, -1 if partition is None else partition, error)
                with accumulator.lock:
                    if (
                        accumulator.routes.get(topic) is not route
                        or not accumulator.accepts_records
                    ):
                        continue
                    if chosen is None or chosen[0] is not route:  # ask a partitioner only once
                        chosen = route, _choose_queue(route, record[0], partition)
                    queue = chosen[1] or self._sticky_queue(route, size_bytes)
                    batch = queue.open
                    if batch is None or size_bytes > batch.room_bytes:
                        needed = accumulator.batch_memory(size_bytes)
                        if not allocated and accumulator.pool.allocate(needed):
                            allocated = needed  # it waited, and others had the lock: begin again
                            continue
                        batch = accumulator.new_batch(
                            queue, size_bytes, limit_bytes + RECORD_OVERHEAD_BYTES
                        )
                        allocated = 0
                    batch.records += record
                    batch.room_bytes -= size_bytes
                    return RecordFuture((batch, len(batch.records)))
        finally:
            if allocated:
                with accumulator.lock:
                    accumulator.pool.deallocate(allocated)

    def _sticky_queue(self, route: TopicRoute, size_bytes: int) -> PartitionQueue:
        """Return the sticky partition; switch it after ``batch.size`` bytes (KIP-794)."""
        queue = route.sticky
        assert queue is not None
        is_full = queue.open is not None and size_bytes > queue.open.room_bytes
        if is_full or route.sticky_bytes >= self._config.batch_size:
            route.switch_sticky_partition()
            queue = route.sticky
            assert queue is not None
        return queue


def _choose_queue(
    route: TopicRoute, key: bytes | None, partition: int | None
) -> PartitionQueue | None:
    """Return the partition of a record; None for the sticky partition."""
    by = "asked for"
    if partition is None:
        partition, by = route.partitioner.choose(key, len(route.queues)), "the partitioner chose"
        if partition is None:
            return None
    is_number = isinstance(partition, int | np.integer) and not isinstance(partition, bool)
    if is_number and 0 <= partition < len(route.queues):
        return route.queues[partition]
    raise InvalidPartitionsError(
        f"topic {route.topic.name!r} has {len(route.queues)} partitions, numbered from 0: "
        f"{by} {partition!r}"
    )
