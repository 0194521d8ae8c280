"""The rows of a key index: the records of a segment that have a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.log.key_index.format import MAX_STORED_BYTES, SCHEMA
from spark_log.record import (
    OFFSET_DELTA_FIELD,
    RECORD_SCHEMA,
    BatchHeader,
    bool_array,
    bools_of,
    int_array,
    ints_of,
    murmur2_of_keys,
    record_sizes,
    times_us_of,
)

_MULTIPLIERS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
"""Odd numbers of 64 bits, which spread the bits of a product."""


def index_rows(
    records: pa.RecordBatch, headers: Sequence[BatchHeader], base_offset: int
) -> pa.RecordBatch:
    """Return the records that have keys, as rows of `SCHEMA`, in the order of their offsets.

    Args:
        records: the rows of some batches, with the columns of `RECORD_SCHEMA`, and ``offset_delta``
            if offsets are missing.
        headers: the headers of the batches.
        base_offset: the base offset of the segment.
    """
    counts = [header.record_count for header in headers]
    is_control = np.repeat([header.is_control for header in headers], counts).astype(np.bool_)
    wanted = ~is_control & bools_of(records.column("key").is_valid())
    epochs = np.repeat([header.leader_epoch for header in headers], counts).astype(np.int32)
    types = np.repeat([header.timestamp_type for header in headers], counts).astype(np.int8)
    if OFFSET_DELTA_FIELD.name in records.schema.names:
        deltas = ints_of(records.column(OFFSET_DELTA_FIELD.name), np.int32).astype(np.int64)
    else:
        deltas = np.arange(records.num_rows) + headers[0].base_offset_delta
    if not wanted.all():
        deltas = deltas[wanted]
        records = records.filter(bool_array(wanted))
        epochs, types = epochs[wanted], types[wanted]
    keys = records.column("key")
    stored_bytes = record_sizes(records) - _key_sizes(keys)
    is_stored = bool_array(stored_bytes <= MAX_STORED_BYTES)
    columns = {name: records.column(name) for name in RECORD_SCHEMA.names}
    if is_stored.false_count:
        for name in ("value", "headers"):
            empty = pa.scalar(None, columns[name].type)
            columns[name] = pc.if_else(is_stored, columns[name], empty)
    return pa.RecordBatch.from_arrays(
        [
            int_array(murmur2_of_keys(keys), pa.uint32()),
            int_array(deltas + base_offset, pa.int64()),
            int_array(epochs, pa.int32()),
            int_array(types, pa.int8()),
            is_stored,
            *columns.values(),
        ],
        schema=SCHEMA,
    )


def _key_sizes(keys: pa.Array) -> np.ndarray:
    if not len(keys):
        return np.zeros(0, np.int64)
    offsets = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1, keys.offset * 4)
    return np.diff(offsets).astype(np.int64)


def digest_of_rows(rows: pa.RecordBatch) -> int:
    """Return a number of 64 bits that depends on the rows, and not on their order.

    The numbers of several batches are added. The sum of an index is that of its segment.
    """
    values = rows.column("value")
    parts = (
        ints_of(rows.column("offset"), np.int64).astype(np.uint64),
        times_us_of(rows).astype(np.uint64),
        ints_of(rows.column("hash"), np.uint32).astype(np.uint64) << np.uint64(32)
        | murmur2_of_keys(values).astype(np.uint64),
    )
    mixed = np.zeros(rows.num_rows, np.uint64)
    for part, multiplier in zip(parts, _MULTIPLIERS, strict=True):
        mixed = (mixed ^ part) * np.uint64(multiplier)
        mixed ^= mixed >> np.uint64(29)
    return int(mixed.sum(dtype=np.uint64))
