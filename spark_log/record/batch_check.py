"""The check beside the batch headers of an Arrow batch: what a reader goes by, without its records.

The checksum in a batch header covers the records too, and not where in its segment the batch lies.
Readers go by headers whose records they do not read: to find an offset or a time, to tell where the
log ends, to learn of producers. So the writer adds, under `CHECK_KEY` in the Arrow batch's
``custom_metadata``, the base64 of one CRC-32C over the segment's append id, the value under
`METADATA_KEY`, and what follows: nothing, or a CRC-32C of each column, in the file's order, for
those who read some of them (ADR 17). Segments that were written before have none.
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
"""From here on columns have sums of their own. To check less than this whole takes no longer."""

_SUM: Final = struct.Struct("<I")


def encode_check(append_id: bytes, headers: bytes, records: pa.RecordBatch) -> bytes:
    """Return the metadata value for an Arrow batch.

    Args:
        append_id: of the segment.
        headers: the value under `METADATA_KEY`.
        records: all rows, columns as in the file.
    """
    sums = b""
    has_offsets = records.num_columns > len(RECORD_SCHEMA)
    # Not `nbytes`, which takes as long as to sum a small batch. Of a slice this is too many.
    if has_offsets or records.get_total_buffer_size() >= COLUMN_SUMS_BYTES:
        sums = b"".join(_SUM.pack(array_crc32c(column)) for column in records.columns)
    packed = _SUM.pack(_header_sum(append_id, headers, sums)) + sums
    return binascii.b2a_base64(packed, newline=False)


def decode_check(value: bytes, append_id: bytes, headers: bytes, columns: int) -> tuple[int, ...]:
    """Check the headers of an Arrow batch; return the sums of its columns, empty without.

    Args:
        value: under `CHECK_KEY`.
        append_id: of the segment.
        headers: the value under `METADATA_KEY`.
        columns: how many the file has.

    Raises:
        ValueError: the headers are not those that were written, or the check is damaged.
    """
    packed = binascii.a2b_base64(value, strict_mode=True)
    sums = packed[_SUM.size :]
    if len(packed) < _SUM.size or len(sums) not in (0, columns * _SUM.size):
        raise ValueError(f"{len(packed)} bytes are no check of batch headers")
    (expected,) = _SUM.unpack_from(packed)
    actual = _header_sum(append_id, headers, sums)
    if actual != expected:
        raise ValueError(
            f"checksum of the batch headers is {actual:#010x}, the check beside them says "
            f"{expected:#010x}"
        )
    return struct.unpack(f"<{columns}I", sums) if sums else ()


def _header_sum(append_id: bytes, headers: bytes, sums: bytes) -> int:
    return int(extend(extend(extend(0, append_id), headers), sums))
