"""A SQL expression that is true or false for a record, evaluated by duckdb in a sandbox.

duckdb evaluates a user's text only after its syntax tree was checked: it is one expression, made
of the columns, constants, operators and functions that are listed here. It has no subquery, no
table, and no function that reads a file or a setting, or makes a large value of a small one. In
addition duckdb opens no file and no network, loads no extension, sees no Python variable, and its
settings are locked. Each of the two protections is sufficient alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from spark_log.console.budget import Budget
from spark_log.errors import InvalidConfigurationError

COLUMNS: Final = ("key", "value", "json", "headers", "timestamp", "partition", "offset")
"""The columns of an expression. ``key``, ``value`` and header values are text; bytes that are
not UTF-8 are written as ``\\xNN``. ``json`` is the value, and null if it is not JSON. ``timestamp``
is in UTC."""

_HEADERS: Final = pa.list_(
    pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])
)
_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),
        pa.field("json", pa.string()),
        pa.field("headers", _HEADERS),
        pa.field("timestamp", pa.timestamp("us")),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("row", pa.int64()),
    ]
)
_CLASSES: Final = {
    *("BETWEEN", "CASE", "CAST", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION"),
    *("LAMBDA", "OPERATOR", "TYPE"),
}
_FUNCTIONS: Final = {
    # operators
    *("+", "-", "*", "/", "//", "%", "~~", "!~~"),
    *("~~*", "!~~*", "~~~", "->", "->>", "^@", "@>", "<@"),
    *("array_extract", "struct_extract", "like_escape", "not_like_escape", "ilike_escape"),
    "not_ilike_escape",
    # text
    *("ascii", "bit_length", "char_length", "character_length", "contains", "ends_with", "hash"),
    *("instr", "left", "len", "length", "levenshtein", "lower", "lcase", "ltrim", "md5"),
    *("octet_length", "position", "prefix"),
    *("regexp_extract", "regexp_full_match", "regexp_matches"),
    *("reverse", "right", "rtrim", "starts_with"),
    *("strlen", "strpos", "substr", "substring", "suffix"),
    *("trim", "ucase", "upper"),
    # JSON
    *("json_array_length", "json_contains", "json_exists", "json_extract", "json_extract_path"),
    *("json_extract_path_text", "json_extract_string", "json_keys", "json_type", "json_valid"),
    "json_value",
    # lists
    *("array_contains", "array_has", "array_length"),
    *("list_contains", "list_extract", "list_filter"),
    *("list_has", "list_position", "struct_pack", "row"),
    # numbers
    *("abs", "ceil", "ceiling", "floor", "greatest", "isfinite", "isinf", "isnan", "least", "log"),
    *("ln", "mod", "pow", "power", "round", "sign", "sqrt", "trunc"),
    # times
    *("century", "date_diff", "date_part", "date_trunc"),
    *("datediff", "datepart", "datetrunc", "day"),
    *("dayname", "dayofweek", "dayofyear", "epoch", "epoch_ms", "epoch_us", "hour", "isodow"),
    *("make_date", "make_timestamp", "minute", "month"),
    *("monthname", "quarter", "second", "strftime"),
    *("strptime", "to_days", "to_hours"),
    *("to_minutes", "to_seconds", "to_timestamp", "try_strptime"),
    *("week", "weekday", "year"),
    # null
    *("coalesce", "ifnull", "nullif"),
}
_MAX_CHARACTERS: Final = 4000
_MAX_CALLS: Final = 60
_QUERY: Final = "SELECT 1 FROM records WHERE (\n{}\n)"

_OFFSET: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\boffset\b""", re.IGNORECASE)
"""A pattern for the column ``offset``, and for quoted text and comments, which may contain it."""

_SETTINGS: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "temp_directory": "",
}


