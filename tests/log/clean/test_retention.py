"""Retention: the cases of Kafka's UnifiedLogTest, on segments that were appended one by one."""

from dataclasses import replace

import pytest

from spark_log.config import TopicConfig
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.clean.retention import RetentionBreach, find_retention_breach
from spark_log.log.files.file_names import SegmentName
from spark_log.log.log_start import move_log_start
from spark_log.log.segment.summary import SegmentSummary
from spark_log.util.clock import ManualClock
from tests.log.support import file_names, open_log, values
from tests.record.samples import record_batch, row

NOW_MS = 1_700_000_000_000


def segments(*sizes_and_times_ms):
    return [
        SegmentSummary(SegmentName(at), at + 1, 1, size, None, NOW_MS * 1000 + time_ms * 1000)
        for at, (size, time_ms) in enumerate(sizes_and_times_ms)
    ]


def breach(found, *, ms=-1, size=-1, modified_us=None):
    config = TopicConfig(retention_ms=ms, retention_bytes=size)
    modified_us = [NOW_MS * 1000] * len(found) if modified_us is None else modified_us
    return find_retention_breach(
        found, config, NOW_MS * 1000, modified_us_of=modified_us.__getitem__
    )


class TestByTime:
    def test_older_segments_are_deleted_and_one_of_exactly_that_age_is_kept(self):
        found = segments((10, -1001), (10, -1000), (10, -1))
        assert breach(found, ms=1000) == RetentionBreach(by_time=1, log_start_offset=1)

    def test_all_segments_may_be_deleted(self):
        assert breach(segments((10, -20), (10, -11)), ms=10).log_start_offset == 2

    def test_young_segments_are_kept(self):
        assert breach(segments((10, -5), (10, -1)), ms=10) == RetentionBreach()

    def test_a_young_segment_keeps_the_segments_after_it(self):
        assert breach(segments((10, -50), (10, -5), (10, -50)), ms=10).log_start_offset == 1

    def test_a_timestamp_in_the_future_keeps_the_segment_and_is_reported(self):
        found = segments((10, 5000), (10, -50))
        assert breach(found, ms=10) == RetentionBreach(future_us=NOW_MS * 1000 + 5_000_000)
        assert breach(segments((10, -50), (10, 5000)), ms=10).future_us is not None

    @pytest.mark.parametrize("age_ms", [10, 11])
    @pytest.mark.parametrize("times_us", [(-1000, -1000), (-5, -(2**50))])
    def test_records_without_a_timestamp_have_that_of_their_file(self, age_ms, times_us):
        """As in Kafka (``LogSegment.largestTimestamp``): nothing would keep them otherwise."""
        found = [
            replace(each, max_timestamp_us=time_us)
            for each, time_us in zip(segments((10, 0), (10, 0)), times_us, strict=True)
        ]
        modified_us = [(NOW_MS - age_ms) * 1000, NOW_MS * 1000]
        expected = RetentionBreach(by_time=1, log_start_offset=1)
        found_breach = breach(found, ms=10, modified_us=modified_us)
        assert found_breach == (expected if age_ms > 10 else RetentionBreach())

    def test_retention_ms_of_zero_keeps_only_records_of_now(self):
        assert breach(segments((10, -1), (10, 0)), ms=0).log_start_offset == 1

    def test_retention_ms_of_minus_one_keeps_everything(self):
        assert breach(segments((10, -(10**12)))) == RetentionBreach()


class TestBySize:
    def test_the_oldest_segments_are_deleted_while_enough_is_left(self):
        found = segments((10, 0), (10, 0), (10, 0))
        assert breach(found, size=20) == RetentionBreach(by_size=1, log_start_offset=1)
        assert breach(found, size=21) == RetentionBreach()
        assert breach(found, size=19) == RetentionBreach(by_size=1, log_start_offset=1)

    def test_a_log_that_is_no_larger_stays(self):
        assert breach(segments((10, 0), (10, 0)), size=20) == RetentionBreach()
        assert breach(segments((10, 0), (10, 0)), size=200) == RetentionBreach()

    def test_a_large_segment_keeps_the_segments_after_it(self):
        assert breach(segments((10, 0), (100, 0), (1, 0)), size=50).log_start_offset == 1

    def test_retention_bytes_of_zero_keeps_nothing(self):
        assert breach(segments((10, 0), (10, 0)), size=0).log_start_offset == 2

    def test_segments_kept_by_size_may_be_deleted_by_time(self):
        found = segments((10, 0), (10, -50), (10, 0))
        assert breach(found, ms=10, size=20) == RetentionBreach(
            by_size=1, by_time=1, log_start_offset=2
        )


def test_an_empty_log_has_nothing_to_lose():
    assert breach([], ms=0, size=0) == RetentionBreach()


class TestOnTheLog:
    @pytest.fixture
    def clock(self):
        return ManualClock(NOW_MS * 1000)

    def log(self, store, clock, **settings):
        """Fifteen appends, 100 ms apart."""
        log = open_log(store, clock=clock, **settings)
        for _ in range(15):
            log.append(record_batch([row("test", timestamp=clock.time_us())]))
            clock.advance_ms(100)
        return log

    def test_the_start_moves_past_what_expired(self, memory_store, clock):
        log = self.log(memory_store, clock, retention_ms=1000)
        report = PartitionCleaner(log).clean()
        assert (report.expired_segments, report.log_start_offset) == (5, 5)
        assert [offset for offset, _ in values(open_log(memory_store))] == list(range(5, 15))

    def test_an_emptied_log_goes_on_where_it_ended(self, memory_store, clock):
        log = self.log(memory_store, clock, retention_ms=1000)
        clock.advance_ms(10_000)
        report = PartitionCleaner(log).clean()
        assert (report.log_start_offset, report.log_end_offset, report.segments) == (15, 15, 0)
        fresh = open_log(memory_store)
        assert fresh.append(record_batch([row("x")])).base_offset == 15
        assert values(fresh) == [(15, b"x")]

    def test_a_second_retention_deletes_nothing(self, memory_store, clock):
        log = self.log(memory_store, clock, retention_ms=1000)
        PartitionCleaner(log).clean()
        report = PartitionCleaner(open_log(memory_store, clock=clock, retention_ms=1000)).clean()
        assert (report.expired_segments, report.log_start_offset) == (0, 5)

    def test_retention_by_size_keeps_whole_segments(self, memory_store, clock):
        log = self.log(memory_store, clock, retention_ms=-1)
        size = log.observe().live.segments[0].file.size_bytes
        kept = open_log(memory_store, clock=clock, retention_ms=-1, retention_bytes=10 * size)
        assert PartitionCleaner(kept).clean().log_start_offset == 5

    def test_retention_begins_at_the_start_set_by_delete_records(self, memory_store, clock):
        log = self.log(memory_store, clock, retention_ms=1000)
        move_log_start(log, 9)
        report = PartitionCleaner(log).clean()
        assert (report.expired_segments, report.log_start_offset) == (0, 9)

    def test_a_plan_reports_retention_and_does_nothing(self, memory_store, clock):
        log = self.log(memory_store, clock, retention_ms=1000)
        before = file_names(memory_store)
        plan = PartitionCleaner(log).plan()
        assert (plan.expired_segments, plan.log_start_offset, plan.merged_segments) == (5, 5, 10)
        assert file_names(memory_store) == before
