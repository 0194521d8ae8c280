"""Planning of batch reads: the offsets that each task reads."""

import re
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan, StringStartsWith

from spark_log import (
    Admin,
    InvalidOptionError,
    OffsetOutOfRangeError,
    TopicPartition,
)
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.datasource.read.record_filter import RecordFilter
from spark_log.datasource.read.splits import plan_splits, splits_between
from spark_log.log import SegmentReader
from spark_log.storage.local import LocalStore
from tests.datasource.reading import (
    BASE_MS,
    create,
    fill,
    log_of,
    options_of,
    plan,
    ranges,
    records,
    retain_from,
)


@pytest.fixture
def root(tmp_path):
    url = str(tmp_path / "root")
    create(url, "t", 3)
    return url


def where(*filters):
    return RecordFilter.from_filters(filters)[0]


def at(second):
    return datetime.fromtimestamp(BASE_MS / 1000, UTC) + timedelta(seconds=second)


class TestRanges:
    LOOKED_AT: ClassVar = [["t-0", "t-1", "t-2"]]
    """The directories that planning lists."""

    def test_earliest_to_latest_one_split_for_each_partition_that_has_something(self, root):
        fill(root, "t", 0, range(10))
        fill(root, "t", 2, range(5), segments=5)
        expected = [("t-0", 0, 10), ("t-2", 0, 5)]
        assert ranges(plan(root)) == expected
        explicit = plan(root, startingOffsets="earliest", endingOffsets="latest")
        assert ranges(explicit) == expected

    def test_explicit_offsets_with_words_among_them(self, root):
        for number in range(3):
            fill(root, "t", number, range(10))
        splits = plan(
            root,
            startingOffsets='{"t":{"0":-2,"1":3,"2":0}}',
            endingOffsets='{"t":{"0":-1,"1":-1,"2":1}}',
        )
        assert ranges(splits) == [("t-0", 0, 10), ("t-1", 3, 10), ("t-2", 0, 1)]

    def test_times_on_both_sides(self, root):
        for number in range(3):
            fill(root, "t", number, range(100), segments=3)
        splits = plan(
            root, startingTimestamp=str(BASE_MS + 20_001), endingTimestamp=str(BASE_MS + 30_000)
        )
        assert ranges(splits) == [(f"t-{number}", 21, 30) for number in range(3)]

    def test_a_time_on_one_side_and_offsets_on_the_other(self, root):
        for number in range(3):
            fill(root, "t", number, range(30))
        times = f'{{"t":{{"0":{BASE_MS},"1":{BASE_MS},"2":{BASE_MS + 10_000}}}}}'
        offsets = '{"t":{"0":-1,"1":-1,"2":11}}'
        splits = plan(root, startingOffsetsByTimestamp=times, endingOffsets=offsets)
        assert ranges(splits) == [("t-0", 0, 30), ("t-1", 0, 30), ("t-2", 10, 11)]
        offsets = '{"t":{"0":-2,"1":0,"2":3}}'
        splits = plan(root, startingOffsets=offsets, endingOffsetsByTimestamp=times)
        assert ranges(splits) == [("t-2", 3, 10)]

    def test_a_log_that_starts_later_is_read_from_there(self, root):
        fill(root, "t", 0, range(20), segments=2)
        retain_from(root, 10, 10)
        assert ranges(plan(root)) == [("t-0", 10, 20)]

    def test_a_range_that_ends_before_it_starts_is_refused(self, root):
        fill(root, "t", 0, range(10))
        starts = '{"t":{"0":3,"1":0,"2":0}}'
        times = f'{{"t":{{"0":{BASE_MS + 1000},"1":0,"2":0}}}}'
        message = "t-0: the range starts at offset 3 and ends at 1, before its start"
        with pytest.raises(InvalidOptionError, match=re.escape(message)):
            plan(root, startingOffsets=starts, endingOffsetsByTimestamp=times)
        starts = '{"t":{"0":11,"1":0,"2":0}}'
        with pytest.raises(InvalidOptionError, match="starts at offset 11 and ends at 10, before"):
            plan(root, startingOffsets=starts)

    def test_each_partition_is_looked_at_once(self, root, monkeypatch):
        fill(root, "t", 0, range(10))
        looks = []
        real = LocalStore.list

        def noted(store, directory, start_after=None):
            looks.append(directory.rpartition("/")[2])
            return real(store, directory, start_after)

        monkeypatch.setattr(LocalStore, "list", noted)
        plan(root, minPartitions="5", endingTimestamp=str(BASE_MS + 5000))
        looked_at = sorted(each for each in looks if each.startswith("t-"))
        assert looked_at in self.LOOKED_AT


class TestDataLoss:
    """Offsets to read that do not exist: an error, or a read of the existing records."""

    def test_offsets_below_what_is_retained(self, root):
        fill(root, "t", 0, range(20), segments=2)
        retain_from(root, 10, 10)
        starts = '{"t":{"0":4,"1":0,"2":0}}'
        with pytest.raises(OffsetOutOfRangeError) as raised:
            plan(root, startingOffsets=starts)
        assert "t-0: offset 4 is out of range; the log holds 10 to 19" in str(raised.value)
        assert "failOnDataLoss=false" in str(raised.value)
        assert raised.value.log_start_offset == 10
        lenient = plan(root, startingOffsets=starts, failOnDataLoss="false")
        assert ranges(lenient) == [("t-0", 10, 20)]

    def test_offsets_beyond_the_end(self, root):
        fill(root, "t", 0, range(20))
        ends = '{"t":{"0":50,"1":0,"2":0}}'
        with pytest.raises(OffsetOutOfRangeError, match="offset 50 is out of range") as raised:
            plan(root, endingOffsets=ends)
        assert "failOnDataLoss=false" in str(raised.value)
        lenient = plan(root, endingOffsets=ends, failOnDataLoss="false")
        assert ranges(lenient) == [("t-0", 0, 20)]

    def test_a_whole_range_below_what_is_retained_leaves_nothing(self, root):
        fill(root, "t", 0, range(20), segments=2)
        retain_from(root, 10, 10)
        splits = plan(
            root,
            startingOffsets='{"t":{"0":2,"1":0,"2":0}}',
            endingOffsets='{"t":{"0":5,"1":0,"2":0}}',
            failOnDataLoss="false",
        )
        assert splits == []


