"""Kafka's message sets of the formats v0 and v1, which clients wrote before Kafka 0.11.

A message is, big-endian: ``offset i64, length i32, crc u32, magic i8, attributes i8``, in v1
``timestamp i64``, then key and value, each behind its length as i32, -1 for a null. The CRC-32
covers everything behind it. A compressed set is the value of a message, whose timestamp counts for
all of its messages if bit 3 says log append time. There are no headers. v0 has no timestamps:
records get -1 ms, as in Kafka.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.gateway.record_batches.batch_error import BatchError, BatchErrorCode
from spark_log.gateway.record_batches.client_batch import ClientBatch
from spark_log.gateway.record_batches.compression import CompressionType, decompress
from spark_log.record import (
    HEADERS_TYPE,
    NO_TIMESTAMP,
    RECORD_SCHEMA,
    binary_array,
    timestamp_array,
)

_PREFIX = struct.Struct(">qi")
_START = struct.Struct(">Ibb")
_CRC_BYTES = 4
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_LZ4_FLAGS = 4  # the position of FLG and BD behind the magic number of a frame
_LZ4_CONTENT_SIZE_BIT, _LZ4_CONTENT_SIZE_BYTES = 0x08, 8
_US_PER_MS = 1000
_MAX_TIME_MS: Final = (2**63 - 1) // _US_PER_MS
_WORD = 0xFFFFFFFF
_PRIME_1, _PRIME_2, _PRIME_3 = 2654435761, 2246822519, 3266489917
_PRIME_4, _PRIME_5 = 668265263, 374761393


@dataclass(frozen=True, slots=True)
class _Message:
    magic: int
    attributes: int
    timestamp_ms: int
    key: memoryview | None
    value: memoryview | None


def message_set_to_arrow(
    data: bytes | bytearray | memoryview, *, max_uncompressed_bytes: int
) -> pa.RecordBatch:
    """Return the records of a message set, with the columns of `RECORD_SCHEMA`, headers null.

    Args:
        data: messages of magic 0 and 1, some of which may be compressed sets.
        max_uncompressed_bytes: the largest size of all messages without their compression.

    Raises:
        BatchError: a length, magic or checksum is wrong, the messages are larger, or the log cannot
            store a timestamp.
    """
    messages = list(_all_messages(memoryview(data).cast("B"), max_uncompressed_bytes))
    times_ms = [message.timestamp_ms for message in messages]
    for row, time_ms in enumerate(times_ms):
        if not -_MAX_TIME_MS <= time_ms <= _MAX_TIME_MS:
            raise BatchError(
                f"the timestamp {time_ms} ms of a message does not fit in 64 bits as microseconds",
                BatchErrorCode.INVALID_TIMESTAMP,
                record_index=row,
            )
    columns = [
        binary_array([message.key for message in messages]),  # type: ignore[misc]
        binary_array([message.value for message in messages]),  # type: ignore[misc]
        pa.nulls(len(messages), HEADERS_TYPE),
        timestamp_array(np.array(times_ms, np.int64) * _US_PER_MS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _all_messages(data: memoryview, max_bytes: int) -> Iterator[_Message]:
    """Yield the messages, those of compressed sets in place of the set."""
    if len(data) > max_bytes:
        raise BatchError(
            f"a message set of {len(data)} bytes; expected {max_bytes} or less",
            BatchErrorCode.MESSAGE_TOO_LARGE,
        )
    rest = max_bytes
    for message in _messages(data):
        kind = message.attributes & ClientBatch.COMPRESSION_BITS
        if not kind:
            yield message
            continue
        if kind > CompressionType.LZ4 or message.value is None:
            raise BatchError(
                f"a message of magic {message.magic} has the compression type {kind} "
                f"{'and no value' if message.value is None else ''}; expected 0 to 3, and a value",
                BatchErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            )
        value = message.value
        if kind == CompressionType.LZ4 and message.magic == 0:
            value = _with_lz4_checksum(value)
        inner = decompress(value, kind, max_bytes=rest)
        rest -= len(inner)
        for each in _messages(inner):
            if each.attributes & ClientBatch.COMPRESSION_BITS or each.magic != message.magic:
                raise BatchError(
                    "a compressed message set has messages of another magic, or compressed ones",
                    BatchErrorCode.INVALID_RECORD,
                )
            if message.attributes & ClientBatch.TIMESTAMP_TYPE_BIT:
                yield _Message(each.magic, 0, message.timestamp_ms, each.key, each.value)
            else:
                yield each


def _messages(data: memoryview) -> Iterator[_Message]:
    position = 0
    while position < len(data):
        start = position + _PREFIX.size
        if start > len(data):
            raise _corrupt("a message set ends within the offset or length of a message")
        _, length = _PREFIX.unpack_from(data, position)
        if not _START.size <= length <= len(data) - start:
            raise _corrupt(
                f"a message has a length of {length} bytes; expected {_START.size} to "
                f"{len(data) - start}"
            )
        position = start + length
        yield _message(data[start:position])


def _message(data: memoryview) -> _Message:
    crc, magic, attributes = _START.unpack_from(data)
    if magic not in (0, 1):
        raise BatchError(
            f"a message of magic {magic}; expected 0 or 1", BatchErrorCode.INVALID_RECORD
        )
    actual = zlib.crc32(data[_CRC_BYTES:])
    if actual != crc:
        raise _corrupt(f"a message has checksum {actual:#010x}; it says {crc:#010x}")
    at, time_ms = _START.size, NO_TIMESTAMP
    if magic == 1:
        if len(data) < at + _TIMESTAMP.size:
            raise _corrupt("a message ends within its timestamp")
        (time_ms,) = _TIMESTAMP.unpack_from(data, at)
        at += _TIMESTAMP.size
    key, at = _bytes(data, at)
    value, at = _bytes(data, at)
    if at != len(data):
        raise _corrupt(f"a message has {len(data) - at} bytes after its value")
    return _Message(magic, attributes, time_ms, key, value)


def _bytes(data: memoryview, at: int) -> tuple[memoryview | None, int]:
    start = at + _LENGTH.size
    if start > len(data):
        raise _corrupt("a message ends within a length")
    (length,) = _LENGTH.unpack_from(data, at)
    if length > len(data) - start:
        raise _corrupt(f"a key or value of {length} bytes; {len(data) - start} are left")
    return (None, start) if length < 0 else (data[start : start + length], start + length)


def _with_lz4_checksum(frame: memoryview) -> memoryview:
    """Return an LZ4 frame with the right checksum of its header.

    Clients of v0 computed the checksum over the frame's magic number, too (KAFKA-3160).
    """
    if len(frame) < _LZ4_FLAGS + 3:
        return frame
    end = _LZ4_FLAGS + 2
    if frame[_LZ4_FLAGS] & _LZ4_CONTENT_SIZE_BIT:
        end += _LZ4_CONTENT_SIZE_BYTES
    if len(frame) <= end:
        return frame
    corrected = bytearray(frame)
    corrected[end] = _xxh32(bytes(frame[_LZ4_FLAGS:end])) >> 8 & 0xFF
    return memoryview(corrected)


def _xxh32(data: bytes) -> int:
    """Return the 32-bit xxHash, seed 0, of less than 16 bytes."""
    value = (_PRIME_5 + len(data)) & _WORD
    words = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:words]):
        value = (value + word * _PRIME_3) & _WORD
        value = (_rotated(value, 17) * _PRIME_4) & _WORD
    for byte in data[words:]:
        value = (value + byte * _PRIME_5) & _WORD
        value = (_rotated(value, 11) * _PRIME_1) & _WORD
    value = ((value ^ value >> 15) * _PRIME_2) & _WORD
    value = ((value ^ value >> 13) * _PRIME_3) & _WORD
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _WORD


def _corrupt(message: str) -> BatchError:
    return BatchError(message, BatchErrorCode.CORRUPT_MESSAGE)
