"""`Consumer` methods for the positions of its assigned partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from spark_log.consumer.operations.consumer_access import ConsumerAccess
from spark_log.consumer.position import checked_partitions
from spark_log.errors import IllegalStateError
from spark_log.types import TopicPartition


class PositionOperations(ConsumerAccess):
    """Moves positions, and pauses partitions."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue a partition at an offset.

        Raises:
            IllegalStateError: the partition is not assigned.
            TypeError: the offset is no int.
            ValueError: the offset is negative.
        """
        checked_partitions([partition])
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise TypeError(f"offset {offset!r} is a {type(offset).__name__}; give an int")
        if offset < 0:
            raise ValueError(f"offset {offset} is negative; the first offset is 0")
        with self._acquire():
            self._stop_polling("seek")
            self._positions.seek(partition, offset)
            self._subscription.state(partition).is_sought = True

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue these partitions, or all, at their first offset, which the next poll finds.

        Raises:
            IllegalStateError: a partition is not assigned, or no partition is.
        """
        self._seek_to("earliest", partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue these partitions, or all, at their end, which the next poll finds.

        Raises:
            IllegalStateError: a partition is not assigned, or no partition is.
        """
        self._seek_to("latest", partitions)

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record that is returned.

        Args:
            partition: an assigned partition.
            timeout_ms: how long to wait for an object store, and for a transaction that commits an
                offset; None: ``default.api.timeout.ms``.

        Raises:
            IllegalStateError: the partition is not assigned.
            NoOffsetForPartitionError: no offset is committed, and ``auto.offset.reset`` is
                ``none``.
            KafkaTimeoutError: an object store did not answer, or the transaction was not decided,
                within the timeout.
            WakeupError: `wakeup` was called meanwhile.
        """
        checked_partitions([partition])
        with self._acquire():
            known = self._subscription.state(partition).position
            if known is not None:
                return known
            find = self._stable("position", lambda: self._positions.position(partition), timeout_ms)
            return self._executor.run("position", find, timeout_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`. They stay assigned.

        A rebalance does not end the pause of a partition that stays assigned, with any assignment
        strategy. A partition that is revoked, or whose topic is created again, is not paused when
        it is assigned again.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        self._for_each("pause", partitions, self._positions.pause)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of paused partitions again.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        self._for_each("resume", partitions, self._positions.resume)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        with self._acquire():
            return self._subscription.paused()

    def _seek_to(
        self, policy: Literal["earliest", "latest"], partitions: Sequence[TopicPartition]
    ) -> None:
        checked = checked_partitions(partitions)
        with self._acquire():
            self._stop_polling("seek")
            chosen = checked or list(self._subscription.partitions)
            if not chosen:
                raise IllegalStateError("no partitions are assigned to this consumer")
            for tp in chosen:
                self._subscription.state(tp)
            for tp in chosen:
                self._positions.reset(tp, policy)

    def _for_each(
        self,
        name: str,
        partitions: Sequence[TopicPartition],
        call: Callable[[TopicPartition], None],
    ) -> None:
        """Call a function for each partition, if all of them are assigned."""
        checked = checked_partitions(partitions)
        with self._acquire():
            self._stop_polling(name)
            for tp in checked:
                self._subscription.state(tp)
            for tp in checked:
                call(tp)
