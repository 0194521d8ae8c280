"""Keys and values in Avro, of a schema that the user gives."""

import datetime
import io
import json
import random
import sys
from decimal import Decimal
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from fastavro.schema import parse_schema

from spark_log.cli.format.avro import avro_deserializer
from spark_log.errors import InvalidConfigurationError
from spark_log.values import TypedValues
from tests.cli.support import append

RAIN = {
    "type": "record",
    "name": "Rain",
    "fields": [{"name": "place", "type": ["null", "string"]}, {"name": "mm", "type": "double"}],
}


def encoded(value, schema=RAIN):
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, parse_schema(schema), value)
    return buffer.getvalue()


def single_object(value, schema=RAIN):
    buffer = io.BytesIO()
    # fastavro writes only plain values: this is the header of the specification.
    canonical = fastavro.schema.to_parsing_canonical_form(parse_schema(schema))
    buffer.write(b"\xc3\x01" + rabin(canonical.encode()).to_bytes(8, "little"))
    return buffer.getvalue() + encoded(value, schema)


def rabin(data):
    """CRC-64-AVRO, as the specification defines it."""
    empty = 0xC15D213AA4D7A795
    table = []
    for number in range(256):
        fingerprint = number
        for _ in range(8):
            fingerprint = (fingerprint >> 1) ^ (empty & -(fingerprint & 1))
        table.append(fingerprint)
    result = empty
    for byte in data:
        result = (result >> 8) ^ table[(result ^ byte) & 0xFF]
    return result


@pytest.fixture
def file(folder):
    def file(schema):
        path = folder / "schema.avsc"
        path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
        return path

    return file


@pytest.fixture
def document(file):
    def document(data, schema=RAIN):
        return avro_deserializer(file(json.dumps(schema))).document(data)

    return document


class TestForms:
    VALUE = {"place": "JFK", "mm": 0.5}  # noqa: RUF012
    CONFLUENT = b"\0\0\0\0\7"

    def test_are_plain_single_object_and_confluents(self, document):
        for data in (
            encoded(self.VALUE),
            single_object(self.VALUE),
            self.CONFLUENT + encoded(self.VALUE),
        ):
            assert document(data) == self.VALUE

    def test_a_plain_value_may_begin_with_a_zero_byte(self, document):
        value = {"place": None, "mm": 0.5}
        assert encoded(value).startswith(b"\0")
        assert document(encoded(value)) == value
        assert document(self.CONFLUENT + encoded(value)) == value

    def test_a_value_that_is_both_is_plain_as_in_typed_columns(self, document):
        schema = {
            "type": "record",
            "name": "Both",
            "fields": [{"name": "n", "type": "int"}, {"name": "b", "type": "bytes"}],
        }
        value = {"n": 0, "b": b"abc" + encoded({"n": 1, "b": b"inner"}, schema)}
        data = encoded(value, schema)
        assert data[:1] == b"\0"
        assert document(data[5:], schema) == {"n": 1, "b": "inner"}
        assert document(data, schema)["n"] == 0
        typed = TypedValues("avro", json.dumps(schema)).decode(pa.array([data]))
        assert typed.column("b").to_pylist() == [value["b"]]

    def test_both_reasons_are_told(self, document):
        with pytest.raises(ValueError, match=r".+; behind a schema id: .+"):
            document(self.CONFLUENT + b"\7")

    def test_a_single_object_of_another_schema_is_refused(self, document):
        with pytest.raises(ValueError, match=r"fingerprint 8f5c393f1ad57572, and schema\.avsc has"):
            document(single_object(7, "int"))


