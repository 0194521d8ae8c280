"""The schema, the protocol and the properties of a topic's Delta table.

The columns are those of the log in the Parquet segments, the partition column behind them, and then
the typed columns of the table's setting with ``_decode_error``. A file that was written before a
column was added does not have it, and every reader of Delta tables gives null.
No program but ours knows the writer feature, so all others refuse to write, and to VACUUM: that
would delete the files of the log that are not in the table.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from spark_log.delta import TableProtocol
from spark_log.table.partition_table import SETTING_PROPERTY, TableSetting
from spark_log.table.skipping_columns import SKIPPING_PROPERTY

PARTITION_COLUMN: Final = "partition"

PARTITION_FOLDER_PREFIX: Final = f"{PARTITION_COLUMN}="
"""Begins the names of folders in which other programs write data files before they are refused."""

TABLE_PROTOCOL: Final = TableProtocol(7, frozenset({"sparkLog"}), (PARTITION_COLUMN,))
"""The protocol of a topic's table."""

CHECKPOINT_INTERVAL: Final = "delta.checkpointInterval"

TABLE_PROPERTIES: Final = {
    CHECKPOINT_INTERVAL: "10",
    "delta.enableExpiredLogCleanup": "false",
    # To a program that ignores writer features, the log's other files are left over from failed
    # writes. Its VACUUM, unless told another time, deletes them after this one.
    "delta.deletedFileRetentionDuration": "interval 36500 days",
}


def table_metadata(
    topic: str,
    setting: TableSetting,
    time_ms: int,
    known: Mapping[str, object],
    skipping: Sequence[str],
) -> dict[str, object]:
    """Return the ``metaData`` action of a topic's table.

    Args:
        topic: the topic's name.
        setting: the topic's setting.
        time_ms: the time that Delta's history shows.
        known: the action of the newest version; empty if there is none.
        skipping: the columns by whose statistics programs may skip files.
    """
    before = known.get("configuration")
    properties = TABLE_PROPERTIES | (dict(before) if isinstance(before, Mapping) else {})
    return {
        "metaData": {
            "id": known.get("id") or str(uuid.uuid4()),
            "name": topic,
            "description": "A topic of spark-log; programs may read it, and must not change it",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(_schema(setting), separators=(",", ":")),
            "partitionColumns": [PARTITION_COLUMN],
            "configuration": properties
            | {SETTING_PROPERTY: setting.to_property(), SKIPPING_PROPERTY: ",".join(skipping)},
            "createdTime": known.get("createdTime") or time_ms,
        }
    }


def _field(name: str, kind: object) -> dict[str, object]:
    # No column is "not null", though the offset never is (ADR 44): Delta's protocol would have to
    # name the feature "invariants" for it, and clients of this protocol would refuse another one.
    # Statistics say that a file has no null in it.
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


_HEADER = {"type": "struct", "fields": [_field("key", "string"), _field("value", "binary")]}
_LOG_FIELDS: Final = (
    _field("offset", "long"),
    _field("timestamp", "timestamp"),
    _field("key", "binary"),
    _field("value", "binary"),
    _field("headers", {"type": "array", "elementType": _HEADER, "containsNull": True}),
    _field(PARTITION_COLUMN, "integer"),
)


def typed_columns(setting: TableSetting) -> pa.Schema:
    """Return the typed columns of a setting, as files have them; empty without."""
    if setting.value_format == "none":
        return pa.schema([])
    from spark_log.values import TypedValues  # late: few topics have typed columns

    return TypedValues(setting.value_format, setting.value_schema).decoded_schema


def _schema(setting: TableSetting) -> dict[str, object]:
    typed = [_field(each.name, _delta_type(each.type)) for each in typed_columns(setting)]
    return {"type": "struct", "fields": [*_LOG_FIELDS, *typed]}


_PRIMITIVES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
}


def _delta_type(kind: pa.DataType) -> object:
    """Return a type of `TypedValues` as the schema of a Delta table has it."""
    if pa.types.is_struct(kind):
        return {
            "type": "struct",
            "fields": [_field(each.name, _delta_type(each.type)) for each in kind],
        }
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _delta_type(kind.key_type),
            "valueType": _delta_type(kind.item_type),
            "valueContainsNull": True,
        }
    if pa.types.is_list(kind):
        item = _delta_type(kind.value_type)
        return {"type": "array", "elementType": item, "containsNull": True}
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    return _PRIMITIVES[kind]
