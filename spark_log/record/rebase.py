"""Moves batches into a segment with another base offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from spark_log.record.arrays import int_array, ints_of
from spark_log.record.batch_header import BatchHeader
from spark_log.record.schema import OFFSET_DELTA_FIELD, RECORD_SCHEMA


def rebase_batches(
    headers: Sequence[BatchHeader], records: pa.RecordBatch, shift: int, *, with_offsets: bool
) -> tuple[tuple[BatchHeader, ...], pa.RecordBatch]:
    """Return batches with offsets relative to another base offset. Their checksums do not change.

    Args:
        headers: the batches' headers.
        records: the batches' rows, with the column ``offset_delta`` if a batch has gaps.
        shift: the old segment's base offset minus the new segment's base offset.
        with_offsets: whether the new segment has the column ``offset_delta``.

    Returns:
        The headers and rows with offsets relative to the new base offset. The rows have the columns
        of `RECORD_SCHEMA`, and ``offset_delta`` if ``with_offsets`` is true.

    Raises:
        ValueError: a batch has gaps, and ``records`` or the new segment lacks ``offset_delta``.
    """
    moved = tuple(
        replace(
            header,
            base_offset_delta=header.base_offset_delta + shift,
            last_offset_delta=header.last_offset_delta + shift,
        )
        for header in headers
    )
    has_offsets = OFFSET_DELTA_FIELD.name in records.schema.names
    if any(header.has_gaps for header in headers) and not (has_offsets and with_offsets):
        raise ValueError("batches with gaps need the column offset_delta")
    rows = records.select(RECORD_SCHEMA.names)
    if not with_offsets:
        return moved, rows
    if has_offsets:
        deltas = ints_of(records.column(OFFSET_DELTA_FIELD.name), np.int32) + np.int32(shift)
    else:
        ranges = [
            np.arange(header.base_offset_delta, header.last_offset_delta + 1, dtype=np.int32)
            for header in moved
        ]
        deltas = np.concatenate(ranges) if ranges else np.empty(0, np.int32)
    return moved, rows.append_column(OFFSET_DELTA_FIELD, int_array(deltas, pa.int32()))