class TestDocument:
    @pytest.mark.parametrize(
        ("schema", "value", "shown"),
        [
            ("null", None, None),
            ("boolean", True, True),
            ("long", 2**62, 2**62),
            ("double", float("inf"), "inf"),
            ("string", "Zürich", "Zürich"),
            ("bytes", b"abc", "abc"),
            ("bytes", b"\xff\x00", {"base64": "/wA="}),
            ({"type": "fixed", "name": "F", "size": 2}, b"\xff\x00", {"base64": "/wA="}),
            ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
            ({"type": "array", "items": ["null", "bytes"]}, [None, b"a"], [None, "a"]),
            ({"type": "map", "values": "double"}, {"a": float("nan")}, {"a": "nan"}),
            (
                {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2},
                Decimal("12345678901234567890.50"),
                "12345678901234567890.50",
            ),
            ({"type": "int", "logicalType": "date"}, datetime.date(2013, 7, 4), "2013-07-04"),
            (
                {"type": "long", "logicalType": "timestamp-millis"},
                datetime.datetime(2013, 7, 4, 12, 0, 0, 5000, datetime.UTC),
                "2013-07-04T12:00:00.005000Z",
            ),
            ({"type": "int", "logicalType": "time-millis"}, datetime.time(12, 30), "12:30:00"),
            (
                {"type": "string", "logicalType": "uuid"},
                UUID(int=5),
                "00000000-0000-0000-0000-000000000005",
            ),
        ],
        ids=str,
    )
    def test_shows_every_type_as_json(self, document, schema, value, shown):
        found = document(encoded(value, schema), schema)
        assert found == shown
        assert json.loads(json.dumps(found, allow_nan=False)) == shown

    @pytest.mark.parametrize(
        ("data", "problem"),
        [
            (b"", "ends too early"),
            (encoded(TestForms.VALUE)[:-1], "ends too early"),
            (encoded(TestForms.VALUE) + b"x", "1 bytes follow the value"),
            (b"\x02\xff\xff\xff\xff\x0f", "ends too early"),
            (b"\x02\x01" + bytes(8), "ends too early"),
            (b"\x02\x02\xff" + bytes(8), "utf-8"),
            (b"\x08", "index"),
        ],
    )
    def test_of_what_is_no_value_is_refused(self, document, data, problem):
        with pytest.raises(ValueError, match=problem):
            document(data)

    def test_of_any_bytes_is_a_value_or_refused(self, file):
        convert = avro_deserializer(file(RAIN)).document
        draw = random.Random(1)
        for _ in range(2000):
            data = bytearray(encoded(TestForms.VALUE))
            data[draw.randrange(len(data))] = draw.randrange(256)
            try:
                convert(bytes(data[: draw.randint(0, len(data))]))
            except ValueError:
                continue


class TestSchema:
    @pytest.mark.parametrize(
        "schema", ["{", "5", "nope", {"type": "record"}, {"type": "nope"}, {"type": "array"}]
    )
    def test_that_is_none_is_refused_with_its_file(self, file, schema):
        with pytest.raises(InvalidConfigurationError, match=r"schema\.avsc is not an Avro schema"):
            avro_deserializer(file(schema))

    def test_that_is_missing_is_refused(self, folder):
        with pytest.raises(InvalidConfigurationError, match="No such file"):
            avro_deserializer(folder / "nothing.avsc")


class TestCommand:
    ARGV = ("console-consumer", "weather", "--from-beginning", "--max-messages")

    @pytest.fixture(autouse=True)
    def records(self, root, file):
        append(root, "weather", encoded({"place": "JFK", "mm": 0.5}), None, key=encoded(7, "int"))
        file(RAIN)

    def test_prints_values_as_json(self, shell):
        argv = [*self.ARGV, "2", "--value-deserializer", "avro", "--avro-schema", "schema.avsc"]
        assert shell(*argv).lines == ['{"place": "JFK", "mm": 0.5}', "null"]
        assert shell(*argv, "-f", "%s %S;").out == '{"place": "JFK", "mm": 0.5} 13; -1;'
        documents = shell(*argv, "--json").documents
        assert [each["value"] for each in documents] == [{"place": "JFK", "mm": 0.5}, None]

    def test_prints_keys_as_json(self, shell, file):
        file('"int"')
        argv = [*self.ARGV, "1", "--key-deserializer", "avro", "--avro-schema", "schema.avsc"]
        (line,) = shell(*argv, "--print-key").lines
        assert line.startswith("7\t")

    def test_names_the_offset_of_what_is_no_value(self, shell, root):
        append(root, "weather", b"rain")
        argv = [*self.ARGV, "3", "--property", "value.deserializer=avro"]
        outcome = shell(*argv, "--avro-schema", "schema.avsc")
        assert outcome.status == 2
        assert "the value at partition 0, offset 2 is not Avro of the given" in outcome.err

    def test_says_what_to_install(self, shell, monkeypatch):
        monkeypatch.setitem(sys.modules, "fastavro.schema", None)
        argv = [*self.ARGV, "1", "--value-deserializer", "avro", "--avro-schema", "schema.avsc"]
        outcome = shell(*argv)
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.error.endswith("needs fastavro: pip install 'spark-log[avro]'")
