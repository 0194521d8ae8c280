"""Statistics of typed columns: programs skip files by them, and never one that has a row."""

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.delta import DataFile
from spark_log.log import ColumnStatistics
from spark_log.table.statistics import typed_statistics
from spark_log.testing.spark import spark
from tests.table.support import TableRoot

__all__ = ["spark"]

PREFIX = "a long text whose beginning is the same everywhere, "
DDL = (
    "n INT, small TINYINT, big BIGINT, x DOUBLE, y FLOAT, p DECIMAL(10,2), w DECIMAL(38,0), "
    "s STRING, d DATE, t TIMESTAMP, b BOOLEAN, o STRUCT<n: INT, s: STRING, i: STRUCT<n: INT>>, "
    "l ARRAY<INT>, m MAP<STRING, INT>"
)
TYPED = {"table_value_format": "json", "table_schema": DDL}
PARTITIONS = 3


def value_of(partition, at):
    """A JSON document: ranges of partitions do not overlap, and some fields are null."""
    number = 100 * partition + at
    found = {
        "n": number,
        "small": 40 * partition - 60 + at,
        "big": 2**60 + number,
        "x": number + 0.1,
        "y": number + 0.5,
        "p": Decimal(number) + Decimal("0.25"),
        "w": 10**30 + number,
        "s": f"{PREFIX}{partition}{at}",
        "d": str(date(2024, 1, 1) + timedelta(days=number)),
        "t": (datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=number * 1_001_001))
        .isoformat()
        .replace("+00:00", "Z"),
        "b": True,
        "o": {"n": number, "s": f"{partition}{at}", "i": {"n": -number}},
        "l": [number],
        "m": {"k": number},
    }
    if at == 3:
        found = {"n": number}
    text = json.dumps(found, default=lambda each: f"decimal {each}")
    return text.replace('"decimal ', "").replace('.25"', ".25").encode()


@pytest.fixture
def typed(opened) -> TableRoot:
    root: TableRoot = opened(partitions=PARTITIONS, **TYPED)
    for partition in range(PARTITIONS):
        rows = [(b"k", value_of(partition, at)) for at in range(5)]
        root.append(*rows, partition=partition)
    root.append((b"k", b"no JSON"), partition=2)
    root.clean()
    return root


def stats(root, partition):
    """Return the statistics of a partition's file, as they are in the Delta log."""
    for path in sorted(root.directory.glob("_delta_log/*.json")):
        for line in path.read_text().splitlines():
            add = json.loads(line).get("add")
            if add and add["partitionValues"]["partition"] == str(partition):
                return json.loads(add["stats"], parse_float=Decimal)
    return None


def test_the_statistics_of_each_type_are_in_the_delta_log(typed):
    found = stats(typed, 1)
    least, most, nulls = found["minValues"], found["maxValues"], found["nullCount"]
    assert (least["n"], most["n"], nulls["n"]) == (100, 104, 0)
    assert (least["small"], most["small"], nulls["small"]) == (-20, -16, 1)
    assert (least["big"], most["big"]) == (2**60 + 100, 2**60 + 104)
    assert (least["x"], most["x"]) == (Decimal("100.1"), Decimal("104.1"))
    assert (least["y"], most["y"]) == (Decimal("100.5"), Decimal("104.5"))
    assert (least["p"], most["p"]) == (100.25, 104.25)
    assert least["s"] == PREFIX[:32]
    assert most["s"] == PREFIX[:32] + "\U0010ffff"
    assert (least["d"], most["d"]) == ("2024-04-10", "2024-04-14")
    assert (least["t"], most["t"]) == ("2024-01-01T00:01:40.100Z", "2024-01-01T00:01:44.105Z")
    assert least["o"] == {"n": 100, "s": "10", "i": {"n": -104}}
    assert most["o"] == {"n": 104, "s": "14", "i": {"n": -100}}
    assert nulls["o"] == {"n": 1, "s": 1, "i": {"n": 1}}
    assert (least["b"], most["b"]) == (True, True)
    assert (least["w"], most["w"]) == (10**30 + 100, 10**30 + 104)
    assert {"l", "m", "_decode_error"}.isdisjoint(least.keys() | most.keys())
    assert (nulls["w"], nulls["b"], nulls["_decode_error"]) == (1, 1, 5)
    assert {"l", "m"}.isdisjoint(nulls)
    assert stats(typed, 2)["nullCount"]["n"] == 1
    assert stats(typed, 2)["minValues"]["_decode_error"] == "it is not a JSON object"
    assert all(typed.findings(partition) == [] for partition in range(PARTITIONS))


def test_a_checkpoint_has_the_same_statistics(typed):
    for number in range(12):
        typed.append((b"k", b'{"n": %d}' % number))
        typed.clean()
    assert list(typed.directory.glob("_delta_log/*.checkpoint.parquet"))
    state = typed.newest
    (found,) = (f for path, f in state.data_files.items() if path.startswith("t-1/"))
    assert json.loads(found.stats(), parse_float=Decimal) == stats(typed, 1)


