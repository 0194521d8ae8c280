"""The DDL of a schema is read as Spark reads it, and refused with the position of the mistake."""

import pyarrow as pa
import pytest
from hypothesis import given

from spark_log.errors import InvalidConfigurationError
from spark_log.values.ddl import parse_ddl
from tests.values.schemas import ddl_of, schemas

ALL_TYPES = """
    carrier STRING COMMENT "the carrier's code", dep_delay int, `a ``b` bigint, s: smallint,
    origin STRUCT<airport: STRING, `way` ARRAY<STRUCT<x DOUBLE, y float>>>, tags ARRAY<STRING>,
    m MAP<STRING,DOUBLE>, at TIMESTAMP, d DATE, price DECIMAL(10,2), plain decimal, n NUMERIC(5),
    tiny TINYINT, b BYTE, sh SHORT, l LONG, r REAL, flag BOOLEAN, raw BINARY, zone TIMESTAMP_LTZ
"""


def test_all_types():
    schema = parse_ddl(ALL_TYPES)

    assert schema.field("a `b").type == pa.int64()
    assert schema.field("m").type == pa.map_(pa.string(), pa.float64())
    assert schema.field("price").type == pa.decimal128(10, 2)
    assert schema.field("plain").type == pa.decimal128(10, 0)
    assert schema.field("at").type == schema.field("zone").type == pa.timestamp("us", "UTC")
    way = pa.list_(pa.struct([("x", pa.float64()), ("y", pa.float32())]))
    assert schema.field("origin").type == pa.struct([("airport", pa.string()), ("way", way)])
    assert all(field.nullable for field in schema)


@given(schemas())
def test_any_schema_that_is_written_as_ddl_is_read_again(schema):
    assert parse_ddl(ddl_of(schema)).equals(schema)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "position 1: expected the name of a column, found the end"),
        ("a", "position 2: expected a type, found the end"),
        ("a INT,", "position 7: expected the name of a column, found the end"),
        ("a INT b INT", "position 7: expected a comma or the end, found 'b'"),
        ("a ARRAY<INT", "position 12: expected '>', found the end"),
        ("a ARRAY INT", "position 9: expected '<', found 'INT'"),
        ("a MAP<STRING>", "position 13: expected ',', found '>'"),
        ("a TEXT", "position 3: expected a type such as STRING, INT, BIGINT, DOUBLE, TIMESTAMP or"),
        ("a INT NOT NULL", "NOT NULL is not possible: a column is null in a row whose value does"),
        ("a TIMESTAMP_NTZ", "position 3: a table has no type TIMESTAMP_NTZ; use TIMESTAMP"),
        ("a VARCHAR(10)", "position 3: a table has no type VARCHAR; use STRING"),
        ("a DECIMAL(39,2)", "DECIMAL(39,2): the precision is 1 to 38, and the scale 0 to the"),
        ("a DECIMAL(x)", "position 11: expected a number, found 'x'"),
        ("a DECIMAL(2,3)", "DECIMAL(2,3): the precision is 1 to 38"),
        ("a INT COMMENT x", "position 15: expected the comment as a quoted text, found 'x'"),
        ("`a INT", "position 1: expected the name of a column, found '`'"),
        ("a " + "ARRAY<" * 40 + "INT" + ">" * 40, "types are nested more than 32 deep"),
    ],
)
def test_a_mistake_is_named_with_its_position(text, message):
    with pytest.raises(InvalidConfigurationError) as raised:
        parse_ddl(text)

    assert message in str(raised.value)
