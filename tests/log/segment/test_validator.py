"""Validation of records by the topic's settings."""

import pytest
from hypothesis import given

from spark_log.config import TopicConfig
from spark_log.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from spark_log.log.segment.validator import LogValidator
from spark_log.record.sizes import record_sizes
from spark_log.util.clock import ManualClock
from tests.log.support import ANY_TIME, file_names, open_log, values
from tests.record.samples import numbered, record_batch, row, row_lists, rows_of

NOW_US = 1_700_000_000_000_000


def validate(rows, **config):
    return LogValidator(TopicConfig.parse(config), ManualClock(NOW_US)).validate(record_batch(rows))


def size_of(row):
    items = [(item["key"].encode(), item["value"]) for item in row["headers"] or ()]
    parts = [row["key"], row["value"], *(part for item in items for part in item)]
    return sum(len(part) for part in parts if part is not None)


class TestKeys:
    def test_every_record_of_a_compacted_topic_needs_one(self):
        rows = [row(key=b"a"), row(key=None)]
        assert validate(rows, **ANY_TIME).num_rows == 2
        for policy in ("compact", "compact,delete"):
            with pytest.raises(InvalidRecordError, match=r"1 of 2 records have no key") as caught:
                validate(rows, cleanup_policy=policy, **ANY_TIME)
            assert caught.value.record_indexes == (1,)
            assert validate(rows[:1], cleanup_policy=policy, **ANY_TIME).num_rows == 1


class TestSizes:
    @given(row_lists)
    def test_are_of_key_value_and_headers(self, rows):
        batch = record_batch(rows)
        assert record_sizes(batch).tolist() == [size_of(row) for row in rows]
        assert record_sizes(batch.slice(1)).tolist() == [size_of(row) for row in rows[1:]]

    def test_of_the_largest_record_decides_and_not_of_the_batch(self):
        rows = [row(b"v" * 600, b"k" * 400, [("h", b"x" * 99)]) for _ in range(10)]
        assert validate(rows, max_message_bytes=1_100, **ANY_TIME).num_rows == 10
        with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes") as caught:
            validate(rows, max_message_bytes=1_099, **ANY_TIME)
        assert (caught.value.size_bytes, caught.value.max_bytes) == (1_100, 1_099)

    def test_too_large_leave_nothing_in_the_log(self, memory_store):
        log = open_log(memory_store, max_message_bytes=100)
        with pytest.raises(RecordTooLargeError):
            log.append([numbered(0, 1), record_batch([row(b"v" * 101)])])
        assert file_names(memory_store) == []


class TestTimestamps:
    @pytest.mark.parametrize("time_us", [NOW_US - 5_000, NOW_US, NOW_US + 3_000])
    def test_near_enough_are_kept(self, time_us):
        limits = {"message_timestamp_before_max_ms": 5, "message_timestamp_after_max_ms": 3}
        (kept,) = rows_of(validate([row(timestamp=time_us)], **limits))
        assert kept["timestamp"] == time_us

    @pytest.mark.parametrize(
        ("time_us", "key"),
        [
            (NOW_US - 5_001, "message.timestamp.before.max.ms"),
            (NOW_US + 3_001, "message.timestamp.after.max.ms"),
        ],
    )
    def test_too_far_from_now_are_refused(self, time_us, key):
        limits = {"message_timestamp_before_max_ms": 5, "message_timestamp_after_max_ms": 3}
        with pytest.raises(InvalidTimestampError, match=key) as caught:
            validate([row(timestamp=NOW_US), row(timestamp=time_us)], **limits)
        assert (caught.value.timestamp_us, caught.value.record_indexes) == (time_us, (1,))

    def test_do_not_concern_a_record_without_a_timestamp(self):
        """It has -1 ms, as Kafka's clients send it (``LogValidator.validateTimestamp``)."""
        limits = {"message_timestamp_before_max_ms": 5}
        times_us = [NOW_US, -1_000, -1_000]
        kept = rows_of(validate([row(timestamp=each) for each in times_us], **limits))
        assert [each["timestamp"] for each in kept] == times_us
        with pytest.raises(InvalidTimestampError) as caught:
            validate([row(timestamp=each) for each in (-1_000, -1_001, NOW_US, -999)], **limits)
        assert (caught.value.timestamp_us, caught.value.record_indexes) == (-1_001, (1, 3))

    def test_of_last_year_are_taken_by_default_and_of_tomorrow_are_not(self):
        """Kafka's defaults: no limit before now, one hour after."""
        validate([row(timestamp=0)])
        validate([row(timestamp=NOW_US + 3_600_000_000)])
        with pytest.raises(InvalidTimestampError):
            validate([row(timestamp=NOW_US + 3_600_000_001)])

    def test_are_replaced_by_the_time_of_the_append_where_the_topic_says_so(
        self, memory_store, clock
    ):
        log = open_log(memory_store, clock=clock, message_timestamp_type="LogAppendTime")
        log.append(record_batch([row(b"a", timestamp=5), row(b"b", timestamp=2**60)]))
        clock.advance_ms(7)
        log.append(record_batch([row(b"c")]))
        assert values(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
        batches = list(log.scan(0))
        assert [batch.timestamp_type for batch in batches] == [1, 1]
        times_us = [row["timestamp"] for batch in batches for row in rows_of(batch.records)]
        assert times_us == [NOW_US, NOW_US, NOW_US + 7_000]
        assert log.offset_for_time(NOW_US + 1) == (2, NOW_US + 7_000)
