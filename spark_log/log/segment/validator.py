"""Validation of records before they are appended, by the topic's settings (``LogValidator``)."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.config import TopicConfig
from spark_log.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from spark_log.record import (
    BatchHeader,
    SmallBatch,
    largest_above,
    time_range_us,
    times_us_of,
    timestamp_array,
)
from spark_log.util import Clock

_LOG_APPEND_TIME = "LogAppendTime"
_NO_TIMESTAMP_US: Final = -1_000
"""The timestamp of a record without one, -1 ms in Kafka. No limit applies to it, as in Kafka."""


class LogValidator:
    """Checks record batches against a topic's settings, and sets timestamps for LogAppendTime."""

    def __init__(self, config: TopicConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._sets_append_time = config.message_timestamp_type == _LOG_APPEND_TIME

    @property
    def attributes(self) -> int:
        """Attribute bits of the batch header of validated records: the timestamp type."""
        return BatchHeader.TIMESTAMP_TYPE_BIT if self._sets_append_time else 0

    def validate(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records to append; with LogAppendTime, their timestamps are set to now.

        Args:
            records: a batch with the columns of `RECORD_SCHEMA`, at least one row, and no null
                timestamp.

        Raises:
            InvalidRecordError: the topic is compacted, and a record has no key.
            RecordTooLargeError: a record is larger than ``max.message.bytes``.
            InvalidTimestampError: a timestamp is outside of ``message.timestamp.before.max.ms`` or
                ``message.timestamp.after.max.ms``.
        """
        self._check_keys(records)
        self._check_sizes(records)
        if self._sets_append_time:
            column = records.schema.get_field_index("timestamp")
            times_us = np.full(records.num_rows, self._clock.time_us(), np.int64)
            field = records.schema.field(column)
            return records.set_column(column, field, timestamp_array(times_us))
        self._check_timestamps(records)
        return records

    def accepts_as_is(self, records: SmallBatch) -> bool:
        """Return whether `validate` would certainly return the records as they are.

        If not, only `validate` can tell what is wrong with which of them, or which of them to
        change.
        """
        if self._sets_append_time or len(records.content) > self._config.max_message_bytes:
            return False
        if records.nulls[0] and "compact" in self._config.cleanup_policy:
            return False
        _, least_us, most_us = records.time_range_us()
        earliest_us, latest_us = self._time_limits_us()
        return earliest_us <= least_us and most_us <= latest_us

    def _check_keys(self, records: pa.RecordBatch) -> None:
        keys = records.column("key")
        if keys.null_count and "compact" in self._config.cleanup_policy:
            raise InvalidRecordError(
                f"{keys.null_count} of {records.num_rows} records have no key, but the topic is "
                f"compacted: it keeps the last record of each key. Give every record a key, or set "
                f"the topic's cleanup.policy to delete",
                record_indexes=np.flatnonzero(keys.is_null()).tolist(),
            )

    def _check_sizes(self, records: pa.RecordBatch) -> None:
        limit = self._config.max_message_bytes
        if too_large := largest_above(records, limit):
            row, size_bytes = too_large
            raise RecordTooLargeError(
                f"record {row} of the batch has {size_bytes} bytes (key, value and headers), but "
                f"the topic accepts at most {limit}. Store large values elsewhere and append "
                f"references to them, or raise max.message.bytes",
                size_bytes=size_bytes,
                max_bytes=limit,
            )

    def _check_timestamps(self, records: pa.RecordBatch) -> None:
        earliest_us, latest_us = self._time_limits_us()
        _, least_us, most_us = time_range_us(records)
        if earliest_us <= least_us and most_us <= latest_us:
            return
        times_us = times_us_of(records)
        is_wrong = (times_us < earliest_us) | (times_us > latest_us)
        is_wrong &= times_us != _NO_TIMESTAMP_US
        indexes = np.flatnonzero(is_wrong)
        if not len(indexes):
            return
        found_us = int(times_us[indexes[0]])
        which = "after" if found_us > latest_us else "before"
        key = f"message.timestamp.{which}.max.ms"
        raise InvalidTimestampError(
            f"a record's timestamp, {found_us} µs since the epoch, is more than "
            f"{self._config.dotted()[key]} ms {which} now. Correct it, or change the topic's {key}",
            timestamp_us=found_us,
            record_indexes=indexes.tolist(),
        )

    def _time_limits_us(self) -> tuple[int, int]:
        """Return the earliest and the latest timestamp that a record may have now."""
        now_us, config = self._clock.time_us(), self._config
        return (
            now_us - config.message_timestamp_before_max_ms * 1000,
            now_us + config.message_timestamp_after_max_ms * 1000,
        )
