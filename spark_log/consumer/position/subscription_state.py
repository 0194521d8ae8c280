"""The subscription or assignment of a consumer, and its positions (Kafka's SubscriptionState)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spark_log.consumer.position.offset_reset import ResetPolicy
from spark_log.consumer.rebalance_listener import ConsumerRebalanceListener
from spark_log.errors import IllegalStateError
from spark_log.metadata import INTERNAL_TOPICS, MetadataImage, TopicImage, validate_topic_name
from spark_log.types import TopicPartition


@dataclass(slots=True)
class TopicPartitionState:
    """State of one assigned partition.

    Attributes:
        topic: the topic as it was last read from the metadata. A topic that is deleted and created
            again has another id.
        position: the offset of the next record to return; None while it is unknown.
        reset: the policy of a pending seek; None for the committed offset, or else
            ``auto.offset.reset``.
        is_paused: whether no records are returned.
        is_sought: whether the user chose the position, and no record was returned since.
    """

    topic: TopicImage
    position: int | None = None
    reset: ResetPolicy | None = None
    is_paused: bool = False
    is_sought: bool = False

    def is_deleted(self, image: MetadataImage) -> bool:
        """Return whether the topic does not exist any more, by its id."""
        found = image.find(self.topic.name)
        return found is None or found.topic_id != self.topic.topic_id


class SubscriptionState:
    """Subscribed topics, a subscribed pattern, or assigned partitions: one of them at a time.

    Attributes:
        listener: the user's rebalance listener.
        partitions: the assigned partitions.
    """

    def __init__(self) -> None:
        self.listener: ConsumerRebalanceListener | None = None
        self.partitions: dict[TopicPartition, TopicPartitionState] = {}
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._is_assigned = False

    @property
    def is_subscribed(self) -> bool:
        """Whether topics or a pattern are subscribed."""
        return bool(self._topics) or self._pattern is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is subscribed or assigned."""
        return not self.is_subscribed and not self._is_assigned

    def subscribe(
        self,
        topics: Collection[str],
        pattern: str | re.Pattern[str] | None,
        listener: ConsumerRebalanceListener | None,
    ) -> None:
        """Replace the subscription; the errors are those of `Consumer.subscribe`."""
        if self._is_assigned:
            raise IllegalStateError(
                "partitions are assigned to this consumer; call unsubscribe() before subscribe()"
            )
        if topics and pattern is not None:
            raise IllegalStateError("both topics and a pattern are given; give one of them")
        if not topics and pattern is None:
            raise ValueError("nothing to subscribe to: give topics=[…] or pattern='…'")
        if isinstance(topics, (str, bytes)):
            raise TypeError(f"topics is {topics!r}; give a list of names: topics=[{topics!r}]")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError(
                f"listener is a {type(listener).__name__}; derive it from ConsumerRebalanceListener"
            )
        compiled = None
        if pattern is not None:
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from None
        for name in topics:
            if not isinstance(name, str):
                raise TypeError(f"topic {name!r} is a {type(name).__name__}; give a name")
            if name not in INTERNAL_TOPICS:
                validate_topic_name(name)
        self._topics, self._pattern, self.listener = frozenset(topics), compiled, listener

    def assign(self) -> None:
        """Switch to assigned partitions.

        Raises:
            IllegalStateError: topics or a pattern are subscribed.
        """
        if self.is_subscribed:
            raise IllegalStateError(
                "this consumer subscribes to topics; call unsubscribe() before assign()"
            )
        self._is_assigned = True

    def clear(self) -> None:
        """Remove the subscription or the assigned partitions."""
        self._topics, self._pattern, self._is_assigned = frozenset(), None, False
        self.listener = None

    def topics(self, image: MetadataImage, *, exclude_internal: bool) -> frozenset[str]:
        """Return the subscribed topic names, or the names of the topics that match the pattern.

        As in Kafka, a pattern matches from the start of a name.
        """
        if self._pattern is None:
            return self._topics
        return frozenset(
            topic.name
            for topic in image.topics()
            if self._pattern.match(topic.name)
            and not (exclude_internal and topic.name in INTERNAL_TOPICS)
        )

    def describe(self) -> str:
        """Return the subscribed topics as text for log lines."""
        if self._pattern is not None:
            return f"topics that match {self._pattern.pattern}"
        return ", ".join(sorted(self._topics))

    def named_topics(self) -> frozenset[str]:
        """Return the subscribed topic names; empty for a pattern."""
        return self._topics

    def state(self, partition: TopicPartition) -> TopicPartitionState:
        """Return the state of an assigned partition.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        try:
            return self.partitions[partition]
        except KeyError:
            raise IllegalStateError(
                f"partition {partition} is not assigned to this consumer; assigned: "
                f"{shown_partitions(self.partitions)}"
            ) from None

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {tp for tp, state in list(self.partitions.items()) if state.is_paused}

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        """Return the ids of the topics of these partitions, by name.

        Partitions that are not assigned are left out.
        """
        return {
            tp.topic: state.topic.topic_id
            for tp in partitions
            if (state := self.partitions.get(tp)) is not None
        }

    def positions(self) -> dict[TopicPartition, int]:
        """Return the known positions, by partition."""
        return {
            tp: state.position
            for tp, state in list(self.partitions.items())
            if state.position is not None
        }


def checked_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions as a list.

    Raises:
        TypeError: one of them is no `TopicPartition`.
    """
    checked = list(partitions)
    for each in checked:
        if not isinstance(each, TopicPartition):
            raise TypeError(f"{each!r} is a {type(each).__name__}; give TopicPartition(topic, n)")
    return checked


def checked_times_us(timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return times in microseconds, by partition, from times in milliseconds since the epoch.

    Raises:
        TypeError: a key is no `TopicPartition`.
        ValueError: a time is negative.
    """
    for tp in checked_partitions(timestamps):
        if timestamps[tp] < 0:
            raise ValueError(f"{tp}: time {timestamps[tp]} is negative; give ms since 1970")
    return {tp: int(timestamp_ms) * 1000 for tp, timestamp_ms in timestamps.items()}


def shown_partitions(partitions: Collection[TopicPartition], most: int = 5) -> str:
    """Return the first partitions as text, with the number of others; ``none`` if empty."""
    names = ", ".join(str(each) for each in sorted(partitions)[:most])
    more = len(partitions) - most
    return (names + (f" and {more} more" if more > 0 else "")) or "none"


def shown_positions(positions: Mapping[TopicPartition, int]) -> str:
    """Return positions as text for log lines."""
    return ", ".join(f"{tp}: {offset}" for tp, offset in sorted(positions.items()))
