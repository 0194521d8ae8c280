"""The typed columns of a topic, as other programs read its table."""

import json
import math
import struct
from typing import Any

import pyarrow as pa
import pytest

from spark_log.log.verify import LogFindingKind, Verifier
from spark_log.table import (
    PartitionTable,
    TableFindingKind,
    TableSetting,
    next_partition,
    read_data_file,
    rebuild_table,
)
from spark_log.table.listing import LogFiles
from spark_log.table.partition_table import CleanupPolicy
from spark_log.table.schema import table_metadata
from spark_log.values import TypedValues

TYPED = {"table_value_format": "json", "table_schema": "n INT, carrier STRING"}


def append_json(root, *numbers):
    root.append(
        *((b"k%d" % n, b'{"n": %d, "carrier": "c%d", "d": [1]}' % (n, n % 3)) for n in numbers)
    )


def columns(root, *names):
    """Return columns that delta-rs reads, in offset order."""
    table = root.delta_rs().to_pyarrow_table().sort_by("offset")
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_the_table_has_the_typed_columns(opened):
    root = opened(**TYPED)
    append_json(root, 1, 2)
    root.append((b"k", b"no JSON"))
    root.clean()
    schema = root.delta_rs().schema().to_arrow()
    assert schema.names[-4:] == ["partition", "n", "carrier", "_decode_error"]
    found = columns(root, "n", "carrier", "value")
    assert found[0] == (1, "c1", b'{"n": 1, "carrier": "c1", "d": [1]}')
    assert found[2][:2] == (None, None)
    (errors,) = zip(*columns(root, "_decode_error"), strict=True)
    assert errors[:2] == (None, None)
    assert errors[2] is not None
    assert root.findings() == []


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_values_that_files_leave_out_are_compared(opened, policy):
    compacted = {"cleanup_policy": "compact", "segment_ms": 1} if policy == "compact" else {}
    root = opened(**TYPED, table_keep_value=False, **compacted)
    root.append(*((b"k%d" % (n % 3), b'{"n":%d,"carrier":"c"}' % n) for n in range(9)))
    root.append((b"k1", b"no JSON"), (b"k2", b'{"n": 1}'), (b"k3", None))
    root.clean()
    root.clean()
    stored = [value for (value,) in columns(root, "value")]
    assert None in stored
    assert b"no JSON" in stored or policy == "compact"
    assert root.findings() == []


def test_a_new_column_is_a_version_without_files(opened):
    root = opened(**TYPED)
    append_json(root, 1)
    root.clean()
    before = root.newest
    root.set(table_schema="n INT, carrier STRING, d ARRAY<INT>")
    root.append((b"k", b'{"n": 9, "d": [7, 8]}'))
    root.clean()
    changed = root.table.at(before.number + 1)
    assert changed.setting.value_schema == "n INT, carrier STRING, d ARRAY<INT>"
    assert changed.partitions[0].files == before.partitions[0].files
    assert changed.ends() == before.ends()
    assert root.partition().end == 2
    assert sorted(columns(root, "n", "d")[-1:]) == [(9, [7, 8])]
    assert root.findings() == []
    number = root.newest.number
    root.clean()
    assert root.newest.number == number


def test_files_tell_their_columns_apart(opened):
    """A merge that makes other columns changes rows for streams of the table (``dataChange``)."""
    root = opened(**TYPED)
    changes: list[dict[str, str]] = [
        {},
        {"table_keep_value": "true"},
        {"table_keep_value": "false"},
        {"table_schema": TYPED["table_schema"] + ", d INT"},
    ]
    for change in changes:
        root.set(**change)
        root.append((b"k", b'{"n": 1, "carrier": "c"}'))
        root.clean()
    files = [root.newest.file_of(0, name) for name in root.partition().files]
    first, second, third, fourth = (each.tags["sparkLog.columns"] for each in files)
    assert first == second
    assert len({first, third, fourth}) == 3
    for _ in range(10):
        append_json(root, 1)
        root.clean()
    assert list(root.directory.glob("_delta_log/*.checkpoint.parquet")), "which has tags, too"
    newest = root.newest
    for name in newest.partitions[0].files:
        read = read_data_file(root.table, 0, newest.directories[0], name)
        assert newest.file_of(0, name) == read


def test_columns_that_come_later_are_null_in_older_files(opened):
    root = opened()
    append_json(root, 1)
    root.clean()
    root.set(**TYPED)
    root.clean()
    assert columns(root, "n", "carrier") == [(None, None)]


def test_a_rebuilt_table_has_the_columns(opened):
    root = opened(**TYPED)
    append_json(root, 1, 2)
    root.clean()
    rebuild_table(root.table, root.cluster.image().offset)
    assert columns(root, "n", "carrier") == [(1, "c1"), (2, "c2")]
    assert root.findings() == []


def test_a_checkpoint_keeps_the_columns(opened):
    root = opened(**TYPED)
    for number in range(24):
        append_json(root, number)
        root.clean()
    assert list(root.directory.glob("_delta_log/*.checkpoint.parquet"))
    assert root.newest.setting.value_schema == TYPED["table_schema"]
    assert columns(root, "n") == [(number,) for number in range(24)]


