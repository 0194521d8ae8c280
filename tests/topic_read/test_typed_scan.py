"""`scan` of a topic with typed columns: those of files, and those of the log, are the same."""

import json

import pyarrow.compute as pc
import pytest

from spark_log import Admin, ConfigResource, Producer
from spark_log.cluster import Cluster
from spark_log.topic_read import ReadBounds, plan_read, scan_read
from tests.topic_read.topics import TOPIC, clean, make_topic, sorted_rows

TYPED = {"table.value.format": "json", "table.schema": "n INT, carrier STRING"}


def value_of(number):
    """Return a value; every seventh is no JSON, and every eleventh is null."""
    if number % 11 == 3:
        return None
    if number % 7 == 5:
        return b"no JSON %d" % number
    return json.dumps({"n": number, "carrier": f"c{number % 3}"}).encode()


def send(root, first, count):
    with Producer(root, linger_ms=0) as producer:
        for number in range(first, first + count):
            producer.send(TOPIC, value_of(number), partition=number % 2, timestamp_ms=number)
            if number % 50 == 49:
                producer.flush()


def read(root, **options):
    """Return the rows of a scan, by partition and offset, if it has these columns."""
    reader = scan_read(plan_read(Cluster(root), TOPIC, ReadBounds.parse()), **options)
    return reader.read_all()


@pytest.fixture(params=["true", "false"])
def root(request, tmp_path):
    """A root with 600 records in the table, and 300 behind it."""
    url = str(tmp_path / "root")
    make_topic(url, **TYPED, **{"table.keep.value": request.param})
    send(url, 0, 600)
    clean(url)
    send(url, 600, 300)
    return url


def by_number(table):
    return sorted(
        zip(
            table["timestamp"].cast("int64").to_pylist(),
            *(table[name].to_pylist() for name in ("value", "n", "carrier")),
            strict=True,
        )
    )


def expected(numbers):
    for number in numbers:
        value = value_of(number)
        is_json = value is not None and value.startswith(b"{")
        typed = (number, f"c{number % 3}") if is_json else (None, None)
        yield number * 1000, value, *typed


def test_gives_columns_and_the_very_values(root):
    table = read(root)
    assert table.schema.names[-3:] == ["n", "carrier", "_decode_error"]
    assert by_number(table) == list(expected(range(900)))
    for value, problem in zip(table["value"].to_pylist(), table["_decode_error"], strict=True):
        assert problem.is_valid == (value is not None and value.startswith(b"no"))


def test_gives_typed_columns_alone(root):
    table = read(root, columns=["carrier", "n"])
    assert table.schema.names == ["carrier", "n"]
    wanted = sorted(row[2] for row in expected(range(900)) if row[2] is not None)
    assert sorted(table["n"].drop_null().to_pylist()) == wanted
    assert table.num_rows == 900


@pytest.mark.parametrize("number", [8, 808])
def test_filters_by_a_typed_column(root, number):
    table = read(root, columns=["value"], where=pc.field("n") == number)
    assert table["value"].to_pylist() == [value_of(number)]


@pytest.mark.parametrize("number", [8, 808])
def test_filters_by_a_value_that_is_left_out(root, number):
    table = read(root, columns=["n"], where=pc.field("value") == value_of(number))
    assert table["n"].to_pylist() == [number]


def test_filters_by_columns_that_are_the_same_in_a_file_and_a_value(root):
    where = (pc.field("partition") == 1) & pc.field("value").is_null()
    table = read(root, columns=["timestamp"], where=where)
    found = sorted(table["timestamp"].cast("int64").to_pylist())
    assert found == [number * 1000 for number in range(900) if number % 2 and number % 11 == 3]


def test_a_column_that_files_lack_is_null(root):
    before = read(root)
    schema = "n INT, carrier STRING, more STRUCT<a: INT>"
    Admin(root).alter_configs([ConfigResource("topic", TOPIC, {**TYPED, "table.schema": schema})])
    with Producer(root) as producer:
        producer.send(TOPIC, b'{"n": 7000, "more": {"a": 4}}', partition=0)
    table = read(root)
    assert sorted_rows(table.select(before.schema.names).slice(0, 900)).num_rows == 900
    assert read(root, where=pc.field("n") < 7000).select(before.schema.names).num_rows == len(
        before.filter(pc.field("n") < 7000)
    )
    found = read(root, columns=["more", "value"], where=pc.field("more", "a") == 4)
    assert found.to_pylist() == [{"more": {"a": 4}, "value": b'{"n": 7000, "more": {"a": 4}}'}]


def test_a_struct_that_gets_a_field(tmp_path):
    url = str(tmp_path / "root")
    old = {**TYPED, "table.schema": "s STRUCT<a: INT>", "table.keep.value": "false"}
    make_topic(url, **old)
    with Producer(url) as producer:
        producer.send(TOPIC, b'{"s":{"a":1}}', partition=0)
    clean(url)
    schema = "s STRUCT<a: INT, b: INT>"
    Admin(url).alter_configs([ConfigResource("topic", TOPIC, {**old, "table.schema": schema})])
    with Producer(url) as producer:
        producer.send(TOPIC, b'{"s":{"a":1,"b":2}}', partition=0)
    assert read(url, columns=["value", "s"]).to_pylist() == [
        {"value": b'{"s":{"a":1}}', "s": {"a": 1, "b": None}},
        {"value": b'{"s":{"a":1,"b":2}}', "s": {"a": 1, "b": 2}},
    ]
    assert read(url, columns=["s"]).num_rows == 2
    where = (pc.field("s", "b") == 2) & pc.field("value").is_valid()
    assert read(url, columns=["offset"], where=where)["offset"].to_pylist() == [1]
