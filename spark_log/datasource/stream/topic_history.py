"""What a run of a query has seen of its topics: to tell a loss of data from a false alarm."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from spark_log.datasource.stream.stream_offset import StreamOffset
from spark_log.errors import DataLossError
from spark_log.types import TopicPartition

_ADVICE = "to go on with what there is instead of failing, set the option failOnDataLoss to false"

_logger = logging.getLogger(__name__)


class TopicHistory:
    """Remembers how far topics reached, and judges what it means that one is gone.

    A topic that was deleted, or created again under another id, loses nothing where all that was
    seen of it had been read. What this run never saw (a restart comes first) cannot be told: that
    is a loss for a topic that is gone, as with the connector; and none, but a warning, for one that
    is there again, since to raise the alarm whenever a topic is replaced would be false mostly.
    """

    def __init__(self, *, fail_on_data_loss: bool) -> None:
        """Args: fail_on_data_loss: raise, instead of warn, where something is lost."""
        self._fail_on_data_loss = fail_on_data_loss
        self._ends: dict[tuple[str, int], int] = {}
        self._warned: set[tuple[str, str]] = set()

    def record_ends(self, latest: StreamOffset) -> None:
        """Take note of where partitions end."""
        for (topic, partition), end in latest.offsets.items():
            key = latest.topic_ids[topic], partition
            self._ends[key] = max(end, self._ends.get(key, 0))

    def on_recreated(
        self, topic: str, positions: Mapping[TopicPartition, int], former_id: str, now_id: str
    ) -> None:
        """A topic is another one than that which was read up to ``positions``.

        Raises:
            DataLossError: records of the former one had been seen, and not read.
        """
        unread = self._unread(positions, former_id)
        what = f"topic {topic!r} was deleted and created again ({former_id} is now {now_id})"
        if unread:
            self.report_loss(f"{what}; {unread} records of the former one had not been read", topic)
            return
        known = (
            "all that was seen of the former one had been read"
            if unread == 0
            else "whether all of the former one had been read cannot be told any more"
        )
        self.warn(f"{what}: the new one is read from its beginning; {known}", topic, once=now_id)

    def on_deleted(
        self, topic: str, positions: Mapping[TopicPartition, int], former_id: str | None
    ) -> None:
        """Partitions are not there any more that were read up to ``positions``.

        Raises:
            DataLossError: records of them had been seen and not read, or nobody knows.
        """
        names = ", ".join(str(tp) for tp in sorted(positions))
        if former_id is not None and self._unread(positions, former_id) == 0:
            self.warn(f"{names} is gone; all that was seen of it had been read", topic, once="gone")
        else:
            self.report_loss(
                f"{names} is gone, or not read any more by this query's options: records may have "
                f"been missed",
                topic,
                once="gone",
            )

    def report_loss(self, message: str, topic: str, *, once: str | None = None) -> None:
        """Records were lost, or may have been.

        Raises:
            DataLossError: unless ``failOnDataLoss=false``.
        """
        if self._fail_on_data_loss:
            raise DataLossError(f"{message}; {_ADVICE}", topic=topic)
        self.warn(message, topic, once=once or message)

    def warn(self, message: str, topic: str, *, once: str) -> None:
        """Log a warning, once for each thing that happens to a topic."""
        if (topic, once) not in self._warned:
            self._warned.add((topic, once))
            _logger.warning("%s", message)

    def _unread(self, positions: Mapping[TopicPartition, int], topic_id: str) -> int | None:
        """Return how many records had been seen behind positions; None if some never were."""
        unread = 0
        for tp, position in positions.items():
            end = self._ends.get((topic_id, tp.partition))
            if end is None:
                return None
            unread += max(0, end - position)
        return unread
