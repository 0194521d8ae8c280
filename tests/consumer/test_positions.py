"""Positions: seeking, resetting, pausing, and looking up offsets."""

import pytest

from spark_log import (
    Consumer,
    IllegalStateError,
    InvalidConfigurationError,
    NoOffsetForPartitionError,
    OffsetAndTimestamp,
    OffsetOutOfRangeError,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from spark_log.log.files.file_names import StartMarker
from spark_log.util.clock import ManualClock
from tests.consumer.support import (
    PATIENCE_MS,
    T0,
    THREE,
    append,
    log_of,
    numbered,
    poll_until,
    read_values,
    values_of,
)

HOUR_US = 3_600_000_000


def delete_before(root, offset):
    """Move the log start offset to the first offset of a segment, as delete-records does first."""
    log = log_of(root)
    log.files.store.put_if_absent(f"{log.directory}/{StartMarker(offset, offset).name}", b"")


class TestSeeking:
    def test_goes_to_any_offset(self, root, open_consumer):
        for start in range(0, 30, 10):
            append(root, numbered(start, start + 10))
        consumer = open_consumer("t")
        read_values(consumer, 30)
        for offset in (29, 0, 15, 10):
            consumer.seek(T0, offset)
            assert consumer.position(T0) == offset
            assert consumer.poll(PATIENCE_MS, max_records=1)[T0][0].offset == offset

    def test_to_the_beginning_and_to_the_end(self, root, open_consumer):
        append(root, numbered(0, 5))
        consumer = open_consumer("t")
        read_values(consumer, 5)
        consumer.seek_to_beginning()
        assert consumer.position(T0) == 0
        consumer.seek_to_end(T0)
        append(root, numbered(5, 6))
        consumer.seek_to_end(T0)
        assert consumer.position(T0) == 6
        append(root, numbered(6, 7))
        assert read_values(consumer, 1) == [b"6"]

    def test_drops_what_was_fetched_ahead(self, root, open_consumer):
        append(root, numbered(0, 1000))
        consumer = open_consumer("t")
        consumer.poll(PATIENCE_MS, max_records=10)
        consumer.seek(T0, 500)
        assert values_of(consumer.poll(PATIENCE_MS, max_records=2)) == numbered(500, 502)

    @pytest.mark.parametrize(
        ("partition", "offset", "error"),
        [
            (T0, -1, ValueError),
            (T0, "5", TypeError),
            (T0, True, TypeError),
            (("t", 0), 5, TypeError),
            (THREE[0], 5, IllegalStateError),
        ],
    )
    def test_to_what_cannot_be_is_refused(self, open_consumer, partition, offset, error):
        consumer = open_consumer()
        consumer.assign([T0])
        with pytest.raises(error):
            consumer.seek(partition, offset)

    def test_of_nothing_is_refused(self, open_consumer):
        with pytest.raises(IllegalStateError):
            open_consumer("t").seek_to_end()


class TestReset:
    def test_begins_at_the_end_by_default(self, root):
        append(root, numbered(0, 5))
        with Consumer("t", root=root) as consumer:
            assert consumer.poll(timeout_ms=1) == {}
            append(root, numbered(5, 6))
            assert read_values(consumer, 1) == [b"5"]

    def test_by_duration_begins_at_the_first_record_that_is_no_older(self, root, open_consumer):
        clock = ManualClock()
        now_us = clock.time_us()
        append(root, numbered(0, 3), times_us=[now_us - hours * HOUR_US for hours in (3, 1, 0)])
        consumer = open_consumer(clock=clock, auto_offset_reset="by_duration:PT1H")
        consumer.assign([T0])
        assert consumer.position(T0) == 1

    def test_by_duration_begins_at_the_end_where_all_is_older(self, root, open_consumer):
        append(root, numbered(0, 3), times_us=[0, 0, 0])
        consumer = open_consumer(auto_offset_reset="by_duration:PT1H")
        consumer.assign([T0])
        assert consumer.position(T0) == 3

    def test_none_is_an_error_that_names_the_partition(self, open_consumer):
        consumer = open_consumer("t", auto_offset_reset="none")
        with pytest.raises(NoOffsetForPartitionError, match="t-0") as caught:
            consumer.poll(PATIENCE_MS)
        assert (caught.value.topic, caught.value.partition) == ("t", 0)

    def test_none_lets_one_seek(self, root, open_consumer):
        append(root, numbered(0, 3))
        consumer = open_consumer(auto_offset_reset="none")
        consumer.assign([T0])
        consumer.seek(T0, 1)
        assert read_values(consumer, 2) == numbered(1, 3)

    @pytest.mark.parametrize("wrong", ["first", "by_duration:1h", "by_duration:-PT1H", ""])
    def test_of_another_kind_is_refused(self, root, wrong):
        with pytest.raises(InvalidConfigurationError, match="earliest, latest, none, by_duration"):
            Consumer(root=root, auto_offset_reset=wrong)


class TestOutOfRange:
    @pytest.mark.partition_logs_only("deletes files of a partition")
    def test_goes_on_by_the_policy_when_retention_passed_the_position(self, root, open_consumer):
        append(root, numbered(0, 5))
        append(root, numbered(5, 8))
        delete_before(root, 5)
        consumer = open_consumer()
        consumer.assign([T0])
        consumer.seek(T0, 2)
        assert read_values(consumer, 3) == numbered(5, 8)

    def test_goes_to_the_end_with_latest(self, root, open_consumer):
        append(root, numbered(0, 5))
        consumer = open_consumer(auto_offset_reset="latest")
        consumer.assign([T0])
        consumer.seek(T0, 99)
        assert consumer.poll(timeout_ms=50) == {}
        assert consumer.position(T0) == 5

    def test_is_an_error_with_none_until_one_seeks(self, root, open_consumer):
        append(root, numbered(0, 5))
        consumer = open_consumer(auto_offset_reset="none")
        consumer.assign([T0])
        consumer.seek(T0, 99)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                consumer.poll(PATIENCE_MS)
        assert (caught.value.offset, caught.value.log_end_offset) == (99, 5)
        consumer.seek(T0, 3)
        assert read_values(consumer, 2) == numbered(3, 5)


class TestPausing:
    def test_holds_back_what_was_fetched_and_gives_it_later(self, root, open_consumer):
        for partition in THREE[:2]:
            append(root, numbered(0, 10), to=partition)
        consumer = open_consumer("three")
        poll_until(consumer, 2, max_records=1)
        consumer.pause(THREE[0])
        assert consumer.paused() == {THREE[0]}
        given = []
        while records := consumer.poll(timeout_ms=100):
            given += records
        assert THREE[0] not in given
        consumer.resume(THREE[0])
        assert consumer.paused() == set()
        before = consumer.position(THREE[0])
        assert read_values(consumer, 10 - before, THREE[0]) == numbered(before, 10)

    def test_all_does_not_keep_others_from_memory(self, root, open_consumer):
        append(root, [b"x" * 5000] * 10, to=THREE[0])
        append(root, [b"x" * 5000] * 10, to=THREE[1])
        consumer = open_consumer("three", fetch_max_bytes=1)
        first = next(iter(consumer.poll(PATIENCE_MS, max_records=1)))
        consumer.pause(first)
        (other,) = {THREE[0], THREE[1]} - {first}
        assert len(read_values(consumer, 10, other)) == 10

    def test_a_seek_while_paused_counts_after_it(self, root, open_consumer):
        append(root, numbered(0, 10))
        consumer = open_consumer()
        consumer.assign([T0])
        consumer.pause(T0)
        consumer.seek(T0, 8)
        assert consumer.poll(timeout_ms=20) == {}
        consumer.resume(T0)
        assert read_values(consumer, 2) == numbered(8, 10)

    def test_what_is_not_assigned_is_refused(self, open_consumer):
        with pytest.raises(IllegalStateError, match="not assigned"):
            open_consumer("t").pause(T0)


class TestLookingUp:
    def test_ends_and_lag(self, root, open_consumer):
        append(root, numbered(0, 5))
        append(root, numbered(5, 8))
        delete_before(root, 5)
        consumer = open_consumer()
        consumer.assign([T0, THREE[0]])
        assert consumer.beginning_offsets([T0, THREE[0]]) == {T0: 5, THREE[0]: 0}
        assert consumer.end_offsets([T0]) == {T0: 8}
        assert consumer.lag() == {T0: 3, THREE[0]: 0}
        consumer.seek(T0, 7)
        assert consumer.lag(T0) == {T0: 1}
        consumer.seek(T0, 2)
        assert consumer.lag(T0) == {T0: 3}, "what was deleted cannot be read"
        consumer.seek(T0, 9)
        assert consumer.lag(T0) == {T0: 0}, "never negative"

    def test_times(self, root, open_consumer):
        append(root, numbered(0, 3), times_us=[1_000_000, 3_000_500, 2_000_000])
        found = open_consumer().offsets_for_times({T0: 2_000, THREE[0]: 0})
        assert found == {T0: OffsetAndTimestamp(1, 3_000, 0), THREE[0]: None}
        assert open_consumer().offsets_for_times({T0: 4_000}) == {T0: None}

    def test_of_what_is_not_there_is_an_error(self, open_consumer):
        consumer = open_consumer()
        with pytest.raises(UnknownTopicOrPartitionError, match="partition 7"):
            consumer.end_offsets([TopicPartition("t", 7)])
        with pytest.raises(UnknownTopicOrPartitionError, match="did you mean three"):
            consumer.offsets_for_times({TopicPartition("thre", 0): 5})
        with pytest.raises(ValueError, match="negative"):
            consumer.offsets_for_times({T0: -1})
