"""Splits large batches, so that each row group of a Parquet segment has a moderate size.

A batch that one append wrote may have any number of records. It is split where rows are many, into
batches that follow each other in offset and in sequence, as a merge joins such batches
(`joined_headers`). So producer state is the same. Control batches are small, and stay whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from spark_log.record import (
    NO_SEQUENCE,
    OFFSET_DELTA_FIELD,
    BatchHeader,
    batch_crc32c,
    ints_of,
    sequence_after,
    times_us_of,
)


def split_batches(
    headers: Sequence[BatchHeader], records: pa.RecordBatch, most_records: int, most_bytes: int
) -> Iterator[tuple[tuple[BatchHeader, ...], pa.RecordBatch]]:
    """Yield batches in groups of a moderate size; only batches that are larger are split.

    Args:
        headers: the batches' headers; their checksums have been checked.
        records: the batches' rows, with the column ``offset_delta``.
        most_records: maximum number of records of a group.
        most_bytes: approximate maximum size of its records.
    """
    row_bytes = max(1, records.nbytes // max(1, records.num_rows))
    most = max(1, min(most_records, most_bytes // row_bytes))
    if records.num_rows <= most:
        yield tuple(headers), records
        return
    group: list[BatchHeader] = []
    first = row = 0
    for header in headers:
        for part in _parts(header, records.slice(row, header.record_count), most):
            if group and row + part.record_count - first > most:
                yield tuple(group), records.slice(first, row - first)
                group, first = [], row
            group.append(part)
            row += part.record_count
    yield tuple(group), records.slice(first, row - first)


def _parts(header: BatchHeader, rows: pa.RecordBatch, most: int) -> Iterator[BatchHeader]:
    """Yield the headers of the parts of one batch."""
    if header.record_count <= most or header.is_control:
        yield header
        return
    deltas = ints_of(rows.column(OFFSET_DELTA_FIELD.name), np.int32)
    for first in range(0, header.record_count, most):
        part = rows.slice(first, most)
        behind = first + part.num_rows
        base = header.base_offset_delta if not first else int(deltas[first])
        is_last = behind == header.record_count
        last = header.last_offset_delta if is_last else int(deltas[behind]) - 1
        yield _part(header, part, base, last)


def _part(header: BatchHeader, rows: pa.RecordBatch, base: int, last: int) -> BatchHeader:
    times_us = times_us_of(rows)
    sequence = header.base_sequence
    if sequence != NO_SEQUENCE:
        sequence = sequence_after(sequence, base - header.base_offset_delta)
    # A delete horizon takes the place of the first timestamp (KIP-534).
    has_horizon = header.attributes & header.DELETE_HORIZON_BIT
    part = replace(
        header,
        base_offset_delta=base,
        last_offset_delta=last,
        base_timestamp_us=header.base_timestamp_us if has_horizon else int(times_us[0]),
        max_timestamp_us=int(times_us.max()),
        base_sequence=sequence,
        record_count=rows.num_rows,
    )
    return replace(part, crc32c=batch_crc32c(part, rows))
