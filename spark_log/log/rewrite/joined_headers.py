"""Joins batch headers: consecutive batches of one producer become one batch.

A record that was appended alone has a header of its own, and readers spend time on each header. To
the producer state a header adds a run of sequence numbers (`producer_state`), and two consecutive
runs are one run. A replay of a joined header therefore gives the same producer state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from spark_log.record import (
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    batch_crc32c,
    sequence_after,
    times_us_of,
)

_JOINED_BYTES: Final = 1_048_576
"""Maximum size of a joined batch, about Kafka's default limit. Readers read a batch as a whole."""

_KEPT_ALONE: Final = (
    BatchHeader.CONTROL_BIT | BatchHeader.TRANSACTIONAL_BIT | BatchHeader.DELETE_HORIZON_BIT
)
"""Attributes of batches that are not joined, since their borders have a meaning."""


def joined_headers(
    headers: Sequence[BatchHeader], records: pa.RecordBatch
) -> tuple[BatchHeader, ...]:
    """Return headers for the same rows, with consecutive batches of one producer joined.

    Joining loses only the borders between appends. A joined header has a new checksum; the other
    headers do not change.

    Args:
        headers: the headers of one Arrow batch; their checksums have been checked.
        records: the rows of the Arrow batch, with the column ``offset_delta`` if the segment has
            it.
    """
    if len(headers) == 1:
        return tuple(headers)
    row_bytes = max(1, records.nbytes // max(1, records.num_rows))
    joined: list[BatchHeader] = []
    row = 0
    for run in _runs(headers, max(1, _JOINED_BYTES // row_bytes)):
        count = sum(header.record_count for header in run)
        joined.append(run[0] if len(run) == 1 else _joined(run, count, records.slice(row, count)))
        row += count
    return tuple(joined)


def cut_header(header: BatchHeader, skipped: int, records: pa.RecordBatch) -> BatchHeader:
    """Return the header of a batch without its first offsets.

    Args:
        header: the header of the whole batch; its checksum has been checked.
        skipped: number of offsets to leave out.
        records: the remaining rows, with the column ``offset_delta`` if the segment has it.
    """
    cut = replace(
        header,
        base_offset_delta=header.base_offset_delta + skipped,
        record_count=records.num_rows,
    )
    if header.base_sequence != NO_SEQUENCE:
        cut = replace(cut, base_sequence=sequence_after(header.base_sequence, skipped))
    times_us = times_us_of(records)
    if len(times_us):
        # A delete horizon takes the place of the first timestamp (KIP-534).
        has_horizon = header.attributes & header.DELETE_HORIZON_BIT
        first_us = header.base_timestamp_us if has_horizon else int(times_us[0])
        cut = replace(cut, base_timestamp_us=first_us, max_timestamp_us=int(times_us.max()))
    else:  # a compaction has removed the remaining records
        cut = replace(cut, base_timestamp_us=NO_TIMESTAMP, max_timestamp_us=NO_TIMESTAMP)
    return replace(cut, crc32c=batch_crc32c(cut, records))


def _runs(headers: Sequence[BatchHeader], most_rows: int) -> Iterator[list[BatchHeader]]:
    run: list[BatchHeader] = []
    rows = 0
    for header in headers:
        rows += header.record_count
        if run and (rows > most_rows or not _follows(run[-1], header)):
            yield run
            run, rows = [], header.record_count
        run.append(header)
    if run:
        yield run


def _follows(before: BatchHeader, header: BatchHeader) -> bool:
    """Return whether two batches can be joined."""
    return (
        header.base_offset_delta == before.last_offset_delta + 1
        and header.attributes == before.attributes
        and header.leader_epoch == before.leader_epoch
        and header.magic == before.magic
        and not header.attributes & _KEPT_ALONE
        and not (header.has_gaps or before.has_gaps)
        and header.producer_id == before.producer_id
        and header.producer_epoch == before.producer_epoch
        and (
            header.producer_id == NO_PRODUCER_ID
            or header.base_sequence == sequence_after(before.base_sequence, before.record_count)
        )
    )


def _joined(run: Sequence[BatchHeader], count: int, rows: pa.RecordBatch) -> BatchHeader:
    header = replace(
        run[0],
        last_offset_delta=run[-1].last_offset_delta,
        max_timestamp_us=max(header.max_timestamp_us for header in run),
        record_count=count,
    )
    return replace(header, crc32c=batch_crc32c(header, rows))
