"""`read_table` of a topic with typed columns: in the files, and made of the values of the log."""

import json
from datetime import UTC, datetime
from typing import ClassVar

import pytest

from spark_log import Admin, ConfigResource, Producer, read_table, scan
from spark_log.cluster import Cluster
from spark_log.datasource.read import READ_SCHEMA
from spark_log.log.segment.parquet.writer import PARQUET_SCHEMA
from tests.datasource.conftest import spark
from tests.record.samples import START_US
from tests.topic_read.topics import TOPIC, clean, make_topic, sorted_rows, version_of

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


class TestTimeTravelAfterTheSchemaChanged:
    """Each version has the columns that the table had then, as in Delta's own time travel."""

    CHANGES: ClassVar[tuple[dict[str, str], ...]] = (
        {},
        {"table.value.format": "json", "table.schema": "n INT"},
        {"table.schema": "n INT, carrier STRING"},
        {"table.value.format": "none"},
    )
    TYPED_COLUMNS: ClassVar[tuple[list[str], ...]] = (
        [],
        ["n", "_decode_error"],
        ["n", "carrier", "_decode_error"],
        [],
    )

    @pytest.fixture
    def evolved(self, tmp_path):
        """Return a root, and the version of the table that each change ended with."""
        root = str(tmp_path / "root")
        make_topic(root)
        versions, settings = [], {"retention.ms": "-1", "table.format": "delta"}
        for step, change in enumerate(self.CHANGES):
            settings |= change
            Admin(root).alter_configs([ConfigResource("TOPIC", TOPIC, settings)])
            fill_typed(root, 20 * step)
            clean(root)
            versions.append(version_of(Cluster(root)).number)
        return root, versions

    @pytest.mark.long
    def test_a_version_has_its_columns_and_rows(self, spark, evolved):
        root, versions = evolved
        cluster = Cluster(root)
        location = cluster.store.directory_url(cluster.topic(TOPIC).directory)
        for number, typed in zip(versions, self.TYPED_COLUMNS, strict=True):
            found = read_table(spark, root, TOPIC, version=number)
            delta = spark.read.format("delta").option("versionAsOf", number).load(location)
            assert found.columns == [*READ_SCHEMA.names, *typed]
            assert [name for name in delta.columns if name not in PARQUET_SCHEMA.names] == typed
            names = ["partition", "offset", "timestamp", "key", "value", *typed]
            rows = sorted_rows(found.select(*names).toArrow())
            assert rows == sorted_rows(delta.select(*names).toArrow()).cast(rows.schema)
            assert rows.num_rows == 20 * (1 + versions.index(number))
            scanned = scan(root, TOPIC, version=number, columns=names).read_all()
            assert sorted_rows(scanned).cast(rows.schema) == rows

    def test_offsets_and_times_have_the_present_columns(self, spark, evolved):
        root, _ = evolved
        change = {"table.value.format": "json", "table.schema": "n INT, carrier STRING, more INT"}
        settings = {"retention.ms": "-1", "table.format": "delta"} | change
        Admin(root).alter_configs([ConfigResource("TOPIC", TOPIC, settings)])
        fill_typed(root, 80)  # behind the table's end
        names = ["partition", "offset", "n", "carrier", "more"]
        until = datetime.fromtimestamp(START_US / 1_000_000 + 90, UTC)
        for bounds, count in (
            ({"ending_offsets": {0: 45, 1: 45}}, 90),
            ({"to_time": until}, 90),
            ({"starting_offsets": {0: 15, 1: 15}, "ending_offsets": {0: 25, 1: 25}}, 20),
        ):
            rows = sorted_rows(read_table(spark, root, TOPIC, columns=names, **bounds).toArrow())
            scanned = scan(root, TOPIC, columns=names, **bounds).read_all()
            assert sorted_rows(scanned).cast(rows.schema) == rows
            assert rows.num_rows == count
            for row in rows.to_pylist():
                number = 2 * row["offset"] + row["partition"]
                step = number // 20
                assert row["n"] == (number if step in (1, 2, 4) else None)
                assert row["carrier"] == ("x" if step in (2, 4) else None)
                assert row["more"] == (7 if step == 4 else None)


def fill_typed(root, first):
    with Producer(root, linger_ms=1000) as producer:
        for number in range(first, first + 20):
            producer.send(
                TOPIC,
                b'{"n":%d,"carrier":"x","more":7}' % number,
                partition=number % 2,
                timestamp_ms=START_US // 1000 + 1000 * number,
            )
