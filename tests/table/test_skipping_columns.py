"""Other programs skip files only by columns that every file has complete statistics of."""

import json
import math
from io import BytesIO

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_log.delta import DataFile
from spark_log.table.skipping_columns import columns_of_all, skipping_columns

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("raw", pa.binary()),
        pa.field("many", pa.list_(pa.int64())),
        pa.field("o", pa.struct([pa.field("x", pa.float64()), pa.field("b", pa.binary())])),
        pa.field("a name", pa.string()),
    ]
)


def file(rows=3, **statistics):
    """Return a file; of each column its smallest value, its largest value and its nulls."""
    least, most, nulls = (
        {name: each[at] for name, each in statistics.items() if each[at] is not None}
        for at in range(3)
    )
    return DataFile("f.parquet", 1, rows, least, most, nulls)


LOG = {"offset": (0, 2, 0), "timestamp": ("2024-01-01T00:00:00.000Z",) * 2 + (0,)}


def test_columns_that_can_have_bounds_are_named():
    assert skipping_columns(SCHEMA, ()) == ["offset", "timestamp", "n", "o.x"]


@pytest.mark.parametrize(
    ("statistics", "is_complete"),
    [
        ((1, 2, 0), True),
        ((1, 2, 2), True),
        ((None, None, 3), True),
        ((None, None, 2), False),
        ((1, None, 0), False),
        ((None, 2, 0), False),
        ((1, 2, None), False),
    ],
)
def test_statistics_are_complete(statistics, is_complete):
    found = columns_of_all(["n"], [file(**LOG, n=(0, 9, 0)), file(**LOG, n=statistics)])
    assert found == (["n"] if is_complete else [])


def test_a_field_of_a_struct_is_found():
    assert columns_of_all(["o.x"], [file(o=({"x": 1}, {"x": 2}, {"x": 0}))]) == ["o.x"]
    assert columns_of_all(["o.x"], [file(o=({"y": 1}, {"y": 2}, {"y": 0}))]) == []


def test_a_file_without_rows_says_nothing():
    assert columns_of_all(["n"], [file(rows=0)]) == ["n"]


def named(root):
    names: str = root.delta_rs().metadata().configuration["delta.dataSkippingStatsColumns"]
    return names.split(",")


def rows_with(root, condition):
    return root.delta_rs().to_pyarrow_dataset().to_table(filter=condition).num_rows


def test_a_column_that_was_added_is_named_when_all_files_have_it(opened):
    root = opened()
    root.append((b"k", b'{"n": 1}'))
    root.clean()
    assert named(root) == ["offset", "timestamp"]
    root.set(table_value_format="json", table_schema="n INT")
    root.append((b"k", b'{"n": 2}'))
    root.clean()
    assert named(root) == ["offset", "timestamp"]
    assert rows_with(root, pc.field("n") == 2) == 1
    assert rows_with(root, pc.field("n").is_null()) == 1
    while "n" not in named(root):  # the next checkpoint, after a merge has given all files columns
        assert root.newest.number < 30
        root.append((b"k", b'{"n": 3}'))
        root.clean()
        for condition in (pc.field("n") == 2, pc.field("n").is_null()):
            expected = root.delta_rs().to_pyarrow_table().filter(condition).num_rows
            assert rows_with(root, condition) == expected
    assert root.findings() == []


def test_a_file_with_nan_takes_its_column_out(opened):
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "double"}]}
    root = opened(table_value_format="avro", table_schema=json.dumps(schema))

    def append(*numbers):
        for number in numbers:
            sink = BytesIO()
            fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), {"x": number})
            root.append((b"k", sink.getvalue()))
        root.clean()

    append(1.0, 2.0)
    assert named(root) == ["offset", "timestamp", "x", "_decode_error"]
    append(math.nan, 3.0)
    assert named(root) == ["offset", "timestamp", "_decode_error"]
    assert rows_with(root, pc.field("x") == 3.0) == 1
    assert rows_with(root, pc.field("x") <= 1.0) == 1
    append(4.0)
    assert "x" not in named(root)
    assert root.findings() == []