class TestCutting:
    def test_minimum_of_tasks(self, root):
        fill(root, "t", 0, range(1000))
        fill(root, "t", 1, range(40))
        splits = plan(root, minPartitions="6")
        assert len(splits) == 6
        sizes = [split.end_offset - split.start_offset for split in splits]
        assert sum(sizes) == 1040
        assert max(sizes) <= 1.5 * sum(sizes) / 6

    def test_most_offsets_of_a_task(self, root):
        fill(root, "t", 0, range(25))
        splits = plan(root, maxRecordsPerPartition="10")
        assert ranges(splits) == [("t-0", 0, 8), ("t-0", 8, 16), ("t-0", 16, 25)]

    def test_splits_begin_where_segments_begin(self, root):
        fill(root, "t", 0, range(1000), segments=10)
        begins = {split.start_offset for split in plan(root, minPartitions="3")}
        assert len(begins) == 3
        assert begins < set(range(0, 1000, 100))

    def test_nothing_is_looked_at_for_a_micro_batch_that_need_not_be_cut(self, root, monkeypatch):
        reader = OffsetReader(options_of(root, minPartitions="1"))
        tp = TopicPartition("t", 0)
        monkeypatch.setattr(OffsetReader, "_observe", None)
        assert ranges(splits_between(reader, {tp: 5}, {tp: 9})) == [("t-0", 5, 9)]

    def test_partitions_of_one_side_only_are_left_out(self, root):
        reader = OffsetReader(options_of(root))
        first, second = TopicPartition("t", 0), TopicPartition("t", 1)
        assert splits_between(reader, {first: 0}, {second: 5}) == []


class TestFilters:
    def test_on_partition_and_topic_leave_partitions_out(self, root):
        create(root, "other", 1)
        for number in range(3):
            fill(root, "t", number, range(10))
        fill(root, "other", 0, range(10))
        options = options_of(root, subscribe="t,other")
        splits = plan_splits(options, where(In(("partition",), (0, 2))))
        assert [name for name, _, _ in ranges(splits)] == ["other-0", "t-0", "t-2"]
        splits = plan_splits(options, where(StringStartsWith(("topic",), "oth")))
        assert ranges(splits) == [("other-0", 0, 10)]

    def test_on_offsets_cut_ranges(self, root):
        fill(root, "t", 0, range(100))
        options = options_of(root)
        splits = plan_splits(
            options, where(GreaterThanOrEqual(("offset",), 30), LessThan(("offset",), 50))
        )
        assert ranges(splits) == [("t-0", 30, 50)]
        assert plan_splits(options, where(EqualTo(("offset",), 100))) == []

    def test_on_times_leave_segments_out_that_have_none(self, root):
        fill(root, "t", 0, range(100), segments=10)
        log_of(root).replica.snapshots.write()
        splits = plan_splits(
            options_of(root),
            where(GreaterThanOrEqual(("timestamp",), at(35)), LessThan(("timestamp",), at(52))),
        )
        (split,) = splits
        assert split.start_offset == 30
        assert split.times_us.low == (BASE_MS + 35_000) * 1000

    def test_on_times_leave_later_segments_out_where_their_least_is_known(self, root):
        """The snapshot that the appender writes contains the smallest timestamp."""
        configs = {"snapshot.interval.segments": 10, "merge.tail.segments": 0}
        create(root, "known", 1, **configs)
        log = log_of(root, "known")
        for number in range(10):
            log.append(records(range(number * 10, number * 10 + 10)))
        assert log.observe().live.snapshots
        splits = plan_splits(
            options_of(root, subscribe="known"),
            where(GreaterThanOrEqual(("timestamp",), at(35)), LessThan(("timestamp",), at(52))),
        )
        assert ranges(splits) == [("known-0", 30, 60)]

    def test_on_times_open_few_segments(self, root, monkeypatch):
        fill(root, "t", 0, range(100), segments=50)
        opened = []
        real = SegmentReader.__init__

        def noted(self, *args, **kwargs):
            opened.append(args[1])
            real(self, *args, **kwargs)

        monkeypatch.setattr(SegmentReader, "__init__", noted)
        options = options_of(root, assign='{"t":[0]}')
        splits = plan_splits(options, where(LessThan(("timestamp",), at(-1))))
        assert len(splits) == 1  # the task skips the other records
        assert len([each for each in opened if each.endswith("/t-0")]) < 5


def test_a_deleted_topic_is_told_from_one_created_anew(root):
    fill(root, "t", 0, range(10))
    (before,) = plan(root)
    Admin(root).delete_topics(["t"])
    create(root, "t", 3)
    fill(root, "t", 0, range(10))
    (after,) = plan(root)
    assert before.topic_id != after.topic_id
    assert before.directory != after.directory
