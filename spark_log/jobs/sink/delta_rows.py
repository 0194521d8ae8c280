"""The Delta table of a sink: its columns, creation, checks, and conversion of records to rows."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from spark_log.errors import AlreadyExistsError, InvalidOptionError, StorageError
from spark_log.storage import Store

LOG_DIRECTORY: Final = "_delta_log"
_FIRST_VERSION: Final = f"{LOG_DIRECTORY}/{0:020d}.json"

_COLUMNS: Final = {
    "key": "string",
    "value": "string",
    "topic": "string",
    "partition": "integer",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "integer",
}
_TEXT_COLUMNS: Final = ("key", "value")
_ARROW_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def columns(*, is_binary: bool) -> dict[str, str]:
    """Return a table's columns with Delta's types, as Spark writes records that it reads."""
    return _COLUMNS | dict.fromkeys(_TEXT_COLUMNS, "binary" if is_binary else "string")


def arrow_schema(expected: Mapping[str, str]) -> pa.Schema:
    """Return the columns as an Arrow schema."""
    return pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in expected.items()])


def open_table(store: Store) -> DeltaTable | None:
    """Return the current Delta table at a store's root; None if there is none.

    Raises:
        StorageError: the table cannot be read.
    """
    try:
        return DeltaTable(store.directory_url(""), storage_options=store.delta_options())
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise StorageError(f"{store.url} cannot be read: {' '.join(str(error).split())}") from error


def create_table(store: Store, expected: Mapping[str, str]) -> None:
    """Create an empty table, unless there is one.

    The version 0 of the table's log is written by put-if-absent, so that of several processes the
    first one creates the table. (If several processes created it by delta-rs, each would replace
    the definition of the others.)

    Raises:
        InvalidOptionError: the directory contains other files.
        StorageError: the table was not created.
    """
    if next(iter(store.list(LOG_DIRECTORY)), None) is not None:
        return
    found = [file.path for file in store.list("")]
    found += [name for name in store.list_directories("") if name != LOG_DIRECTORY]
    if found:
        raise InvalidOptionError(
            f"{store.url} is not a Delta table, and not empty: it contains {min(found)}; give the "
            f"path of a Delta table, or of an empty directory",
            key="path",
        )
    with suppress(AlreadyExistsError):
        store.put_if_absent(_FIRST_VERSION, _first_version(expected))


def check_table(table: DeltaTable, url: str, expected: Mapping[str, str]) -> None:
    """Check that rows fit into a table, and that the table keeps offsets forever.

    Raises:
        InvalidOptionError: columns are missing or have other types, a column must not be null, or
            transactions expire.
    """
    fields = json.loads(table.schema().to_json())["fields"]
    existing = {field["name"]: field["type"] for field in fields}
    wrong = [
        f"{name} is {existing[name]} instead of {kind}"
        if name in existing
        else f"{name} is missing"
        for name, kind in expected.items()
        if existing.get(name) != kind
    ]
    if wrong:
        is_about_bytes = {existing.get(name) for name in _TEXT_COLUMNS} == {"string", "binary"} - {
            expected["key"]
        }
        hint = "; with --binary keys and values are binary, else string" if is_about_bytes else ""
        raise InvalidOptionError(
            f"the Delta table {url} has different columns: {', '.join(wrong)}{hint}", key="path"
        )
    never_null = expected.keys() - set(_TEXT_COLUMNS)
    strict = sorted(each["name"] for each in fields if not each["nullable"])
    lacking = [name for name in strict if name not in never_null]
    if lacking:
        raise InvalidOptionError(
            f"the Delta table {url} does not allow nulls in {', '.join(lacking)}, but records may "
            f"have them; alter the table, or use another one",
            key="path",
        )
    forgets = "delta.setTransactionRetentionDuration"
    if forgets in table.metadata().configuration:
        raise InvalidOptionError(
            f"the Delta table {url} has the property {forgets}, so it would forget the group's "
            f"offsets; unset the property",
            key="path",
        )


def to_rows(records: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return records as rows of a table.

    Args:
        records: columns of ``schema``, with keys and values as bytes.
        schema: the result of `arrow_schema`. In text columns, bytes that are not UTF-8 become
            U+FFFD.
    """
    arrays = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        column = records.column(name)
        arrays.append(
            _as_text(column) if name in _TEXT_COLUMNS and pa.types.is_string(kind) else column
        )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_text(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        values = column.to_pylist()
        texts = (None if each is None else each.decode("utf-8", "replace") for each in values)
        return pa.array(texts, pa.string())


def _first_version(expected: Mapping[str, str]) -> bytes:
    time_ms = time.time_ns() // 1_000_000
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in expected.items()
    ]
    actions: list[dict[str, object]] = [
        {
            "commitInfo": {
                "timestamp": time_ms,
                "operation": "CREATE TABLE",
                "operationParameters": {},
                "engineInfo": "spark-log",
            }
        },
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": time_ms,
            }
        },
    ]
    return "".join(f"{json.dumps(action)}\n" for action in actions).encode()
