"""Sizes of records in bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_log.record.arrays import bools_of


def largest_above(records: pa.RecordBatch, limit_bytes: int) -> tuple[int, int] | None:
    """Return row and size in bytes of the largest record; None if no record exceeds the limit."""
    # The size of the buffers is known at once, but of a slice it is only an upper limit.
    if records.get_total_buffer_size() <= limit_bytes or records.nbytes <= limit_bytes:
        return None
    sizes = record_sizes(records)
    row = int(sizes.argmax())
    return (row, int(sizes[row])) if sizes[row] > limit_bytes else None


def record_sizes(records: pa.RecordBatch) -> np.ndarray:
    """Return each record's size in bytes (key, value and headers), int64."""
    sizes = np.zeros(records.num_rows, np.int64)
    for name in ("key", "value"):
        sizes += _lengths(records.column(name))
    headers = records.column("headers")
    if headers.null_count < len(headers):
        items = headers.flatten()
        of_items = _lengths(items.field("key")) + _lengths(items.field("value"))
        up_to = np.concatenate([[0], np.cumsum(of_items)])
        counts = _lengths(headers)
        ends = np.cumsum(counts)
        sizes += up_to[ends] - up_to[ends - counts]
    return sizes


def _lengths(column: pa.Array) -> np.ndarray:
    """Return the lengths of bytes, texts or lists, int64; 0 for a null."""
    if not len(column):  # Arrow may leave out the buffer
        return np.zeros(0, np.int64)
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)
    lengths = np.diff(offsets).astype(np.int64)
    return lengths * bools_of(column.is_valid()) if column.null_count else lengths