FILTERS = [
    ("n", 102),
    ("b", True),
    ("w", Decimal(10**30 + 102)),
    ("small", -20),
    ("big", 2**60 + 104),
    ("x", 101.1),
    ("y", 101.5),
    ("p", Decimal("104.25")),
    ("s", f"{PREFIX}10"),
    ("s", f"{PREFIX}14"),
    ("d", date(2024, 4, 14)),
    ("t", datetime(2024, 1, 1, 0, 1, 40, 100_100, tzinfo=UTC)),
    ("t", datetime(2024, 1, 1, 0, 1, 44, 104_104, tzinfo=UTC)),
]


def compared(column, value):
    """Return filters that compare a column with a value."""
    at = pc.field(column)
    return [at == value, at > value, at >= value, at < value, at <= value, at != value]


class TestDeltaRs:
    @pytest.mark.parametrize(("column", "value"), FILTERS)
    def test_no_row_is_missing(self, typed, column, value):
        rows = typed.delta_rs().to_pyarrow_table()
        files = typed.delta_rs().to_pyarrow_dataset()
        value = pa.scalar(value, rows.schema.field(column).type)
        for each in compared(column, value):
            expected = rows.filter(each).sort_by("offset")
            assert files.to_table(filter=each).sort_by("offset").num_rows == expected.num_rows

    @pytest.mark.parametrize(
        ("column", "value"), [each for each in FILTERS if each[0] not in "bws"]
    )
    def test_files_without_the_value_are_not_read(self, typed, column, value):
        damage(typed, 0, 2)
        files = typed.delta_rs().to_pyarrow_dataset()
        kind = files.schema.field(column).type
        assert files.to_table(filter=pc.field(column) == pa.scalar(value, kind)).num_rows == 1

    def test_a_file_without_nulls_or_without_values_is_not_read(self, typed):
        damage(typed, 0, 1)
        files = typed.delta_rs().to_pyarrow_dataset()
        assert files.to_table(filter=pc.field("n").is_null()).num_rows == 1


def test_polars_finds_each_value_and_skips_files(typed):
    polars = pytest.importorskip("polars")
    frame = polars.scan_delta(str(typed.directory))
    whole = frame.collect()
    for column, value in FILTERS:
        kind = whole.schema[column]
        for name in ("eq", "gt", "ge", "lt", "le", "ne"):
            wanted = getattr(polars.col(column), name)(polars.lit(value, kind))
            assert frame.filter(wanted).collect().height == whole.filter(wanted).height
    damage(typed, 0, 2)
    skipped = polars.scan_delta(str(typed.directory)).filter(polars.col("n") == 102)
    assert skipped.select("n").collect().height == 1


def test_duckdb_finds_each_value_and_skips_files(typed):
    duckdb = pytest.importorskip("duckdb")

    def count(name, column, sign, value):
        kind = TYPES.get(column, "VARCHAR")
        query = f"select count(*) from {name} where {column} {sign} $1::{kind}"
        return connection.execute(query, [value]).fetchone()

    with duckdb.connect() as connection:
        connection.register("files", typed.delta_rs().to_pyarrow_dataset())
        connection.register("whole", typed.delta_rs().to_pyarrow_table())
        for column, value in FILTERS:
            for sign in ("=", ">", ">=", "<", "<=", "<>"):
                asked = column, sign, value
                assert count("files", *asked) == count("whole", *asked)
        damage(typed, 0, 2)
        assert count("files", "n", "=", 102) == (1,)


TYPES = {
    "n": "INT",
    "small": "TINYINT",
    "big": "BIGINT",
    "x": "DOUBLE",
    "y": "FLOAT",
    "b": "BOOLEAN",
    "w": "DECIMAL(38,0)",
    "p": "DECIMAL(10,2)",
    "d": "DATE",
    "t": "TIMESTAMPTZ",
}


@pytest.mark.long
@pytest.mark.spark
def test_spark_finds_each_value_and_skips_files(typed, spark):
    rows = spark.read.format("delta").load(str(typed.directory))
    whole = spark.createDataFrame(rows.collect(), rows.schema).cache()
    filters = [
        "n = 102",
        "small = -20",
        f"big = {2**60 + 104}",
        "x = 101.1D",
        "y = 101.5F",
        "p = 104.25BD",
        f"s = '{PREFIX}14'",
        f"s >= '{PREFIX}14'",
        "d = DATE'2024-04-14'",
        "t = TIMESTAMP'2024-01-01T00:01:40.100100Z'",
        "t > TIMESTAMP'2024-01-01T00:01:44.104103Z'",
        "o.n = 104",
        "o.i.n = -100",
        "o.s = '12'",
        "w = 1000000000000000000000000000102BD",
        "n IS NULL",
        "o.n IS NULL",
        "x > 1000",
        "NOT (x < 104)",
    ]
    for each in filters:
        assert rows.filter(each).count() == whole.filter(each).count(), each
    damage(typed, 0, 2)
    for each in filters[:6] + filters[8:10] + filters[11:14]:
        assert rows.filter(each).select("offset").count() == 1, each


