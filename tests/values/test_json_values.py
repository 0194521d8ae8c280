"""JSON values as columns: as Python's json reads them row by row, whatever the rows are."""

import json
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.values import TypedValues
from tests.values.schemas import PLAIN, STYLES, ddl_of, json_of, rows_of, schemas


def decoded(typed, values):
    """Return the rows of some values as dictionaries, and the errors."""
    batch = typed.decode(pa.array(values, pa.binary()))
    batch.validate(full=True)
    rows = batch.to_pylist(maps_as_pydicts="strict")
    errors = [row.pop("_decode_error") for row in rows]
    return rows, errors


def is_one(value, kind):
    """Return whether a value from Python's json is of a column's type."""
    if value is None:
        return True
    if pa.types.is_struct(kind):
        return isinstance(value, Pairs) and fits(value, kind)
    if pa.types.is_list(kind):
        return type(value) is list and all(is_one(each, kind.value_type) for each in value)
    if pa.types.is_integer(kind):
        limit = 1 << kind.bit_width - 1
        return type(value) is int and -limit <= value < limit
    if pa.types.is_floating(kind):
        return type(value) in (int, float) and abs(value) <= sys.float_info.max
    return type(value) is (bool if pa.types.is_boolean(kind) else str)


class Pairs(list[tuple[str, object]]):
    """The pairs of an object."""


def fits(value, fields):
    names = [name for name, _ in value if name in [field.name for field in fields]]
    if len(set(names)) < len(names):
        return False
    known = dict(value)
    return all(is_one(known.get(field.name), field.type) for field in fields)


def as_row(value, fields):
    """Return the columns of a value from Python's json."""
    known = dict(value)
    return {field.name: as_column(known.get(field.name), field.type) for field in fields}


def as_column(value, kind):
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return as_row(value, kind)
    if pa.types.is_list(kind):
        return [as_column(each, kind.value_type) for each in value]
    return float(value) if pa.types.is_floating(kind) else value


def expected(text, schema):
    """Return the row that Python's json reads, or None."""
    try:
        value = json.loads(text.decode(), object_pairs_hook=Pairs)
    except ValueError:
        return None
    return as_row(value, schema) if isinstance(value, Pairs) and fits(value, schema) else None


@given(st.data(), schemas(), st.sampled_from(STYLES))
def test_values_become_columns_and_the_columns_the_same_bytes(data, schema, style):
    typed = TypedValues("json", ddl_of(schema))
    rows = data.draw(st.lists(rows_of(schema), max_size=6))
    texts = [json_of(row, pa.struct(list(schema)), style).encode() for row in rows]
    values = pa.array([None, *texts], pa.binary())[1:]

    columns = typed.decode(values)

    assert typed.schema.equals(schema)
    assert decoded(typed, texts) == (rows, [None] * len(rows))
    encoding = typed.choose_encoding(values, columns)
    same = typed.encodes_same(values, columns, encoding)
    assert same.tolist() == [any(each is not None for each in row.values()) for row in rows]
    kept = [text for text, is_same in zip(texts, same, strict=True) if is_same]
    encoded = typed.encode(columns, encoding).to_pylist()
    assert [text for text, is_same in zip(encoded, same, strict=True) if is_same] == kept


DAMAGES = st.tuples(st.integers(0, 60), st.integers(0, 60), st.binary(max_size=2))


@given(st.data(), schemas(), st.sampled_from(STYLES))
def test_the_bytes_of_a_row_do_not_depend_on_how_often_its_values_occur(data, schema, style):
    typed = TypedValues("json", ddl_of(schema))
    rows = data.draw(st.lists(rows_of(schema), max_size=6))
    texts = [json_of(row, pa.struct(list(schema)), style).encode() for row in rows]
    columns = typed.decode(pa.array(texts, pa.binary()))
    encoding = " ".join(name for name in style.__slots__ if getattr(style, name))
    single = [typed.encode(columns.slice(at, 1), encoding)[0] for at in range(len(rows))]
    order = data.draw(st.lists(st.sampled_from(range(len(rows))), max_size=40)) if rows else []
    many = typed.encode(columns.take(pa.array(order, pa.int64())), encoding)
    assert many.to_pylist() == [single[at].as_py() for at in order]


def test_zeros_of_both_signs_have_texts_of_their_own():
    typed = TypedValues("json", "a DOUBLE, b FLOAT")
    numbers = pa.array([0.0, -0.0, 0.0, -0.0] * 4)
    columns = pa.RecordBatch.from_arrays([numbers, numbers.cast(pa.float32())], ["a", "b"])
    texts = typed.encode(columns, "").to_pylist()
    assert texts == [b'{"a":0.0,"b":0.0}', b'{"a":-0.0,"b":-0.0}'] * 8


@given(st.data(), schemas(PLAIN, maps=False))
def test_damaged_values_are_read_as_python_reads_them_row_by_row(data, schema):
    typed = TypedValues("json", ddl_of(schema))
    texts = []
    for row in data.draw(st.lists(rows_of(schema), max_size=8)):
        text = json_of(row, pa.struct(list(schema)), data.draw(st.sampled_from(STYLES))).encode()
        for at, length, instead in data.draw(st.lists(DAMAGES, max_size=2)):
            text = text[:at] + instead + text[at + length :]
        texts.append(text)

    rows, errors = decoded(typed, texts)

    nothing = dict.fromkeys(schema.names)
    for text, row, error in zip(texts, rows, errors, strict=True):
        wanted = expected(text, schema)
        assert (row, error is None) == (wanted or nothing, wanted is not None), text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)


