"""Avro values as columns: as fastavro reads them row by row, whatever the bytes are."""

import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spark_log.errors import InvalidConfigurationError
from spark_log.values import TypedValues, avro_decoder
from tests.values.avro_schemas import encoded, fastavro_row, records, same

FRAME = b"\0\0\0\1\x07"
"""Confluent's framing, with the schema id 263."""


def typed_of(schema):
    return TypedValues("avro", json.dumps(schema))


def record(*fields):
    return {
        "type": "record",
        "name": "r",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }


def decoded(typed, values):
    """Return the rows of some values as dictionaries, and the errors."""
    batch = typed.decode(pa.array([b"before", *values], pa.binary())[1:])
    batch.validate(full=True)
    rows = batch.to_pylist(maps_as_pydicts="lossy")
    return rows, [row.pop("_decode_error") for row in rows]


@pytest.fixture(params=[0, 32], ids=["together", "alone"], autouse=True)
def few_values(request, monkeypatch):
    """The number of values up to which items of arrays are decoded alone."""
    monkeypatch.setattr(avro_decoder, "FEW_VALUES", request.param)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), records(), st.sampled_from([b"", FRAME]))
def test_values_become_columns_and_the_columns_the_same_bytes(data, record_type, frame):
    schema, rows_of = record_type
    rows = data.draw(st.lists(rows_of, max_size=6))
    texts = [frame + encoded(schema, row) for row in rows]
    assume(not frame or all(fastavro_row(schema, text) is None for text in texts))
    typed = typed_of(schema)

    found, errors = decoded(typed, texts)

    assert errors == [None] * len(rows)
    for ours, row, text in zip(found, rows, texts, strict=True):
        assert same(ours, fastavro_row(schema, text.removeprefix(frame))), row
    values = pa.array(texts, pa.binary())
    columns = typed.decode(values)
    encoding = typed.choose_encoding(values, columns)
    has_value = [any(each is not None for each in row.values()) for row in rows]
    assert typed.encodes_same(values, columns, encoding).tolist() == has_value
    if any(has_value):  # the frame is looked for in these alone; the others keep their bytes
        assert typed.encode(columns, encoding).to_pylist() == texts


