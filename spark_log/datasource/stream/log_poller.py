"""Looking at the log for a streaming query: before each answer, at a pace that costs little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_log.clock import Clock
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.datasource.stream.stream_offset import StreamOffset
from spark_log.datasource.stream.topic_history import TopicHistory
from spark_log.errors import CorruptRecordError, NotFoundError, UnknownTopicOrPartitionError
from spark_log.types import TopicPartition

POLL_INTERVAL_MS = 125
"""On an object store looks begin no closer together than this: each costs requests.

Spark asks an idle query again 10 ms after each answer. On a local root nothing but `_MAX_POLL_FRACTION`
holds looks back.
"""

_MAX_POLL_FRACTION = 0.2
"""The part of the time that looks take, at most, however many partitions there are."""


@dataclass(frozen=True, slots=True, eq=False)
class LatestOffsets:
    """What one poll showed.

    Attributes:
        latest: where partitions end.
        until_ms: when it is time for another poll (monotonic).
    """

    offset: StreamOffset
    until_ms: float

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """Log end offsets, of every partition that is there."""
        return self.offset.offsets

    def topic_id(self, topic: str) -> str | None:
        """Return a topic's id; None if it is not there."""
        return self.offset.topic_ids.get(topic)


class LogPoller:
    """Watches where partitions end, no more often than is worth it.

    A poll is one probe for new metadata and one for each partition. What it shows holds whatever
    was acknowledged before it began. Where it is too early for another poll, `poll` waits rather
    than answer with what an earlier one showed: ``processAllAvailable`` returns as soon as Spark is
    told that there is nothing new, and records that were acknowledged before must not be missing.

    Attributes:
        last: what the last poll showed; None before the first one.
    """

    def __init__(self, reader: OffsetReader, history: TopicHistory, clock: Clock) -> None:
        """Args: reader: looks; history: is told what was seen; clock: says when to poll again."""
        self.last: LatestOffsets | None = None
        self._reader = reader
        self._history = history
        self._clock = clock
        self._interval_ms = 0 if reader.is_local else POLL_INTERVAL_MS
        self._partitions: list[TopicPartition] = []

    def recent(self) -> LatestOffsets:
        """Return what the last poll showed while it is too early for another, else poll."""
        if self.last is not None and self._clock.monotonic_ms() < self.last.until_ms:
            return self.last
        return self.poll()

    def poll(self) -> LatestOffsets:
        """Look, once it is time for that; return where partitions end.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist, and did not before in this run.
        """
        if self.last is not None:
            early_ms = self.last.until_ms - self._clock.monotonic_ms()
            if early_ms > 0:
                self._clock.sleep_ms(early_ms)
        return self.poll_now()

    def poll_now(self) -> LatestOffsets:
        """Look without waiting; see `poll`."""
        began_ms = self._clock.monotonic_ms()
        self._find_partitions()
        try:
            ends = self._reader.latest(self._partitions)
        except (CorruptRecordError, NotFoundError):
            # It may be a topic that is being deleted just now.
            before = self._reader.topic_ids()
            self._find_partitions()
            if self._reader.topic_ids() == before:
                raise
            ends = self._reader.latest(self._partitions)
        took_ms = self._clock.monotonic_ms() - began_ms
        until_ms = began_ms + max(self._interval_ms, took_ms / _MAX_POLL_FRACTION)
        latest = StreamOffset(ends, self.topic_ids_of(ends))
        if self.last is not None and self.last.offset == latest:
            latest = self.last.offset  # so that what follows from it need not be worked out again
        else:
            self._history.record_ends(latest)
        self.last = LatestOffsets(latest, until_ms)
        return self.last

    def topic_ids_of(self, offsets: Mapping[TopicPartition, int]) -> dict[str, str]:
        """Return the ids of these partitions' topics."""
        ids = self._reader.topic_ids()
        return {topic: ids[topic] for topic in sorted({tp.topic for tp in offsets})}

    def _find_partitions(self) -> None:
        try:
            self._partitions = self._reader.partitions()
        except UnknownTopicOrPartitionError as error:
            if not self._partitions:
                raise  # a query cannot start on what does not exist
            # Deleted while the query runs, and perhaps about to be created again.
            self._history.warn(str(error), error.topic, once="missing")
