"""The checksum of a batch: what it covers, and that its definition does not change."""

import struct
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from spark_log.record.checksum import batch_crc32c
from spark_log.record.schema import HEADERS_TYPE, OFFSET_DELTA_FIELD, RECORD_SCHEMA
from tests.record.samples import START_US, header_of, record_batch, row, row_lists, rows

# --- the definition, once more, as simply as can be ----------------------------------------------


def defined_bytes(header, rows, offset_deltas=None):
    """Return the bytes that the checksum covers, built from Python values."""
    data = header.checksummed_bytes()
    for name, kind in (("key", "text"), ("value", "text"), ("headers", "headers")):
        data += column_bytes([row[name] for row in rows], kind)
    data += column_bytes([row["timestamp"] for row in rows], "timestamp")
    if offset_deltas is not None:
        relative = [delta - header.base_offset_delta for delta in offset_deltas]
        data += struct.pack(f"<{len(relative)}i", *relative)
    return data


def column_bytes(values, kind):
    valid = [value is not None for value in values]
    if not any(valid):
        return b"\x02"
    data = b"\0"
    if not all(valid):
        bits = sum(1 << at for at, is_valid in enumerate(valid) if is_valid)
        data = b"\x01" + bits.to_bytes((len(values) + 7) // 8, "little")
    if kind == "timestamp":
        return data + struct.pack(f"<{len(values)}q", *values)
    ends = np.cumsum([0, *(0 if value is None else len(value) for value in values)])
    data += struct.pack(f"<{len(ends)}i", *ends)
    if kind == "text":
        return data + b"".join(value or b"" for value in values)
    items = [item for value in values if value is not None for item in value]
    if not items:
        return data + b"\x02"
    names = [item["key"].encode() for item in items]
    contents = [item["value"] for item in items]
    return data + b"\0" + column_bytes(names, "text") + column_bytes(contents, "text")


@given(row_lists)
def test_the_checksum_is_crc32c_over_the_documented_bytes(many):
    header = header_of(many)
    assert batch_crc32c(header, record_batch(many)) == crc32c(defined_bytes(header, many))


@given(row_lists, st.data())
def test_a_batch_with_gaps_covers_its_offsets_too(many, data):
    steps = data.draw(st.lists(st.integers(1, 9), min_size=len(many), max_size=len(many)))
    deltas = [1_000 + int(delta) for delta in np.cumsum(steps)]
    header = header_of(many, base_offset_delta=1_000, last_offset_delta=deltas[-1] + 1)
    records = record_batch(many).append_column(OFFSET_DELTA_FIELD, pa.array(deltas, pa.int32()))
    expected = crc32c(defined_bytes(header, many, deltas))
    assert batch_crc32c(header, records) == expected
    deltas[0] -= 1
    moved = record_batch(many).append_column(OFFSET_DELTA_FIELD, pa.array(deltas, pa.int32()))
    assert batch_crc32c(header, moved) != expected


def test_crc32c_is_castagnolis():
    assert crc32c(b"123456789") == 0xE3069283


# --- frozen --------------------------------------------------------------------------------------

KNOWN_ROWS = [
    row(b"a value", b"a key", [("name", b"content"), ("name", None), ("", b"")], START_US),
    row(None, b"", [], START_US - 1),
    row(b"", None, None, START_US + 86_400_000_000),
    row("µ".encode() * 40, b"\0\xff", [("µ", b"\0")], -1),
]


def test_known_batches_have_known_checksums():
    """Never change these numbers: existing logs have them."""
    plain = header_of(KNOWN_ROWS)
    assert batch_crc32c(plain, record_batch(KNOWN_ROWS)) == 0x5539F665
    full = replace(
        plain,
        leader_epoch=7,
        attributes=0b11000,
        producer_id=123_456_789_012,
        producer_epoch=5,
        base_sequence=42,
    )
    assert batch_crc32c(full, record_batch(KNOWN_ROWS)) == 0xFEE7F3D6
    gapped = replace(plain, base_offset_delta=100, last_offset_delta=110)
    deltas = pa.array([100, 103, 109, 110], pa.int32())
    records = record_batch(KNOWN_ROWS).append_column(OFFSET_DELTA_FIELD, deltas)
    assert batch_crc32c(gapped, records) == 0xAEEA8435
    tombstone = [row(None, b"k")]
    assert batch_crc32c(header_of(tombstone), record_batch(tombstone)) == 0x7226F022


# --- what it does not see ------------------------------------------------------------------------


def written_and_read(records, compression):
    sink = pa.BufferOutputStream()
    options = ipc.IpcWriteOptions(compression=compression)
    with ipc.new_file(sink, records.schema, options=options) as writer:
        writer.write_batch(records)
    return ipc.open_file(sink.getvalue()).get_batch(0)


def with_a_bitmap(array):
    """Return the same values with a validity bitmap, also without nulls."""
    bitmap = np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    buffers = [pa.py_buffer(bitmap.tobytes()), *array.buffers()[1:3]]
    return pa.Array.from_buffers(array.type, len(array), buffers)


def hiding(values, junk, kind):
    """Return a string array in which every null has the bytes ``junk``."""
    owned = [junk if value is None else value for value in values]
    offsets = np.cumsum([0, *map(len, owned)]).astype("<i4")
    bitmap = np.packbits([value is not None for value in values], bitorder="little")
    buffers = [pa.py_buffer(bitmap.tobytes()), pa.py_buffer(offsets), pa.py_buffer(b"".join(owned))]
    return pa.Array.from_buffers(kind, len(values), buffers)


class TestIgnores:
    """The checksum does not depend on how Arrow stores the batch."""

    @pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
    @given(many=row_lists)
    def test_having_been_written_and_read(self, compression, many):
        header, records = header_of(many), record_batch(many)
        again = written_and_read(records, compression)
        assert batch_crc32c(header, again) == batch_crc32c(header, records)

    @given(st.lists(rows, max_size=9), row_lists, st.lists(rows, max_size=9))
    def test_being_a_slice_of_a_larger_batch(self, before, many, behind):
        header = header_of(many)
        whole = record_batch(before + many + behind)
        expected = batch_crc32c(header, record_batch(many))
        piece = whole.slice(len(before), len(many))
        assert batch_crc32c(header, piece) == expected
        assert batch_crc32c(header, written_and_read(piece, None)) == expected
        again = written_and_read(whole, "lz4").slice(len(before), len(many))
        assert batch_crc32c(header, again) == expected

    @given(row_lists, row_lists, row_lists)
    def test_being_a_piece_of_batches_that_were_joined(self, first, many, last):
        header = header_of(many)
        joined = pa.concat_batches([record_batch(part) for part in (first, many, last)])
        piece = joined.slice(len(first), len(many))
        assert batch_crc32c(header, piece) == batch_crc32c(header, record_batch(many))

    @given(row_lists, row_lists)
    def test_having_been_taken_out_of_a_batch_in_another_order(self, others, many):
        header = header_of(many)
        mixed = record_batch(many[::-1] + others)
        taken = mixed.take(pa.array(range(len(many) - 1, -1, -1)))
        assert batch_crc32c(header, taken) == batch_crc32c(header, record_batch(many))

    @given(row_lists)
    def test_a_bitmap_where_nothing_is_null(self, many):
        header, records = header_of(many), record_batch(many)
        columns = [with_a_bitmap(records.column(name)) for name in ("key", "value")]
        same = pa.RecordBatch.from_arrays([*columns, *records.columns[2:]], schema=RECORD_SCHEMA)
        assert batch_crc32c(header, same) == batch_crc32c(header, records)

    @given(row_lists, st.binary(min_size=1, max_size=5))
    def test_bytes_that_a_null_key_or_value_owns(self, many, junk):
        header, records = header_of(many), record_batch(many)
        columns = [
            hiding([row[name] for row in many], junk, pa.binary()) for name in ("key", "value")
        ]
        same = pa.RecordBatch.from_arrays([*columns, *records.columns[2:]], schema=RECORD_SCHEMA)
        same.validate(full=True)
        assert batch_crc32c(header, same) == batch_crc32c(header, records)
        piece = same.slice(len(many) // 2)
        rest = record_batch(many[len(many) // 2 :])
        assert batch_crc32c(header, piece) == batch_crc32c(header, rest)

    def test_items_that_null_headers_own(self):
        many = [row(headers=[("a", b"1")]), row(headers=None), row(headers=[("b", b"2")])]
        items = pa.array([{"key": name, "value": b"x"} for name in "ahhb"], HEADERS_TYPE.value_type)
        items = pa.StructArray.from_arrays(
            [items.field(0), pa.array([b"1", b"h", b"h", b"2"])],
            fields=list(HEADERS_TYPE.value_type),
        )
        offsets = pa.py_buffer(np.array([0, 1, 3, 4], "<i4"))
        lists = pa.Array.from_buffers(
            HEADERS_TYPE, 3, [pa.py_buffer(b"\x05"), offsets], children=[items]
        )
        self.check_headers(many, lists)

    @given(st.binary(min_size=1, max_size=5))
    def test_bytes_that_a_null_header_value_owns(self, junk):
        many = [row(headers=[("a", None), ("b", b"2")]), row(headers=[("c", None)])]
        contents = hiding([None, b"2", None], junk, pa.binary())
        items = pa.StructArray.from_arrays(
            [pa.array(["a", "b", "c"]), contents], fields=list(HEADERS_TYPE.value_type)
        )
        offsets = pa.py_buffer(np.array([0, 2, 3], "<i4"))
        lists = pa.Array.from_buffers(HEADERS_TYPE, 2, [None, offsets], children=[items])
        self.check_headers(many, lists)

    def check_headers(self, many, lists):
        lists.validate(full=True)
        plain = record_batch(many)
        assert lists.equals(plain.column("headers"))
        columns = [*plain.columns[:2], lists, plain.columns[3]]
        records = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
        assert batch_crc32c(header_of(many), records) == batch_crc32c(header_of(many), plain)


# --- what it sees --------------------------------------------------------------------------------

ROW = row(b"value", b"key", [("one", b"1"), ("two", None)], START_US)


class TestDetects:
    @pytest.mark.parametrize(
        "changed",
        [
            {"value": b"valuf"},
            {"value": b"value\0"},
            {"value": b""},
            {"value": None},
            {"key": b"kez"},
            {"key": b""},
            {"key": None},
            {"key": b"keyv", "value": b"alue"},
            {"key": b"value", "value": b"key"},
            {"timestamp": START_US + 1},
            {"timestamp": -START_US},
            {"headers": None},
            {"headers": []},
            {"headers": [("one", b"1")]},
            {"headers": [("one", b"1"), ("two", b"")]},
            {"headers": [("one", b"2"), ("two", None)]},
            {"headers": [("onf", b"1"), ("two", None)]},
            {"headers": [("two", None), ("one", b"1")]},
            {"headers": [("one", None), ("two", b"1")]},
            {"headers": [("one", b"1"), ("two", None), ("two", None)]},
            {"headers": [("onet", b"1"), ("wo", None)]},
        ],
        ids=str,
    )
    def test_a_change_of_one_record_among_others(self, changed):
        content = {"headers": [("one", b"1"), ("two", None)], "value": b"value", "key": b"key"}
        other = row(**{"timestamp": START_US, **content, **changed})
        header = header_of([ROW])
        before = batch_crc32c(header, record_batch([row(), ROW, row()]))
        assert batch_crc32c(header, record_batch([row(), other, row()])) != before

    @pytest.mark.parametrize(
        "field",
        [
            "last_offset_delta",
            "leader_epoch",
            "magic",
            "attributes",
            "base_timestamp_us",
            "max_timestamp_us",
            "producer_id",
            "producer_epoch",
            "base_sequence",
            "record_count",
        ],
    )
    def test_a_change_of_the_header(self, field):
        header = header_of([ROW])
        deltas = pa.array([0], pa.int32())
        records = record_batch([ROW]).append_column(OFFSET_DELTA_FIELD, deltas)
        changed = replace(header, **{field: getattr(header, field) + 1})
        assert batch_crc32c(changed, records) != batch_crc32c(header, records)

    def test_the_order_of_records(self):
        many = [row(b"first"), row(b"second")]
        header = header_of(many)
        swapped = batch_crc32c(header, record_batch(many[::-1]))
        assert swapped != batch_crc32c(header, record_batch(many))

    def test_which_of_two_lists_a_header_belongs_to(self):
        one, two = ("one", b"1"), ("two", b"2")
        splits = [([one, two], []), ([one], [two]), ([], [one, two]), ([one, two], None)]
        batches = [[row(headers=first), row(headers=second)] for first, second in splits]
        sums = {batch_crc32c(header_of(many), record_batch(many)) for many in batches}
        assert len(sums) == len(splits)

    @given(row_lists, row_lists)
    def test_any_difference_at_all(self, one, other):
        header = header_of(one)
        sums = [batch_crc32c(header, record_batch(many)) for many in (one, other)]
        assert (sums[0] == sums[1]) == (one == other)