REFUSED_BY_US_ALONE = (
    "a boolean is neither 0 nor 1",
    "a number has more than",
    "more items than bytes",
    "a wrong size",
    "no branch of the",
    "no symbol of the",
)
"""fastavro takes these bytes for values that Avro does not have, or that its schema does not."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), records(logical=False))
def test_damaged_values_are_read_as_fastavro_reads_them_row_by_row(data, record_type):
    schema, rows_of = record_type
    texts = []
    for row in data.draw(st.lists(rows_of, max_size=6)):
        text = encoded(schema, row)
        damage = st.tuples(st.integers(0, 20), st.integers(0, 3), st.binary(max_size=2))
        for at, length, instead in data.draw(st.lists(damage, max_size=2)):
            text = text[:at] + instead + text[at + length :]
        texts.append(text)

    rows, errors = decoded(typed_of(schema), texts)

    for text, row, error in zip(texts, rows, errors, strict=True):
        theirs = fastavro_row(schema, text)
        if theirs is None and text[:1] == b"\0" and len(text) >= len(FRAME):
            theirs = fastavro_row(schema, text[len(FRAME) :])
        if error is None:
            assert same(row, theirs), text
        else:
            assert set(row.values()) == {None}
            assert theirs is None or any(each in error for each in REFUSED_BY_US_ALONE), error


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        ("int", b"", "a: ends too early"),
        ("int", b"\x80", "a: ends too early"),
        ("int", b"\2\2", "bytes are left behind the last field"),
        ("int", b"\x80\x80\x80\x80\x10", "a: a number has more than 32 bits"),
        ("long", b"\xff" * 9 + b"\x02", "a: a number has more than 64 bits"),
        ("double", b"\0" * 7, "a: ends too early"),
        ("boolean", b"\2", "a: a boolean is neither 0 nor 1"),
        ("string", b"\x04a", "a: ends too early, or has a wrong length"),
        ("string", b"\1", "a: ends too early, or has a wrong length"),
        ("string", b"\x02\xff", "a: a string is not UTF-8"),
        (["null", "int"], b"\4\2", "a: has no branch of the 2 of the union"),
        ({"type": "array", "items": "int"}, b"\x02\x02", "a: ends too early"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\x03\0", "an array or map has more items"),
        ({"type": "array", "items": "double"}, b"\x02\x01\0", "a: ends too early"),
        ({"type": "enum", "name": "e", "symbols": ["X"]}, b"\2", "a: has no symbol of the 1 of"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1},
            b"\2\x64",
            "a: a decimal has more than 2 digits",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            b"\xfe" + b"\xff" * 8 + b"\1",
            "a: a timestamp has more than 64 bits of microseconds",
        ),
    ],
)
def test_a_value_that_does_not_decode_says_why_and_spoils_no_other(kind, text, error):
    schema = record(("a", kind), ("z", ["null", "string"]))
    good = {"a": fastavro_row({"type": "record", "name": "r", "fields": []}, b"")}
    del good
    typed = typed_of(record(("a", kind)))

    rows, errors = decoded(typed, [text, None, text])

    assert rows == [{"a": None}] * 3
    assert errors[1] is None
    assert errors[0] == errors[2]
    assert error in errors[0]
    assert typed_of(schema).schema.names == ["a", "z"]


def test_a_value_that_decodes_without_framing_has_none():
    """The bytes are ``(0, "....5")`` as they are, and another value behind five bytes."""
    schema = record(("a", "int"), ("s", "string"))
    plain = encoded(schema, {"a": 0, "s": "123\x06\x04ab"})
    framed = FRAME + encoded(schema, {"a": 3, "s": "ab"})
    assert fastavro_row(schema, plain[5:]) == {"a": 3, "s": "ab"}

    rows, errors = decoded(typed_of(schema), [plain, framed, b"\0\0\0\1\x07\x80"])

    assert rows[:2] == [{"a": 0, "s": "123\x06\x04ab"}, {"a": 3, "s": "ab"}]
    assert errors[:2] == [None, None]
    assert "behind a schema id: a: ends too early" in errors[2]


def test_blocks_with_a_size_and_long_numbers_decode_and_are_kept():
    schema = record(("a", {"type": "array", "items": "int"}))
    typed = typed_of(schema)
    usual = encoded(schema, {"a": [1, 2, 3]})
    texts = [
        usual,
        b"\5\6\2\4\6\0",  # a block of -3 items, which has 3 bytes
        b"\2\2\4\4\6\0",  # two blocks
        b"\x86\0\2\4\6\0",  # a number that is longer than necessary
    ]

    rows, errors = decoded(typed, texts)

    assert rows == [{"a": [1, 2, 3]}] * 4
    assert errors == [None] * 4
    values = pa.array(texts, pa.binary())
    assert typed.encodes_same(values, typed.decode(values), "").tolist() == [True, *[False] * 3]


def test_rows_without_framing_among_framed_ones_are_kept():
    schema = record(("a", "int"))
    typed = typed_of(schema)
    values = pa.array([FRAME + b"\2", b"\2", FRAME + b"\4", b"\0\0\0\0\1\2"], pa.binary())

    columns = typed.decode(values)
    encoding = typed.choose_encoding(values, columns)

    assert columns.column("a").to_pylist() == [1, 1, 2, 1]
    assert typed.encodes_same(values, columns, encoding).tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "it is not JSON"),
        ('"int"', "it must be a record with one or more fields"),
        (record(), "it must be a record with one or more fields"),
        (record(("a", "text")), "field a of the schema: there is no type 'text'"),
        (record(("a", ["int", "string"])), "this union has 2 types besides null"),
        (record(("a", ["null"])), "this union has 0 types besides null"),
        (record(("a", "null")), "there is no type 'null'"),
        (record(("a", ["null", "r"])), "r contains itself, which columns cannot express"),
        (record(("a", {"type": "array"})), "field a of the schema: 'items' is missing"),
        (record(("a", {"type": "fixed", "name": "f", "size": 0})), "the size of a fixed is 1 to"),
        (
            record(("a", {"type": "long", "logicalType": "local-timestamp-micros"})),
            "tables have no timestamps without a time zone",
        ),
        (
            record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 39})),
            "a decimal needs a precision of 1 to 38",
        ),
        (
            record(
                ("a", {"type": "array", "items": {"type": "record", "name": "e", "fields": []}})
            ),
            "items of no bytes cannot be counted",
        ),
        (record(("a", "int"), ("a", "int")), "it has the field a twice"),
    ],
)
def test_a_schema_that_columns_cannot_express_is_refused(schema, message):
    text = schema if isinstance(schema, str) else json.dumps(schema)

    with pytest.raises(InvalidConfigurationError) as raised:
        TypedValues("avro", text)

    assert message in str(raised.value)


def test_types_of_a_namespace():
    schema = record(
        ("a", {"type": "enum", "name": "e", "symbols": ["X", "Y"]}), ("b", ["null", "n.e"])
    )
    schema["namespace"] = "n"

    rows, errors = decoded(typed_of(schema), [encoded(schema, {"a": "X", "b": "Y"})])

    assert (rows, errors) == ([{"a": "X", "b": "Y"}], [None])