def test_a_change_of_the_columns_keeps_the_compaction():
    setting = TableSetting(CleanupPolicy.COMPACT, 1, "json", "n INT")
    newer = TableSetting(CleanupPolicy.COMPACT, 2, "json", "n INT, m INT")
    table = PartitionTable(setting, 0, 0, (), 7)
    assert next_partition(table, newer, LogFiles(0)) == PartitionTable(newer, 0, 0, (), 7)


@pytest.mark.parametrize(
    ("ddl", "kind"),
    [
        ("x TIMESTAMP", "timestamp"),
        ("x DECIMAL(9,2)", "decimal(9,2)"),
        ("x ARRAY<LONG>", {"type": "array", "elementType": "long", "containsNull": True}),
        (
            "x MAP<STRING, DATE>",
            {"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": True},
        ),
        (
            "x STRUCT<y: SHORT>",
            {
                "type": "struct",
                "fields": [{"name": "y", "type": "short", "nullable": True, "metadata": {}}],
            },
        ),
    ],
)
def test_types_are_named_as_delta_names_them(ddl, kind):
    setting = TableSetting(CleanupPolicy.DELETE, 1, "json", ddl)
    action: Any = table_metadata("t", setting, 0, {}, ())["metaData"]
    field = json.loads(action["schemaString"])["fields"][-2]
    assert field == {"name": "x", "type": kind, "nullable": True, "metadata": {}}


def reader_of(root):
    """Return a reader of the only file of the table."""
    files = root.log().replica.files
    return files.open(root.partition().files[0])


VALUES = [
    b'{"n": 1, "carrier": "AA"}',
    b'{"n":2,"carrier":"BB"}',
    None,
    b"no JSON",
    b'{"n":3,"carrier":null}',
    b'{"carrier":"x","n":4}',
]


class TestVerifying:
    """The typed columns are compared with the values; what other programs read is right."""

    @pytest.fixture(params=["true", "false"])
    def planted(self, request, opened, monkeypatch):
        """Return a function that writes `VALUES` with columns that a function has changed."""

        def plant(change):
            def decode(typed, values):
                found = original(typed, values)
                columns = {name: found.column(name) for name in found.schema.names}
                return pa.RecordBatch.from_pydict(change(columns), schema=found.schema)

            root = opened(**TYPED, table_keep_value=request.param)
            root.append(*((b"k%d" % at, value) for at, value in enumerate(VALUES)))
            original = TypedValues.decode
            with monkeypatch.context() as patch:
                patch.setattr(TypedValues, "decode", decode)
                root.clean()
            return root

        return plant

    def test_right_columns_are_no_finding(self, planted):
        root = planted(lambda columns: columns)
        assert root.findings() == []
        found = Verifier(root.log().replica).findings()
        assert {each.kind for each in found} == {LogFindingKind.SPENT_SEGMENT}

    @pytest.mark.parametrize(
        ("column", "row", "value", "message"),
        [
            ("n", 0, 7, "the column n at offset 0 is 7, and the value says 1"),
            ("n", 4, None, "the column n at offset 4 is None, and the value says 3"),
            ("carrier", 5, "y", "the column carrier at offset 5 is 'y', and the value says 'x'"),
            ("carrier", 3, "y", "the column carrier at offset 3 is 'y', and the value says None"),
            ("_decode_error", 3, None, "the value at offset 3 does not decode, and _d"),
        ],
    )
    def test_a_wrong_column_is_found(self, planted, column, row, value, message):
        def change(columns):
            values = columns[column].to_pylist()
            values[row] = value
            return columns | {column: pa.array(values, columns[column].type)}

        root = planted(change)
        (finding,) = root.findings()
        assert (finding.kind, finding.offset) == (TableFindingKind.FILE, 0)
        assert message in finding.message
        assert any(message in each.message for each in Verifier(root.log().replica).findings())

    def test_columns_of_a_null_value_are_found(self, planted):
        root = planted(lambda columns: columns | {"n": pa.array([1, 2, 5, None, 3, 4], pa.int32())})
        (finding,) = root.findings()
        assert finding.kind == TableFindingKind.FILE
        if reader_of(root).leaves_values_out:
            assert "checksum of the column value" in finding.message
        else:
            assert "the column n at offset 2 is 5, and the value says None" in finding.message

    def test_a_value_that_a_later_release_decodes_is_no_finding(self, planted):
        """An earlier one has said that it does not decode, and its columns are null."""

        def change(columns):
            return {
                "n": pa.array([None, 2, None, None, 3, 4], pa.int32()),
                "carrier": pa.array([None, "BB", None, None, None, "x"]),
                "_decode_error": pa.array(["too hard", None, None, "no JSON", None, None]),
            }

        assert planted(change).findings() == []


def test_nan_in_a_column_is_no_finding(opened):
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "double"}]}
    root = opened(table_value_format="avro", table_schema=json.dumps(schema))
    root.append((b"k", struct.pack("<d", math.nan)), (b"k", struct.pack("<d", 1.5)))
    root.clean()
    assert root.findings() == []
