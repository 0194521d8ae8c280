"""Reads of striped topics: the scenarios of other topics, and the requests of planner and tasks."""

import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest

from spark_log import TopicPartition
from spark_log.cluster import Cluster
from spark_log.datasource.read import split_stripe
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.datasource.read.split_reader import read_split
from spark_log.datasource.read.splits import plan_splits, splits_between
from spark_log.errors import LogTruncatedError, OffsetOutOfRangeError, StorageError
from spark_log.log.segment import BatchAppend
from spark_log.log.stripe import GroupCommit, StripeEntry
from spark_log.transaction import TopicIdPartition, TransactionCoordinator
from tests.datasource import (
    reading,
    test_offset_reader,
    test_read_committed,
    test_split_reader,
    test_splits,
    test_stream_batches,
)
from tests.datasource.reading import create, fill, log_of, options_of, read, records
from tests.datasource.test_read_committed import log, mixed, other, writer
from tests.datasource.test_stream_batches import later
from tests.store_calls import counted_calls
from tests.transactions import TransactionWriter
from tests.waiting import wait_until

LEFT_OUT: Any = None
"""In place of an inherited test that does not hold for stripes."""

__all__ = ["later", "log", "mixed", "other", "writer"]


@pytest.fixture(params=[0, 1, 2], ids=["in the stripe", "at home", "partly at home"])
def striped(request, monkeypatch):
    """Give all topics stripes; take them home after no, each or each second append."""
    monkeypatch.setitem(reading.SETTINGS, "stripes", "2")
    monkeypatch.setitem(reading.HOMES, "every", request.param)


def topic_of(partitions):
    @pytest.fixture
    def root(self, striped, tmp_path):
        url = str(tmp_path / "root")
        create(url, "t", partitions)
        return url

    return root


class TestRecords(test_split_reader.TestRecords):
    root = topic_of(1)
    test_of_a_damaged_segment_are_never_handed_out = LEFT_OUT  # it looks for a file at home


class TestTimes(test_split_reader.TestTimes):
    root = topic_of(1)
    # Of the entries of a stripe the object is decoded, whose columns these look at.
    test_also_on_storage_that_is_not_mapped = LEFT_OUT
    test_batches_without_any_are_not_decoded = LEFT_OUT
    test_ranges_apart_are_read_apart = LEFT_OUT


class TestDataLossOfATask(test_split_reader.TestDataLoss):
    root = topic_of(1)
    test_of_the_end = LEFT_OUT  # it removes a file at home

    @pytest.mark.parametrize("is_new_process", [False, True])
    def test_of_all_of_it(self, root, is_new_process):
        fill(root, "t", 0, range(30), segments=3)
        (split,) = plan_splits(options_of(root))
        assert read(root)
        if is_new_process:
            split_stripe._readers.clear()  # noqa: SLF001 - as in a process that read no split yet
        log_of(root).stripe.take_home()
        shutil.rmtree(Path(root) / split.directory.partition("/")[0])
        for kept in split_stripe._readers.values():  # noqa: SLF001 - the objects leave its memory
            kept.drop()
        with pytest.raises((OffsetOutOfRangeError, LogTruncatedError)):
            list(read_split(split, ("value",), options_of(root)))
        assert list(read_split(split, ("value",), options_of(root, failOnDataLoss="false"))) == []


class TestRanges(test_splits.TestRanges):
    root = topic_of(3)
    LOOKED_AT: ClassVar = [[], ["t-0"]]  # those that have something at home


class TestDataLoss(test_splits.TestDataLoss):
    root = topic_of(3)


class TestCutting(test_splits.TestCutting):
    root = topic_of(3)


class TestFilters(test_splits.TestFilters):
    root = topic_of(3)
    test_on_times_leave_later_segments_out_where_their_least_is_known = LEFT_OUT  # of a snapshot


class TestOffsetsNow(test_offset_reader.TestOffsetsNow):
    root = topic_of(3)
    test_the_end_costs_one_look_for_a_name_once_it_is_known = LEFT_OUT  # see the requests below


class TestStart(test_offset_reader.TestStart):
    root = topic_of(3)


class TestEnd(test_offset_reader.TestEnd):
    root = topic_of(3)


class TestCommittedRecords(test_read_committed.TestBatch):
    root = topic_of(1)


