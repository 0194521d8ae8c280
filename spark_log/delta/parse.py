"""Parses versions and checkpoints of a Delta log: pure functions of their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_log.delta.files import DataFile, damaged_table_error, remedy
from spark_log.delta.state import (
    PLAIN_TABLE,
    SetTransaction,
    TableMetadata,
    TableProtocol,
    TableState,
    Version,
)
from spark_log.errors import StorageError
from spark_log.util import parse_json

_READER_VERSION = 1
_CHECKPOINT_COLUMNS = {
    "add": ["path", "partitionValues", "size", "modificationTime", "stats", "tags"],
    "txn": ["appId", "version", "lastUpdated"],
    "metaData": [
        *("id", "name", "description", "schemaString", "partitionColumns", "configuration"),
        "createdTime",
    ],
    "protocol": ["minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"],
}
_MAPS = ("partitionValues", "configuration", "tags")


def parse_version(
    directory: str, number: int, body: bytes, protocol: TableProtocol = PLAIN_TABLE
) -> Version:
    """Return the changes of a version.

    Args:
        directory: the table's directory, for messages.
        number: the version's number.
        body: the content of the version's file: one JSON action per line.
        protocol: the protocol that the table has to have.

    Raises:
        StorageError: the version cannot be parsed, or it makes a change to the table that this
            package does not support.
    """
    return version_of_lines(directory, number, map(parse_json, body.splitlines()), protocol)


def version_of_lines(
    directory: str,
    number: int,
    lines: Iterable[Mapping[str, Any]],
    protocol: TableProtocol = PLAIN_TABLE,
) -> Version:
    """Return the changes of a version whose lines are parsed; see `parse_version`.

    Args:
        directory: the table's directory, for messages.
        number: the version's number.
        lines: the actions of the version, each in a mapping with its kind.
        protocol: the protocol that the table has to have.

    Raises:
        StorageError: See `parse_version`.
    """
    added: list[DataFile] = []
    removed: list[str] = []
    transactions: list[SetTransaction] = []
    metadata: TableMetadata | None = None
    is_rewrite = True
    try:
        for kind, action in (each for line in lines for each in line.items()):
            if kind == "add":
                added.append(DataFile.from_action(action))
                is_rewrite &= not action["dataChange"]
            elif kind == "remove":
                removed.append(action["path"])
            elif kind == "txn":
                updated_ms = action.get("lastUpdated") or 0
                transactions.append(SetTransaction(action["appId"], action["version"], updated_ms))
            elif kind == "metaData":
                metadata = _parse_metadata(directory, action, protocol)
            elif kind == "protocol":
                _check_protocol(directory, action, protocol)
            elif kind == "commitInfo":
                is_rewrite |= action.get("operation") == "OPTIMIZE"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged_table_error(
            directory, f"version {number} cannot be parsed ({error})"
        ) from None
    return Version(
        number,
        tuple(added),
        tuple(removed),
        tuple(transactions),
        bool(removed) and is_rewrite,
        metadata,
    )


def parse_checkpoint(
    directory: str, version: int, buffer: pa.Buffer, protocol: TableProtocol = PLAIN_TABLE
) -> TableState:
    """Return the state in a checkpoint.

    Args:
        directory: the table's directory, for messages.
        version: the checkpoint's version.
        buffer: the content of the checkpoint's Parquet file.
        protocol: the protocol that the table has to have.

    Raises:
        pa.ArrowException, OSError, ValueError, KeyError, TypeError: the file cannot be parsed.
        StorageError: this package does not support the table.
    """
    data = pq.ParquetFile(pa.BufferReader(buffer))
    present = set(_nested_columns(data.schema_arrow))
    wanted = [
        f"{action}.{name}"
        for action, names in _CHECKPOINT_COLUMNS.items()
        for name in names
        if f"{action}.{name}" in present
    ]
    table = data.read(columns=wanted)
    state = TableState(version)
    for action in _actions(table, "metaData"):
        state.metadata = _parse_metadata(directory, action, protocol)
    for action in _actions(table, "protocol"):
        _check_protocol(directory, action, protocol)
    for action in _actions(table, "add"):
        file = DataFile.from_action(action)
        state.files[file.path] = file
    transactions = table.column("txn").combine_chunks() if "txn" in table.column_names else None
    if transactions is not None:
        transactions = transactions.filter(transactions.is_valid())
        transactions.validate(full=True)
        state.checkpoint_transactions = pa.table(
            {
                name: pc.struct_field(transactions, name)
                if transactions.type.get_field_index(name) >= 0
                else pa.nulls(len(transactions), pa.int64())
                for name in _CHECKPOINT_COLUMNS["txn"]
            }
        )
    return state


def _parse_metadata(
    directory: str, action: Mapping[str, Any], protocol: TableProtocol
) -> TableMetadata:
    columns = tuple(action.get("partitionColumns") or ())
    if columns != protocol.partition_columns:
        raise damaged_table_error(
            directory, f"another program has partitioned it by {', '.join(columns) or 'nothing'}"
        )
    return TableMetadata(action["id"], dict(action.get("configuration") or {}), action)


def _check_protocol(directory: str, action: Mapping[str, Any], protocol: TableProtocol) -> None:
    """Check that this package may change a table, and that others know whether they may.

    Raises:
        StorageError: the protocol is not the one that the table has to have.
    """
    reader, writer = action["minReaderVersion"], action["minWriterVersion"]
    features = frozenset(action.get("writerFeatures") or ())
    is_known = writer <= protocol.writer_version and features == protocol.writer_features
    if reader <= _READER_VERSION and is_known:
        return
    has = _protocol_text(reader, writer, features)
    supported = _protocol_text(_READER_VERSION, protocol.writer_version, protocol.writer_features)
    if protocol.writer_features and not features:
        problem = f"another program has created a table there, of Delta protocol {has}"
    else:
        problem = f"another program has upgraded the table to Delta protocol {has}"
    raise StorageError(
        f"{directory}: {problem}; this spark-log supports {supported}: undo that change, or "
        f"{remedy(directory)}",
        path=directory,
    )


def _protocol_text(reader: int, writer: int, features: Iterable[str]) -> str:
    return ", ".join((str(reader), str(writer), *sorted(features)))


def _actions(table: pa.Table, kind: str) -> list[dict[str, Any]]:
    if kind not in table.column_names:
        return []
    column = table.column(kind)
    found = []
    for action in column.filter(column.is_valid()).to_pylist():
        for name in _MAPS:
            if isinstance(action.get(name), Iterable):
                action[name] = dict(action[name])
        found.append(action)
    return found


def _nested_columns(schema: pa.Schema) -> Iterable[str]:
    for parent in schema:
        if pa.types.is_struct(parent.type):
            for index in range(parent.type.num_fields):
                yield f"{parent.name}.{parent.type.field(index).name}"
