"""The history of a query's topics within one run, to tell data loss from a false alarm."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from spark_log.datasource.stream.stream_offset import StreamOffset
from spark_log.errors import DataLossError
from spark_log.types import TopicPartition

_ADVICE = "to continue with the existing records instead, set the option failOnDataLoss to false"

_log = logging.getLogger(__name__)


class TopicHistory:
    """Records the largest known end of each partition, and decides whether a deletion loses data.

    A topic that was deleted, or deleted and created again, loses no data if every record that this
    run has seen was read. After a restart the run may not have seen the topic. Then a deleted topic
    counts as a loss, as with the connector. A topic that was created again only causes a warning,
    because a failure on each replacement of a topic would mostly be a false alarm.
    """

    def __init__(self, *, fail_on_data_loss: bool) -> None:
        """Start without a topic.

        Args:
            fail_on_data_loss: raise an error on data loss, instead of a warning.
        """
        self._fail_on_data_loss = fail_on_data_loss
        self._ends: dict[tuple[str, int], int] = {}
        self._warned: set[tuple[str, str]] = set()

    def record_ends(self, latest: StreamOffset) -> None:
        """Record the ends of partitions."""
        for (topic, partition), end in latest.offsets.items():
            key = latest.topic_ids[topic], partition
            self._ends[key] = max(end, self._ends.get(key, 0))

    def on_recreated(
        self, topic: str, positions: Mapping[TopicPartition, int], old_id: str, new_id: str
    ) -> None:
        """Handle a topic that was deleted and created again.

        Args:
            topic: name of the topic.
            positions: the offsets up to which the former topic was read.
            old_id: id of the former topic.
            new_id: id of the new topic.

        Raises:
            DataLossError: the former topic had records that this run has seen and not read.
        """
        unread = self._unread(positions, old_id)
        what = f"topic {topic!r} was deleted and created again ({old_id} is now {new_id})"
        if unread:
            self.report_loss(f"{what}; {unread} records of the old topic were not read", topic)
            return
        known = (
            "all known records of the old topic were read"
            if unread == 0
            else "it is unknown whether all records of the old topic were read"
        )
        self.warn(f"{what}: the new topic is read from its start; {known}", topic, once=new_id)

    def on_deleted(
        self, topic: str, positions: Mapping[TopicPartition, int], old_id: str | None
    ) -> None:
        """Handle partitions that do not exist any more.

        Args:
            topic: name of the topic.
            positions: the offsets up to which the partitions were read.
            old_id: id of the topic; None if it is unknown.

        Raises:
            DataLossError: the partitions had, or may have had, records that were not read.
        """
        names = ", ".join(str(tp) for tp in sorted(positions))
        if old_id is not None and self._unread(positions, old_id) == 0:
            self.warn(f"{names}: deleted; all known records were read", topic, once="gone")
        else:
            self.report_loss(
                f"{names}: deleted, or excluded by the query's options; records may have been "
                f"missed",
                topic,
                once="gone",
            )

    def report_loss(self, message: str, topic: str, *, once: str | None = None) -> None:
        """Report that records were or may have been lost.

        Raises:
            DataLossError: always, unless ``failOnDataLoss`` is false; then a warning is logged.
        """
        if self._fail_on_data_loss:
            raise DataLossError(f"{message}; {_ADVICE}", topic=topic)
        self.warn(message, topic, once=once or message)

    def warn(self, message: str, topic: str, *, once: str) -> None:
        """Log a warning once for each event of a topic."""
        if (topic, once) not in self._warned:
            self._warned.add((topic, once))
            _log.warning("%s", message)

    def _unread(self, positions: Mapping[TopicPartition, int], topic_id: str) -> int | None:
        """Return the number of known records after positions; None if an end is unknown."""
        unread = 0
        for tp, position in positions.items():
            end = self._ends.get((topic_id, tp.partition))
            if end is None:
                return None
            unread += max(0, end - position)
        return unread
