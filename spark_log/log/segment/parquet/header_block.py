"""The batch headers of one row group: a block of bytes outside of the Parquet data.

On storage, behind the last row group or, if there are many headers, between two row groups::

    bytes 0-3    CRC-32C of the segment's append id and of all bytes behind these, little-endian
    bytes 4-7    number of batch headers
    bytes 8-11   size of the control records
    then         the column sums: a CRC-32C of each of key, value, headers, timestamp, offset_delta
    then         zstd: the headers, field by field; and the control records, an Arrow IPC stream

The fields are those of `BatchHeader`. Fields that grow from batch to batch are stored as the
difference from what the batch before suggests, so that zstd leaves about 5 bytes for a header: most
of them its checksum. Control records are not rows of the table, so they are stored here. Parquet
readers read only what the footer of the file points at, and so never see this block.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from google_crc32c import extend
from pyarrow import ipc

from spark_log.record import HEADER_DTYPE, OFFSET_DELTA_FIELD, RECORD_SCHEMA, BatchHeader

_HEAD: Final = struct.Struct("<III5I")
_CHECKSUM: Final = struct.Struct("<I")

_FIELDS: Final = HEADER_DTYPE.names or ()

BATCH_SCHEMA: Final = RECORD_SCHEMA.append(OFFSET_DELTA_FIELD)
"""The columns of rewritten batches and of control records."""


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of no rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


NO_RECORDS: Final = no_rows(BATCH_SCHEMA)


@dataclass(frozen=True, slots=True)
class HeaderBlock:
    """The content of a block.

    Attributes:
        headers: the batch headers, each as `BatchHeader.pack` returns it.
        column_sums: the checksum of each column, for all rows and control records together.
        control: the control records; empty if no batch is a control batch.
    """

    headers: bytes
    column_sums: tuple[int, ...]
    control: pa.RecordBatch


def encode_block(
    headers: Sequence[BatchHeader],
    column_sums: Sequence[int],
    control: pa.RecordBatch,
    append_id: bytes,
) -> bytes:
    """Return the bytes of a block.

    Args:
        headers: the batch headers, in offset order.
        column_sums: the checksum of each column.
        control: the control records, with the columns of `BATCH_SCHEMA`.
        append_id: the segment's append id.
    """
    stored_control = b""
    if control.num_rows:
        sink = pa.BufferOutputStream()
        with ipc.new_stream(sink, BATCH_SCHEMA) as stream:
            stream.write_batch(control)
        stored_control = sink.getvalue().to_pybytes()
    packed = np.frombuffer(b"".join(header.pack() for header in headers), HEADER_DTYPE)
    payload: bytes = pa.compress(_by_field(packed) + stored_control, codec="zstd", asbytes=True)
    head = _HEAD.pack(0, len(headers), len(stored_control), *column_sums)
    content = head[_CHECKSUM.size :] + payload
    return _CHECKSUM.pack(extend(extend(0, append_id), content)) + content


def decode_block(data: pa.Buffer, append_id: bytes) -> HeaderBlock:
    """Return the content of a block.

    Args:
        data: the bytes of the block.
        append_id: the segment's append id.

    Raises:
        ValueError: the block is damaged, or is another segment's.
    """
    if data.size < _HEAD.size:
        raise ValueError(f"{data.size} bytes are not a block of batch headers")
    crc32c, count, control_bytes, *column_sums = _HEAD.unpack_from(data)
    actual = extend(extend(0, append_id), data.slice(_CHECKSUM.size))
    if actual != crc32c:
        raise ValueError(
            f"checksum of the batch headers is {actual:#010x}, expected {crc32c:#010x}"
        )
    stored = count * HEADER_DTYPE.itemsize
    try:
        payload = pa.decompress(
            data.slice(_HEAD.size), decompressed_size=stored + control_bytes, codec="zstd"
        )
        control = NO_RECORDS
        if control_bytes:
            control = ipc.open_stream(payload.slice(stored)).read_next_batch()
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"the batch headers cannot be decoded: {error}") from None
    return HeaderBlock(_by_batch(payload, count), tuple(column_sums), control)


def _by_field(headers: np.ndarray) -> bytes:
    """Return headers field by field. Sums and differences wrap around, so none is ever lost."""
    columns = {name: headers[name].copy() for name in _FIELDS}
    first, last = headers["base_offset_delta"], headers["last_offset_delta"]
    columns["base_offset_delta"][1:] -= last[:-1] + np.int32(1)
    columns["last_offset_delta"] -= first + headers["record_count"] - np.int32(1)
    columns["max_timestamp_us"] -= headers["base_timestamp_us"]
    for name in ("base_timestamp_us", "base_sequence", "producer_id"):
        columns[name][1:] -= headers[name][:-1]
    return b"".join(columns[name].tobytes() for name in _FIELDS)


def _by_batch(payload: pa.Buffer, count: int) -> bytes:
    headers = np.empty(count, HEADER_DTYPE)
    position = 0
    for name in _FIELDS:
        kind = HEADER_DTYPE[name]
        headers[name] = np.frombuffer(payload, kind, count, position)
        position += count * kind.itemsize
    for name in ("base_timestamp_us", "base_sequence", "producer_id"):
        headers[name] = np.cumsum(headers[name], dtype=HEADER_DTYPE[name])
    headers["max_timestamp_us"] += headers["base_timestamp_us"]
    # Each batch has its length, and the gap before it.
    length = headers["last_offset_delta"] + headers["record_count"]
    ends = np.cumsum(headers["base_offset_delta"] + length, dtype=np.int32)
    headers["base_offset_delta"] = ends - length
    headers["last_offset_delta"] = ends - np.int32(1)
    return headers.tobytes()
