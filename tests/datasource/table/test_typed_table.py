"""`read_table` of a topic with typed columns: in the files, and made of the values of the log."""

import json

import pytest

from spark_log import Admin, ConfigResource, Producer, read_table
from tests.datasource.conftest import spark
from tests.topic_read.topics import TOPIC, clean, make_topic

__all__ = ["spark"]
pytestmark = pytest.mark.spark

SCHEMA = "n INT, carrier STRING, at TIMESTAMP, s STRUCT<a: ARRAY<INT>>, m MAP<STRING, DECIMAL(9,2)>"
TYPED = {"table.value.format": "json", "table.schema": SCHEMA}


def value_of(number):
    if number % 7 == 5:
        return b"no JSON"
    value = {
        "n": number,
        "carrier": f"c{number % 3}",
        "at": "2026-01-02T03:04:05Z",
        "s": {"a": [number, None]},
        "m": {"x": 1.25},
    }
    return json.dumps(value).encode()


def send(root, first, count):
    with Producer(root) as producer:
        for number in range(first, first + count):
            producer.send(TOPIC, value_of(number), partition=number % 2)


def test_files_and_log_give_the_same_columns(spark, tmp_path, capsys):
    root = str(tmp_path / "root")
    make_topic(root, **TYPED)
    send(root, 0, 100)
    clean(root)
    send(root, 100, 100)
    frame = read_table(spark, root, TOPIC)
    names = ["n", "carrier", "at", "s", "m", "_decode_error"]
    assert frame.columns[-6:] == names
    assert frame.count() == 200
    assert [row.value for row in frame.filter("n = 7").collect()] == [bytes(value_of(7))]
    assert [row.value for row in frame.filter("n = 107").collect()] == [bytes(value_of(107))]
    assert frame.filter("_decode_error IS NOT NULL").count() == sum(
        number % 7 == 5 for number in range(200)
    )
    in_files = frame.filter("n = 8").select(*names[1:3], "m").collect()
    in_log = frame.filter("n = 109").select(*names[1:3], "m").collect()
    assert [tuple(row)[1:] for row in in_files] == [tuple(row)[1:] for row in in_log]
    found = read_table(spark, root, TOPIC, columns=["n", "s"])
    assert found.columns == ["n", "s"]
    rows = sorted((row.n, row.s.a) for row in found.filter("n IS NOT NULL").collect())
    assert rows == [(n, [n, None]) for n in range(200) if n % 7 != 5]
    capsys.readouterr()
    found.explain()
    assert "MapInArrow" in capsys.readouterr().out
    read_table(spark, root, TOPIC, columns=["offset", "value"]).explain()
    assert "MapInArrow" not in capsys.readouterr().out


def test_columns_that_files_lack_are_null_and_values_are_given_back(spark, tmp_path):
    root = str(tmp_path / "root")
    make_topic(root, **TYPED, **{"table.keep.value": "false"})
    with Producer(root) as producer:
        producer.send(TOPIC, b'{"n":1,"carrier":"x"}', partition=0)
    clean(root)
    schema = f"{SCHEMA}, more DATE"
    Admin(root).alter_configs([ConfigResource("topic", TOPIC, {**TYPED, "table.schema": schema})])
    with Producer(root) as producer:
        producer.send(TOPIC, b'{"n":2,"more":"2026-01-02"}', partition=0)
    frame = read_table(spark, root, TOPIC, columns=["n", "value", "more"])
    rows = [(row.n, row.value, str(row.more)) for row in frame.orderBy("n").collect()]
    assert rows == [
        (1, bytearray(b'{"n":1,"carrier":"x"}'), "None"),
        (2, bytearray(b'{"n":2,"more":"2026-01-02"}'), "2026-01-02"),
    ]