class TestCommittedMicroBatches(test_read_committed.TestMicroBatches):
    root = topic_of(1)
    test_an_idle_poll_costs_one_request_and_new_records_a_listing = LEFT_OUT

    def test_a_decided_transaction_without_its_marker_is_ended(self, root, monkeypatch):
        cluster = Cluster(root)
        coordinator = TransactionCoordinator(cluster, "transfers")
        owner = coordinator.initialize(60_000)
        coordinator.register(owner, [TopicIdPartition(cluster.topic("t").topic_id, 0)])
        TransactionWriter(log_of(root), owner.producer_id).send(b"0")

        def dead(self, entries, **options):
            return [StorageError("killed")] * len(entries)

        with monkeypatch.context() as dying:
            dying.setattr(GroupCommit, "append", dead)
            coordinator.commit(owner)
        reader = OffsetReader(
            options_of(root, is_stream=True, **{"isolation.level": "read_committed"})
        )
        partition = TopicPartition("t", 0)
        assert reader.latest([partition]) == {partition: 0}
        wait_until(lambda: reader.latest([partition]) == {partition: 2})


class TestABatch(test_stream_batches.TestABatch):
    root = topic_of(2)


class TestAvailableNow(test_stream_batches.TestAvailableNow):
    root = topic_of(2)


class TestATopicThatWasCreatedAgain(test_stream_batches.TestATopicThatWasCreatedAgain):
    root = topic_of(2)


class TestRecordsThatAreNotRetained(test_stream_batches.TestRecordsThatAreNotRetained):
    root = topic_of(2)


PARTITIONS = 100
"""Partitions of the topic whose requests are counted, in two stripes."""


@pytest.fixture
def many(tmp_path):
    """A root whose topic has many partitions; functions that append to all, and take home."""
    root = str(tmp_path / "root")
    create(root, "t", PARTITIONS, stripes="2")
    cluster = Cluster(root)
    topic = cluster.topic("t")

    def append_to_all(number):
        for stripe in range(2):
            entries = [
                StripeEntry(partition, BatchAppend(records([number])))
                for partition in range(stripe, PARTITIONS, 2)
            ]
            cluster.stripe(topic, stripe).appends.append(entries)

    def take_home():
        for stripe in range(2):
            cluster.stripe(topic, stripe).take_home()

    return root, append_to_all, take_home


def kinds(calls):
    """Return the numbers of listings, and of other requests."""
    listings = sum(count for (name, _), count in calls.items() if name == "list")
    return listings, sum(calls.values()) - listings


class TestRequests:
    def test_an_idle_planner_sends_one_for_each_stripe(self, many):
        root, append_to_all, _ = many
        append_to_all(0)
        reader = OffsetReader(options_of(root, is_stream=True))
        wanted = reader.partitions()
        assert set(reader.latest(wanted).values()) == {1}
        with counted_calls() as calls:
            assert set(reader.latest(wanted).values()) == {1}
        assert kinds(calls) == (0, 2)

    def test_a_stream_that_starts_at_the_end_lists_no_partition(self, many):
        root, append_to_all, take_home = many
        append_to_all(0)
        take_home()
        append_to_all(1)
        options = options_of(root, is_stream=True)
        with counted_calls() as calls:
            reader = OffsetReader(options)
            start = reader.starting_offsets(is_batch=False)
            append_to_all(2)
            splits = splits_between(reader, start, reader.latest(start))
        assert len(splits) == PARTITIONS
        assert not [directory for _, directory in calls if "/t-" in directory]
        # Tasks of one process read each object once, and know the stripe when they have polled.
        with counted_calls() as calls:
            found = [
                row["value"]
                for split in splits
                for batch in read_split(split, ("value",), options)
                for row in batch.to_pylist()
            ]
        assert found == [b"2"] * PARTITIONS
        assert not [directory for _, directory in calls if "/t-" in directory]
        assert sum(calls.values()) < 20

    def test_a_batch_from_the_beginning_lists_each_partition_once(self, many):
        root, append_to_all, take_home = many
        append_to_all(0)
        take_home()
        append_to_all(1)
        with counted_calls() as calls:
            splits = plan_splits(options_of(root))
        assert [(each.start_offset, each.end_offset) for each in splits] == [(0, 2)] * PARTITIONS
        listed = [count for (name, path), count in calls.items() if "/t-" in path]
        assert listed == [1] * PARTITIONS
