"""Random schemas and values of typed columns, for Hypothesis; and JSON of them, written by hand."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from spark_log.values.json_encoder import JsonStyle

NAMES = ["a", "b", "Zähler", "with space's", 'q"uote', "under_score", "x1"]
DDL = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.decimal128(12, 3): "DECIMAL(12,3)",
}
PLAIN = [pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string()]
"""Types of which Python's json knows whether a value is one."""

STYLES = [
    JsonStyle(),
    JsonStyle(spaced=True),
    JsonStyle(nulls=True, millis=True),
    JsonStyle(spaced=True, nulls=True, ascii=True, integral=True),
]


def kinds(scalars, *, maps=True):
    """Return a strategy of Arrow types."""

    def deeper(inner):
        fields = st.lists(
            st.tuples(st.sampled_from(["a", "B", "ü"]), inner),
            min_size=1,
            unique_by=lambda each: each[0],
        )
        composite = [inner.map(pa.list_), fields.map(pa.struct)]
        if maps:
            composite.append(inner.map(lambda kind: pa.map_(pa.string(), kind)))
        return st.one_of(composite)

    return st.recursive(st.sampled_from(list(scalars)), deeper, max_leaves=4)


def schemas(scalars=tuple(DDL), *, maps=True):
    """Return a strategy of schemas that JSON can have."""
    names = st.sampled_from([name for name in NAMES if " " not in name])
    fields = st.lists(
        st.tuples(names, kinds(scalars, maps=maps)),
        min_size=1,
        max_size=5,
        unique_by=lambda x: x[0],
    )
    return fields.map(pa.schema)


def ddl_of(schema):
    """Return the DDL of a schema."""
    return ", ".join(f"`{field.name}` {_ddl_type(field.type)}" for field in schema)


def _ddl_type(kind):
    if kind in DDL:
        return DDL[kind]
    if pa.types.is_struct(kind):
        return (
            "STRUCT<" + ", ".join(f"`{each.name}`: {_ddl_type(each.type)}" for each in kind) + ">"
        )
    if pa.types.is_map(kind):
        return f"MAP<STRING, {_ddl_type(kind.item_type)}>"
    return f"ARRAY<{_ddl_type(kind.value_type)}>"


def values_of(kind):
    """Return a strategy of Python values of a type, sometimes None."""
    return st.none() | _known(kind)


def _known(kind):
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({each.name: values_of(each.type) for each in kind})
    if pa.types.is_map(kind):
        return st.dictionaries(st.text(max_size=3), values_of(kind.item_type), max_size=3)
    if pa.types.is_list(kind):
        return st.lists(values_of(kind.value_type), max_size=3)
    if pa.types.is_integer(kind):
        bits = kind.bit_width - 1
        return st.integers(-(1 << bits), (1 << bits) - 1)
    return {
        pa.bool_(): st.booleans(),
        pa.float32(): st.floats(width=32, allow_nan=False, allow_infinity=False),
        pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
        pa.string(): st.text(max_size=5),
        pa.date32(): st.dates(date(1, 1, 1)),
        pa.timestamp("us", "UTC"): st.datetimes(datetime(1, 1, 1)).map(_often_round),
        pa.decimal128(12, 3): st.integers(-(10**12) + 1, 10**12 - 1).map(
            lambda digits: Decimal(f"{digits}E-3")
        ),
    }[kind]


def _often_round(time):
    micros = (0, time.microsecond // 1000 * 1000, time.microsecond)[time.second % 3]
    return time.replace(microsecond=micros, tzinfo=UTC)


def rows_of(schema):
    """Return a strategy of rows."""
    return st.fixed_dictionaries({field.name: values_of(field.type) for field in schema})


def json_of(value, kind, style):  # noqa: PLR0911 - one for each type
    """Return the JSON of a value in a style."""
    comma, colon = (", ", ": ") if style.spaced else (",", ":")
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        members = [
            f"{_quoted(each.name, style)}{colon}{json_of(value[each.name], each.type, style)}"
            for each in kind
            if style.nulls or value[each.name] is not None
        ]
        return "{" + comma.join(members) + "}"
    if pa.types.is_map(kind):
        members = [
            f"{_quoted(key, style)}{colon}{json_of(each, kind.item_type, style)}"
            for key, each in value.items()
        ]
        return "{" + comma.join(members) + "}"
    if pa.types.is_list(kind):
        return "[" + comma.join(json_of(each, kind.value_type, style) for each in value) + "]"
    if pa.types.is_floating(kind):
        return _float_text(value, kind, style)
    if isinstance(value, datetime):
        return f'"{_time_text(value, style)}"'
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    if isinstance(value, str):
        return _quoted(value, style)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(text, style):
    return json.dumps(text, ensure_ascii=style.ascii)


def _float_text(value, kind, style):
    text = repr(value)
    if pa.types.is_float32(kind):
        digits = np.float32(value)
        if 1e-4 <= abs(value) < 1e16 or value == 0:
            text = np.format_float_positional(digits, trim="0")
        else:
            text = np.format_float_scientific(digits, trim="-", exp_digits=2)
    return text.removesuffix(".0") if style.integral else text


def _time_text(time, style):
    text = time.replace(tzinfo=None).isoformat(timespec="microseconds")
    if time.microsecond % 1000 == 0:
        text = text[:-3]
    if time.microsecond == 0 and not style.millis:
        text = text[:-4]
    return text + "Z"
