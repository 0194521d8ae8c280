"""Avro schemas, as a tree of types that decode many values at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pyarrow as pa

from spark_log.errors import InvalidConfigurationError

_MAX_DECIMAL: Final = 38
_MAX_DEPTH: Final = 32

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}

_TIMESTAMP: Final = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type of a schema.

    Attributes:
        arrow: the Arrow type of its values.
    """

    arrow: pa.DataType


@dataclass(frozen=True, slots=True)
class AvroPrimitive(AvroType):
    """A primitive type.

    Attributes:
        name: the type's name in Avro.
        unit_us: microseconds of one unit, of a ``long`` that is a timestamp; otherwise 0.
    """

    name: str
    unit_us: int = 0


@dataclass(frozen=True, slots=True)
class AvroFixed(AvroType):
    """A ``fixed``, or a decimal of bytes or of a ``fixed``.

    Attributes:
        size: the number of bytes; None for bytes with a length.
    """

    size: int | None


@dataclass(frozen=True, slots=True)
class AvroEnum(AvroType):
    """An ``enum``, whose values are strings.

    Attributes:
        symbols: its symbols, in order.
    """

    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AvroNullable(AvroType):
    """A union of one type and ``null``.

    Attributes:
        inner: the type.
        null_index: the index of ``null`` in the union; None if the union has no ``null``.
    """

    inner: AvroType
    null_index: int | None


@dataclass(frozen=True, slots=True)
class AvroRecord(AvroType):
    """A record.

    Attributes:
        fields: name and type of its fields, in order.
    """

    fields: tuple[tuple[str, AvroType], ...]


@dataclass(frozen=True, slots=True)
class AvroRepeated(AvroType):
    """An array, or a map, which is an array of records of a key and a value.

    Attributes:
        item: the type of the items.
    """

    item: AvroType


