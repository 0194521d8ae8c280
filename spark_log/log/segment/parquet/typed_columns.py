"""The typed columns of a Parquet segment, and its values that are left out because of them.

They lie behind the columns of the log. The footer says what they were made with: the keys
``spark_log.value_format`` and ``spark_log.value_schema``, and, if a value may be left out,
``spark_log.value_encoding``. A value is left out, and null in the file, if its columns give its
bytes in this encoding. Such a record has a value in one of these columns. So a null in the column
``value`` stands for a value if and only if one of the columns is not null in its row.

Checksums of batches cover the values, not what is stored for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.errors import InvalidConfigurationError
from spark_log.record import bool_array, bools_of

if TYPE_CHECKING:
    from spark_log.values import TypedValues

FORMAT_KEY: Final = b"spark_log.value_format"
SCHEMA_KEY: Final = b"spark_log.value_schema"
ENCODING_KEY: Final = b"spark_log.value_encoding"


class TypedColumnsWriter:
    """Makes the typed columns of one segment."""

    def __init__(self, typed: TypedValues) -> None:
        """Keep the topic's columns.

        Args:
            typed: the topic's columns.
        """
        self._typed = typed
        self._encoding: str | None = None

    def columns(self, values: pa.BinaryArray) -> dict[str, pa.Array]:
        """Return the typed columns of a row group, and its column ``value``.

        Args:
            values: the values of the rows.
        """
        typed = self._typed.decode(values)
        columns = dict(zip(typed.schema.names, typed.columns, strict=True))
        if not self._typed.keeps_values:
            if self._encoding is None and values.null_count < len(values):
                self._encoding = self._typed.choose_encoding(
                    values.drop_null(), typed.filter(values.is_valid())
                )
            if self._encoding is not None:
                same = self._typed.encodes_same(values, typed, self._encoding)
                values = pc.if_else(bool_array(same), pa.scalar(None, pa.binary()), values)
        return {**columns, "value": values}

    @property
    def columns_of_left_out_values(self) -> tuple[str, ...]:
        """Names of the columns that give back left-out values; none if no value may be missing."""
        return () if self._encoding is None else tuple(self._typed.schema.names)

    def metadata(self) -> dict[bytes, bytes]:
        """Return the key-value metadata of the footer, after the last row group."""
        found = {FORMAT_KEY: self._typed.format.encode(), SCHEMA_KEY: self._typed.text.encode()}
        if self._encoding is not None:
            found[ENCODING_KEY] = self._encoding.encode()
        return found


def typed_columns_id(identity: Mapping[bytes, bytes]) -> str:
    """Return a short text that differs for files whose typed columns, or left out values, differ.

    Args:
        identity: the key-value metadata in a file's footer.
    """
    if FORMAT_KEY not in identity:
        return ""
    parts = [identity.get(key, b"") for key in (FORMAT_KEY, SCHEMA_KEY, ENCODING_KEY)]
    return sha256(b"\0".join(parts)).hexdigest()[:16]


class LeftOutValues:
    """The values that a segment left out.

    Attributes:
        columns: names of the columns that give them back.
        schema: these columns.
    """

    def __init__(self, typed: TypedValues, encoding: str) -> None:
        self._typed = typed
        self._encoding = encoding
        self.columns = tuple(typed.schema.names)
        self.schema = typed.schema

    @classmethod
    def of(cls, identity: Mapping[bytes, bytes]) -> LeftOutValues | None:
        """Return what gives back the values of a segment; None if it left none out.

        Args:
            identity: the metadata in its footer.

        Raises:
            ValueError: this release does not know the schema.
        """
        encoding = identity.get(ENCODING_KEY)
        if encoding is None:
            return None
        from spark_log.values import TypedValues  # late: few topics leave values out

        try:
            typed = TypedValues(identity[FORMAT_KEY].decode(), identity[SCHEMA_KEY].decode())
        except InvalidConfigurationError as error:
            raise ValueError(f"its values cannot be made from its columns: {error}") from None
        return cls(typed, encoding.decode())

    def give_back(self, values: pa.BinaryArray, columns: Mapping[str, pa.Array]) -> pa.BinaryArray:
        """Return the values of some rows.

        Args:
            values: the stored values.
            columns: the stored columns of `columns`.
        """
        stored = [columns[name] for name in self.columns]
        typed = pa.RecordBatch.from_arrays(stored, schema=self._typed.schema)
        is_left_out = self._typed.has_columns(typed) & bools_of(values.is_null())
        if not is_left_out.any():
            return values
        if is_left_out.all():
            return self._typed.encode(typed, self._encoding)
        given = self._typed.encode(typed.filter(bool_array(is_left_out)), self._encoding)
        # Of the left-out rows the next value that was given back, of others their own.
        source = np.arange(len(values))
        source[is_left_out] = len(values) + np.arange(len(given))
        return pa.concat_arrays([values, given]).take(pa.array(source))


class TypedColumnsCheck:
    """Compares the typed columns of a segment with the values that it kept.

    A value that was left out is checked by the checksum of its batch, since its columns give it.

    Attributes:
        columns: names of the typed columns.
    """

    def __init__(self, typed: TypedValues, *, leaves_values_out: bool) -> None:
        self._typed = typed
        self._leaves_values_out = leaves_values_out
        self.columns = tuple(typed.decoded_schema.names)

    @classmethod
    def of(cls, identity: Mapping[bytes, bytes]) -> TypedColumnsCheck | None:
        """Return the check of a segment; None if it has no typed columns.

        Args:
            identity: the metadata in its footer.

        Raises:
            ValueError: this release does not know the schema.
        """
        if FORMAT_KEY not in identity:
            return None
        from spark_log.values import TypedValues  # late: few topics have typed columns

        try:
            typed = TypedValues(identity[FORMAT_KEY].decode(), identity[SCHEMA_KEY].decode())
        except InvalidConfigurationError as error:
            raise ValueError(f"its typed columns cannot be checked: {error}") from None
        return cls(typed, leaves_values_out=ENCODING_KEY in identity)

    def problem(self, rows: pa.RecordBatch) -> str | None:
        """Return the first difference; None without one.

        A value of which the file says that it did not decode has no columns. It may decode now: a
        later release may read more.

        Args:
            rows: the columns ``offset``, ``value`` and `columns`.
        """
        has_value = bools_of(rows.column("value").is_valid())
        if not self._leaves_values_out:
            has_value = np.ones(rows.num_rows, np.bool_)
        rows = rows.filter(bool_array(has_value))
        expected = self._typed.decode(rows.column("value"))
        failed = bools_of(rows.column("_decode_error").is_valid())
        for name in self._typed.schema.names:
            stored, decoded = rows.column(name), expected.column(name)
            if failed.any():
                decoded = pc.if_else(bool_array(failed), pa.scalar(None, decoded.type), decoded)
            if not stored.equals(decoded):
                problem = _difference(name, rows.column("offset"), stored, decoded)
                if problem is not None:
                    return problem
        missing = bools_of(expected.column("_decode_error").is_valid()) & ~failed
        if missing.any():
            offset = rows.column("offset")[int(np.flatnonzero(missing)[0])].as_py()
            return (
                f"the value at offset {offset} does not decode, and _decode_error does not say so"
            )
        return None


def _difference(name: str, offsets: pa.Array, stored: pa.Array, decoded: pa.Array) -> str | None:
    """Return the first difference of two columns; None if only NaNs differ."""
    pairs = zip(offsets, stored, decoded, strict=True)
    for offset, ours, theirs in pairs:
        if repr(ours.as_py()) != repr(theirs.as_py()):
            return (
                f"the column {name} at offset {offset} is {ours.as_py()!r:.100}, and the value "
                f"says {theirs.as_py()!r:.100}"
            )
    return None


def leaf_paths(field: pa.Field, path: str = "") -> Iterator[str]:
    """Yield the names of the Parquet columns that a column of Arrow becomes.

    Args:
        field: the column.
        path: the path of the column that contains it, with a dot.
    """
    path += field.name
    kind = field.type
    if pa.types.is_struct(kind):
        for each in kind:
            yield from leaf_paths(each, f"{path}.")
    elif pa.types.is_map(kind):
        yield from leaf_paths(pa.field("key", kind.key_type), f"{path}.key_value.")
        yield from leaf_paths(pa.field("value", kind.item_type), f"{path}.key_value.")
    elif pa.types.is_list(kind):
        yield from leaf_paths(pa.field("element", kind.value_type), f"{path}.list.")
    else:
        yield path
