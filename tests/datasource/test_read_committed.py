"""``isolation.level=read_committed`` in batches and micro-batches, without Spark and with it."""

import json
import pickle

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from spark_log import DataLossError, InvalidOptionError, OffsetOutOfRangeError, TopicPartition
from spark_log.cluster import Cluster
from spark_log.datasource.read.log_split import LogSplit
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.datasource.read.record_filter import RecordFilter
from spark_log.datasource.read.split_reader import read_split
from spark_log.datasource.read.splits import splits_between
from spark_log.errors import StorageError
from spark_log.log import PartitionLog
from spark_log.log.rewrite.merger import merge
from spark_log.transaction import TopicIdPartition, TransactionCoordinator
from spark_log.util.clock import ManualClock
from tests.datasource.reading import (
    BASE_MS,
    BASE_US,
    create,
    fill,
    log_of,
    numbers,
    options_of,
    plan,
    ranges,
    read,
)
from tests.datasource.streams import at, batches
from tests.store_calls import counted_calls
from tests.transactions import TransactionWriter
from tests.waiting import wait_until

ALL = ReadAllAvailable()
COMMITTED = {"isolation.level": "read_committed"}
T0 = TopicPartition("t", 0)


@pytest.fixture
def root(tmp_path):
    url = str(tmp_path / "root")
    create(url, "t")
    return url


@pytest.fixture
def log(root):
    return log_of(root)


@pytest.fixture
def writer(log):
    return TransactionWriter(log)


@pytest.fixture
def other(log):
    """Another producer of the same partition."""
    return TransactionWriter(log, producer_id=8)


@pytest.fixture
def mixed(root, writer, other):
    """Values are offsets: 0, 1, 7 plain; 2, 3 committed; 4, 8 aborted; 5, 6, 9 markers; 10 open."""
    fill(root, "t", 0, [0, 1])
    writer.send(b"2", b"3", timestamp=BASE_US + 2_000_000)
    other.send(b"4", timestamp=BASE_US + 4_000_000)
    writer.commit()
    other.abort()
    fill(root, "t", 0, [7])
    other.send(b"8", timestamp=BASE_US + 8_000_000)
    other.abort()
    writer.send(b"10", timestamp=BASE_US + 10_000_000)
    fill(root, "t", 0, [11])


VISIBLE = [0, 1, 2, 3, 7]


def rewrite(log, kind):
    """Merge the log's segments, and write a snapshot, as a cleaner does."""
    view = log.observe()
    if "merged" in kind:
        merge(log.files, view, 0, len(view.live.segments) - 1)
    if "snapshot" in kind:
        log.replica.snapshots.write()


