"""Looking at the log for a streaming query: often enough, and no more often than is worth it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_log.clock import Clock
from spark_log.datasource.offset_reader import OffsetReader
from spark_log.datasource.stream_offset import StreamOffset
from spark_log.datasource.topic_history import TopicHistory
from spark_log.errors import CorruptRecordError, NotFoundError, UnknownTopicOrPartitionError
from spark_log.types import TopicPartition

LOOK_INTERVAL_MS = 100
"""Spark asks every 11 ms for the latest offsets; the log is looked at no more often than this."""

METADATA_INTERVAL_MS = 1_000
"""New partitions, and topics that were created again, are found as soon as this."""

_LOOKING_PART = 0.2
"""Looking at very many partitions takes time; so much of it at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """What one look showed: where partitions end, and until when that will do (monotonic)."""

    latest: StreamOffset
    until_ms: float

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """Log end offsets, of every partition that is there."""
        return self.latest.offsets

    def topic_id(self, topic: str) -> str | None:
        """Return a topic's id; None if it is not there."""
        return self.latest.topic_ids.get(topic)


class LogWatch:
    """Watches where partitions end.

    The log is looked at every `LOOK_INTERVAL_MS` at most, by one probe for each partition, and
    metadata every `METADATA_INTERVAL_MS`, however often one asks.

    Attributes:
        last: what the last look showed; None before the first one.
    """

    def __init__(self, reader: OffsetReader, history: TopicHistory, clock: Clock) -> None:
        """Args: reader: looks; history: is told what was seen; clock: says when to look again."""
        self.last: Sight | None = None
        self._reader = reader
        self._history = history
        self._clock = clock
        self._partitions: list[TopicPartition] = []
        self._partitions_ms = float("-inf")

    def look(self) -> Sight:
        """Return where partitions end, as of now or a moment ago.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist, and did not before in this run.
        """
        now_ms = self._clock.monotonic_ms()
        if self.last is not None and now_ms < self.last.until_ms:
            return self.last
        if now_ms - self._partitions_ms >= METADATA_INTERVAL_MS:
            self._find_partitions(now_ms)
        try:
            ends = self._reader.latest(self._partitions)
        except (CorruptRecordError, NotFoundError):
            # It may be a topic that is being deleted just now.
            before = self._reader.topic_ids()
            self._find_partitions(now_ms)
            if self._reader.topic_ids() == before:
                raise
            ends = self._reader.latest(self._partitions)
        took_ms = self._clock.monotonic_ms() - now_ms
        until_ms = now_ms + max(LOOK_INTERVAL_MS, took_ms / _LOOKING_PART)
        self.last = Sight(StreamOffset(ends, self.topic_ids_of(ends)), until_ms)
        self._history.remember(self.last.latest)
        return self.last

    def forget(self) -> None:
        """Look anew, at metadata too, when asked next."""
        self.last = None
        self._partitions_ms = float("-inf")

    def topic_ids_of(self, offsets: Mapping[TopicPartition, int]) -> dict[str, str]:
        """Return the ids of these partitions' topics."""
        ids = self._reader.topic_ids()
        return {topic: ids[topic] for topic in sorted({named.topic for named in offsets})}

    def _find_partitions(self, now_ms: float) -> None:
        try:
            self._partitions = self._reader.partitions()
        except UnknownTopicOrPartitionError as error:
            if not self._partitions:
                raise  # a query cannot start on what does not exist
            # Deleted while the query runs, and perhaps about to be created again.
            self._history.warn(str(error), error.topic, once="missing")
        self._partitions_ms = now_ms
