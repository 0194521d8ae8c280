"""Lag behind a batch: the first unread offsets, and the age of the first unread record."""

from __future__ import annotations

from collections.abc import Mapping

from spark_log.datasource.read import OffsetReader
from spark_log.datasource.stream.stream_offset import StreamOffset
from spark_log.errors import SparkLogError
from spark_log.log import Lag, first_unread_us
from spark_log.types import TopicPartition
from spark_log.util import IN_PROCESS, Clock

_MAX_PARTITIONS = 64
"""Maximum number of partitions whose lag in time is looked up: those with most unread records.

Each of them costs a read of a segment.
"""


class TimeLag:
    """Looks up the timestamps of first unread records, once for each position."""

    def __init__(self, reader: OffsetReader, clock: Clock) -> None:
        """Start without timestamps.

        Args:
            reader: the reader of the partitions' logs.
            clock: the clock that ages are computed with.
        """
        self._reader = reader
        self._clock = clock
        self._since_us: dict[tuple[str, TopicPartition, int], int | None] = {}

    def log_starts(self, end: StreamOffset, latest: StreamOffset) -> dict[TopicPartition, int]:
        """Return the log start offset of partitions in which unread records were deleted.

        The offsets are from the last listings, so this makes no request.

        Args:
            end: the offsets up to which records are read.
            latest: the log end offsets.
        """
        starts = {}
        for tp, position in _unread(end, latest).items():
            try:
                start = self._reader.view(tp, start_offset=position).log_start_offset
            except SparkLogError as error:
                IN_PROCESS.add("log start for the lag", str(tp), error)
                continue  # a metric must not fail the query
            if start > position:
                starts[tp] = start
        return starts

    def lag_ms(
        self,
        end: StreamOffset,
        latest: StreamOffset,
        log_starts: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return the age of the first unread record in milliseconds, for partitions that have one.

        Args:
            end: the offsets up to which records are read.
            latest: the log end offsets.
            log_starts: the log start offsets, from `log_starts`.
        """
        behind = []
        for tp, position in _unread(end, latest).items():
            offset = latest.offsets[tp]
            lag = Lag.of(position, log_starts.get(tp, 0), offset)
            if lag.unread:
                behind.append((lag.unread, (latest.topic_ids[tp.topic], tp, lag.first_offset)))
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


def _unread(end: StreamOffset, latest: StreamOffset) -> dict[TopicPartition, int]:
    """Return the position in each partition that has unread records, by the same topic id."""
    return {
        tp: position
        for tp, position in end.for_unchanged_topics(latest.offsets, latest.topic_ids.get).items()
        if position < latest.offsets[tp]
    }
