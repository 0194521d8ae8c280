"""Deserializer of Avro, by fastavro, which is an extra of the package: ``spark-log[avro]``.

Bytes are a value of one schema, which the user gives, in one of three forms:

- plain: the value alone;
- Avro's single object encoding: ``c3 01``, the fingerprint of the schema, and the value. The
  fingerprint has to be that of the given schema;
- Confluent's: a zero byte, the id of a schema in a registry, and the value. The id is skipped,
  because no registry is used. As for typed columns, bytes that are a plain value have no id
  (`values.avro_framing`).

A value is shown as JSON: a union as its value alone; bytes and fixed as text if they are UTF-8,
else as ``{"base64": …}``; a decimal as text with all of its digits; dates, times, timestamps and
UUIDs as text (ISO 8601); numbers that JSON does not have as the text ``nan``, ``inf`` or ``-inf``.
"""

from __future__ import annotations

import io
import json
import math
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from spark_log.cli.format.deserializers import FieldDeserializer, bytes_document
from spark_log.errors import InvalidConfigurationError
from spark_log.values import unframed

if TYPE_CHECKING:
    from fastavro.types import Schema

_SINGLE_OBJECT: Final = b"\xc3\x01"
_FINGERPRINT_BYTES: Final = 8
_NOT_A_VALUE: Final = (
    ArithmeticError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""The errors that fastavro raises for bytes that are no value of the schema."""


def avro_deserializer(schema_file: Path) -> FieldDeserializer:
    """Return a deserializer of the values of a schema.

    Args:
        schema_file: the schema, as JSON.

    Raises:
        InvalidConfigurationError: fastavro is not installed, or the file has no schema.
    """
    try:
        from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form
    except ImportError:
        raise InvalidConfigurationError(
            "the deserializer avro needs fastavro: pip install 'spark-log[avro]'"
        ) from None
    try:
        schema = parse_schema(json.loads(schema_file.read_text("utf-8")))
        digest = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
    except OSError as error:
        raise InvalidConfigurationError(
            f"cannot read the Avro schema {schema_file}: {error.strerror}"
        ) from error
    except Exception as error:  # fastavro's errors have no common class
        detail = str(error) or type(error).__name__
        raise InvalidConfigurationError(
            f"{schema_file} is not an Avro schema in JSON: {detail}"
        ) from error
    reader = _AvroReader(schema, bytes.fromhex(digest), schema_file.name)
    return FieldDeserializer.of_documents("Avro of the given schema", reader.document)


class _AvroReader:
    def __init__(self, schema: Schema, fingerprint: bytes, name: str) -> None:
        self._schema = schema
        self._fingerprint = fingerprint
        self._name = name

    def document(self, data: bytes) -> object:
        """Return bytes as a document that JSON can express.

        Raises:
            ValueError: the bytes are no value of the schema.
        """
        if data.startswith(_SINGLE_OBJECT):
            start = len(_SINGLE_OBJECT) + _FINGERPRINT_BYTES
            found = data[len(_SINGLE_OBJECT) : start]
            if found != self._fingerprint:
                raise ValueError(
                    f"its schema has the fingerprint {found.hex()}, and {self._name} has "
                    f"{self._fingerprint.hex()}"
                )
            return self._value(data[start:])
        problems = []
        for each in unframed(data):
            try:
                return self._value(each)
            except ValueError as error:
                problems.append(str(error))
        raise ValueError("; behind a schema id: ".join(problems))

    def _value(self, data: bytes) -> object:
        from fastavro import schemaless_reader

        source = _ExactBytes(data)
        try:
            value = schemaless_reader(source, self._schema, None)
        except _NOT_A_VALUE as error:
            raise ValueError(str(error) or "it ends too early") from None
        if source.tell() < len(data):
            raise ValueError(f"{len(data) - source.tell()} bytes follow the value")
        return _as_json(value)


class _ExactBytes(io.BytesIO):
    """Bytes that fail if more is read than they contain: lengths in records may be wrong."""

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if size is None or len(data) != size:
            raise EOFError
        return data


def _as_json(value: Any) -> object:
    match value:
        case dict():
            return {key: _as_json(each) for key, each in value.items()}
        case list():
            return [_as_json(each) for each in value]
        case bytes():
            return bytes_document(value)
        case datetime() | date() | time():
            return value.isoformat().replace("+00:00", "Z")
        case Decimal() | UUID():
            return str(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
