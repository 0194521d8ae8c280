"""Polls the log for a streaming query, at an interval that limits the cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_log.datasource.read import OffsetReader
from spark_log.datasource.stream.stream_offset import StreamOffset
from spark_log.datasource.stream.topic_history import TopicHistory
from spark_log.errors import CorruptRecordError, NotFoundError, UnknownTopicOrPartitionError
from spark_log.log import ProbeInterval
from spark_log.types import TopicPartition
from spark_log.util import Clock

POLL_INTERVAL_MS = 125
"""Minimum time between two polls of an object store, where each poll costs requests.

Spark asks an idle query for new offsets 10 ms after each answer. On a local root only
`_MAX_POLL_FRACTION` limits polls.
"""

_MAX_POLL_FRACTION = 0.2
"""Maximum fraction of the time spent on polls, whatever the number of partitions."""


@dataclass(frozen=True, slots=True, eq=False)
class LatestOffsets:
    """Result of one poll.

    Attributes:
        offset: log end offsets, with the ids of the topics.
        until_ms: earliest time of the next poll (monotonic clock).
    """

    offset: StreamOffset
    until_ms: float

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """Log end offset of every partition that exists."""
        return self.offset.offsets

    def topic_id(self, topic: str) -> str | None:
        """Return a topic's id; None if the topic does not exist."""
        return self.offset.topic_ids.get(topic)


class LogPoller:
    """Polls the log end offsets at a limited rate.

    A complete poll costs one request for new metadata and one for each partition. Its result
    includes every record that was acknowledged before the poll began. If the next poll is not due
    yet, `poll` waits instead of returning an earlier result: ``processAllAvailable`` returns as
    soon as Spark gets the answer that there is nothing new, and this answer must include records
    acknowledged before the question.

    On an object store a partition without a record for 5 seconds is at rest, as in a consumer
    (`ProbeInterval`). Partitions at rest, and new metadata, are asked for once in
    ``fetch.idle.interval.ms``, by complete polls. The polls between them ask the other partitions
    only.

    Attributes:
        last: result of the last poll; None before the first.
        complete_polls: number of complete polls.
    """

    def __init__(self, reader: OffsetReader, history: TopicHistory, clock: Clock) -> None:
        """Prepare for polls.

        Args:
            reader: the reader of partitions and offsets.
            history: the history of the topics, which records the result of each poll.
            clock: the clock that measures the interval.
        """
        self.last: LatestOffsets | None = None
        self.complete_polls = 0
        self._reader = reader
        self._history = history
        self._clock = clock
        if reader.is_local:
            self._probes = ProbeInterval(0.0, 0.0)
        else:
            rest_ms = reader.options.fetch_idle_interval_ms
            interval_ms = min(POLL_INTERVAL_MS, rest_ms)
            self._probes = ProbeInterval(interval_ms, interval_ms, rest_ms)
        self._partitions: list[TopicPartition] = []
        self._records_ms: dict[TopicPartition, float] = {}
        self._complete_until_ms = 0.0

    def recent(self) -> LatestOffsets:
        """Return the result of the last poll, or poll if a poll is due."""
        if self.last is not None and self._clock.monotonic_ms() < self.last.until_ms:
            return self.last
        return self._poll_due()

    def poll(self) -> LatestOffsets:
        """Wait until a poll is due, and return the log end offsets.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist, and no earlier poll has found it.
        """
        if self.last is not None:
            early_ms = self.last.until_ms - self._clock.monotonic_ms()
            if early_ms > 0:
                self._clock.sleep_ms(early_ms)
        return self._poll_due()

    def poll_now(self) -> LatestOffsets:
        """Return the log end offsets of a complete poll without waiting.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist, and no earlier poll has found it.
        """
        began_ms = self._clock.monotonic_ms()
        self._find_partitions()
        try:
            ends = self._reader.latest(self._partitions)
        except (CorruptRecordError, NotFoundError):
            # A topic may have been deleted during the poll.
            before = self._reader.topic_ids()
            self._find_partitions()
            if self._reader.topic_ids() == before:
                raise
            ends = self._reader.latest(self._partitions)
        self.complete_polls += 1
        self._complete_until_ms = began_ms + self._probes.rest_ms
        return self._on_polled(ends, began_ms)

    def _poll_due(self) -> LatestOffsets:
        """Poll the partitions that are not at rest, or all if a complete poll is due."""
        began_ms = self._clock.monotonic_ms()
        awake = self._awake(began_ms)
        is_complete_due = began_ms >= self._complete_until_ms
        if self.last is None or is_complete_due or len(awake) == len(self.last.ends):
            return self.poll_now()
        try:
            ends = self._reader.latest(awake)
        except (CorruptRecordError, NotFoundError):
            return self.poll_now()  # a topic may have been deleted
        return self._on_polled({**self.last.ends, **ends}, began_ms)

    def _on_polled(self, ends: Mapping[TopicPartition, int], began_ms: float) -> LatestOffsets:
        now_ms = self._clock.monotonic_ms()
        before = {} if self.last is None else self.last.ends
        self._records_ms = {
            tp: self._records_ms[tp] if before.get(tp) == end else now_ms
            for tp, end in ends.items()
        }
        due_ms = began_ms + self._probes.min_ms
        if ends and not self._awake(due_ms):
            due_ms = self._complete_until_ms
        until_ms = max(due_ms, began_ms + (now_ms - began_ms) / _MAX_POLL_FRACTION)
        latest = StreamOffset(ends, self.topic_ids_of(ends))
        if self.last is not None and self.last.offset == latest:
            latest = self.last.offset  # callers compare by identity to skip work
        else:
            self._history.record_ends(latest)
        self.last = LatestOffsets(latest, until_ms)
        return self.last

    def _awake(self, now_ms: float) -> list[TopicPartition]:
        """Return the partitions that are not at rest at a time."""
        return [
            tp
            for tp, records_ms in self._records_ms.items()
            if not self._probes.is_at_rest(now_ms - records_ms)
        ]

    def topic_ids_of(self, offsets: Mapping[TopicPartition, int]) -> dict[str, str]:
        """Return the ids of the partitions' topics."""
        ids = self._reader.topic_ids()
        return {topic: ids[topic] for topic in sorted({tp.topic for tp in offsets})}

    def _find_partitions(self) -> None:
        try:
            self._partitions = self._reader.partitions()
        except UnknownTopicOrPartitionError as error:
            if not self._partitions:
                raise  # a query cannot start with a topic that does not exist
            # The topic was deleted while the query runs; it may be created again.
            self._history.warn(str(error), error.topic, once="missing")
