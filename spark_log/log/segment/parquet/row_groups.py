"""The table of a Parquet segment's row groups, in the footer of the file.

On storage: the key-value metadata of the footer have the identity of the segment under the keys of
an Arrow segment's schema (`record.segment_schema`), and this table under `TABLE_KEY`. It is base64
(readers in Rust and Java require text) of a CRC-32C, which covers the identity and the table, and
of one entry for each Arrow batch, little-endian. An Arrow batch is the rows of one row group with
the control records between them. If it has control records alone, or headers alone, it has no row
group, since some readers refuse a row group without rows.

The table says where a batch begins, which offsets it covers, and which times its records have: it
takes the place of the offset index and of the time index of an Arrow segment.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from google_crc32c import extend

TABLE_KEY: Final = b"spark_log.row_groups"

TIMESTAMP_TYPES_KEY: Final = b"spark_log.timestamp_types"
"""The timestamp types that rows of the segment have: ``0``, ``1``, ``0,1``, or none without rows.
They are no column of the file. Readers of the table alone need not read batch headers for them."""

_PREFIX: Final = b"spark_log."
_CHECKSUM: Final = struct.Struct("<I")

ENTRY_DTYPE: Final = np.dtype(
    [
        ("position", "<i8"),
        ("size_bytes", "<i8"),
        ("headers_position", "<i8"),
        ("headers_bytes", "<i4"),
        ("rows", "<i4"),
        ("base_offset_delta", "<i4"),
        ("last_offset_delta", "<i4"),
        ("min_timestamp_us", "<i8"),
        ("max_timestamp_us", "<i8"),
        ("null_columns", "<u1"),
        ("has_gaps", "<u1"),
    ]
)


class RowGroup(NamedTuple):
    """One entry of the table.

    Attributes:
        position: the byte position of the row group; of a batch without one, where it would be.
        size_bytes: the size of the row group; 0 without one.
        headers_position: the byte position of the batch headers (`header_block`).
        headers_bytes: the size of the batch headers.
        rows: number of rows in the row group.
        base_offset_delta: the first offset that the batch headers cover, relative to the segment's.
        last_offset_delta: the last offset that they cover.
        min_timestamp_us: the smallest timestamp of the rows, microseconds; -1 without rows.
        max_timestamp_us: the largest timestamp of the rows; -1 without rows.
        null_columns: bits of the columns of `RECORD_SCHEMA` that have only nulls, the lowest first.
        has_gaps: whether offsets are missing in the batch, or between the one before and it.
    """

    position: int
    size_bytes: int
    headers_position: int
    headers_bytes: int
    rows: int
    base_offset_delta: int
    last_offset_delta: int
    min_timestamp_us: int
    max_timestamp_us: int
    null_columns: int
    has_gaps: bool


def encode_row_groups(
    row_groups: Sequence[RowGroup], identity: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """Return the key-value metadata of a segment's footer.

    Args:
        row_groups: an entry for each Arrow batch.
        identity: the metadata that identify the segment.
    """
    entries = np.array([tuple(each) for each in row_groups], ENTRY_DTYPE).tobytes()
    checksum = _CHECKSUM.pack(_sum(entries, identity))
    return {**identity, TABLE_KEY: binascii.b2a_base64(checksum + entries, newline=False)}


def decode_row_groups(metadata: Mapping[bytes, bytes]) -> tuple[np.ndarray, dict[bytes, bytes]]:
    """Return the table in a footer as an array of `ENTRY_DTYPE`, and the segment's identity.

    Args:
        metadata: the key-value metadata of the footer.

    Raises:
        ValueError: the table or the identity is missing or damaged.
    """
    value = metadata.get(TABLE_KEY)
    if value is None:
        raise ValueError("its footer has no table of row groups, so it is not a segment")
    packed = binascii.a2b_base64(value, strict_mode=True)
    entries = packed[_CHECKSUM.size :]
    if len(packed) < _CHECKSUM.size or len(entries) % ENTRY_DTYPE.itemsize:
        raise ValueError(f"{len(packed)} bytes are not a table of row groups")
    identity = {
        key: text for key, text in metadata.items() if key.startswith(_PREFIX) and key != TABLE_KEY
    }
    (expected,) = _CHECKSUM.unpack_from(packed)
    actual = _sum(entries, identity)
    if actual != expected:
        raise ValueError(
            f"checksum of the table of row groups is {actual:#010x}, expected {expected:#010x}"
        )
    return np.frombuffer(entries, ENTRY_DTYPE), identity


def _sum(entries: bytes, identity: Mapping[bytes, bytes]) -> int:
    crc = 0
    for key, value in sorted(identity.items()):
        crc = extend(crc, b"%d %b %d %b" % (len(key), key, len(value), value))
    return int(extend(crc, entries))
