"""Lag in time: the age of the first record that a batch leaves unread."""

from __future__ import annotations

from spark_log.clock import Clock
from spark_log.datasource.read import OffsetReader
from spark_log.datasource.stream.stream_offset import StreamOffset
from spark_log.errors import SparkLogError
from spark_log.log import first_unread_us
from spark_log.suppressed import IN_PROCESS
from spark_log.types import TopicPartition

_MAX_PARTITIONS = 64
"""Maximum number of partitions, those with most unread records, because each one costs a read
of a segment.
"""


class TimeLag:
    """Looks up the timestamps of first unread records, once for each position."""

    def __init__(self, reader: OffsetReader, clock: Clock) -> None:
        """Start without timestamps.

        Args:
            reader: gives the partitions' logs.
            clock: clock for the age.
        """
        self._reader = reader
        self._clock = clock
        self._since_us: dict[tuple[str, TopicPartition, int], int | None] = {}

    def lag_ms(self, end: StreamOffset, latest: StreamOffset) -> dict[TopicPartition, int]:
        """Return the age of the first unread record in milliseconds, for partitions that have one.

        Args:
            end: the offsets up to which records are read.
            latest: the log end offsets.
        """
        behind = []
        for tp, offset in latest.offsets.items():
            position = end.offsets.get(tp)
            if position is not None and position < offset:
                topic_id = latest.topic_ids[tp.topic]
                if not end.is_recreated(tp.topic, topic_id):
                    behind.append((offset - position, (topic_id, tp, position)))
        keys = [key for _, key in sorted(behind, reverse=True)[:_MAX_PARTITIONS]]
        self._since_us = {
            key: self._since_us[key] if key in self._since_us else self._timestamp_us(*key[1:])
            for key in keys
        }
        now_us = self._clock.time_us()
        return {
            tp: max(0, now_us - since_us) // 1000
            for (_, tp, _), since_us in self._since_us.items()
            if since_us is not None
        }

    def _timestamp_us(self, tp: TopicPartition, offset: int) -> int | None:
        """Return the timestamp of the first record at or after an offset; None if it is unknown."""
        try:
            log = self._reader.log(tp)
        except SparkLogError as error:
            IN_PROCESS.add("lag in time", str(tp), error)
            return None  # a metric must not fail the query
        return first_unread_us(log, offset)
