"""`Consumer` methods for its assigned partitions or subscribed topics."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from spark_log.consumer.operations.consumer_access import ConsumerAccess
from spark_log.consumer.position import checked_partitions
from spark_log.consumer.rebalance_listener import ConsumerRebalanceListener
from spark_log.types import TopicPartition


class SubscriptionOperations(ConsumerAccess):
    """Assigns partitions, or subscribes to topics."""

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, instead of those assigned before.

        The consumer does not become a member of its group. Partitions that stay assigned keep their
        positions.

        Args:
            partitions: the partitions; an empty list means `unsubscribe`.

        Raises:
            IllegalStateError: the consumer subscribes to topics, or is closed.
            UnknownTopicOrPartitionError: a partition does not exist; nothing is changed.
        """
        wanted = checked_partitions(partitions)
        with self._acquire():
            if not wanted:
                self.unsubscribe()
                return
            self._finish_polling("assign")
            self._executor.run("assign", lambda: self._coordinator.assign(wanted))

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions; those of a subscription are assigned by `poll`."""
        with self._acquire():
            return set(self._subscription.partitions)

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read topics, instead of those subscribed before.

        The next `poll` assigns the partitions. Partitions and topics that are created later are
        assigned by a later poll. The partitions of a deleted topic leave the assignment; a topic
        that is created again under the same name is a new topic.

        With a ``group_id`` the next `poll` joins the group. Partitions are assigned and revoked
        only inside of `poll`, and no partition is read by two members at a time. A member that does
        not poll for ``max.poll.interval.ms``, or whose process is silent for
        ``session.timeout.ms``, loses its partitions.

        Args:
            topics: names of topics. A topic that does not exist is logged as a warning.
            pattern: a regular expression instead of names; it matches from the start of a name.
            listener: the listener that is called when the assignment changes.

        Raises:
            IllegalStateError: partitions are assigned, or topics and a pattern are given.
            ValueError: neither topics nor a pattern is given, or the pattern is no regular
                expression.
            TypeError: an argument has the wrong type.
            InvalidTopicError: a name is not valid for a topic.
        """
        with self._acquire():
            self._finish_polling("subscribe")
            self._subscription.subscribe(topics, pattern, listener)
            self._coordinator.request_update()

    def subscription(self) -> set[str] | None:
        """Return the names of the subscribed topics, None without a subscription."""
        with self._acquire():
            if not self._subscription.is_subscribed:
                return None
            exclude = self.config.exclude_internal_topics
            image = self._image("subscription")
            return set(self._subscription.topics(image, exclude_internal=exclude))

    def unsubscribe(self) -> None:
        """Read nothing, and leave the group. With auto-commit, commits the positions first.

        The listener is called before the consumer leaves. The place of a static member is kept
        (KIP-345).
        """
        with self._acquire():
            self._finish_polling("unsubscribe")
            unsubscribe = self._coordinator.unsubscribe
            self._executor.run("unsubscribe", unsubscribe, is_repeated=False)