def check_expression(text: str) -> frozenset[str]:
    """Check a user's expression, and return the columns that it names.

    Raises:
        InvalidConfigurationError: it is not one expression, or uses something that is not allowed.
    """
    if not text.strip():
        raise _error("it is empty")
    if len(text) > _MAX_CHARACTERS:
        raise _error(f"it has more than {_MAX_CHARACTERS} characters")
    text = _quoted(text)
    with _connect(64 * 1024 * 1024, 1) as connection:
        tree, empty = _parsed(connection, text), _parsed(connection, "true")
    where = tree.pop("where_clause", None)
    empty.pop("where_clause")
    if where is None or _without_places(tree) != _without_places(empty):
        raise _error("it is not one expression")
    columns: set[str] = set()
    calls = 0
    for node in _nodes(where):
        kind = node["class"]
        name = str(node.get("function_name", "")).lower()
        if kind not in _CLASSES:
            raise _error(f"{kind.lower().replace('_', ' ')} is not allowed in it")
        if kind == "FUNCTION":
            calls += 1
            if name not in _FUNCTIONS or node.get("schema") or node.get("catalog"):
                raise _error(f"the function {name} is not allowed in it")
        if kind == "COLUMN_REF":
            names = [each.lower() for each in node["column_names"]]
            columns.add(names[1] if names[0] == "records" and len(names) > 1 else names[0])
    if calls > _MAX_CALLS:
        raise _error(f"it calls more than {_MAX_CALLS} functions")
    return frozenset(columns & set(COLUMNS))


class Expression:
    """A checked expression, with the engine that evaluates it, for one search."""

    def __init__(self, text: str, *, memory_bytes: int, threads: int | None = None) -> None:
        """Check the expression, and bind it to the columns.

        Args:
            text: the user's text.
            memory_bytes: the memory limit of duckdb.
            threads: the number of duckdb's threads; None for one per processor.

        Raises:
            InvalidConfigurationError: it is not one expression, uses something that is not allowed,
                or is not of type BOOLEAN.
        """
        self.columns = check_expression(text)
        self._text = _quoted(text)
        self._json_is_checked = False
        self._connection = _connect(memory_bytes, threads or os.cpu_count() or 1)
        try:
            self._check_type()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the engine."""
        self._connection.close()

    def interrupt(self) -> None:
        """Stop an evaluation. Thread-safe."""
        self._connection.interrupt()

    def matches(
        self,
        batches: list[pa.RecordBatch],
        offsets: list[np.ndarray],
        partition: int,
        budget: Budget,
    ) -> np.ndarray:
        """Return the rows, counted over all batches, for which the expression is true.

        Args:
            batches: batches with the columns of `RECORD_SCHEMA`.
            offsets: the offsets of the rows of each batch.
            partition: the partition of all batches.
            budget: the budget that interrupts the evaluation.

        Raises:
            InvalidConfigurationError: the expression fails for a record.
        """
        first = 0
        made = []
        for batch, places in zip(batches, offsets, strict=True):
            made.append(self._columns_of(batch, places, partition, first))
            first += batch.num_rows
        table = pa.Table.from_batches(made)
        with budget.interrupting(self.interrupt):
            try:
                return self._evaluate(table)
            except duckdb.InterruptException:
                budget.check()
                raise
            except _MalformedJsonError:
                # From now on each value is first checked to be JSON.
                self._json_is_checked = True
                return self._evaluate(table)

    def _check_type(self) -> None:
        self._connection.register("records", _SCHEMA.empty_table())
        try:
            bound = self._connection.execute(f"SELECT (\n{self._text}\n) FROM records")
            assert bound.description is not None
            kind = str(bound.description[0][1])
        except duckdb.Error as error:
            raise _error(str(error).strip().split("\n")[0]) from None
        if kind != "BOOLEAN":
            raise _error(f"it is of type {kind}, expected BOOLEAN")
        self._connection.unregister("records")

    def _columns_of(
        self, batch: pa.RecordBatch, offsets: np.ndarray, partition: int, first: int
    ) -> pa.RecordBatch:
        """Return the columns that the expression names; text columns are not copied."""
        count = batch.num_rows
        made: dict[str, Any] = {}
        value: pa.Array | None = None
        if self.columns & {"value", "json"}:
            value = as_text(batch.column("value"))
        for name in sorted(self.columns):
            match name:
                case "key":
                    made[name] = as_text(batch.column("key"))
                case "value" | "json":
                    made[name] = value
                case "headers":
                    made[name] = _headers(batch.column("headers"))
                case "timestamp":
                    made[name] = batch.column("timestamp").cast(pa.timestamp("us"))
                case "partition":
                    made[name] = pa.repeat(pa.scalar(partition, pa.int32()), count)
                case "offset":
                    made[name] = pa.array(offsets, pa.int64())
        made["row"] = pa.array(np.arange(first, first + count))
        return pa.RecordBatch.from_pydict(made)

    def _evaluate(self, table: pa.Table) -> np.ndarray:
        given = set(table.column_names)
        columns = ['"row"']
        for name in COLUMNS:
            if name not in given:
                continue
            is_checked = name == "json" and self._json_is_checked
            columns.append(
                "CASE WHEN json_valid(json) THEN json END AS json" if is_checked else f'"{name}"'
            )
        query = (
            f'SELECT "row" FROM (SELECT {", ".join(columns)} FROM chunk) AS records WHERE (\n'
            f"{self._text}\n)"
        )
        self._connection.register("chunk", table)
        try:
            found = self._connection.execute(query).fetchnumpy()["row"]
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            message = str(error).strip().split("\n")[0]
            if "Malformed JSON" in message and not self._json_is_checked:
                raise _MalformedJsonError from error
            raise _error(message) from None
        finally:
            self._connection.unregister("chunk")
        rows: np.ndarray = np.sort(np.asarray(found, np.int64))
        return rows


class _MalformedJsonError(Exception):
    """A value is not JSON, and the expression uses it as JSON."""


def as_text(column: pa.Array) -> pa.Array:
    r"""Return bytes as text; bytes that are not UTF-8 become ``\xNN``."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [
                None if data is None else data.decode("utf-8", "backslashreplace")
                for data in column.to_pylist()
            ],
            pa.string(),
        )