class TestBatch:
    @pytest.mark.parametrize("kind", ["plain", "merged", "snapshot", "merged, snapshot"])
    def test_committed_records_up_to_the_last_stable_offset(self, root, log, mixed, kind):
        rewrite(log, kind)
        assert numbers(read(root, **COMMITTED)) == VISIBLE
        assert numbers(read(root, columns=["value"], **COMMITTED)) == VISIBLE
        assert numbers(read(root)) == [0, 1, 2, 3, 4, 7, 8, 10, 11]

    def test_the_option_of_kafkas_connector(self, root, mixed):
        assert numbers(read(root, **{"kafka.isolation.level": "read_committed"})) == VISIBLE

    @pytest.mark.parametrize("kind", ["plain", "merged, snapshot"])
    @pytest.mark.parametrize("begin", range(10))
    def test_any_range(self, root, log, mixed, kind, begin):
        rewrite(log, kind)
        for end in range(begin, 11):
            starting, ending = (json.dumps({"t": {"0": each}}) for each in (begin, end))
            found = read(root, startingOffsets=starting, endingOffsets=ending, **COMMITTED)
            assert numbers(found) == [each for each in VISIBLE if begin <= each < end]

    def test_every_split_leaves_out_what_was_aborted(self, root, mixed):
        splits = plan(root, maxRecordsPerPartition="1", **COMMITTED)
        assert len(splits) == 10
        assert numbers(read(root, maxRecordsPerPartition="1", **COMMITTED)) == VISIBLE

    def test_filters_on_offset_and_time(self, root, mixed):
        for each in range(10):
            where, _ = RecordFilter.from_filters([EqualTo(("offset",), each)])
            found = numbers(read(root, where, **COMMITTED))
            assert found == ([each] if each in VISIBLE else [])

    def test_a_topic_with_nothing_but_an_open_transaction_is_empty(self, root, writer):
        writer.send(b"0")
        assert plan(root, **COMMITTED) == []

    def test_times_find_stable_offsets_alone(self, root, mixed):
        def begin(second, **options):
            starting = {"startingTimestamp": str(BASE_MS + second * 1000)}
            return ranges(plan(root, **starting, **COMMITTED, **options))

        assert begin(3) == [("t-0", 5 - 1, 10)]  # the next one with this time was aborted
        assert begin(8) == [("t-0", 8, 10)]
        with pytest.raises(InvalidOptionError, match="no record at or after"):
            begin(10)
        assert begin(10, startingOffsetsByTimestampStrategy="latest") == []
        ending = {"endingTimestamp": str(BASE_MS + 10_000)}
        assert ranges(plan(root, **ending, **COMMITTED)) == [("t-0", 0, 10)]

    def test_an_end_behind_the_last_stable_offset_fails_as_lost_data_does(self, root, mixed):
        ending = {"endingOffsets": '{"t":{"0":12}}'}
        assert ranges(plan(root, **ending)) == [("t-0", 0, 12)]
        with pytest.raises(OffsetOutOfRangeError, match="a transaction is open since offset 10"):
            plan(root, **ending, **COMMITTED)
        splits = plan(root, **ending, failOnDataLoss="false", **COMMITTED)
        assert ranges(splits) == [("t-0", 0, 10)]

    def test_it_ends_where_it_was_planned(self, root, writer, mixed):
        options = options_of(root, **COMMITTED)
        (split,) = plan(root, **COMMITTED)
        writer.commit()
        rows = [row for each in read_split(split, ["value"], options) for row in each.to_pylist()]
        assert numbers(rows) == VISIBLE
        assert numbers(read(root, **COMMITTED)) == [*VISIBLE, 10, 11]


class TestTasks:
    def requests(self, root, split, options):
        """Read a split in a task; return its requests in the partition's directory."""
        with counted_calls() as calls:
            for _ in read_split(pickle.loads(pickle.dumps(split)), ["value"], options):
                pass
        return {name: count for (name, path), count in calls.items() if "t-0" in path}

    def test_a_task_makes_no_request_to_know_what_was_aborted(self, root, log, writer):
        for _ in range(20):
            writer.send(b"1")
            writer.abort()
        log.replica.snapshots.write()
        committed, uncommitted = options_of(root, **COMMITTED), options_of(root)
        (split,) = plan(root, **COMMITTED)
        (plain,) = plan(root)
        expected = self.requests(root, plain, uncommitted)
        assert self.requests(root, split, committed) == expected

    def test_a_split_knows_the_transactions_of_its_range_alone(self, root, writer):
        for _ in range(20):
            writer.send(b"1")
            writer.abort()
        splits = plan(root, maxRecordsPerPartition="10", **COMMITTED)
        known = [split.transactions.aborted_count for split in splits if split.transactions]
        assert known == [5, 5, 5, 5]

    def test_what_a_merge_has_joined_since_the_planning_is_read_all_the_same(
        self, root, log, mixed
    ):
        log.replica.snapshots.write()
        (split,) = plan(root, **COMMITTED)
        rewrite(log, "merged")
        options = options_of(root, **COMMITTED)
        rows = [row for each in read_split(split, ["value"], options) for row in each.to_pylist()]
        assert numbers(rows) == VISIBLE


