"""Kafka's compression types, by pyarrow's codecs, with a bound on what they give back.

- gzip, zstd and LZ4 are streams, of one frame or several. They are read in growing steps, up to the
  bound; libzstd itself refuses a window of more than 128 MiB.
- Snappy is one block, as librdkafka writes it, or a series of blocks behind the header of
  xerial's snappy-java, as Java's producers write it. Each block begins with its size. One block is
  written; Kafka's clients read both.
- LZ4 is written in independent blocks of 64 KiB: Java's ``Lz4BlockInputStream`` refuses blocks that
  depend on each other, which pyarrow's codec writes.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

import pyarrow as pa

from spark_log.gateway.record_batches.batch_error import BatchError, BatchErrorCode


class CompressionType(IntEnum):
    """The compression of a batch's records: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_FIRST_READ_BYTES = 64 * 1024
_LEVELS = {CompressionType.GZIP: 6, CompressionType.ZSTD: 3}  # Kafka's defaults
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16
_BLOCK_LENGTH = struct.Struct(">I")
_MAX_SNAPPY_RATIO = 32  # three bytes of snappy give 64 bytes at most
_MAX_PREAMBLE_BYTES = 5

_LZ4_FRAME_HEADER: Final = bytes.fromhex("04224d18604082")
"""Magic, version 1 with independent blocks, blocks of 64 KiB, and the checksum of these two."""
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_LENGTH = struct.Struct("<I")
_LZ4_NOT_COMPRESSED = 1 << 31


def decompress(data: memoryview, compression_type: int, *, max_bytes: int) -> memoryview:
    """Return the records of a batch, without compression.

    Args:
        data: the compressed records; returned as they are if the type is 0.
        compression_type: bits 0 to 2 of the batch's attributes.
        max_bytes: the largest size of the records.

    Raises:
        BatchError: the type does not exist, the data are damaged, or the records are larger.
    """
    data = data.cast("B")
    if compression_type == CompressionType.NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return data
    try:
        kind = CompressionType(compression_type)
    except ValueError:
        raise BatchError(
            f"compression type {compression_type} does not exist; expected 0 to 4",
            BatchErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ) from None
    if not len(data):
        raise _damaged(kind, "there are no bytes")
    try:
        if kind is CompressionType.SNAPPY:
            return _from_snappy(data, max_bytes)
        return _from_stream(data, kind, max_bytes)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(kind, str(error)) from None


def compress(data: memoryview, compression_type: CompressionType) -> memoryview:
    """Return records compressed."""
    if compression_type is CompressionType.NONE:
        return data
    if compression_type is CompressionType.LZ4:
        return memoryview(_to_lz4(data))
    codec = pa.Codec(compression_type.name.lower(), _LEVELS.get(compression_type))
    # `asbytes`, since the buffer that is returned otherwise shows its capacity to a memoryview.
    return memoryview(codec.compress(pa.py_buffer(data), asbytes=True))


def _from_stream(data: memoryview, kind: CompressionType, max_bytes: int) -> memoryview:
    stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), kind.name.lower())
    parts: list[pa.Buffer] = []
    size = 0
    step = max(_FIRST_READ_BYTES, 4 * len(data))
    # One byte more than is allowed, which is never kept.
    while part := stream.read_buffer(min(step, max_bytes + 1 - size)):
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        step = size
    return memoryview(parts[0] if len(parts) == 1 else b"".join(parts)).cast("B")


def _from_snappy(data: memoryview, max_bytes: int) -> memoryview:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, max_bytes)
    blocks: list[memoryview] = []
    size, position = 0, _XERIAL_HEADER_BYTES
    if len(data) < position:
        raise _damaged(CompressionType.SNAPPY, "ends within the header of snappy-java")
    while position < len(data):
        start = position + _BLOCK_LENGTH.size
        if start > len(data):
            raise _damaged(CompressionType.SNAPPY, "ends within the length of a block")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position = start + length
        if position > len(data):
            raise _damaged(CompressionType.SNAPPY, "ends within a block")
        blocks.append(_snappy_block(data[start:position], max_bytes - size))
        size += len(blocks[-1])
    return memoryview(b"".join(blocks))


def _snappy_block(data: memoryview, max_bytes: int) -> memoryview:
    size = shift = 0
    for byte in data[:_MAX_PREAMBLE_BYTES]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise _damaged(CompressionType.SNAPPY, "the size in front of a block has no end")
    if size > max_bytes:
        raise _too_large(max_bytes)
    if size > _MAX_SNAPPY_RATIO * len(data):
        raise _damaged(CompressionType.SNAPPY, f"{len(data)} bytes claim to be {size} bytes")
    if not size:
        return memoryview(b"")
    return memoryview(pa.Codec("snappy").decompress(pa.py_buffer(data), size)).cast("B")


def _to_lz4(data: memoryview) -> bytes:
    codec = pa.Codec("lz4_raw")
    parts: list[bytes | memoryview] = [_LZ4_FRAME_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        packed = codec.compress(pa.py_buffer(block), asbytes=True)
        if len(packed) < len(block):
            parts += [_LZ4_LENGTH.pack(len(packed)), packed]
        else:
            parts += [_LZ4_LENGTH.pack(len(block) | _LZ4_NOT_COMPRESSED), block]
    parts.append(_LZ4_LENGTH.pack(0))
    return b"".join(parts)


def _too_large(max_bytes: int) -> BatchError:
    return BatchError(
        f"the records of a batch exceed {max_bytes} bytes without their compression",
        BatchErrorCode.MESSAGE_TOO_LARGE,
    )


def _damaged(kind: CompressionType, problem: str) -> BatchError:
    return BatchError(
        f"records cannot be decompressed by {kind.name.lower()}: {problem}",
        BatchErrorCode.INVALID_RECORD,
    )
