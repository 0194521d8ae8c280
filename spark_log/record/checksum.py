"""The checksum of a record batch: CRC-32C over its header's fields and its logical content.

The content is logical: the checksum does not depend on how Arrow stores the batch. A slice, a part
of a merged batch, a compressed file and a new array of equal records have equal checksums. The
checksum is computed over Arrow's buffers (13 GB/s); only offsets that have to be rebased are
copied.

It covers, in this order: `BatchHeader.checksummed_bytes`; the columns key, value, headers,
timestamp; and, if the batch has gaps, the offsets relative to the batch's first offset as int32. A
column consists of one marker byte (0: no nulls; 1: some nulls; 2: all null, then nothing follows);
after marker 1, the validity bits (least significant first, from row 0); and then

- timestamp, int32: the values, little-endian;
- binary, string: n + 1 int32 offsets from 0, then the bytes; a null has no bytes;
- list: n + 1 int32 offsets from 0, then the items as a column;
- struct: its fields as columns.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from google_crc32c import extend

from spark_log.record.arrays import bools_of, int_array, ints_of, offsets_of
from spark_log.record.batch_header import BatchHeader, checksummed_bytes
from spark_log.record.schema import RECORD_SCHEMA


def batch_crc32c(header: BatchHeader, records: pa.RecordBatch) -> int:
    """Return the checksum of a batch.

    Args:
        header: the batch's header; its field ``crc32c`` is ignored.
        records: exactly the batch's rows, with the columns of a segment file.
    """
    crc = extend(0, header.checksummed_bytes())
    for name in RECORD_SCHEMA.names:
        crc = _extend(crc, records.column(name))
    if header.has_gaps:
        deltas = ints_of(records.column("offset_delta"), np.int32)
        crc = extend(crc, np.ascontiguousarray(deltas - np.int32(header.base_offset_delta)))
    return int(crc)


def content_crc32c(*fields: int, content: bytes) -> int:
    """Return the checksum of a batch without gaps whose content is known as bytes.

    Args:
        fields: number of offsets less one, leader epoch, attributes, first and largest timestamp,
            producer id, producer epoch, base sequence and number of records.
        content: the columns as they enter the checksum.
    """
    return int(extend(0, checksummed_bytes(*fields) + content))


def array_crc32c(array: pa.Array, crc: int = 0) -> int:
    """Return the checksum of an array's logical content, as a column of a batch's checksum.

    Args:
        array: the array. Its type is named in the module's docstring, or has a fixed width.
        crc: the checksum of the content before the array.
    """
    return _extend(crc, array)


def _extend(crc: int, array: pa.Array) -> int:
    nulls = array.null_count
    if nulls == len(array):
        return int(extend(crc, b"\x02"))
    if nulls:
        valid = bools_of(array.is_valid())
        crc = extend(extend(crc, b"\x01"), np.packbits(valid, bitorder="little"))
    else:
        crc = extend(crc, b"\x00")
    if pa.types.is_struct(array.type):
        for index in range(array.type.num_fields):
            crc = _extend(crc, array.field(index))
        return crc
    if pa.types.is_list(array.type) or _is_text(array.type):
        return _extend_ragged(crc, array)
    width = array.type.bit_width // 8
    values = array.buffers()[1]
    return int(extend(crc, values.slice(array.offset * width, len(array) * width)))


def _extend_ragged(crc: int, array: pa.Array) -> int:
    offsets = offsets_of(array)
    if array.null_count and _hides_bytes(array, offsets):
        array = _emptied_nulls(array)
        offsets = offsets_of(array)
    first, last = int(offsets[0]), int(offsets[-1])
    crc = extend(crc, offsets - offsets[0] if first else offsets)
    if pa.types.is_list(array.type):
        return _extend(crc, array.values.slice(first, last - first))
    data = array.buffers()[2]
    return int(crc if data is None else extend(crc, data.slice(first, last - first)))


def _hides_bytes(array: pa.Array, offsets: np.ndarray) -> bool:
    """Return whether any null has bytes, which Arrow allows and the checksum must ignore."""
    null = bools_of(array.is_null())
    return bool(np.diff(offsets)[null].any())


def _emptied_nulls(array: pa.Array) -> pa.Array:
    if _is_text(array.type):
        empty = array.fill_null("" if pa.types.is_string(array.type) else b"")
        return empty if isinstance(empty, pa.Array) else empty.combine_chunks()
    return array.take(int_array(range(len(array)), pa.int64()))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))
