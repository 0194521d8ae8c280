"""Sizes of records in Kafka's batches, before they are encoded."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.gateway.record_batches.client_batch import HEADER_BYTES
from spark_log.record import record_sizes, times_us_of

_US_PER_MS = 1_000


def encoded_sizes(
    records: pa.RecordBatch, offsets: np.ndarray, *, splits_at_times: bool
) -> np.ndarray:
    """Return the bytes that each record takes at most in a v2 batch without compression, int64.

    They are a few bytes too many where records differ: the varints of all records are taken to be
    as long as the longest. The header of the (first) batch, `HEADER_BYTES`, is not counted.

    Args:
        records: one record or more, with the columns of `RECORD_SCHEMA`.
        offsets: the offset of each record, ascending.
        splits_at_times: whether records with different timestamps are in different batches, as
            with log append time.
    """
    sizes = record_sizes(records)
    times_ms = times_us_of(records) // _US_PER_MS
    length_bytes = _varint_bytes(int(sizes.max()))
    fixed_bytes = 1 + _varint_bytes(int(times_ms.max() - times_ms.min()))
    fixed_bytes += _varint_bytes(int(offsets[-1] - offsets[0])) + 2 * length_bytes
    headers = records.column("headers")
    if headers.null_count == len(headers):
        fixed_bytes += 1
    else:
        counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
        sizes = sizes + counts * (2 * length_bytes)
        fixed_bytes += _varint_bytes(int(counts.max()))
    sizes = sizes + fixed_bytes
    if splits_at_times:
        sizes[1:] += HEADER_BYTES * (np.diff(times_ms) != 0)
    return np.asarray(sizes + _varint_bytes(int(sizes.max())), np.int64)


def _varint_bytes(value: int) -> int:
    """Return the length of a number, and of its negative, as a zigzag varint."""
    return (value.bit_length() + 7) // 7
