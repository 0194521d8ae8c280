"""Starts and ends of micro-batches, without Spark: the tests make Spark's calls."""

import json
import logging
import shutil
from collections import Counter
from types import SimpleNamespace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from spark_log import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    DataLossError,
    InvalidOptionError,
    NewTopic,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from spark_log.cluster import Cluster
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.datasource.stream.lag import PartitionLag, lag_of
from spark_log.datasource.stream.log_poller import POLL_INTERVAL_MS
from spark_log.datasource.stream.stream_offset import StreamOffset
from spark_log.log.read.probe_interval import REST_MS
from spark_log.util.clock import ManualClock
from tests.datasource.streams import (
    BASE_US,
    add_partitions,
    append,
    at,
    batches,
    create_again,
    delete_records,
    topic_id,
)
from tests.store_calls import counted_calls

ALL = ReadAllAvailable()


class ClockThatSleeps(ManualClock):
    """A clock that a sleep advances."""

    def __init__(self):
        super().__init__()
        self.slept_ms = 0.0

    def sleep_ms(self, duration_ms):
        self.slept_ms += duration_ms
        self.advance_ms(duration_ms)


@pytest.fixture
def root(tmp_path):
    """A root with the topic ``t``, which has two partitions."""
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", num_partitions=2)])
    return url


@pytest.fixture
def later(clock):
    """Advance the clock so far that every listing and poll is repeated."""
    return lambda: clock.advance_ms(POLL_INTERVAL_MS)


def forgetful(root, clock, limit=ALL):
    """Return a planner after one batch whose listings have expired, and that batch's end."""
    planned = batches(root, clock)
    start = planned.next_end(planned.initial(), limit)
    clock.advance_ms(POLL_INTERVAL_MS + 60_000)  # file.delete.delay.ms
    return planned, start


def ranges(splits):
    return [(each.topic, each.partition, each.start_offset, each.end_offset) for each in splits]


