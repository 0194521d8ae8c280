"""Removes the records of aborted transactions from batches that become rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from spark_log.log.segment import IsAborted
from spark_log.record import NO_TIMESTAMP, BatchHeader, batch_crc32c, bool_array


def without_aborted(
    headers: Sequence[BatchHeader],
    records: pa.RecordBatch,
    base_offset: int,
    is_aborted: IsAborted,
) -> tuple[tuple[BatchHeader, ...], pa.RecordBatch]:
    """Return batches without the records of those that were aborted; their headers stay.

    A header without records tells the same of its producer and of its transaction.

    Args:
        headers: the batches' headers.
        records: the batches' rows, with the column ``offset_delta``.
        base_offset: the offset that deltas are relative to.
        is_aborted: function that returns whether a batch was aborted.
    """
    aborted = [
        bool(header.record_count) and is_aborted(header, base_offset + header.base_offset_delta)
        for header in headers
    ]
    if not any(aborted):
        return tuple(headers), records
    kept = ~np.repeat(aborted, [header.record_count for header in headers])
    emptied = (
        _without_records(header, records.slice(0, 0)) if is_gone else header
        for header, is_gone in zip(headers, aborted, strict=True)
    )
    return tuple(emptied), records.filter(bool_array(kept))


def _without_records(header: BatchHeader, rows: pa.RecordBatch) -> BatchHeader:
    emptied = replace(
        header,
        base_timestamp_us=NO_TIMESTAMP,
        max_timestamp_us=NO_TIMESTAMP,
        record_count=0,
    )
    return replace(emptied, crc32c=batch_crc32c(emptied, rows))
