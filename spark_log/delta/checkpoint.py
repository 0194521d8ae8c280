"""Writes a checkpoint of a Delta log: the table's state after a version, as one Parquet file.

It is Delta's classic checkpoint, which every reader knows, with a row for each action. Files that
were removed have no row: only VACUUM needs them. A checkpoint is derived data: a reader that finds
none, or a damaged one, reads the versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_log.delta.files import DataFile
from spark_log.delta.state import TableProtocol, TableState
from spark_log.record import binary_array, bool_array, nullable_int_array
from spark_log.storage import Store

_ROW_GROUP_ROWS = 65_536

_MAP = pa.map_(pa.string(), pa.string())
_STRINGS = pa.list_(pa.string())

_SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _MAP,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "tags": _MAP,
            }
        ),
        "remove": pa.struct(
            {"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _MAP}),
                "schemaString": pa.string(),
                "partitionColumns": _STRINGS,
                "configuration": _MAP,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "writerFeatures": _STRINGS,
            }
        ),
    }
)


def write_checkpoint(
    store: Store, log_directory: str, state: TableState, protocol: TableProtocol
) -> None:
    """Write the checkpoint of a state. Readers find it by a listing, or by `point_to_checkpoint`.

    Args:
        store: the store of the table.
        log_directory: the directory of the table's log.
        state: the state after an existing version.
        protocol: the table's protocol.

    Raises:
        StorageError: it was not written.
    """
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, _SCHEMA, compression="zstd") as writer:
        for batch in _batches(state, protocol):
            writer.write_batch(batch)
    store.put(f"{log_directory}/{state.version:020}.checkpoint.parquet", sink.getvalue())


def point_to_checkpoint(store: Store, log_directory: str, state: TableState) -> None:
    """Make ``_last_checkpoint`` name the checkpoint of a state.

    Raises:
        StorageError: it was not written.
    """
    size = 2 + len(state.files) + len(state.transactions())
    pointer = json.dumps({"version": state.version, "size": size})
    store.put(f"{log_directory}/_last_checkpoint", pointer.encode())


def _batches(state: TableState, protocol: TableProtocol) -> Iterator[pa.RecordBatch]:
    assert state.metadata is not None
    (action,) = protocol.to_action().values()
    yield _batch("protocol", [action])
    metadata = dict(state.metadata.action)
    metadata["format"] = {"provider": "parquet", "options": []}
    metadata["configuration"] = list(state.configuration.items())
    yield _batch("metaData", [metadata])
    transactions = (each.to_action()["txn"] for each in state.transactions().values())
    while rows := list(islice(transactions, _ROW_GROUP_ROWS)):
        yield _batch("txn", rows)
    files = iter(state.files.values())
    while some := list(islice(files, _ROW_GROUP_ROWS)):
        yield _in_column("add", _adds(some))


def _adds(files: Sequence[DataFile]) -> pa.Array:
    rows = [
        {
            "path": each.path,
            "partitionValues": list(each.partition_values.items()),
            "size": each.size_bytes,
            "modificationTime": each.modified_ms,
            "dataChange": False,
            "stats": each.stats(),
            "tags": list(each.tags.items()) if each.tags else None,
        }
        for each in files
    ]
    return _array(rows, _SCHEMA.field("add").type)


def _batch(kind: str, rows: Sequence[object]) -> pa.RecordBatch:
    return _in_column(kind, _array(rows, _SCHEMA.field(kind).type))


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an array, without ``pa.array``, which would import pandas.

    Args:
        values: the values: a mapping for a struct, in which null fields may be missing; pairs for a
            map; None for a null, but not for a struct.
        kind: one of the types in the schema.
    """
    if values.count(None) == len(values):
        return pa.nulls(len(values), kind)
    if pa.types.is_string(kind):
        texts = [None if each is None else each.encode() for each in values]
        return binary_array(texts).view(kind)
    if pa.types.is_boolean(kind):
        return bool_array(np.array(values, np.bool_))
    if pa.types.is_integer(kind):
        return nullable_int_array(values, kind)
    return _nested_array(values, kind)


def _nested_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of structs, lists or maps."""
    if pa.types.is_struct(kind):
        fields = list(kind)
        columns = [
            _array([each.get(field.name) for each in values], field.type) for field in fields
        ]
        return pa.StructArray.from_arrays(columns, fields=fields)
    items = [item for each in values for item in each or ()]
    ends = accumulate(len(each or ()) for each in values)
    starts = [
        None if each is None else end - len(each) for each, end in zip(values, ends, strict=True)
    ]
    offsets = nullable_int_array([*starts, len(items)], pa.int32())
    if pa.types.is_map(kind):
        keys, texts = ([pair[at] for pair in items] for at in (0, 1))
        key_array, item_array = _array(keys, kind.key_type), _array(texts, kind.item_type)
        return pa.MapArray.from_arrays(offsets, key_array, item_array)
    return pa.ListArray.from_arrays(offsets, _array(items, kind.value_type))


def _in_column(kind: str, actions: pa.StructArray) -> pa.RecordBatch:
    """Return rows that have actions in the column of their kind, and null in the others."""
    columns: Mapping[str, pa.Array] = {kind: actions}
    return pa.RecordBatch.from_arrays(
        [columns.get(field.name, pa.nulls(len(actions), field.type)) for field in _SCHEMA],
        schema=_SCHEMA,
    )