def damage(root, *partitions):
    """Make the files of partitions unreadable: a program that opens one fails."""
    for partition in partitions:
        for path in root.directory.glob(f"t-{partition}/*.parquet"):
            path.write_bytes(b"unreadable" * 1_000)


def bounds(kind, least, most, *, has_nan=False):
    low, high, _ = typed_statistics([ColumnStatistics(("c",), kind, 0, least, most, has_nan)])
    return low.get("c"), high.get("c")


class TestBounds:
    @given(st.text(max_size=40), st.text(st.sampled_from("a\U0010ffff\x7f"), max_size=40))
    def test_a_string_lies_between_its_bounds(self, one, other):
        for text in (one, other, one + other):
            low, high = bounds(pa.string(), text.encode(), text.encode())
            assert low.encode() <= text.encode() <= high.encode()
            assert len(low) <= 32

    @given(st.integers(-(2**40), 2**40), st.integers(0, 2**40))
    def test_a_timestamp_lies_between_its_bounds(self, first, count):
        low, high = bounds(pa.timestamp("us", "UTC"), first, first + count)
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        at = [
            (datetime.fromisoformat(text) - epoch) / timedelta(microseconds=1)
            for text in (low, high)
        ]
        assert first - 1_000 < at[0] <= first
        assert first + count <= at[1] < first + count + 1_000

    @given(st.integers(1, 38), st.data())
    def test_a_decimal_is_exact(self, precision, data):
        scale = data.draw(st.integers(0, precision))
        digits = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
        low, high = bounds(pa.decimal128(precision, scale), digits, digits)
        value = Decimal(digits).scaleb(-scale, Context(prec=40))
        assert low == high == value
        text = DataFile("f", 1, 1, {"c": low}, {"c": high}, {"c": 0}).stats()
        told = json.loads(text, parse_float=Decimal)
        assert told["minValues"]["c"] == value
        assert "E" not in text
        # As a checkpoint repeats it.
        assert DataFile.from_action({"path": "f", "size": 1, "stats": text}).stats() == text

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_a_float_is_read_as_it_was(self, value):
        low, high = bounds(pa.float64(), value, value)
        text = DataFile("f", 1, 1, {"c": low}, {"c": high}, {"c": 0}).stats()
        assert json.loads(text)["maxValues"]["c"] == value
        assert DataFile.from_action({"path": "f", "size": 1, "stats": text}).stats() == text

    @pytest.mark.parametrize("value", [math.inf, -math.inf])
    def test_what_json_has_not_gets_no_bounds(self, value):
        assert bounds(pa.float64(), value, 1.0) == (None, None)
        assert bounds(pa.float64(), -1.0, value) == (None, None)
        year_10000 = 253_402_300_800_000_000
        assert bounds(pa.timestamp("us", "UTC"), 0, year_10000) == (None, None)
        assert bounds(pa.date32(), 0, 2_932_897) == (None, None)

    def test_a_column_that_has_nan_has_no_largest_value(self):
        assert bounds(pa.float32(), 1.0, 2.0, has_nan=True) == (1.0, None)
        assert bounds(pa.float64(), None, None) == (None, None)


def test_nan_in_avro_is_never_skipped(opened):
    from io import BytesIO

    fastavro = pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "double"}]}
    root = opened(table_value_format="avro", table_schema=json.dumps(schema))
    for number in (1.5, math.nan, 2.5):
        sink = BytesIO()
        fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), {"x": number})
        root.append((b"k", sink.getvalue()))
    root.clean()
    found = stats(root, 0)
    assert found["minValues"]["x"] == 1.5
    assert "x" not in found["maxValues"]
    polars = pytest.importorskip("polars")
    rows = polars.scan_delta(str(root.directory))
    assert rows.filter(polars.col("x").is_nan()).collect().height == 1
    assert rows.filter(polars.col("x") > 2).collect().height == 2
    assert root.findings() == []


def test_an_add_without_these_statistics_stays_valid(typed):
    """As an earlier release has written it."""
    for path in typed.directory.glob("_delta_log/*.json"):
        lines = []
        for line in path.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                told = json.loads(action["add"]["stats"])
                for kind in ("minValues", "maxValues", "nullCount"):
                    told[kind] = {name: told[kind][name] for name in ("offset", "timestamp")}
                action["add"]["stats"] = json.dumps(told)
            lines.append(json.dumps(action))
        path.write_text("\n".join(lines) + "\n")
    assert "n" not in stats(typed, 1)["minValues"]
    assert all(typed.findings(partition) == [] for partition in range(PARTITIONS))
    polars = pytest.importorskip("polars")  # delta-rs 1.6 finds no row by a column without them
    assert polars.scan_delta(str(typed.directory)).filter(polars.col("n") == 102).collect().height
    typed.append((b"k", b'{"n": 7}'), partition=1)
    typed.clean()
    assert typed.findings(1) == []


def test_wrong_statistics_are_found(typed):
    for path in typed.directory.glob("_delta_log/*.json"):
        path.write_text(path.read_text().replace('\\"n\\":104', '\\"n\\":103'))
    (finding,) = typed.findings(1)
    assert "the version says" in finding.message