class TestAQueryStarts:
    def test_at_the_earliest_offsets(self, root, clock):
        append(root, "t", 0, range(5))
        planned = batches(root, clock)
        assert planned.initial() == at(root, 0, 0)
        assert planned.next_end(planned.initial(), ALL) == at(root, 5, 0)

    @pytest.mark.parametrize(
        "options", [{"startingOffsets": "latest"}, {"startingOffsets": '{"t":{"0":-1,"1":-1}}'}]
    )
    def test_at_the_end_which_stays_where_it_was_whatever_comes(self, root, clock, later, options):
        append(root, "t", 0, range(5))
        planned = batches(root, clock, **options)
        start = planned.initial()
        append(root, "t", 0, range(5))
        later()
        assert planned.initial() == start == at(root, 5, 0)
        assert planned.next_end(start, ALL) == at(root, 10, 0)

    def test_at_the_end_by_default(self, root, clock):
        append(root, "t", 0, range(5))
        planned = batches(root, clock, startingOffsets="latest")
        assert planned.initial() == at(root, 5, 0)

    def test_at_given_offsets(self, root, clock):
        append(root, "t", 0, range(5))
        append(root, "t", 1, range(5))
        planned = batches(root, clock, startingOffsets='{"t":{"0":3,"1":-2}}')
        assert planned.initial() == at(root, 3, 0)
        assert planned.next_end(at(root, 3, 0), ALL) == at(root, 5, 5)

    def test_at_a_time(self, root, clock):
        append(root, "t", 0, range(5))
        append(root, "t", 1, range(5))
        time_ms = str(BASE_US // 1000 + 2_500)
        assert batches(root, clock, startingTimestamp=time_ms).initial() == at(root, 3, 3)

    def test_not_on_a_topic_that_does_not_exist(self, root, clock):
        with pytest.raises(UnknownTopicOrPartitionError, match="did you mean t"):
            batches(root, clock, subscribe="tt").initial()
        with pytest.raises(UnknownTopicOrPartitionError, match="did you mean t"):
            batches(root, clock, subscribe="tt").next_end(StreamOffset({}), ALL)

    def test_on_a_pattern_that_nothing_matches_yet(self, root, clock, later):
        planned = batches(root, clock, subscribePattern="u.*")
        assert planned.initial() == planned.next_end(planned.initial(), ALL) == StreamOffset({})
        Admin(root).create_topics([NewTopic("u1")])
        append(root, "u1", 0, range(3))
        later()
        assert planned.next_end(StreamOffset({}), ALL) == at(root, 3, topic="u1")

    def test_beyond_the_end_and_fails(self, root, clock):
        planned = batches(root, clock, startingOffsets='{"t":{"0":3,"1":0}}')
        with pytest.raises(
            DataLossError, match="t-0 ends at offset 0, but it was read up to offset 3"
        ):
            planned.next_end(planned.initial(), ALL)

    def test_again_on_its_first_batch_at_an_end_that_has_moved(self, root, clock):
        """A crash between the checkpoint's first offset and its commit: the batch runs again."""
        append(root, "t", 0, range(5))
        first_batch = at(root, 5, 0)
        append(root, "t", 0, range(3))
        planned = batches(root, clock, startingOffsets="latest")
        assert planned.splits(planned.initial(), first_batch) == []
        assert planned.next_end(first_batch, ALL) == at(root, 8, 0), "no record was skipped"

    def test_again_on_its_first_batch_and_then_reads_what_there_is(self, root, clock):
        append(root, "t", 1, range(3))
        planned = batches(root, clock, startingOffsets='{"t":{"0":-1,"1":-2}}')
        planned.prepare_available_now()
        start = planned.initial()
        assert planned.splits(start, start) == []
        assert planned.next_end(start, ALL) == at(root, 0, 3)


class TestTheFirstBatchRunAgainByAnotherProcess:
    """A crash between the first offset in the checkpoint and its commit."""

    def crashed(self, root, clock, **options):
        """Plan a first batch; return its end as Spark stores it."""
        planned = batches(root, clock, **options)
        end = planned.next_end(planned.initial(), ALL)
        return StreamOffset.from_document(json.loads(json.dumps(end.to_document())))

    def test_begins_where_it_began(self, root, clock, later):
        append(root, "t", 0, range(5))
        before = batches(root, clock, startingOffsets="latest")
        before.initial()
        append(root, "t", 0, range(3))
        later()
        end = before.next_end(before.initial(), ALL)
        append(root, "t", 0, range(2))
        planned = batches(root, clock, startingOffsets="latest")
        assert planned.initial() == at(root, 10, 0)
        assert ranges(planned.splits(planned.initial(), end)) == [("t", 0, 5, 8)]
        assert planned.next_end(end, ALL) == at(root, 10, 0)

    def test_raises_the_alarm_where_its_records_are_gone(self, root, clock):
        append(root, "t", 0, range(10))
        end = self.crashed(root, clock)
        delete_records(root, "t", 0, 5, 0)
        planned = batches(root, clock)
        assert planned.initial() == at(root, 5, 0), "which would hide the lost records"
        with pytest.raises(DataLossError, match="offsets 0 to 4 are not retained any more"):
            planned.splits(planned.initial(), end)

    def test_or_reads_what_there_is_and_says_so(self, root, clock, caplog):
        append(root, "t", 0, range(10))
        end = self.crashed(root, clock)
        delete_records(root, "t", 0, 5, 0)
        planned = batches(root, clock, failOnDataLoss="false")
        assert ranges(planned.splits(planned.initial(), end)) == [("t", 0, 5, 10)]
        assert "offsets 0 to 4 are not retained any more" in caplog.text

    def test_reads_a_topic_from_its_beginning_that_was_not_there_at_the_start(self, root, clock):
        before = batches(root, clock, subscribePattern="u.*", startingOffsets="latest")
        start = before.initial()
        Admin(root).create_topics([NewTopic("u1")])
        append(root, "u1", 0, range(3))
        end = StreamOffset.from_document(before.next_end(start, ALL).to_document())
        planned = batches(root, clock, subscribePattern="u.*", startingOffsets="latest")
        assert planned.initial() == at(root, 3, topic="u1")
        assert ranges(planned.splits(planned.initial(), end)) == [("u1", 0, 0, 3)]

    def test_is_not_mistaken_for_the_second_one(self, root, clock):
        end = self.crashed(root, clock)  # an empty batch
        append(root, "t", 0, range(4))
        planned = batches(root, clock)
        assert planned.splits(planned.initial(), end) == []
        second = planned.next_end(end, ALL)
        assert second.batch_starts is None
        assert ranges(planned.splits(end, second)) == [("t", 0, 0, 4)]
        assert not planned.is_initial(end)


class TestABatch:
    def test_is_read_by_one_task_for_each_partition_that_has_something(self, root, clock):
        append(root, "t", 0, range(5))
        planned = batches(root, clock)
        assert ranges(planned.splits(at(root, 1, 0), at(root, 4, 0))) == [("t", 0, 1, 4)]
        assert planned.splits(at(root, 4, 0), at(root, 4, 0)) == []

    def test_is_cut_into_more_tasks_when_that_is_asked_for(self, root, clock):
        append(root, "t", 0, range(10))
        for options in ({"minPartitions": "5"}, {"maxRecordsPerPartition": "2"}):
            splits = batches(root, clock, **options).splits(at(root, 0, 0), at(root, 10, 0))
            assert len(splits) == 5
            assert sum(end - start for *_, start, end in ranges(splits)) == 10

    def test_takes_the_most_that_is_allowed(self, root, clock):
        append(root, "t", 0, range(50))
        append(root, "t", 1, range(20))
        planned = batches(root, clock, maxOffsetsPerTrigger="30")
        assert planned.next_end(at(root, 0, 0), ReadMaxRows(30)) == at(root, 21, 8)

    def test_takes_everything_when_spark_says_so_whatever_the_options(self, root, clock):
        append(root, "t", 0, range(50))
        planned = batches(root, clock, maxOffsetsPerTrigger="30", minOffsetsPerTrigger="20")
        planned.next_end(at(root, 0, 0), ALL)
        append(root, "t", 1, range(2))
        clock.advance_ms(POLL_INTERVAL_MS)
        assert planned.next_end(at(root, 0, 0), ALL) == at(root, 50, 2)

    def test_waits_for_the_least(self, root, clock):
        append(root, "t", 0, range(16))
        planned = batches(root, clock, minOffsetsPerTrigger="15", maxTriggerDelay="5s")
        start = planned.next_end(at(root, 0, 0), ReadMinRows(15))
        assert start == at(root, 16, 0), "the first batch is not delayed"
        append(root, "t", 1, range(6))
        clock.advance_ms(POLL_INTERVAL_MS)
        assert planned.next_end(start, ReadMinRows(15)) == start
        append(root, "t", 0, range(9))
        clock.advance_ms(POLL_INTERVAL_MS)
        start = planned.next_end(start, ReadMinRows(15))
        assert start == at(root, 25, 6)
        append(root, "t", 1, range(1))
        clock.advance_ms(4_999)
        assert planned.next_end(start, ReadMinRows(15)) == start
        clock.advance_ms(1)
        assert planned.next_end(start, ReadMinRows(15)) == at(root, 25, 7)

    def test_waits_for_the_least_and_then_takes_the_most(self, root, clock):
        append(root, "t", 0, range(21))
        append(root, "t", 1, range(11))
        planned = batches(root, clock, minOffsetsPerTrigger="15", maxOffsetsPerTrigger="20")
        limit = ReadMaxRows(20)
        start = planned.next_end(at(root, 0, 0), limit)
        assert start == at(root, 13, 6)
        assert planned.next_end(start, limit) == start, "13 offsets are fewer than 15"
        append(root, "t", 1, range(20))
        clock.advance_ms(POLL_INTERVAL_MS)
        assert planned.next_end(start, limit) == at(root, 17, 21)

    def test_of_control_records_and_gaps_counts_offsets(self, root, clock):
        planned = batches(root, clock, maxOffsetsPerTrigger="10")
        append(root, "t", 0, range(100))
        assert planned.next_end(at(root, 95, 0), ReadMaxRows(10)) == at(root, 100, 0)


class TestNewPartitions:
    def test_are_read_from_their_beginning(self, root, clock, later):
        append(root, "t", 0, range(5))
        planned = batches(root, clock)
        start = planned.next_end(planned.initial(), ALL)
        add_partitions(root, "t", 3)
        append(root, "t", 2, range(7))
        end = planned.next_end(start, ALL)
        assert end == at(root, 5, 0, 7)
        assert ranges(planned.splits(start, end)) == [("t", 2, 0, 7)]

    def test_share_the_most_with_the_others(self, root, clock, later):
        append(root, "t", 0, range(50))
        planned = batches(root, clock, maxOffsetsPerTrigger="30")
        planned.next_end(at(root, 0, 0), ALL)
        add_partitions(root, "t", 3)
        append(root, "t", 2, range(20))
        later()
        assert planned.next_end(at(root, 0, 0), ReadMaxRows(30)) == at(root, 21, 0, 8)

    def test_are_those_of_a_new_topic_that_the_pattern_matches(self, root, clock, later):
        planned = batches(root, clock, subscribePattern="^[tu]$")
        start = planned.next_end(planned.initial(), ALL)
        Admin(root).create_topics([NewTopic("u"), NewTopic("v")])
        append(root, "u", 0, range(2))
        later()
        end = planned.next_end(start, ALL)
        assert end.offsets == {**start.offsets, TopicPartition("u", 0): 2}
        assert end.topic_ids["u"] == topic_id(root, "u")

    def test_that_begin_late_may_have_lost_records(self, root, clock, caplog):
        append(root, "t", 0, range(5))
        append(root, "t", 1, range(5))
        delete_records(root, "t", 1, 2, 0)
        start = StreamOffset({TopicPartition("t", 0): 5}, at(root).topic_ids)
        with pytest.raises(DataLossError, match="t-1 starts at offset 2 instead of 0"):
            batches(root, clock).splits(start, at(root, 5, 5))
        lenient = batches(root, clock, failOnDataLoss="false")
        assert ranges(lenient.splits(start, at(root, 5, 5))) == [("t", 1, 2, 5)]
        assert "t-1 starts at offset 2 instead of 0" in caplog.text


class TestAssignedPartitions:
    def test_are_all_that_is_read_even_when_there_are_more(self, root, clock, later):
        planned = batches(root, clock, assign='{"t":[1]}')
        start = planned.initial()
        assert start.offsets == {TopicPartition("t", 1): 0}
        add_partitions(root, "t", 3)
        append(root, "t", 2, range(7))
        later()
        assert planned.next_end(start, ALL) == start

    def test_that_another_run_read_may_not_just_vanish(self, root, clock):
        append(root, "t", 0, range(5))
        with pytest.raises(DataLossError, match="t-0: deleted, or excluded by the query"):
            batches(root, clock, assign='{"t":[1]}').next_end(at(root, 5, 0), ALL)


class TestALook:
    """Spark asks again after 10 ms, and ``processAllAvailable`` depends on the answer."""

    @pytest.fixture
    def far_away(self, monkeypatch):
        """Make the root look like one on an object store, where a poll costs requests."""
        monkeypatch.setattr(OffsetReader, "is_local", False)

    @pytest.fixture
    def clock(self):
        return ClockThatSleeps()

    def test_sees_whatever_was_acknowledged_before_it_was_asked_for(self, root, clock):
        planned = batches(root, clock)
        start = planned.next_end(planned.initial(), ALL)
        for number in range(1, 50):  # no time passes
            append(root, "t", 1, [number])
            start = planned.next_end(start, ALL)
            assert start == at(root, 0, number)
            assert planned.next_end(start, ALL) is start
        add_partitions(root, "t", 3)
        append(root, "t", 2, range(3))
        assert planned.next_end(start, ALL) == at(root, 0, 49, 3)

    def test_waits_where_looks_cost_and_sees_as_much(self, root, clock, far_away):
        planned = batches(root, clock)
        start = planned.next_end(planned.initial(), ALL)
        assert clock.slept_ms == 0
        for number in range(1, 5):
            append(root, "t", 1, [number])
            start = planned.next_end(start, ALL)
            assert start == at(root, 0, number)
            assert clock.slept_ms == number * POLL_INTERVAL_MS
        add_partitions(root, "t", 3)
        append(root, "t", 2, range(3))
        assert planned.next_end(start, ALL) == at(root, 0, 4, 3)

    def test_is_not_waited_for_while_there_is_something_to_read(self, root, clock, far_away):
        append(root, "t", 0, range(20))
        planned = batches(root, clock, maxOffsetsPerTrigger="5")
        end = planned.initial()
        for _ in range(4):
            end = planned.next_end(end, ReadMaxRows(5))
        assert end == at(root, 20, 0)
        assert clock.slept_ms == 0
        assert planned.next_end(end, ReadMaxRows(5)) is end
        assert clock.slept_ms == POLL_INTERVAL_MS, "before the answer that there are no new records"

    def test_takes_a_fifth_of_the_time_at_most(self, root, clock, monkeypatch):
        planned = batches(root, clock)
        start = planned.next_end(planned.initial(), ALL)
        latest = OffsetReader.latest
        monkeypatch.setattr(
            OffsetReader, "latest", lambda *args: (clock.advance_ms(40), latest(*args))[1]
        )
        for _ in range(11):
            planned.next_end(start, ALL)
        assert clock.slept_ms == pytest.approx(10 * 160)

    def test_costs_one_probe_for_metadata_and_each_partition(self, root, clock):
        append(root, "t", 0, range(5))
        planned = batches(root, clock)
        start = planned.next_end(planned.initial(), ALL)
        by_place, questions = wait(planned, clock, start, 11_000)
        assert questions == pytest.approx(1_000, abs=1)
        assert set(by_place) == {"t-0", "t-1", "metadata"}
        assert all(count == pytest.approx(1_000, abs=2) for count in by_place.values())


def wait(planned, clock, start, duration_ms):
    """Ask as Spark does, without new records; return the requests by place, and the questions."""
    until_ms = clock.monotonic_ms() + duration_ms
    questions = 0
    with counted_calls() as calls:
        while clock.monotonic_ms() < until_ms:
            clock.advance_ms(11)
            assert planned.next_end(start, ALL) is start
            planned.latest()
            questions += 1
    by_place: Counter[str] = Counter()
    for (operation, directory), count in calls.items():
        place = directory.rpartition("/")[2]
        assert operation != "list"
        by_place["metadata" if "metadata" in directory else place] += count
    return by_place, questions


class TestALookAtAnObjectStore:
    """Each look costs requests, so a query without records looks once a second."""

    @pytest.fixture(autouse=True)
    def _far_away(self, monkeypatch):
        monkeypatch.setattr(OffsetReader, "is_local", False)

    @pytest.fixture
    def clock(self):
        return ClockThatSleeps()

    @pytest.fixture
    def resting(self, root, clock):
        """Return a planner whose partitions are at rest, and the end of its last batch."""

        def resting(**options):
            append(root, "t", 0, range(5))
            planned = batches(root, clock, **options)
            start = planned.next_end(planned.initial(), ALL)
            wait(planned, clock, start, REST_MS)
            return planned, start

        return resting

    def test_comes_eight_times_a_second_in_the_first_seconds(self, root, clock):
        append(root, "t", 0, range(5))
        planned = batches(root, clock)
        start = planned.next_end(planned.initial(), ALL)
        by_place, _ = wait(planned, clock, start, 4_900)
        assert by_place == {place: pytest.approx(39, abs=1) for place in ("t-0", "t-1", "metadata")}

    def test_costs_one_request_a_second_for_each_partition_at_rest(self, clock, resting):
        planned, start = resting()
        by_place, _ = wait(planned, clock, start, 10_000)
        assert by_place == {place: pytest.approx(10, abs=1) for place in ("t-0", "t-1", "metadata")}

    def test_finds_the_first_record_after_a_rest_within_a_second(self, root, clock, resting):
        planned, start = resting()
        for number in range(1, 4):
            append(root, "t", 1, [number])
            began_ms = clock.monotonic_ms()
            start = planned.next_end(start, ALL)
            assert start == at(root, 5, number)
            assert clock.monotonic_ms() - began_ms <= 1_000
            wait(planned, clock, start, 2 * REST_MS + 333 * number)

    def test_is_as_quick_as_before_for_the_next_records(self, root, clock, resting):
        planned, start = resting()
        append(root, "t", 1, [0])
        start = planned.next_end(start, ALL)
        for number in range(1, 20):
            append(root, "t", 1, [number])
            began_ms = clock.monotonic_ms()
            start = planned.next_end(start, ALL)
            assert start == at(root, 5, number + 1)
            assert clock.monotonic_ms() - began_ms <= POLL_INTERVAL_MS

    def test_leaves_partitions_at_rest_alone_while_another_one_is_busy(self, root, clock, resting):
        planned, start = resting()
        began_ms = clock.monotonic_ms()
        with counted_calls() as calls:
            for number in range(100):
                append(root, "t", 1, [number])
                start = planned.next_end(start, ALL)
                assert start == at(root, 5, number + 1)
        seconds = (clock.monotonic_ms() - began_ms) / 1000
        asked = sum(count for (_, directory), count in calls.items() if directory.endswith("/t-0"))
        assert asked <= seconds + 2

    def test_finds_a_record_of_a_partition_at_rest_beside_a_busy_one(self, root, clock, resting):
        planned, start = resting()
        append(root, "t", 1, [0])
        start = planned.next_end(start, ALL)
        append(root, "t", 0, [0])
        began_ms = clock.monotonic_ms()
        number = 1
        while start.offsets[TopicPartition("t", 0)] == 5:
            append(root, "t", 1, [number])
            start = planned.next_end(start, ALL)
            number += 1
        assert clock.monotonic_ms() - began_ms <= 1_000 + POLL_INTERVAL_MS

    def test_says_that_nothing_is_new_only_after_it_has_asked_all(self, root, clock, resting):
        planned, start = resting()
        append(root, "t", 1, [0])
        start = planned.next_end(start, ALL)
        append(root, "t", 0, [5])  # beside a partition that is not at rest, without a record
        assert planned.next_end(start, ALL) == at(root, 6, 1)

    def test_finds_new_partitions_within_a_second(self, root, clock, resting):
        planned, start = resting()
        add_partitions(root, "t", 3)
        append(root, "t", 2, range(3))
        began_ms = clock.monotonic_ms()
        assert planned.next_end(start, ALL) == at(root, 5, 0, 3)
        assert clock.monotonic_ms() - began_ms <= 1_000

    def test_asks_as_often_as_an_option_says(self, root, clock, resting):
        planned, start = resting(**{"fetch.idle.interval.ms": "200"})
        by_place, _ = wait(planned, clock, start, 10_000)
        assert by_place["t-0"] == pytest.approx(50, abs=2)
        planned, start = resting(**{"fetch.idle.interval.ms": "20"})
        by_place, _ = wait(planned, clock, start, 10_000)
        assert by_place["t-0"] >= 400

    def test_is_not_waited_for_by_available_now(self, root, clock, resting):
        planned, start = resting()
        append(root, "t", 1, range(3))
        slept_ms = clock.slept_ms
        planned.prepare_available_now()
        start = planned.next_end(start, ALL)
        assert start == at(root, 5, 3)
        append(root, "t", 1, range(3))
        assert planned.next_end(start, ALL) is start
        assert clock.slept_ms == slept_ms

    def test_recognises_a_topic_that_was_deleted_between_two_complete_looks(
        self, root, clock, resting, caplog
    ):
        planned, start = resting()
        append(root, "t", 1, [0])
        start = planned.next_end(start, ALL)
        create_again(root, "t", 2)
        append(root, "t", 0, [0])
        end = planned.next_end(start, ALL)
        assert end == at(root, 1, 0)
        assert end.topic_ids != start.topic_ids
        assert "deleted and created again" in caplog.text


class TestAvailableNow:
    def test_stops_where_the_log_ended_when_it_began(self, root, clock, later):
        append(root, "t", 0, range(10))
        planned = batches(root, clock, maxOffsetsPerTrigger="6")
        planned.prepare_available_now()
        start, ends = planned.initial(), []
        for _ in range(4):
            append(root, "t", 0, range(10))
            add_partitions(root, "t", 3)
            later()
            start = planned.next_end(start, ReadMaxRows(6))
            ends.append(start)
        assert ends == [at(root, 6, 0), at(root, 10, 0), at(root, 10, 0), at(root, 10, 0)]

    def test_leaves_nothing_back_for_want_of_the_least(self, root, clock):
        append(root, "t", 0, range(10))
        options = {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "8"}
        planned = batches(root, clock, **options)
        planned.prepare_available_now()
        start = planned.next_end(at(root, 0, 0), ReadMaxRows(8))
        assert start == at(root, 8, 0)
        assert planned.next_end(start, ReadMaxRows(8)) == at(root, 10, 0)

    def test_from_the_end_reads_nothing_and_ends(self, root, clock, later):
        planned = batches(root, clock, startingOffsets="latest")
        planned.prepare_available_now()
        append(root, "t", 0, range(10))
        start = planned.initial()
        for _ in range(3):
            later()
            assert planned.next_end(start, ALL) == start

    def test_fails_when_a_topic_is_replaced_before_it_was_read(self, root, clock, later):
        append(root, "t", 0, range(15))
        planned = batches(root, clock, maxOffsetsPerTrigger="5")
        planned.prepare_available_now()
        start = planned.next_end(planned.initial(), ReadMaxRows(5))
        create_again(root, "t", 3)
        append(root, "t", 0, range(15))
        later()
        with pytest.raises(DataLossError, match="10 records of the old topic were not read"):
            planned.next_end(start, ReadMaxRows(5))

    def test_or_ends_and_leaves_the_new_topic_to_the_next_run(self, root, clock, later):
        append(root, "t", 0, range(15))
        options = {"maxOffsetsPerTrigger": "5", "failOnDataLoss": "false"}
        planned = batches(root, clock, **options)
        planned.prepare_available_now()
        start = planned.next_end(planned.initial(), ReadMaxRows(5))
        create_again(root, "t", 2)
        append(root, "t", 0, range(8))
        later()
        assert planned.next_end(start, ReadMaxRows(5)) == start
        following = batches(root, clock)
        following.prepare_available_now()
        end = following.next_end(start, ALL)
        assert end == at(root, 8, 0)
        assert ranges(following.splits(start, end)) == [("t", 0, 0, 8)]

    def test_runs_a_batch_again_that_was_planned_before_partitions_were_added(self, root, clock):
        append(root, "t", 0, range(7))
        start, end = at(root, 0, 0), at(root, 7, 0)
        add_partitions(root, "t", 3)
        planned = batches(root, clock)
        planned.prepare_available_now()
        assert ranges(planned.splits(start, end)) == [("t", 0, 0, 7)]
        assert planned.next_end(end, ALL) == at(root, 7, 0, 0)


class TestATopicThatWasCreatedAgain:
    @pytest.mark.parametrize("new_records", [3, 5, 30])
    def test_is_read_from_its_beginning_with_no_alarm(
        self, root, clock, later, caplog, new_records
    ):
        append(root, "t", 0, range(5))
        planned = batches(root, clock)
        start = planned.next_end(planned.initial(), ALL)
        create_again(root, "t", 2)
        append(root, "t", 0, range(new_records))
        later()
        end = planned.next_end(start, ALL)
        assert end == at(root, new_records, 0), "whatever their number, it is another topic"
        assert end.topic_ids != start.topic_ids
        assert ranges(planned.splits(start, end)) == [("t", 0, 0, new_records)]
        assert "deleted and created again" in caplog.text, "there is a warning"
        assert "all known records of the old topic were read" in caplog.text

    def test_is_recognised_after_a_restart(self, root, clock, caplog):
        append(root, "t", 0, range(5))
        start = at(root, 5, 0)
        create_again(root, "t", 2)
        append(root, "t", 0, range(9))
        planned = batches(root, clock)
        assert planned.next_end(start, ALL) == at(root, 9, 0)
        assert "it is unknown whether all records of the old topic" in caplog.text

    def test_is_the_same_topic_to_a_restart_where_nothing_happened(self, root, clock, caplog):
        append(root, "t", 0, range(5))
        planned = batches(root, clock)
        assert planned.next_end(at(root, 3, 0), ALL) == at(root, 5, 0)
        assert ranges(planned.splits(at(root, 3, 0), at(root, 5, 0))) == [("t", 0, 3, 5)]
        assert not caplog.records

    def test_lost_what_had_been_seen_of_the_former_one_and_not_been_read(
        self, root, clock, later, caplog
    ):
        append(root, "t", 0, range(5))
        planned = batches(root, clock, maxOffsetsPerTrigger="2")
        start = planned.next_end(planned.initial(), ReadMaxRows(2))
        assert start == at(root, 2, 0)
        create_again(root, "t", 2)
        later()
        with pytest.raises(DataLossError, match="3 records of the old topic"):
            planned.next_end(start, ReadMaxRows(2))

    def test_may_have_fewer_partitions(self, root, clock, later):
        append(root, "t", 1, range(5))
        planned = batches(root, clock)
        start = planned.next_end(planned.initial(), ALL)
        create_again(root, "t", 1)
        append(root, "t", 0, range(2))
        later()
        end = planned.next_end(start, ALL)
        assert end == at(root, 2)
        assert ranges(planned.splits(start, end)) == [("t", 0, 0, 2)]

    def test_shares_the_most_by_what_the_new_one_has(self, root, clock, later):
        append(root, "t", 0, range(50))
        planned = batches(root, clock, maxOffsetsPerTrigger="30")
        start = planned.next_end(planned.initial(), ALL)
        create_again(root, "t", 2)
        append(root, "t", 0, range(50))
        append(root, "t", 1, range(20))
        later()
        assert planned.next_end(start, ReadMaxRows(30)) == at(root, 21, 8)

    def test_is_not_read_for_a_batch_that_was_planned_on_the_former_one(self, root, clock, caplog):
        append(root, "t", 0, range(5))
        start, end = at(root, 1, 0), at(root, 4, 0)
        create_again(root, "t", 2)
        append(root, "t", 0, range(5))
        with pytest.raises(DataLossError, match="offsets 1 to 3 of this batch are gone"):
            batches(root, clock).splits(start, end)
        assert batches(root, clock, failOnDataLoss="false").splits(start, end) == []
        assert "offsets 1 to 3 of this batch are gone" in caplog.text


class TestATopicThatIsGone:
    def test_and_was_read_to_its_end_is_waited_for(self, root, clock, later, caplog):
        append(root, "t", 0, range(5))
        planned = batches(root, clock)
        start = planned.next_end(planned.initial(), ALL)
        Admin(root).delete_topics(["t"])
        for _ in range(3):
            later()
            assert planned.next_end(start, ALL) == start
        assert len(caplog.records) == 2, "one for the missing topic, one for the data"
        Admin(root).create_topics([NewTopic("t", num_partitions=2)])
        append(root, "t", 0, range(1))
        later()
        assert planned.next_end(start, ALL) == at(root, 1, 0)

    def test_and_was_not_read_to_its_end_is_a_loss(self, root, clock, later, caplog):
        append(root, "t", 0, range(5))
        for fails in ("true", "false"):
            planned = batches(root, clock, failOnDataLoss=fails, maxOffsetsPerTrigger="2")
            if fails == "true":
                strict, start = planned, planned.next_end(planned.initial(), ReadMaxRows(2))
        lenient = planned
        lenient.next_end(start, ReadMaxRows(2))
        Admin(root).delete_topics(["t"])
        later()
        with pytest.raises(DataLossError, match=r"t-0, t-1: deleted.* failOnDataLoss to false"):
            strict.next_end(start, ReadMaxRows(2))
        assert lenient.next_end(start, ReadMaxRows(2)) == start
        assert "t-0, t-1: deleted" in caplog.text

    def test_of_a_pattern_is_so_too(self, root, clock, later):
        Admin(root).create_topics([NewTopic("u")])
        append(root, "u", 0, range(3))
        planned = batches(root, clock, subscribePattern="t|u", failOnDataLoss="false")
        start = planned.next_end(planned.initial(), ALL)
        Admin(root).delete_topics(["u"])
        append(root, "t", 0, range(4))
        later()
        end = planned.next_end(start, ALL)
        assert end.offsets == {**at(root, 4, 0).offsets, TopicPartition("u", 0): 3}
        assert ranges(planned.splits(start, end)) == [("t", 0, 0, 4)]

    def test_does_not_keep_others_from_being_read(self, root, clock, later):
        Admin(root).create_topics([NewTopic("u")])
        planned = batches(root, clock, subscribe="t,u")
        start = planned.next_end(planned.initial(), ALL)
        Admin(root).delete_topics(["u"])
        append(root, "t", 0, range(4))
        later()
        end = planned.next_end(start, ALL)
        assert end.offsets[TopicPartition("t", 0)] == 4

    def test_only_since_the_last_look_raises_no_false_alarm(self, root, clock):
        """The metadata was read before the deletion of its files, so its end seems to have
        decreased.
        """
        append(root, "t", 0, range(5))
        planned, start = forgetful(root, clock)
        assert start == at(root, 5, 0)
        Admin(root).delete_topics(["t"])
        assert planned.next_end(start, ALL) == start

    def test_only_since_the_last_look_raises_a_true_alarm(self, root, clock):
        append(root, "t", 0, range(5))
        planned, start = forgetful(root, clock, limit=ReadMaxRows(2))
        assert start == at(root, 2, 0)
        Admin(root).delete_topics(["t"])
        with pytest.raises(DataLossError, match="t-0, t-1: deleted"):
            planned.next_end(start, ReadMaxRows(2))

    def test_and_is_being_deleted_just_now_is_not_taken_for_damaged(self, root, clock, tmp_path):
        for number in range(3):
            append(root, "t", 0, [number])
        planned, start = forgetful(root, clock)
        directory = tmp_path / "root" / Cluster(root).topic("t").partition_directory(0)
        shutil.copytree(directory, tmp_path / "copy")
        Admin(root).delete_topics(["t"])
        directory.mkdir(parents=True)
        for name in (1, 2):  # without the first one: a gap
            shutil.copy(tmp_path / "copy" / f"{name:020}.log", directory)
        assert planned.next_end(start, ALL) == start


class TestRecordsThatAreNotRetained:
    def test_fail_the_query(self, root, clock):
        append(root, "t", 0, range(10))
        delete_records(root, "t", 0, 4, 0)
        with pytest.raises(DataLossError, match="offsets 0 to 3 are not retained any more"):
            batches(root, clock).splits(at(root, 0, 0), at(root, 10, 0))

    def test_are_passed_over_if_the_query_shall_not_fail(self, root, clock, caplog):
        append(root, "t", 0, range(10))
        delete_records(root, "t", 0, 4, 0)
        lenient = batches(root, clock, failOnDataLoss="false")
        assert ranges(lenient.splits(at(root, 0, 0), at(root, 10, 0))) == [("t", 0, 4, 10)]
        assert lenient.splits(at(root, 0, 0), at(root, 2, 0)) == []
        assert "offsets 0 to 3 are not retained any more; the log starts at 4" in caplog.text

    def test_are_no_part_of_what_a_limit_counts(self, root, clock):
        append(root, "t", 0, range(10))
        append(root, "t", 1, range(3))
        delete_records(root, "t", 0, 6, 0)
        delete_records(root, "t", 1, 3, 0)
        lenient = batches(root, clock, failOnDataLoss="false", maxOffsetsPerTrigger="2")
        end = lenient.next_end(at(root, 0, 0), ReadMaxRows(2))
        assert end == at(root, 8, 3), "two that can be read, and none of what was deleted"
        assert ranges(lenient.splits(at(root, 0, 0), end)) == [("t", 0, 6, 8)]

    def test_are_not_enough_for_a_batch(self, root, clock):
        append(root, "t", 0, range(10))
        delete_records(root, "t", 0, 6, 0)
        least = ReadMinRows(5)
        patient = batches(root, clock, failOnDataLoss="false", minOffsetsPerTrigger="5")
        first = patient.next_end(at(root, 6, 0), least)  # a first batch does not wait
        assert first == at(root, 10, 0)
        append(root, "t", 0, range(10))
        delete_records(root, "t", 0, 16, 10)
        clock.advance_ms(60_000)
        again = batches(root, clock, failOnDataLoss="false", minOffsetsPerTrigger="5")
        again.next_end(at(root, 20, 0), least)
        assert again.next_end(first, least) == first, "4 of 10 can be read"

    def test_of_a_log_that_ends_before_the_checkpoint(self, root, clock, caplog):
        append(root, "t", 0, range(3))
        with pytest.raises(
            DataLossError, match="t-0 ends at offset 3, but it was read up to offset 1000"
        ):
            batches(root, clock).next_end(at(root, 1000, 0), ALL)
        lenient = batches(root, clock, failOnDataLoss="false")
        assert lenient.next_end(at(root, 1000, 0), ALL) == at(root, 3, 0)
        assert lenient.splits(at(root, 1000, 0), at(root, 3, 0)) == []
        assert "starts at offset 1000 and ends at" in caplog.text


class TestACheckpointOfKafkasSource:
    def test_is_read_on_from_and_gets_the_topics_id(self, root, clock, caplog):
        append(root, "t", 0, range(5))
        kafkas = StreamOffset.from_document({"t": {"0": 2, "1": 0}})
        planned = batches(root, clock)
        end = planned.next_end(kafkas, ALL)
        assert end == at(root, 5, 0)
        assert ranges(planned.splits(kafkas, end)) == [("t", 0, 2, 5)]
        assert not caplog.records

    def test_whose_last_batch_was_not_finished_is_run_again(self, root, clock):
        append(root, "t", 0, range(5))
        start = StreamOffset.from_document({"t": {"0": 2, "1": 0}})
        end = StreamOffset.from_document({"t": {"0": 4, "1": 0}})
        assert ranges(batches(root, clock).splits(start, end)) == [("t", 0, 2, 4)]

    @pytest.fixture
    def end(self):
        """Return the end of a first batch that Kafka's source planned, which does not have the
        start.
        """
        return StreamOffset.from_document({"t": {"0": 4, "1": 0}})

    def first_splits(self, root, clock, end, **options):
        planned = batches(root, clock, **options)
        return ranges(planned.splits(planned.initial(), end))

    def test_whose_first_batch_was_not_finished_begins_where_sources_says(
        self, root, clock, end, tmp_path
    ):
        append(root, "t", 0, range(5))
        for number, text in enumerate(['v1\n{"u":{"0":3}}', 'v1\n{"t":{"0":1,"1":0}}']):
            (tmp_path / "checkpoint" / "sources" / str(number)).mkdir(parents=True)
            file = tmp_path / "checkpoint" / "sources" / str(number) / "0"
            file.write_bytes(b"\0" + text.encode())
        options = {"startingOffsets": "latest", "checkpointLocation": str(tmp_path / "checkpoint")}
        assert self.first_splits(root, clock, end, **options) == [("t", 0, 1, 4)]
        delete_records(root, "t", 0, 2, 0)
        with pytest.raises(DataLossError, match="offsets 1 to 1 are not retained any more"):
            self.first_splits(root, clock, end, **options)
        file.write_bytes(b'\0{"t":{"0":2,"1":0}}')
        assert self.first_splits(root, clock, end, **options) == [("t", 0, 2, 4)], (
            "the format of Spark 2.1.0"
        )
        file.write_bytes(b"\0v2\nwhat is to come")
        with pytest.raises(
            InvalidOptionError, match="sources/1/0 does not contain initial offsets"
        ):
            self.first_splits(root, clock, end, **options)

    def test_whose_beginning_nobody_knows_is_not_guessed(self, root, clock, end, tmp_path, caplog):
        append(root, "t", 0, range(5))
        with pytest.raises(DataLossError, match="give the query's checkpointLocation to readStr"):
            self.first_splits(root, clock, end)
        with pytest.raises(
            DataLossError, match="but no file sources/<n>/0 in it names these topics"
        ):
            self.first_splits(root, clock, end, checkpointLocation=str(tmp_path))
        options = {"failOnDataLoss": "false", "startingOffsets": "earliest"}
        assert self.first_splits(root, clock, end, **options) == [("t", 0, 0, 4)]
        assert "records may be missed" in caplog.text.lower()

    def test_whose_beginning_the_options_say_is_run_again_from_there(self, root, clock, end):
        append(root, "t", 0, range(5))
        numbers = '{"t":{"0":3,"1":0}}'
        assert self.first_splits(root, clock, end, startingOffsets=numbers) == [("t", 0, 3, 4)]


class TestLag:
    def test_is_how_old_the_first_unread_record_is(self, root, clock):
        now_us = clock.time_us()
        append(root, "t", 0, range(10), timestamp_us=now_us - 60_000_000)
        append(root, "t", 1, range(1), timestamp_us=now_us)
        planned = batches(root, clock, maxOffsetsPerTrigger="4")
        assert planned.latest() is None
        planned.next_end(at(root, 0, 1), ReadMaxRows(4))
        document = planned.latest()
        assert document is not None
        assert "t@lag_ms[0:56000]" in document
        assert document["t"] == {"0": 10, "1": 1}

    def test_counts_what_can_be_read_without_another_request(self, root, clock):
        at_once = {"file.delete.delay.ms": "0"}  # so that each poll lists the logs
        Admin(root).alter_configs([ConfigResource(ConfigResourceType.TOPIC, "t", at_once)])
        now_us = clock.time_us()
        append(root, "t", 0, range(10), timestamp_us=now_us - 60_000_000)
        append(root, "t", 1, range(3), timestamp_us=now_us)
        planned = batches(root, clock, minOffsetsPerTrigger="50", maxOffsetsPerTrigger="60")
        end = planned.next_end(at(root, 0, 0), ReadMaxRows(4))
        position, other = end.offsets[TopicPartition("t", 0)], end.offsets[TopicPartition("t", 1)]
        assert (position, other) == (3, 1)
        places = {TopicPartition("t", 0): 8, TopicPartition("t", 1): 3}
        Admin(root).delete_records(places)
        clock.advance_ms(60_000)
        assert planned.next_end(end, ReadMaxRows(4)) == end
        document = planned.latest()
        assert document is not None
        shown = SimpleNamespace(
            endOffset=json.dumps(end.to_document()), latestOffset=json.dumps(document)
        )
        assert lag_of(shown) == {
            TopicPartition("t", 0): PartitionLag(2, 112_000, 5),
            TopicPartition("t", 1): PartitionLag(0, 0, 2),
        }
        with counted_calls() as calls:
            planned.latest()
        assert not calls, "the log start is that of the last listing"

    def test_costs_a_look_only_when_a_position_moves(self, root, clock):
        append(root, "t", 0, range(10))
        planned = batches(root, clock, minOffsetsPerTrigger="50", maxOffsetsPerTrigger="60")
        start = planned.next_end(at(root, 0, 0), ReadMaxRows(4))
        planned.latest()
        with counted_calls() as calls:
            for _ in range(100):
                assert planned.next_end(start, ReadMaxRows(4)) == start
                planned.latest()
        assert sum(calls.values()) == 3 * 100, "one request each, and no read of a segment"

    def test_is_nothing_where_all_is_read(self, root, clock):
        append(root, "t", 0, range(10))
        planned = batches(root, clock)
        planned.next_end(at(root, 0, 0), ALL)
        assert planned.latest() == at(root, 10, 0).to_document()


@pytest.fixture(autouse=True)
def warnings_are_seen(caplog):
    caplog.set_level(logging.WARNING, logger="spark_log")