def _headers(column: pa.Array) -> pa.Array:
    """Return headers with their values as text."""
    column = pa.concat_arrays([column])  # lists of a slice begin at an offset
    entries = column.values
    made = pa.StructArray.from_arrays(
        [entries.field("key"), as_text(entries.field("value"))], fields=list(_HEADERS.value_type)
    )
    return pa.ListArray.from_arrays(column.offsets, made, _HEADERS, mask=column.is_null())


def _quoted(text: str) -> str:
    """Return the expression with the column ``offset`` quoted: for SQL it is a keyword."""
    return _OFFSET.sub(lambda found: '"offset"' if found[0].lower() == "offset" else found[0], text)


def _connect(memory_bytes: int, threads: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{memory_bytes // 1024}KiB",
            "threads": str(threads),
            **_SETTINGS,
        },
    )
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _parsed(connection: duckdb.DuckDBPyConnection, text: str) -> dict[str, Any]:
    try:
        row = connection.execute("SELECT json_serialize_sql(?)", [_QUERY.format(text)]).fetchone()
    except duckdb.Error as error:
        raise _error(str(error).strip().split("\n")[0]) from None
    assert row is not None
    found = json.loads(row[0])
    if found["error"]:
        raise _error(str(found.get("error_message", "it is not SQL")).split("\n")[0])
    if len(found["statements"]) != 1:
        raise _error("it is not one expression")
    node: dict[str, Any] = found["statements"][0]["node"]
    return node


def _nodes(tree: object) -> Iterator[dict[str, Any]]:
    """Yield every node of a syntax tree that has a class."""
    if isinstance(tree, dict):
        if isinstance(tree.get("class"), str):
            yield tree
        for each in tree.values():
            yield from _nodes(each)
    elif isinstance(tree, list):
        for each in tree:
            yield from _nodes(each)


def _without_places(tree: Any) -> Any:
    """Return a syntax tree without positions in the text."""
    if isinstance(tree, dict):
        return {
            key: _without_places(each)
            for key, each in tree.items()
            if not key.startswith("query_location")
        }
    return [_without_places(each) for each in tree] if isinstance(tree, list) else tree


def _error(reason: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"the expression cannot be used: {reason}", key="where")
