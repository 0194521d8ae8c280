"""`Consumer` methods that return records: polls, and iteration."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pyarrow as pa

from spark_log.consumer.interceptors import Records
from spark_log.consumer.operations.consumer_access import ConsumerAccess
from spark_log.types import ConsumerRecord

_MIN_PLAUSIBLE_MS = 10.0
"""A float timeout below this is probably meant in seconds."""

_has_warned_of_seconds = False


class PollOperations(ConsumerAccess):
    """Returns records: as objects, as an Arrow table, or one by one."""

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Return the next records; wait for them if there are none.

        As in Kafka, the first poll starts to read ahead: with ``timeout_ms=0`` it mostly returns
        nothing. On an object store, joining the group and finding positions may take longer than
        ``timeout_ms``. They then continue in the background, and the next poll waits for them.

        Args:
            timeout_ms: the maximum time to wait, in milliseconds. After that the result is empty,
                also if the storage does not answer. As in Kafka, an empty result is returned
                earlier if positions have moved past offsets without records: transaction markers,
                aborted or compacted records. A float below 10 causes a warning, because it is
                probably meant in seconds.
            max_records: the maximum number of records; None for ``max.poll.records``.

        Returns:
            Lists of records in offset order, by partition.

        Raises:
            RecordDeserializationError: a record cannot be deserialized. The records before it were
                returned; the position stays at the record until a seek.
            OffsetOutOfRangeError: the position is not in the log, and ``auto.offset.reset`` is
                ``none``.
            NoOffsetForPartitionError: no offset is committed, and ``auto.offset.reset`` is
                ``none``.
            LogTruncatedError: offsets that were read or committed lie after the log's end.
            UnknownTopicOrPartitionError: the topic of an assigned partition was deleted.
            CorruptRecordError: stored bytes are damaged; seek to skip them.
            WakeupError: `wakeup` was called.
            FencedInstanceIdError: another process took over the ``group.instance.id``.
            GroupMaxSizeReachedError, InconsistentGroupProtocolError, InvalidSessionTimeoutError:
                the group refuses the consumer.
            IllegalStateError: nothing is assigned or subscribed, or the consumer is closed.
        """
        _warn_of_seconds(timeout_ms)
        limit = self.config.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records is {max_records}; give at least 1")
        with self._acquire():
            return self._poller.poll(timeout_ms, limit)

    def poll_table(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        *,
        leader_epochs: bool = False,
    ) -> pa.Table:
        """Return the next records as an Arrow table; wait for them if there are none.

        Keys, values, timestamps and headers are not copied. They are memory-mapped if the root is
        local and the segments are not compressed.

        Args:
            timeout_ms: the maximum time to wait, in milliseconds. After that the table is empty; an
                empty table is returned earlier if positions have moved past offsets without
                records.
            max_records: the maximum number of rows; None for all rows that were fetched ahead
                (``fetch.max.bytes``).
            leader_epochs: whether the table has one more column, leaderEpoch: int32, the leader
                epoch in which the batch of the record was written.

        Returns:
            A table with the columns of the Spark source (`TABLE_SCHEMA`): key, value: binary;
            topic: string; partition: int32; offset: int64; timestamp: timestamp[us, UTC];
            timestampType: int32; headers: list<struct<key: string, value: binary>>. Rows of one
            partition are in offset order.

        Raises:
            SparkLogError: the errors of `poll` except `RecordDeserializationError`.
        """
        _warn_of_seconds(timeout_ms)
        if max_records is not None and max_records < 1:
            raise ValueError(f"max_records is {max_records}; give at least 1")
        with self._acquire():
            return self._poller.poll_table(timeout_ms, max_records, leader_epochs=leader_epochs)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next record.

        Iteration ends after ``consumer.timeout.ms`` without a record, and when the consumer is
        closed.
        """
        if self._is_closed:
            raise StopIteration
        with self._acquire():
            record = self._poller.next_record()
            if record is None:
                raise StopIteration
            return record


def _warn_of_seconds(timeout_ms: float) -> None:
    """Warn, once per process, about a timeout that was probably meant in seconds."""
    global _has_warned_of_seconds  # noqa: PLW0603 - once per process
    if (
        isinstance(timeout_ms, float)
        and 0 < timeout_ms < _MIN_PLAUSIBLE_MS
        and not _has_warned_of_seconds
    ):
        _has_warned_of_seconds = True
        warnings.warn(
            f"poll({timeout_ms!r}) waits for {timeout_ms:g} milliseconds, as in kafka-python: for "
            f"seconds, as in confluent-kafka, give poll(timeout_ms={timeout_ms * 1000:g})",
            stacklevel=3,
        )
