"""`Consumer` methods for topics, and for the logs of their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spark_log.consumer.operations.consumer_access import ConsumerAccess
from spark_log.consumer.position import checked_partitions
from spark_log.log import Lag
from spark_log.types import OffsetAndTimestamp, TopicPartition


class TopicOperations(ConsumerAccess):
    """Looks up topics, and the offsets of their logs."""

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition.

        Args:
            partitions: need not be assigned.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            KafkaTimeoutError: an object store did not answer within the timeout.
        """
        checked = checked_partitions(partitions)
        with self._acquire():
            views = self._executor.run(
                "beginning_offsets", lambda: self._offset_fetcher.views(checked), timeout_ms
            )
            return {tp: view.log_start_offset for tp, view in views.items()}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the next record that is appended to each partition.

        With ``isolation.level=read_committed`` it is the last stable offset: the first offset of
        the oldest transaction that is still open.

        Args:
            partitions: need not be assigned.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            KafkaTimeoutError: an object store did not answer within the timeout.
        """
        checked = checked_partitions(partitions)
        with self._acquire():
            return self._executor.run(
                "end_offsets", lambda: self._offset_fetcher.end_offsets(checked), timeout_ms
            )

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time, by partition; None if there is none.

        Args:
            timestamps: milliseconds since the epoch, by partition. The partitions need not be
                assigned.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            ValueError: a time is negative.
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            KafkaTimeoutError: an object store did not answer within the timeout.
        """
        times_us = {}
        for tp, timestamp_ms in timestamps.items():
            checked_partitions([tp])
            if timestamp_ms < 0:
                raise ValueError(f"{tp}: time {timestamp_ms} is negative; give ms since 1970")
            times_us[tp] = int(timestamp_ms) * 1000
        with self._acquire():
            return self._executor.run(
                "offsets_for_times",
                lambda: self._offset_fetcher.offsets_for_times(times_us),
                timeout_ms,
            )

    def lag(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Return the number of offsets between position and current end, by partition.

        Records that were deleted before they were read do not count, because they cannot be read.
        The end is the result of `end_offsets`: markers and records of aborted transactions count.

        Args:
            partitions: assigned partitions; empty for all assigned partitions.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        checked = checked_partitions(partitions)
        with self._acquire():
            return self._executor.run("lag", lambda: self._lag(checked))

    def _lag(self, checked: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        chosen = checked or list(self._subscription.partitions)
        positions = {tp: self._positions.position(tp) for tp in chosen}
        bounds = self._offset_fetcher.bounds(chosen)
        return {tp: Lag.of(positions[tp], *bounds[tp]).unread for tp in chosen}

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the log end offset that the fetcher read last, None before its first read.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        checked_partitions([partition])
        with self._acquire():
            self._subscription.state(partition)
            return self._fetcher.high_watermark(partition)

    def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> set[int]:
        """Return the partition numbers of a topic; an empty set if the topic does not exist.

        Args:
            topic: name of the topic.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            KafkaTimeoutError: an object store did not answer within the timeout.
        """
        with self._acquire():
            found = self._image("partitions_for_topic", timeout_ms).find(topic)
            return set() if found is None else set(found.partitions)

    def topics(self, timeout_ms: float | None = None) -> set[str]:
        """Return the names of all topics.

        Args:
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            KafkaTimeoutError: an object store did not answer within the timeout.
        """
        with self._acquire():
            return {topic.name for topic in self._image("topics", timeout_ms).topics()}
