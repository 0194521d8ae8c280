"""Any bytes behind a valid checksum: both ways accept the same, and refuse the rest."""

import contextlib

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_log.gateway.record_batches import (
    NUMPY_CODEC,
    BatchError,
    BatchTarget,
    from_arrow,
    message_set_to_arrow,
    native_codec,
    split,
    to_arrow_with_offsets,
)
from tests.gateway.record_batches.kafka_records import BYTES, EDGE_CASES, MANY, Row
from tests.gateway.record_batches.rows import arrow, rows_of

CODECS = [NUMPY_CODEC, *([native] if (native := native_codec()) else [])]
SMALL = [row for row in EDGE_CASES if len(row[1] or b"") < 100]
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)))
ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=70),
        st.none() | st.binary(max_size=200),
        HEADERS,
        st.integers(-(2**52), 2**52),
    ),
    min_size=1,
    max_size=80,
)
COMPRESSED = [
    (BYTES / f"java-v2-{name}.bin").read_bytes() for name in ("gzip", "snappy", "lz4", "zstd")
]


def outcome(data, codec):
    """Return the records and offsets, or that an error was raised."""
    try:
        batches = split(data, max_batches=3)
        records, offsets = to_arrow_with_offsets(
            batches, max_uncompressed_bytes=1 << 22, codec=codec
        )
    except BatchError:
        return None
    records.validate(full=True)
    return records.to_pydict(), offsets.tolist()


def with_crc(batch: bytearray) -> bytes:
    batch[17:21] = google_crc32c.value(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


@given(ROWS)
@settings(max_examples=150, deadline=None)
def test_any_records_are_written_with_equal_bytes_and_read_again(rows):
    encoded = {
        bytes(from_arrow(arrow(rows), base_offset=3, target=BatchTarget(), codec=codec))
        for codec in CODECS
    }
    (data,) = encoded
    expected = [(key, value, headers or None, time) for key, value, headers, time in rows]
    for codec in CODECS:
        records, _ = to_arrow_with_offsets(
            split(data, max_batches=1), max_uncompressed_bytes=1 << 22, codec=codec
        )
        assert rows_of(records) == expected


@given(
    st.lists(st.tuples(st.integers(61, 400), st.integers(0, 255)), max_size=6),
    st.integers(0, 20),
    st.integers(0, 30),
)
@settings(max_examples=600, deadline=None)
def test_changed_records_are_read_alike_or_refused(changes, count, cut):
    data = bytearray(from_arrow(arrow(SMALL), base_offset=0, target=BatchTarget()))
    for at, byte in changes:
        if at < len(data):
            data[at] = byte
    if cut:
        del data[-cut:]
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
    if count < 15:
        data[57:61] = count.to_bytes(4, "big")
    results = [outcome(with_crc(data), codec) for codec in CODECS]
    assert all(each == results[0] for each in results)


@given(st.binary(max_size=300), st.integers(0, 60))
@settings(max_examples=400, deadline=None)
def test_random_bytes_as_records(records, count):
    data = bytearray(from_arrow(arrow(SMALL[:1]), base_offset=0, target=BatchTarget())[:61])
    data += records
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[23:27] = (2**31 - 1).to_bytes(4, "big")
    data[57:61] = count.to_bytes(4, "big")
    results = [outcome(with_crc(data), codec) for codec in CODECS]
    assert all(each == results[0] for each in results)


@given(
    st.sampled_from(COMPRESSED),
    st.lists(st.tuples(st.integers(21, 7000), st.integers(0, 255)), min_size=1, max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_changed_compressed_records_are_read_alike_or_refused(data, changes):
    data = bytearray(data)
    for at, byte in changes:
        if at < len(data):
            data[at] = byte
    results = [outcome(with_crc(data), codec) for codec in CODECS]
    assert all(each == results[0] for each in results)


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_random_bytes_as_batches_and_as_message_sets(data):
    for codec in CODECS:
        outcome(data, codec)
    with contextlib.suppress(BatchError):
        message_set_to_arrow(data, max_uncompressed_bytes=1000)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_a_record_with_very_many_headers(codec):
    headers: list[tuple[str, bytes | None]] = [("a", b"1")] * 200_000
    rows: list[Row] = [*MANY[:40], (b"k", b"v", headers, 1), *[(b"k", None, headers[:50], 2)] * 40]
    data = from_arrow(arrow(rows), base_offset=0, target=BatchTarget(), codec=codec)
    records, _ = to_arrow_with_offsets(
        split(data, max_batches=1), max_uncompressed_bytes=1 << 24, codec=codec
    )
    assert rows_of(records) == rows
