"""What a consumer is to read, and where it stands (Kafka's SubscriptionState)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from spark_log.consumer.membership import ConsumerRebalanceListener
from spark_log.consumer.offset_reset import ResetPolicy
from spark_log.errors import IllegalStateError
from spark_log.metadata.image import MetadataImage, TopicImage
from spark_log.metadata.topics.names import INTERNAL_TOPICS, validate_topic_name
from spark_log.types import TopicPartition


@dataclass(slots=True)
class TopicPartitionState:
    """An assigned partition.

    Attributes:
        topic: as it was when it was assigned; another one of the same name is another topic.
        position: the offset of the next record that is handed out; None before that is known.
        reset: where a pending seek goes to; None: to what is committed, else by the policy.
        is_paused: it is left out.
        is_sought: the user chose the position, and nothing was handed out since.
    """

    topic: TopicImage
    position: int | None = None
    reset: ResetPolicy | None = None
    is_paused: bool = False
    is_sought: bool = False


class SubscriptionState:
    """Topics, a pattern, or partitions: one of them at a time."""

    def __init__(self) -> None:
        self.listener: ConsumerRebalanceListener | None = None
        self.partitions: dict[TopicPartition, TopicPartitionState] = {}
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._is_assigned = False

    @property
    def is_subscribed(self) -> bool:
        """Whether there are topics or a pattern."""
        return bool(self._topics) or self._pattern is not None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing at all."""
        return not self.is_subscribed and not self._is_assigned

    def subscribe(
        self,
        topics: Collection[str],
        pattern: str | re.Pattern[str] | None,
        listener: ConsumerRebalanceListener | None,
    ) -> None:
        """Take topics or a pattern in place of those before.

        Raises:
            IllegalStateError: partitions were assigned, or both are given.
            ValueError: neither is given, or the pattern is no regular expression.
            TypeError: they are of the wrong type.
            InvalidTopicError: no topic can have such a name.
        """
        if self._is_assigned:
            raise IllegalStateError(
                "partitions were assigned to this consumer: call unsubscribe() before subscribe()"
            )
        if topics and pattern is not None:
            raise IllegalStateError("subscribe to topics or to a pattern, not to both")
        if not topics and pattern is None:
            raise ValueError("subscribe to what? Give topics=[…] or pattern='…'")
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
        """Begin to take partitions by hand.

        Raises:
            IllegalStateError: there is a subscription.
        """
        if self.is_subscribed:
            raise IllegalStateError(
                "this consumer subscribes to topics: call unsubscribe() before assign()"
            )
        self._is_assigned = True

    def clear(self) -> None:
        """Take nothing."""
        self._topics, self._pattern, self._is_assigned = frozenset(), None, False
        self.listener = None

    def topics(self, image: MetadataImage, *, exclude_internal: bool) -> frozenset[str]:
        """Return the topics that are subscribed to: those named, or those that match.

        As in Kafka a pattern is matched from the start of a name.
        """
        if self._pattern is None:
            return self._topics
        return frozenset(
            topic.name
            for topic in image.topics()
            if self._pattern.match(topic.name)
            and not (exclude_internal and topic.name in INTERNAL_TOPICS)
        )

    def named_topics(self) -> frozenset[str]:
        """Return the topics that were named."""
        return self._topics

    def state(self, partition: TopicPartition) -> TopicPartitionState:
        """Return an assigned partition.

        Raises:
            IllegalStateError: it is not assigned.
        """
        try:
            return self.partitions[partition]
        except KeyError:
            raise IllegalStateError(
                f"partition {partition} is not assigned to this consumer; assigned are "
                f"{_some(self.partitions)}"
            ) from None

    def paused(self) -> set[TopicPartition]:
        """Return what is paused."""
        return {tp for tp, state in list(self.partitions.items()) if state.is_paused}

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions that are known."""
        return {
            tp: state.position
            for tp, state in list(self.partitions.items())
            if state.position is not None
        }


def checked_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions.

    Raises:
        TypeError: something else is among them.
    """
    checked = list(partitions)
    for each in checked:
        if not isinstance(each, TopicPartition):
            raise TypeError(f"{each!r} is a {type(each).__name__}; give TopicPartition(topic, n)")
    return checked


def _some(partitions: Collection[TopicPartition], most: int = 5) -> str:
    names = ", ".join(str(each) for each in sorted(partitions)[:most])
    more = len(partitions) - most
    return (names + (f" and {more} more" if more > 0 else "")) or "none"
