"""Blocks of batch headers in a Parquet segment."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.log.segment.parquet.header_block import NO_RECORDS, decode_block, encode_block
from spark_log.record.batch_header import BatchHeader, unpack_headers
from tests.log.segment.parquet.support import batch_of
from tests.log.support import Part
from tests.record.samples import row

SUMS = (1, 2, 3, 4, 2**32 - 1)


@st.composite
def header_lists(draw):
    """Headers in offset order, some with gaps, of any other content."""
    found, following = [], draw(st.integers(0, 10))
    for _ in range(draw(st.integers(1, 6))):
        base = following + draw(st.sampled_from([0, 0, 7]))
        length = draw(st.integers(1, 9))
        found.append(
            BatchHeader(
                base_offset_delta=base,
                last_offset_delta=base + length - 1,
                leader_epoch=draw(st.integers(-1, 2**31 - 1)),
                attributes=draw(st.integers(0, 2**15 - 1)),
                crc32c=draw(st.integers(0, 2**32 - 1)),
                base_timestamp_us=draw(st.integers(-(2**63), 2**63 - 1)),
                max_timestamp_us=draw(st.integers(-(2**63), 2**63 - 1)),
                producer_id=draw(st.integers(-1, 2**63 - 1)),
                producer_epoch=draw(st.integers(-1, 2**15 - 1)),
                base_sequence=draw(st.integers(-1, 2**31 - 1)),
                record_count=draw(st.integers(0, length)),
            )
        )
        following = base + length
    return found


@given(header_lists())
def test_any_headers_are_read_as_they_were_written(headers):
    block = decode_block(pa.py_buffer(encode_block(headers, SUMS, NO_RECORDS, b"id")), b"id")
    assert unpack_headers(block.headers) == tuple(headers)
    assert block.column_sums == SUMS
    assert block.control.num_rows == 0


def test_control_records_are_read_as_they_were_written():
    headers, control = batch_of([Part([row(b"v", b"k", [("a", None)])], [3], attributes=0x30)])
    block = decode_block(pa.py_buffer(encode_block(headers, SUMS, control, b"id")), b"id")
    assert block.control.equals(control)
    assert unpack_headers(block.headers) == headers


def test_a_header_takes_few_bytes():
    (header,), _ = batch_of([Part([row()] * 10, list(range(10)), producer_id=7, base_sequence=0)])
    many = [
        replace(
            header,
            base_offset_delta=10 * number,
            last_offset_delta=10 * number + 9,
            crc32c=number * 2_654_435_761 % 2**32,
            base_sequence=10 * number,
        )
        for number in range(10_000)
    ]
    assert len(encode_block(many, SUMS, NO_RECORDS, b"id")) < 6 * len(many)


def test_each_flipped_bit_and_another_segments_block_are_noticed():
    headers, control = batch_of([Part([row(b"v", b"k")], [0], attributes=0x30)])
    data = encode_block(headers, SUMS, control, b"id")
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="checksum of the batch headers"):
            decode_block(pa.py_buffer(bytes(flipped)), b"id")
    with pytest.raises(ValueError, match="checksum of the batch headers"):
        decode_block(pa.py_buffer(data), b"other")
    with pytest.raises(ValueError, match="not a block of batch headers"):
        decode_block(pa.py_buffer(data[:9]), b"id")
