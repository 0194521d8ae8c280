"""Single rows of a Parquet segment, read by their pages: the same rows as a read of all."""

import json
import random
from contextlib import suppress
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_log.errors import CorruptRecordError
from spark_log.log.segment.parquet import pages as pages_module
from spark_log.log.segment.parquet import writer as writer_module
from spark_log.log.segment.parquet.thrift import (
    BINARY,
    I32,
    I64,
    STRUCT,
    ThriftReader,
    Value,
    write_struct,
)
from spark_log.record.batch_header import BatchHeader
from spark_log.storage.memory import MemoryStore
from spark_log.values import TypedValues
from tests.log.segment.parquet.support import parquet_name, parquet_reader, put_parquet
from tests.log.support import DIRECTORY, HookedStore, Part
from tests.record.samples import START_US, headers, row, rows_of

DDL = "a INT, s STRING, p DECIMAL(10,2), o STRUCT<x: STRING, y: ARRAY<INT>>, d DATE"

segment_rows = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=3),
        "value": st.none() | st.binary(max_size=9),
        "headers": headers,
        "timestamp": st.integers(0, 2**40),
    }
)
groups = st.lists(
    st.tuples(
        st.lists(segment_rows, max_size=12), st.integers(0, 2), st.sampled_from(["data", "control"])
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture
def small_pages(monkeypatch):
    """A page for each few rows."""
    options = writer_module.WRITER_OPTIONS | {"data_page_size": 1, "write_batch_size": 3}
    monkeypatch.setattr(writer_module, "WRITER_OPTIONS", options)


def parts_of(groups):
    """Return parts with the gaps and control records that are drawn, and the last offset."""
    parts, offset = [], 0
    for made, gap, kind in groups:
        attributes = BatchHeader.CONTROL_BIT if kind == "control" else 0
        first = offset + gap
        deltas = list(range(first, first + len(made)))
        offset = first + max(1, len(made))
        part = Part(made, deltas, first, offset - 1, attributes=attributes)
        parts.append([part])
    return parts, offset - 1


def expected_rows(reader):
    """The offsets and rows that a read of the whole segment gives, control records left out."""
    return [
        (offset, each)
        for batch in reader.read(0)
        if not batch.is_control
        for offset, each in zip(batch.offsets().tolist(), rows_of(batch.records), strict=True)
    ]


def single_rows(reader, count):
    pages = reader.find_pages()
    found = []
    for at in range(count):
        offset, record = reader.read_row(at, pages)
        record.validate(full=True)
        found.append((offset, rows_of(record)[0]))
    return found


class TestAnySegment:
    @settings(max_examples=40)
    @given(groups, st.booleans())
    def test_a_row_is_that_of_a_read_of_all(self, drawn, is_mapped):
        parts, last = parts_of(drawn)
        inner = MemoryStore(uuid4().hex)
        with pytest.MonkeyPatch.context() as patch:
            options = writer_module.WRITER_OPTIONS | {"data_page_size": 1, "write_batch_size": 3}
            patch.setattr(writer_module, "WRITER_OPTIONS", options)
            put_parquet(inner, parts, parquet_name(last))
        reader = parquet_reader(HookedStore(inner, is_mapped=is_mapped), parquet_name(last))
        expected = expected_rows(reader)
        assert single_rows(reader, len(expected)) == expected
        with pytest.raises(CorruptRecordError, match=f"row {len(expected)} cannot be read"):
            reader.read_row(len(expected), reader.find_pages())

    def test_the_writer_knows_the_pages_of_its_file(self, memory_store, small_pages):
        from tests.log.segment.parquet.support import batch_of, parquet_writer

        writer = parquet_writer(memory_store, parquet_name(59))
        for first in range(0, 60, 20):
            made = [row(b"v%d" % at, b"k%d" % at) for at in range(20)]
            headers, records = batch_of([Part(made, list(range(first, first + 20)))])
            writer.write_rewritten(records, headers)
        staged = writer.finish().staged
        memory_store.put_if_absent(f"{DIRECTORY}/{parquet_name(59).file_name}", staged)
        pages = parquet_reader(memory_store, parquet_name(59)).find_pages()
        assert len(pages) > 4 * 3 * 6
        assert np.array_equal(writer.find_pages(), pages)


@pytest.mark.parametrize("keeps_values", [True, False])
@pytest.mark.parametrize("is_mapped", [True, False])
def test_typed_columns_give_back_the_value_of_one_row(
    memory_store, small_pages, keeps_values, is_mapped
):
    typed = TypedValues("json", DDL, keeps_values=keeps_values)
    rng = random.Random(1)
    values: list[bytes | None] = [
        json.dumps(
            {
                "a": at,
                "s": rng.choice(["x", "y", "z" * 40]),
                "o": {"x": "y", "y": [at, None]},
                "d": "2024-01-31",
            },
            separators=(",", ":"),
        ).encode()
        for at in range(60)
    ]
    values[7], values[8], values[31] = None, b"no JSON", b"{}"
    made = [row(value, key=b"k%d" % (at % 3)) for at, value in enumerate(values)]
    parts = [[Part(made[at : at + 20], list(range(at, at + 20)))] for at in range(0, 60, 20)]
    put_parquet(memory_store, parts, parquet_name(59), typed)
    store = HookedStore(memory_store, is_mapped=is_mapped)
    reader = parquet_reader(store, parquet_name(59))
    assert reader.leaves_values_out is not keeps_values
    assert [each["value"] for _, each in single_rows(reader, 60)] == values


class TestDamage:
    @pytest.fixture
    def whole(self, memory_store, small_pages):
        made = [row(b"v%d" % at, b"k%d" % at, timestamp=START_US + at) for at in range(12)]
        put_parquet(memory_store, [[Part(made, list(range(1, 13)), 0, 13)]], parquet_name(13))
        self.path = f"{DIRECTORY}/{parquet_name(13).file_name}"
        return memory_store.open_buffer(self.path).to_pybytes()

    def test_a_damaged_byte_of_a_page_is_an_error_or_changes_nothing(self, memory_store, whole):
        reader = parquet_reader(memory_store, parquet_name(13))
        pages = reader.find_pages()
        expected = single_rows(reader, 12)
        end = int((pages["position"] + pages["size_bytes"]).max())
        noticed = 0
        for at in range(4, end, 3):
            flipped = bytes([whole[at] ^ 1 << at % 8])
            memory_store.put(self.path, whole[:at] + flipped + whole[at + 1 :])
            damaged = parquet_reader(memory_store, parquet_name(13))
            for number in (0, 5, 11):
                try:
                    found = damaged.read_row(number, pages)
                except CorruptRecordError:
                    noticed += 1
                else:
                    assert (found[0], rows_of(found[1])[0]) == expected[number]
        assert noticed > end / 6

    def test_wrong_positions_are_an_error(self, memory_store, whole):
        reader = parquet_reader(memory_store, parquet_name(13))
        pages = reader.find_pages().copy()
        pages["position"] += 1
        with pytest.raises(CorruptRecordError, match="row 3 cannot be read"):
            reader.read_row(3, pages)
        pages["position"] = len(whole)
        with pytest.raises(CorruptRecordError, match="it has no bytes"):
            parquet_reader(memory_store, parquet_name(13)).read_row(3, pages.copy())


class TestThrift:
    def test_a_struct_is_read_as_it_was_written(self):
        inner = write_struct({1: Value(I32, -7)})
        data = write_struct(
            {
                1: Value(I64, 2**40),
                2: Value(BINARY, b"name"),
                12: Value(STRUCT, inner),
                21: Value(I32, list(range(-20, 20))),
                22: Value(STRUCT, [inner, inner]),
            }
        )
        assert ThriftReader(data).struct() == {
            1: 2**40,
            2: b"name",
            12: {1: -7},
            21: list(range(-20, 20)),
            22: [{1: -7}, {1: -7}],
        }

    @given(st.binary(max_size=60))
    def test_any_bytes_are_a_struct_or_an_error(self, data):
        for read in (ThriftReader.struct, ThriftReader.raw_struct):
            with suppress(ValueError):
                read(ThriftReader(data))

    @given(st.data())
    def test_a_damaged_footer_is_an_error_or_gives_columns(self, data):
        footer = footer_of_a_file()
        at = data.draw(st.integers(0, len(footer) - 1))
        damaged = footer[:at] + bytes([data.draw(st.integers(0, 255))]) + footer[at + 1 :]
        with suppress(ValueError):
            pages_module.leaves_of(damaged)


def footer_of_a_file():
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({"a": [1], "b": [[2]]}), sink)
    data = sink.getvalue().to_pybytes()
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