def parse_avro_schema(text: str) -> AvroRecord:
    """Return the record type that a schema describes.

    Args:
        text: the schema as JSON.

    Raises:
        InvalidConfigurationError: it is not a schema of a record, or columns cannot express it.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidConfigurationError(f"it is not JSON: {error}") from None
    parsed = _SchemaParser().parse(schema, "", "the schema", 0)
    if not isinstance(parsed, AvroRecord) or not parsed.fields:
        raise InvalidConfigurationError("it must be a record with one or more fields")
    return parsed


class _SchemaParser:
    """Parses a schema, and remembers the types that it names."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}

    def parse(self, schema: Any, namespace: str, where: str, depth: int) -> AvroType:
        """Return a type.

        Args:
            schema: the schema from JSON.
            namespace: the namespace around it.
            where: the place for messages.
            depth: the number of types around it.
        """
        if depth > _MAX_DEPTH:
            _refuse(f"{where}: types are nested more than {_MAX_DEPTH} deep")
        if isinstance(schema, list):
            return self._union(schema, namespace, where, depth)
        given = {"type": schema} if isinstance(schema, str) else schema
        if not isinstance(given, dict) or "type" not in given:
            _refuse(f"{where}: expected a type, found {json.dumps(schema)[:80]}")
        return self._of_kind(given, given["type"], namespace, where, depth)

    def _of_kind(
        self, schema: Mapping[str, Any], kind: Any, namespace: str, where: str, depth: int
    ) -> AvroType:
        if not isinstance(kind, str):
            return self.parse(kind, namespace, where, depth + 1)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema, kind, namespace, where, depth)
        if kind in ("array", "map"):
            return self._repeated(schema, kind, namespace, where, depth)
        return _logical(self._of_name(kind, namespace, where), schema, where)

    def _repeated(
        self, schema: Mapping[str, Any], kind: str, namespace: str, where: str, depth: int
    ) -> AvroRepeated:
        key = "items" if kind == "array" else "values"
        item = self.parse(_of(schema, key, where), namespace, f"{key} of {where}", depth + 1)
        if kind == "array":
            if _least_bytes(item) == 0:
                _refuse(f"{where}: items of no bytes cannot be counted")
            return AvroRepeated(pa.list_(item.arrow), item)
        text = AvroPrimitive(pa.string(), "string")
        pair = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", item.arrow)])
        entry = AvroRecord(pair, (("key", text), ("value", item)))
        return AvroRepeated(pa.map_(pa.string(), item.arrow), entry)

    def _of_name(self, name: str, namespace: str, where: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroPrimitive(_PRIMITIVES[name], name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = full if full in self._named else name
        if found not in self._named:
            _refuse(f"{where}: there is no type {name!r}")
        known = self._named[found]
        if known is None:
            _refuse(f"{where}: {name} contains itself, which columns cannot express")
        return known

    def _union(self, branches: list[Any], namespace: str, where: str, depth: int) -> AvroType:
        others = [branch for branch in branches if branch not in ("null", {"type": "null"})]
        if len(others) != 1 or len(branches) > 2:
            _refuse(
                f"{where}: a column holds values of one type, or null; this union has "
                f"{len(others)} types besides null"
            )
        inner = self.parse(others[0], namespace, where, depth + 1)
        null_index = None if len(branches) == 1 else 1 - branches.index(others[0])
        return AvroNullable(inner.arrow, inner, null_index)

    def _definition(
        self, schema: Mapping[str, Any], kind: str, namespace: str, where: str, depth: int
    ) -> AvroType:
        name = _of(schema, "name", where)
        if not isinstance(name, str) or not name:
            _refuse(f"{where}: the name of a {kind} is a text, found {json.dumps(name)}")
        outer = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
        namespace = outer if isinstance(outer, str) else ""
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self._named:
            _refuse(f"{where}: {full} is defined twice")
        self._named[full] = None
        defined: AvroType
        if kind == "enum":
            symbols = _of(schema, "symbols", where)
            if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
                _refuse(f"{where}: the symbols of an enum are a list of texts")
            defined = AvroEnum(pa.string(), tuple(symbols))
        elif kind == "fixed":
            size = _of(schema, "size", where)
            if type(size) is not int or not 1 <= size <= 1 << 20:
                _refuse(f"{where}: the size of a fixed is 1 to {1 << 20}, found {json.dumps(size)}")
            defined = _logical(AvroFixed(pa.binary(size), size), schema, where)
        else:
            defined = self._record(schema, namespace, where, depth)
        self._named[full] = defined
        return defined

    def _record(
        self, schema: Mapping[str, Any], namespace: str, where: str, depth: int
    ) -> AvroRecord:
        given = _of(schema, "fields", where)
        if not isinstance(given, list):
            _refuse(f"{where}: the fields of a record are a list")
        fields: list[tuple[str, AvroType]] = []
        for each in given:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                _refuse(f"{where}: a field needs a name, found {json.dumps(each)[:80]}")
            name = each["name"]
            inside = f"field {name} of {where}"
            if name in dict(fields):
                _refuse(f"{where}: it has the field {name} twice")
            fields.append(
                (name, self.parse(_of(each, "type", inside), namespace, inside, depth + 1))
            )
        return AvroRecord(pa.struct([(name, each.arrow) for name, each in fields]), tuple(fields))


def _logical(base: AvroType, schema: Mapping[str, Any], where: str) -> AvroType:
    """Return a type with the logical type that its definition names; an unknown one is ignored."""
    logical = schema.get("logicalType")
    if isinstance(base, AvroPrimitive):
        if logical == "date" and base.name == "int":
            return AvroPrimitive(pa.date32(), "int")
        units = {"timestamp-millis": 1000, "timestamp-micros": 1}
        if base.name == "long" and logical in units:
            return AvroPrimitive(_TIMESTAMP, "long", units[logical])
        if base.name == "long" and str(logical).startswith("local-timestamp-"):
            _refuse(
                f"{where}: tables have no timestamps without a time zone; leave the logicalType "
                f"{logical} out for a BIGINT"
            )
    is_bytes = isinstance(base, AvroFixed) or (
        isinstance(base, AvroPrimitive) and base.name == "bytes"
    )
    if logical == "decimal" and is_bytes:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if (
            type(precision) is not int
            or type(scale) is not int
            or not 1 <= precision <= _MAX_DECIMAL
            or not 0 <= scale <= precision
        ):
            _refuse(
                f"{where}: a decimal needs a precision of 1 to {_MAX_DECIMAL} and a scale of 0 to "
                f"the precision, found {json.dumps(precision)} and {json.dumps(scale)}"
            )
        size = base.size if isinstance(base, AvroFixed) else None
        if size is not None and size > 16:
            _refuse(f"{where}: a decimal has at most 16 bytes, this fixed has {size}")
        return AvroFixed(pa.decimal128(precision, scale), size)
    return base


def _least_bytes(kind: AvroType) -> int:
    """Return a lower bound of the bytes of a value: 0 if a value can have no bytes, else 1."""
    if isinstance(kind, AvroRecord):
        return max((_least_bytes(each) for _, each in kind.fields), default=0)
    if isinstance(kind, AvroNullable) and kind.null_index is None:
        return 1  # the index of the branch
    return 1


def _of(schema: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in schema:
        _refuse(f"{where}: {key!r} is missing")
    return schema[key]


def _refuse(problem: str) -> NoReturn:
    raise InvalidConfigurationError(problem)
