"""The header check of an Arrow batch: a checksum of its batch headers without its records.

The checksum in a batch header covers the records, too, and does not cover the batch's position in
its segment. But readers use headers without reading the records: to find an offset or a time, to
find the log's end, to rebuild producer state. For them the writer adds a check to the Arrow batch's
``custom_metadata`` under `CHECK_KEY` (ADR 17). The value is the base64 of

- a CRC-32C over the segment's append id, the value under `METADATA_KEY`, and the column sums;
- the column sums: nothing, or a CRC-32C of each column in the file's order, for readers that read
  only some of the columns.

Segments that older versions wrote have no check.
"""

from __future__ import annotations

import binascii
import struct
from typing import Final

import pyarrow as pa
from google_crc32c import extend

from spark_log.record.checksum import array_crc32c
from spark_log.record.schema import RECORD_SCHEMA

CHECK_KEY: Final = b"spark_log.check"

COLUMN_SUMS_BYTES: Final = 16_384
"""Minimum size of a batch with column sums. In smaller batches, checking all columns is as fast."""

_SUM: Final = struct.Struct("<I")


def encode_check(append_id: bytes, headers: bytes, records: pa.RecordBatch | None) -> bytes:
    """Return the value under `CHECK_KEY` for an Arrow batch.

    Args:
        append_id: the segment's append id.
        headers: the value under `METADATA_KEY`.
        records: all rows, with the columns of the file; None for a `SmallBatch`.
    """
    sums = b""
    # `nbytes` would take as long as the sums of a small batch. For a slice this size is too large.
    if records is not None and (
        records.num_columns > len(RECORD_SCHEMA)
        or records.get_total_buffer_size() >= COLUMN_SUMS_BYTES
    ):
        sums = b"".join(_SUM.pack(array_crc32c(column)) for column in records.columns)
    packed = _SUM.pack(_header_sum(append_id, headers, sums)) + sums
    return binascii.b2a_base64(packed, newline=False)


def decode_check(value: bytes, append_id: bytes, headers: bytes, columns: int) -> tuple[int, ...]:
    """Check the headers of an Arrow batch; return its column sums, or an empty tuple without any.

    Args:
        value: the value under `CHECK_KEY`.
        append_id: the segment's append id.
        headers: the value under `METADATA_KEY`.
        columns: the number of columns of the file.

    Raises:
        ValueError: the headers differ from the written ones, or the check is damaged.
    """
    packed = binascii.a2b_base64(value, strict_mode=True)
    sums = packed[_SUM.size :]
    if len(packed) < _SUM.size or len(sums) not in (0, columns * _SUM.size):
        raise ValueError(f"{len(packed)} bytes are not a header check")
    (expected,) = _SUM.unpack_from(packed)
    actual = _header_sum(append_id, headers, sums)
    if actual != expected:
        raise ValueError(
            f"checksum of the batch headers is {actual:#010x}, expected {expected:#010x} from the "
            f"header check"
        )
    return struct.unpack(f"<{columns}I", sums) if sums else ()


def _header_sum(append_id: bytes, headers: bytes, sums: bytes) -> int:
    return int(extend(extend(extend(0, append_id), headers), sums))
