"""`TypedValues`: the fields of values as columns, and values made from such columns again.

A file that has the columns of a value may leave the value out if the columns give its very bytes
(`TypedValues.encodes_same`). Formats leave some bytes to the writer, such as spaces in JSON. These
are chosen once for a file, to fit most of its values (`TypedValues.choose_encoding`): a text that
the file keeps. So a file needs its schema and this text to give its values back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.errors import InvalidConfigurationError
from spark_log.record import bools_of
from spark_log.values.avro_decoder import AvroDecoder
from spark_log.values.avro_encoder import encode_avro
from spark_log.values.avro_framing import FRAME_BYTES, FRAME_PREFIX
from spark_log.values.avro_schema import AvroRecord, parse_avro_schema
from spark_log.values.ddl import parse_ddl
from spark_log.values.json_decoder import JsonDecoder
from spark_log.values.json_encoder import JsonStyle, encode_json

DECODE_ERROR_FIELD: Final = pa.field("_decode_error", pa.string())
"""The column that says why a value did not decode; null if it did, or if there is no value."""

RESERVED_NAMES: Final = frozenset(
    (
        *("offset", "timestamp", "key", "value", "headers", "partition", "_decode_error"),
        *("topic", "timestamptype"),
    )
)
"""Names of other columns of a topic, in a file or in Spark; engines do not tell case apart."""


_SAMPLE_ROWS: Final = 256
_FORBIDDEN: Final = " ,;{}()\n\t="
"""Characters that a column of a Delta table cannot have in its name."""

_STYLES: Final = ("spaced", "nulls", "ascii", "integral", "millis")


class TypedValues:
    """The typed columns of a topic.

    Attributes:
        format: the format of the values.
        text: the schema as it was given.
        schema: the columns, all nullable, without `DECODE_ERROR_FIELD`.
        decoded_schema: the columns with `DECODE_ERROR_FIELD`, as `decode` returns them.
        keeps_values: whether files keep values that their columns give as well.
    """

    def __init__(self, format: str, text: str, *, keeps_values: bool = True) -> None:
        """Parse a schema.

        Args:
            format: ``json``, with a DDL of Spark's, or ``avro``, with an Avro schema.
            text: the schema.
            keeps_values: the attribute.

        Raises:
            InvalidConfigurationError: the format is not known, or the schema does not parse, has a
                type that the format or a table cannot have, or a name that a topic has already.
        """
        if format not in ("json", "avro"):
            raise InvalidConfigurationError(f"unknown format {format!r}; expected json or avro")
        self.format = format
        self.text = text
        self.keeps_values = keeps_values
        self._record: AvroRecord | None = None
        self._decoder: JsonDecoder | AvroDecoder
        if format == "avro":
            self._record = parse_avro_schema(text)
            self.schema = pa.schema([(name, each.arrow) for name, each in self._record.fields])
            self._decoder = AvroDecoder(self._record)
        else:
            self.schema = parse_ddl(text)
            for field in self.schema:
                _check_json_type(field.type, field.name)
            self._decoder = JsonDecoder(self.schema)
        self.decoded_schema = self.schema.append(DECODE_ERROR_FIELD)
        _check_names(self.schema.names)
        for field in self.schema:
            _check_nested_names(field.type, field.name)

    def decode(self, values: pa.BinaryArray) -> pa.RecordBatch:
        """Return the columns of `schema` and `DECODE_ERROR_FIELD`. No value raises an error.

        Args:
            values: the values; a null has null columns and no error.
        """
        count, rows = len(values), None
        if values.null_count:
            is_valid = bools_of(values.is_valid())
            rows = np.flatnonzero(is_valid)
            values = values.drop_null()
        columns, errors = self._decoder.decode(values)
        if rows is not None:
            source = pa.array(np.cumsum(is_valid) - 1, mask=~is_valid)
            columns = [column.take(source) for column in columns]
            errors = {int(rows[row]): problem for row, problem in errors.items()}
        problems = pa.nulls(count, pa.string())
        if errors:
            problems = pa.array([errors.get(row) for row in range(count)], pa.string())
        return pa.RecordBatch.from_arrays([*columns, problems], schema=self.decoded_schema)

    def encode(self, columns: pa.RecordBatch, encoding: str) -> pa.BinaryArray:
        """Return values made from columns.

        Args:
            columns: the columns of `schema`.
            encoding: the text that `choose_encoding` returned.

        Raises:
            ValueError: the text is not known.
        """
        arrays = [columns.column(name) for name in self.schema.names]
        if self._record is not None:
            return encode_avro(self._record, arrays, bytes.fromhex(encoding))
        return encode_json(self.schema, arrays, _style(encoding))

    def choose_encoding(self, values: pa.BinaryArray, columns: pa.RecordBatch) -> str:
        """Return the encoding that gives most of some values their bytes, by a sample of them.

        Args:
            values: the values.
            columns: what `decode` returned for them.
        """
        values, columns = values.slice(0, _SAMPLE_ROWS), columns.slice(0, _SAMPLE_ROWS)
        tried: list[str]
        if self._record is not None:
            starts = Counter(
                each[:FRAME_BYTES].hex()
                for each in values.to_pylist()
                if each and each.startswith(FRAME_PREFIX)
            )
            tried = ["", *(frame for frame, _ in starts.most_common(1))]
        else:
            # Words that change no byte of the sample are left out by the order of the search.
            tried = [" ".join(words) for words in _subsets(_STYLES)]
        best, most = tried[0], -1
        for each in tried:
            found = int(self.encodes_same(values, columns, each).sum())
            if found > most:
                best, most = each, found
            if found == len(values):
                break
        return best

    def encodes_same(
        self, values: pa.BinaryArray, columns: pa.RecordBatch, encoding: str
    ) -> np.ndarray:
        """Return for each value whether its columns alone give its bytes, as a numpy array.

        A column must have a value: by this a reader tells the value from one that is null.

        Args:
            values: the values.
            columns: what `decode` returned for them.
            encoding: the text that `choose_encoding` returned.
        """
        same = pc.equal(self.encode(columns, encoding), values).fill_null(pa.scalar(value=False))
        is_same: np.ndarray = self.has_columns(columns) & bools_of(same)
        return is_same

    def has_columns(self, columns: pa.RecordBatch) -> np.ndarray:
        """Return for each row whether one of the columns of `schema` has a value."""
        found = np.zeros(columns.num_rows, np.bool_)
        for name in self.schema.names:
            found |= bools_of(columns.column(name).is_valid())
        return found


def _subsets(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(combinations(words, count) for count in range(len(words) + 1))


def _style(encoding: str) -> JsonStyle:
    words = encoding.split()
    unknown = set(words) - set(_STYLES)
    if unknown:
        raise ValueError(f"unknown JSON style {sorted(unknown)}")
    return JsonStyle(**dict.fromkeys(words, True))


def _check_names(names: Sequence[str]) -> None:
    """Check the names of columns.

    Raises:
        InvalidConfigurationError: a name is empty, used twice, or impossible in a table.
    """
    lower = Counter(name.lower() for name in names)
    for name in names:
        if name.lower() in RESERVED_NAMES:
            raise InvalidConfigurationError(
                f"column {name}: a topic has a column of this name. Leave the field out, or rename "
                f"it in the values"
            )
        if lower[name.lower()] > 1:
            raise InvalidConfigurationError(
                f"column {name}: two columns have this name; upper and lower case are the same"
            )
        if not name or any(each in _FORBIDDEN for each in name):
            raise InvalidConfigurationError(
                f"column {name!r}: a column of a Delta table needs a name without any of "
                f"{_FORBIDDEN!r}"
            )


def _check_nested_names(kind: pa.DataType, where: str) -> None:
    children = [kind.field(at) for at in range(kind.num_fields)]
    if pa.types.is_struct(kind):
        lower = Counter(child.name.lower() for child in children)
        for child in children:
            if lower[child.name.lower()] > 1:
                raise InvalidConfigurationError(
                    f"column {where}: two fields have the name {child.name}; upper and lower case "
                    f"are the same"
                )
            if not child.name or any(each in _FORBIDDEN for each in child.name):
                raise InvalidConfigurationError(
                    f"column {where}: field {child.name!r}: a Delta table needs names without any "
                    f"of {_FORBIDDEN!r}"
                )
        if not children:
            raise InvalidConfigurationError(
                f"column {where}: a STRUCT without fields cannot be stored in Parquet"
            )
    for child in children:
        _check_nested_names(child.type, f"{where}.{child.name}")


def _check_json_type(kind: pa.DataType, where: str) -> None:
    if pa.types.is_binary(kind):
        raise InvalidConfigurationError(f"column {where}: JSON has no BINARY; use STRING")
    if pa.types.is_map(kind) and not pa.types.is_string(kind.key_type):
        raise InvalidConfigurationError(f"column {where}: keys of a MAP in JSON are STRING")
    for at in range(kind.num_fields):
        _check_json_type(kind.field(at).type, f"{where}.{kind.field(at).name}")