@given(st.lists(JSON, max_size=30))
def test_values_of_any_types_do_not_spoil_each_other(documents):
    schema = pa.schema(
        [("a", pa.int32()), ("b", pa.list_(pa.string())), ("c", pa.struct([("a", pa.float64())]))]
    )
    typed = TypedValues("json", ddl_of(schema))
    texts = [json.dumps(document).encode() for document in documents]

    rows, errors = decoded(typed, texts)

    nothing = dict.fromkeys(schema.names)
    for text, row, error in zip(texts, rows, errors, strict=True):
        wanted = expected(text, schema)
        if b"Infinity" in text:
            continue
        assert (row, error is None) == (wanted or nothing, wanted is not None), text


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", "it is empty"),
        (b"null", "it is not a JSON object"),
        (b"[{}]", "it is not a JSON object"),
        (b'\xef\xbb\xbf{"a":1}', "it is not a JSON object"),
        (b'{"a":1', "it is not a JSON object"),
        (b"{} {}", "it is not JSON: Extra data at character 3"),
        (b'{"a":1}\n{"a":2}', "it is not JSON: Extra data at character 8"),
        (b'{"s":"}', "it is not JSON: Unterminated string starting at at character 5"),
        (b'{"s":"\xff"}', "it is not UTF-8: invalid start byte at byte 6"),
        (b'{"a":1}\0}', "it has a zero byte"),
        (b'{"s":"\\ud800"}', "The surrogate pair in string is invalid"),
        (b'{"a":1.0}', "a: 1.0 does not fit int32"),
        (b'{"a":2147483648}', "a: 2147483648 does not fit int32"),
        (b'{"a":"1"}', 'a: "1" does not fit int32'),
        (b'{"a":1,"a":2}', "a is there twice"),
        (b'{"o":{"t":["x",5]}}', "o.t: 5 does not fit string"),
        (b'{"x":NaN}', "it has a number that JSON does not have, or that its column cannot hold"),
        (b'{"x":1e400}', "Number too big to be stored in double"),
        (b'{"d":"2024-02-30"}', "Failed to parse string: '2024-02-30' as a scalar of type date32"),
        (b'{"p":1.005}', "Failed to convert JSON to decimal128(10, 2): 1.005 requires scale 3"),
    ],
)
def test_a_value_that_does_not_decode_says_why_and_spoils_no_other(text, error):
    typed = TypedValues(
        "json",
        "a INT, s STRING, x DOUBLE, d DATE, p DECIMAL(10,2), o STRUCT<t: ARRAY<STRING>>",
    )
    good = b'{"a":7,"s":"ok"}'

    rows, errors = decoded(typed, [good, text, None, good])

    assert [row["a"] for row in rows] == [7, None, None, 7]
    assert errors[0] is errors[2] is errors[3] is None
    assert errors[1].startswith(error)
    assert set(rows[1].values()) == {None}


@pytest.mark.parametrize(
    "text",
    [
        b' {"a" : 1} ',
        b'{\r\n"a":1\n}\n',
        b'{"\\u0061":1}',
        b'{"a":1,"zz":[1,"x",{"a":null}],"zz":2}',
        b'{"a":1,"zz":%b}' % (b"[" * 50_000 + b"]" * 50_000),
    ],
)
def test_spaces_and_unknown_fields_change_nothing(text):
    rows, errors = decoded(TypedValues("json", "a INT"), [text])

    assert (rows, errors) == ([{"a": 1}], [None])


@pytest.mark.parametrize("bad", [b'{"a":"x"}', b'{"a":1.5}', b'{"a":1,}', b"x", b'{"d":"-"}'])
@pytest.mark.parametrize("every", [1, 3, 1000])
def test_many_bad_values_among_good_ones(bad, every):
    typed = TypedValues("json", "a INT, d DATE")
    texts = [bad if row % every == 0 else b'{"a":%d}' % row for row in range(3000)]

    rows, errors = decoded(typed, texts)

    assert [error is not None for error in errors] == [text is bad for text in texts]
    assert [row["a"] for row in rows] == [
        None if text is bad else at for at, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b'{"m":{"a":1,"a":2}}', "m has a key twice"),
        (b'{"m":[{"key":"a","value":1}]}', "m: an array does not fit map<string, int32>"),
        (b'{"m":{"a":"x"}}', 'm: "x" does not fit int32'),
        (b'{"m":%b}' % (b"[" * 50_000 + b"]" * 50_000), "it is nested too deep"),
    ],
)
def test_a_map_that_does_not_decode_says_why(text, error):
    rows, errors = decoded(TypedValues("json", "m MAP<STRING, INT>"), [text, b'{"m":{"k":1}}'])

    assert [row["m"] for row in rows] == [None, {"k": 1}]
    assert errors == [error, None]
