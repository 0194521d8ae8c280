"""Names and types that typed columns can have, and what a file without values needs."""

import pyarrow as pa
import pytest

from spark_log.errors import InvalidConfigurationError
from spark_log.values import TypedValues


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("offset BIGINT", "column offset: a topic has a column of this name"),
        ("a INT, `Timestamp` TIMESTAMP", "column Timestamp: a topic has a column of this name"),
        ("_decode_error STRING", "column _decode_error: a topic has a column of this name"),
        ("topic STRING", "column topic: a topic has a column of this name"),
        ("a INT, A STRING", "column a: two columns have this name; upper and lower case"),
        ("`a b` INT", "column 'a b': a column of a Delta table needs a name without any of"),
        ("a STRUCT<x: INT, X: INT>", "column a: two fields have the name x"),
        ("a ARRAY<STRUCT<`x,y`: INT>>", "field 'x,y': a Delta table needs names without any of"),
        ("a STRUCT<>", "column a: a STRUCT without fields cannot be stored in Parquet"),
        ("a BINARY", "column a: JSON has no BINARY; use STRING"),
        ("a STRUCT<b: ARRAY<BINARY>>", "JSON has no BINARY; use STRING"),
        ("a MAP<INT, STRING>", "column a: keys of a MAP in JSON are STRING"),
    ],
)
def test_a_schema_that_a_table_of_json_cannot_have_is_refused(ddl, message):
    with pytest.raises(InvalidConfigurationError) as raised:
        TypedValues("json", ddl)

    assert message in str(raised.value)


def test_a_value_whose_columns_are_all_null_is_kept():
    """A reader could not tell it from a tombstone."""
    typed = TypedValues("json", "a INT")
    values = pa.array([b"{}", b'{"a":null}', b'{"a":1}', None], pa.binary())

    columns = typed.decode(values)

    assert typed.encodes_same(values, columns, "").tolist() == [False, False, True, False]
    assert columns.column("_decode_error").null_count == 4


def test_the_encoding_is_that_of_most_values():
    typed = TypedValues("json", "a INT, at TIMESTAMP")
    spaced = b'{"a": 1, "at": "2024-01-01T00:00:00.000Z"}'
    values = pa.array([b'{"a":1}', *[spaced] * 5], pa.binary())
    columns = typed.decode(values)

    encoding = typed.choose_encoding(values, columns)

    assert encoding == "spaced millis"
    assert typed.encodes_same(values, columns, encoding).tolist() == [False, *[True] * 5]


def test_an_encoding_that_is_not_known_is_refused():
    """A newer release may have written it."""
    columns = TypedValues("json", "a INT").decode(pa.array([b'{"a":1}']))

    with pytest.raises(ValueError, match="unknown JSON style"):
        TypedValues("json", "a INT").encode(columns, "spaced tabs")


def test_no_values():
    typed = TypedValues("json", "a INT, m MAP<STRING, INT>")

    for values in (pa.array([], pa.binary()), pa.nulls(3, pa.binary())):
        columns = typed.decode(values)
        assert columns.num_rows == len(values)
        assert not typed.encodes_same(values, columns, typed.choose_encoding(values, columns)).any()