class TestMicroBatches:
    def test_end_at_the_last_stable_offset(self, root, writer):
        fill(root, "t", 0, [0])
        writer.send(b"1")
        fill(root, "t", 0, [2])
        clock = ManualClock()
        planned = batches(root, clock, **COMMITTED)
        first = planned.next_end(planned.initial(), ALL)
        assert first == at(root, 1)
        assert planned.next_end(first, ALL) == first
        writer.commit()
        assert planned.next_end(first, ALL) == at(root, 4)
        fill(root, "t", 0, [4])
        assert planned.next_end(at(root, 4), ALL) == at(root, 5)

    def test_an_idle_poll_costs_one_request_and_new_records_a_listing(self, root, writer):
        fill(root, "t", 0, [0])
        writer.send(b"1")
        reader = OffsetReader(options_of(root, is_stream=True, **COMMITTED))
        assert reader.latest([T0]) == {T0: 1}
        with counted_calls() as calls:
            assert reader.latest([T0]) == {T0: 1}
        assert sum(calls.values()) == 1
        writer.abort()
        with counted_calls() as calls:
            assert reader.latest([T0]) == {T0: 3}
        assert {name: count for (name, _), count in calls.items() if name == "list"} == {"list": 1}

    def test_tasks_get_what_was_aborted(self, root, mixed):
        planned = batches(root, ManualClock(), **COMMITTED)
        start = planned.initial()
        end = planned.next_end(start, ReadMaxRows(6))
        options = options_of(root, is_stream=True, **COMMITTED)
        found = []
        while end != start:
            for split in planned.splits(start, end):
                assert isinstance(split, LogSplit)
                found += [
                    row
                    for each in read_split(split, ["value"], options)
                    for row in each.to_pylist()
                ]
            start, end = end, planned.next_end(end, ReadMaxRows(6))
        assert numbers(found) == VISIBLE
        assert end == at(root, 10)

    def test_available_now_ends_where_the_log_was_stable(self, root, writer, mixed):
        planned = batches(root, ManualClock(), **COMMITTED)
        planned.prepare_available_now()
        writer.commit()
        end = planned.next_end(planned.initial(), ALL)
        assert end == at(root, 10)
        assert planned.next_end(end, ALL) == end

    def test_latest_is_the_last_stable_offset(self, root, mixed):
        planned = batches(root, ManualClock(), startingOffsets="latest", **COMMITTED)
        assert planned.initial() == at(root, 10)

    def test_a_query_that_read_uncommitted_records_waits_until_they_are_decided(
        self, root, writer, mixed
    ):
        planned = batches(root, ManualClock(), **COMMITTED)
        read_up_to = at(root, 12)
        assert planned.next_end(read_up_to, ALL) == read_up_to
        writer.commit()
        fill(root, "t", 0, [13])
        assert planned.next_end(read_up_to, ALL) == at(root, 14)

    @pytest.mark.parametrize("fails", ["true", "false"])
    def test_a_batch_that_was_planned_on_uncommitted_records(self, root, mixed, fails):
        planned = batches(root, ManualClock(), failOnDataLoss=fails, **COMMITTED)
        if fails == "true":
            with pytest.raises(DataLossError, match="a transaction is open since offset 10"):
                planned.splits(at(root, 7), at(root, 12))
        else:
            assert ranges(planned.splits(at(root, 7), at(root, 12))) == [("t-0", 7, 10)]

    def test_a_decided_transaction_without_its_marker_is_ended(self, root, monkeypatch):
        cluster = Cluster(root)
        coordinator = TransactionCoordinator(cluster, "transfers")
        owner = coordinator.initialize(60_000)
        coordinator.register(owner, [TopicIdPartition(cluster.topic("t").topic_id, 0)])
        TransactionWriter(log_of(root), owner.producer_id).send(b"0")

        def dead(self, markers):
            raise StorageError("killed")

        with monkeypatch.context() as dying:
            dying.setattr(PartitionLog, "append_markers", dead)
            coordinator.commit(owner)
        reader = OffsetReader(options_of(root, is_stream=True, **COMMITTED))
        assert reader.latest([T0]) == {T0: 0}
        wait_until(lambda: reader.latest([T0]) == {T0: 2})


def test_splits_of_a_read_of_uncommitted_records_carry_nothing(root, mixed):
    (split,) = splits_between(OffsetReader(options_of(root)), {T0: 0}, {T0: 12})
    assert split.transactions is None


@pytest.mark.spark
class TestSpark:
    def test_a_batch_and_a_stream(self, spark: SparkSession, root, tmp_path, writer, mixed):
        given = {"subscribe": "t", "startingOffsets": "earliest", **COMMITTED}
        batch = spark.read.format("spark_log").options(**given).load(root)
        assert sorted(int(row.value) for row in batch.collect()) == VISIBLE
        assert batch.count() == 5

        def run():
            found: list[int] = []
            stream = spark.readStream.format("spark_log").options(**given).load(root)
            query = (
                stream.writeStream.foreachBatch(
                    lambda df, _: found.extend(int(row.value) for row in df.collect())
                )
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(90)
            return sorted(found)

        assert run() == VISIBLE
        writer.commit()
        assert run() == [10, 11]
