"""The typed columns of a topic, as other programs read its table."""

import json
from typing import Any

import pytest

from spark_log.table import PartitionTable, TableSetting, next_partition, rebuild_table
from spark_log.table.listing import LogFiles
from spark_log.table.partition_table import CleanupPolicy
from spark_log.table.schema import table_metadata

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
    action: Any = table_metadata("t", setting, 0, {})["metaData"]
    field = json.loads(action["schemaString"])["fields"][-2]
    assert field == {"name": "x", "type": kind, "nullable": True, "metadata": {}}
