"""Typed columns of a Parquet segment, and values that it leaves out because of them."""

import json
from decimal import Decimal
from hashlib import sha256
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from spark_log.errors import CorruptRecordError
from spark_log.log.segment.parquet.typed_columns import LeftOutValues
from spark_log.storage.memory import MemoryStore
from spark_log.values import TypedValues
from tests.log.segment.parquet.support import parquet_name, parquet_reader, put_parquet
from tests.log.support import DIRECTORY, HookedStore, Part
from tests.record.samples import row
from tests.values import avro_schemas
from tests.values.schemas import STYLES, ddl_of, json_of, rows_of, schemas

DDL = "a INT, o STRUCT<s: STRING, t: ARRAY<STRING>>, m MAP<STRING, DOUBLE>, p DECIMAL(10,2), d DATE"
VALUES = [
    b'{"a":1,"o":{"s":"x","t":["y",null]},"m":{"k":1.5},"p":1.50,"d":"2024-01-31"}',
    b'{"a": 2}',
    None,
    b"no JSON",
    b"{}",
    b'{"a":3}',
]


def typed(*, keeps_values=True, ddl=DDL):
    return TypedValues("json", ddl, keeps_values=keeps_values)


def parts_of(values):
    return [Part([row(value) for value in values], deltas=list(range(len(values))))]


def in_parquet(store, name):
    """Return the file as another program reads it."""
    return parquet.ParquetFile(pa.BufferReader(store.open_buffer(f"{DIRECTORY}/{name.file_name}")))


def values_of(reader):
    """Return the values that our reader gives, after it has checked the batches."""
    found = []
    for ordinal in range(reader.batch_count):
        _, records = reader.read_batch(ordinal)
        found += records.column("value").to_pylist()
    return found


@pytest.fixture
def store(memory_store):
    return memory_store


def test_typed_columns_lie_behind_those_of_the_log(store):
    name = parquet_name(last=5)

    reader = put_parquet(store, [parts_of(VALUES)], name, typed())

    table = in_parquet(store, name).read()
    assert table.schema.names == [
        *("offset", "timestamp", "key", "value", "headers", "partition"),
        *("a", "o", "m", "p", "d", "_decode_error"),
    ]
    assert table.column("value").to_pylist() == VALUES
    assert table.column("a").to_pylist() == [1, 2, None, None, None, 3]
    assert table.column("o").to_pylist()[0] == {"s": "x", "t": ["y", None]}
    assert table.column("p").to_pylist()[0] == Decimal("1.50")
    assert table.column("_decode_error").to_pylist() == [
        *[None] * 3,
        "it is not a JSON object",
        *[None] * 2,
    ]
    assert values_of(reader) == VALUES


def test_typed_columns_have_statistics_and_dictionaries(store):
    name = parquet_name(last=5)
    put_parquet(store, [parts_of(VALUES)], name, typed())

    row_group = in_parquet(store, name).metadata.row_group(0)
    columns = [row_group.column(at) for at in range(row_group.num_columns)]
    found = {each.path_in_schema: each for each in columns}

    assert (found["a"].statistics.min, found["a"].statistics.max) == (1, 3)
    assert found["a"].statistics.null_count == 3
    for path in ("a", "o.s", "o.t.list.element", "m.key_value.key", "m.key_value.value", "d"):
        assert found[path].is_stats_set, path
        assert "RLE_DICTIONARY" in found[path].encodings, path
    assert not found["value"].is_stats_set


def test_a_large_dictionary_ends_early(store):
    """Engines decode all entries of it for each row group (docs/adr/0048)."""
    values = [b'{"s":"%b"}' % sha256(b"%d" % at).hexdigest().encode() for at in range(4000)]
    name = parquet_name(last=len(values) - 1)
    reader = put_parquet(store, [parts_of(values)], name, typed(ddl="s STRING"))

    row_group = in_parquet(store, name).metadata.row_group(0)
    column = next(
        each
        for each in map(row_group.column, range(row_group.num_columns))
        if each.path_in_schema == "s"
    )
    assert column.has_dictionary_page
    assert column.total_uncompressed_size > 250_000
    assert column.data_page_offset - column.dictionary_page_offset < 100_000
    assert values_of(reader) == values


@pytest.mark.parametrize("is_mapped", [True, False])
def test_values_that_columns_give_are_left_out_and_given_back(store, is_mapped):
    name = parquet_name(last=11)
    batches = [parts_of(VALUES), [Part(parts_of(VALUES)[0].rows, deltas=list(range(6, 12)))]]
    put_parquet(store, batches, name, typed(keeps_values=False))

    stored = in_parquet(store, name).read(["value"]).column("value").to_pylist()
    reader = parquet_reader(HookedStore(store, is_mapped=is_mapped), name)

    assert stored == [None, b'{"a": 2}', None, b"no JSON", b"{}", None] * 2
    assert values_of(reader) == VALUES * 2


@given(st.data(), schemas())
def test_any_json_is_given_back(data, schema):
    rows = data.draw(st.lists(rows_of(schema), min_size=1, max_size=5))
    values = [json_of(each, pa.struct(list(schema)), STYLES[0]).encode() for each in rows]
    values += data.draw(st.lists(st.none() | st.binary(max_size=5), max_size=3))
    _check_is_given_back(data.draw(st.permutations(values)), "json", ddl_of(schema))


@given(st.data(), avro_schemas.records())
def test_any_avro_is_given_back(data, record_type):
    schema, rows = record_type
    values = [
        avro_schemas.encoded(schema, each)
        for each in data.draw(st.lists(rows, min_size=1, max_size=5))
    ]
    values += data.draw(st.lists(st.none() | st.binary(max_size=5), max_size=3))
    _check_is_given_back(data.draw(st.permutations(values)), "avro", json.dumps(schema))


def _check_is_given_back(values, value_format, schema):
    store, name = MemoryStore(f"memory://{uuid4()}"), parquet_name(last=len(values) - 1)
    found = TypedValues(value_format, schema, keeps_values=False)

    reader = put_parquet(store, [parts_of(values)], name, found)

    assert values_of(reader) == values
    columns = found.decode(pa.array(values, pa.binary()))
    assert in_parquet(store, name).read(columns.schema.names).equals(pa.table(columns))


def test_a_file_without_any_value_to_leave_out(store):
    name = parquet_name(last=1)

    reader = put_parquet(store, [parts_of([None, None])], name, typed(keeps_values=False))

    assert values_of(reader) == [None, None]


@pytest.mark.parametrize(
    ("value_format", "schema"), [(b"protobuf", b"a INT"), (b"json", b"a VARIANT")]
)
def test_a_schema_of_a_newer_release_is_an_error_not_a_null(value_format, schema):
    metadata = {
        b"spark_log.value_format": value_format,
        b"spark_log.value_schema": schema,
        b"spark_log.value_encoding": b"",
    }

    with pytest.raises(ValueError, match="its values cannot be made from its columns"):
        LeftOutValues.of(metadata)


def test_a_column_that_others_changed_is_found(store):
    """The checksum of the batch covers the value."""
    name = parquet_name(last=5)
    put_parquet(store, [parts_of(VALUES)], name, typed(keeps_values=False))
    reader = parquet_reader(store, name)
    give_back = LeftOutValues.give_back

    def other(self, values, columns):
        changed = pa.array([9, *columns["a"].to_pylist()[1:]], pa.int32())
        return give_back(self, values, {**columns, "a": changed})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LeftOutValues, "give_back", other)
        with pytest.raises(CorruptRecordError):
            values_of(reader)
