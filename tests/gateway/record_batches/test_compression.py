"""Compressions: both framings of snappy, bounds, damage."""

import gzip
import struct

import pyarrow as pa
import pytest

from spark_log.gateway.record_batches.batch_error import BatchError, BatchErrorCode
from spark_log.gateway.record_batches.compression import CompressionType, compress, decompress

TEXT = bytes(range(256)) * 1000
COMPRESSED = [kind for kind in CompressionType if kind]


@pytest.mark.parametrize("kind", COMPRESSED)
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 256_000])
def test_each_compression_gives_back_what_it_got(kind, size):
    packed = compress(memoryview(TEXT[:size]), kind)
    assert bytes(decompress(packed, kind, max_bytes=max(size, 1))) == TEXT[:size]


@pytest.mark.parametrize("kind", COMPRESSED)
def test_nothing_is_returned_beyond_the_bound(kind):
    zeros = bytes(50_000_000)
    packed = compress(memoryview(zeros), kind)
    before = pa.total_allocated_bytes()
    with pytest.raises(BatchError) as caught:
        decompress(packed, kind, max_bytes=100_000)
    assert caught.value.code == BatchErrorCode.MESSAGE_TOO_LARGE
    assert pa.total_allocated_bytes() - before < 5_000_000
    assert len(decompress(packed, kind, max_bytes=len(zeros))) == len(zeros)


@pytest.mark.parametrize("kind", COMPRESSED)
def test_what_is_cut_off_is_refused(kind):
    packed = compress(memoryview(TEXT), kind)
    for size in (0, 1, 4, len(packed) // 2, len(packed) - 1):
        with pytest.raises(BatchError) as caught:
            decompress(packed[:size], kind, max_bytes=len(TEXT))
        assert caught.value.code == BatchErrorCode.INVALID_RECORD


@pytest.mark.parametrize("kind", [5, 6, 7])
def test_a_compression_that_does_not_exist_is_refused(kind):
    with pytest.raises(BatchError) as caught:
        decompress(memoryview(b"x"), kind, max_bytes=10)
    assert caught.value.code == BatchErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_several_gzip_members_are_one():
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert bytes(decompress(memoryview(packed), 1, max_bytes=7)) == b"one two"


def test_the_blocks_of_snappy_java():
    codec = pa.Codec("snappy")
    blocks = [codec.compress(part, asbytes=True) for part in (TEXT[:32_768], TEXT[32_768:])]
    header = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    packed = header + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    assert bytes(decompress(memoryview(packed), 2, max_bytes=len(TEXT))) == TEXT
    assert bytes(decompress(memoryview(header), 2, max_bytes=1)) == b""
    with pytest.raises(BatchError) as caught:
        decompress(memoryview(packed), 2, max_bytes=len(TEXT) - 1)
    assert caught.value.code == BatchErrorCode.MESSAGE_TOO_LARGE
    for size in (12, 18, 500, len(packed) - 1):
        with pytest.raises(BatchError, match="snappy"):
            decompress(memoryview(packed[:size]), 2, max_bytes=len(TEXT))


def test_a_small_snappy_block_cannot_claim_a_large_size():
    claim = b"\xff\xff\xff\xff\x07" + b"\0" * 20  # 2 GiB - 1
    with pytest.raises(BatchError, match="claim to be 2147483647 bytes"):
        decompress(memoryview(claim), 2, max_bytes=2**31)


def test_lz4_blocks_are_independent():
    """Java's reader refuses blocks that depend on each other."""
    packed = bytes(compress(memoryview(TEXT), CompressionType.LZ4))
    assert packed[4] == 0x60
    raw, at, found = pa.Codec("lz4_raw"), 7, b""
    while length := struct.unpack_from("<I", packed, at)[0]:
        block = packed[at + 4 : at + 4 + length]
        found += raw.decompress(block, min(65_536, len(TEXT) - len(found)), asbytes=True)
        at += 4 + length
    assert found == TEXT
