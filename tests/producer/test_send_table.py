"""`Producer.send_table`: rows of a table as records."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from spark_log import (
    InvalidPartitionsError,
    InvalidRecordError,
    RecordTooLargeError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from spark_log.record.murmur2 import partition_for_keys
from tests.log.support import failing
from tests.producer.support import by_hand, hooked, new_root, rows, run, values
from tests.striped_topics import is_in


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, ("flights", 4), "weather")


@pytest.fixture
def producer(root, clock):
    return by_hand(root, clock)


def test_rows_are_where_the_future_says(root, clock, producer):
    first = producer.send_table("weather", pa.table({"value": [b"a", b"b"]}))
    second = producer.send_table("weather", pa.table({"value": ["c", None]}))
    run(producer, clock)
    ((where,), (then,)) = first.result(0), second.result(0)
    assert (where.partition, where.base_offset, where.last_offset, where.records) == (0, 0, 1, 2)
    assert (then.base_offset, then.records) == (2, 2)
    assert values(root, "weather") == {0: [b"a", b"b", b"c", None]}


def test_all_columns_arrive(root, clock, producer):
    moment = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "key": pa.array(["k"], pa.large_string()),
            "value": pa.array([b"v"], pa.large_binary()),
            "timestamp": pa.array([moment], pa.timestamp("ms", "UTC")),
            "headers": [[{"key": "h", "value": b"1"}]],
        }
    )
    producer.send_table("weather", table)
    run(producer, clock)
    ((row),) = rows(root, "weather")[0]
    assert row == {
        "key": b"k",
        "value": b"v",
        "timestamp": moment,
        "headers": [{"key": "h", "value": b"1"}],
    }


def test_keys_partitions_and_order_are_as_for_single_records(root, clock, producer):
    keys = [None if number % 7 == 0 else b"%d" % (number % 50) for number in range(1_000)]
    table = pa.table(
        {"key": pa.array(keys, pa.binary()), "value": [b"%d" % n for n in range(1_000)]}
    )
    producer.send_table("flights", table)
    run(producer, clock)
    expected = partition_for_keys(pa.array(keys, pa.binary()), 4).tolist()
    found = values(root, "flights")
    for partition, each in found.items():
        numbers = [int(value) for value in each]
        assert numbers == sorted(numbers)
        assert all(keys[n] is None or expected[n] == partition for n in numbers)
    assert sum(map(len, found.values())) == 1_000


def test_many_rows_without_keys_are_spread_evenly(root, clock, producer):
    producer.send_table("flights", pa.table({"value": [b"x" * 100] * 4_000}))
    run(producer, clock)
    assert {len(each) for each in values(root, "flights").values()} == {1_000}


def test_partition_column_and_argument_choose(root, clock, producer):
    table = pa.table({"value": [b"a", b"b", b"c"], "partition": [3, 1, 3]})
    producer.send_table("flights", table)
    producer.send_table("flights", pa.table({"value": [b"d"]}), partition=2)
    run(producer, clock)
    assert values(root, "flights") == {0: [], 1: [b"b"], 2: [b"d"], 3: [b"a", b"c"]}


def test_tables_and_single_records_keep_their_order(root, clock, producer):
    producer.send("weather", b"0")
    producer.send_table("weather", pa.table({"value": [b"1", b"2"]}))
    producer.send("weather", b"3")
    run(producer, clock)
    assert values(root, "weather") == {0: [b"0", b"1", b"2", b"3"]}


def test_a_table_larger_than_the_buffer_goes_alone(root, clock):
    producer = by_hand(root, clock, buffer_memory=1_000)
    sent = producer.send_table("weather", pa.table({"value": [b"x" * 100] * 50}))
    run(producer, clock)
    assert sent.result(0)[0].records == 50
    assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 1_000


def test_no_rows_are_done_at_once(producer):
    sent = producer.send_table("weather", pa.table({"value": pa.array([], pa.binary())}))
    assert sent.done()
    assert sent.result(0) == ()


def test_rows_that_fail_are_told_beside_those_that_are_there(clock, producer):
    store = hooked(producer)
    store.on(
        "put_if_absent",
        lambda path, call: (
            failing(StorageError("broken"))(path, call) if is_in(path, "flights-2") else call()
        ),
    )
    sent = producer.send_table("flights", pa.table({"value": [b"x"] * 4, "partition": range(4)}))
    seen: list[Any] = []
    sent.add_done_callback(seen.append)
    run(producer, clock)
    with pytest.raises(StorageError, match="broken"):
        sent.result(0)
    assert {each.partition for each in sent.appended()} == {0, 1, 3}
    assert seen == [sent]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"vaule": [b"x"]}, "vaule"),
        ({"timestamp": [5]}, "neither"),
        ({"value": [1.5]}, "column value of type double"),
        ({"value": [b"x"], "partition": [4]}, "partitions are 0 to 3"),
        ({"value": [b"x"], "headers": [[{"key": None, "value": b"x"}]]}, "no name"),
    ],
)
def test_what_cannot_be_records_is_refused(root, producer, table, said):
    with pytest.raises(InvalidRecordError, match=said):
        producer.send_table("flights", pa.table(table))
    assert not producer.run_once()


def test_row_that_is_too_large_is_refused_before_anything_is_sent(root, producer):
    with pytest.raises(RecordTooLargeError, match="row 1"):
        producer.send_table("weather", pa.table({"value": [b"x", b"x" * 2_000_000]}))
    assert not producer.run_once()


def test_unknown_topic_and_partition_are_refused(producer):
    table = pa.table({"value": [b"x"]})
    with pytest.raises(UnknownTopicOrPartitionError):
        producer.send_table("nothing", table)
    with pytest.raises(InvalidPartitionsError):
        producer.send_table("weather", table, partition=1)
