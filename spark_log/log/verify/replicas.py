"""Comparison of two replicas of a partition: it finds the first offset at which records differ.

Appended segments are the same on all replicas. Rewritten segments are each replica's own: merges
join batches, and compactions remove records. Batches are first compared by their checksums, without
reading records. If checksums or borders differ, the records are compared. A record that one replica
lacks is not a difference if a compaction of this replica rewrote the segment with its offset, or if
its segment is Parquet, which lacks the records of aborted transactions.

Memory: 24 bytes for each batch, and the records of `_WINDOW` offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.errors import NotFoundError
from spark_log.log.directory import LogView
from spark_log.log.local_log import LocalLog
from spark_log.record import RECORD_SCHEMA, BatchHeader

_WINDOW: Final = 65_536
"""Number of offsets that are compared at once."""

_MAX_TRIES: Final = 10

_BATCH: Final = np.dtype([("first", "<i8"), ("last", "<i8"), ("crc32c", "<u4")])


@dataclass(frozen=True, slots=True)
class ReplicaDifference:
    """The first difference of two replicas.

    Attributes:
        offset: the offset of the record that differs.
        what: the difference, in words.
    """

    offset: int
    what: str


def first_difference(one: LocalLog, other: LocalLog, end_offset: int) -> ReplicaDifference | None:
    """Return the first difference of two replicas; None if they have the same records.

    Args:
        one: the log of a replica.
        other: the log of another replica of the same partition.
        end_offset: the offset up to which the replicas are compared, from the later one of their
            log start offsets.

    Raises:
        CorruptRecordError: a replica is damaged.
        NotFoundError: segments were rewritten during each try.
        StorageError: a replica cannot be read.
    """
    for last_try in range(_MAX_TRIES):
        views = one.observe(), other.observe()
        start_offset = max(view.log_start_offset for view in views)
        try:
            here = _batches(one, views[0], start_offset, end_offset)
            there = _batches(other, views[1], start_offset, end_offset)
            for first, last in _ranges(here, there, start_offset, end_offset):
                difference = _difference(one, other, first, last)
                if difference is not None:
                    return difference
        except NotFoundError:
            if last_try == _MAX_TRIES - 1:
                raise
        else:
            return None
    return None


def _batches(log: LocalLog, view: LogView, start_offset: int, end_offset: int) -> np.ndarray:
    """Return the first and last offsets and the checksums of the batches between two offsets."""
    found = [np.empty(0, _BATCH)]
    if start_offset < min(end_offset, view.log_end_offset):
        for position, segment, reader in log.files.walk(view, start_offset, end_offset):
            headers = reader.header_array()
            part = np.empty(len(headers), _BATCH)
            part["first"] = headers["base_offset_delta"].astype(np.int64) + reader.base_offset
            part["last"] = headers["last_offset_delta"].astype(np.int64) + reader.base_offset
            part["crc32c"] = headers["crc32c"]
            end = end_offset if segment.end_offset is None else segment.end_offset
            found.append(part[(part["last"] >= position) & (part["first"] < end)])
    return np.concatenate(found)


def _ranges(
    one: np.ndarray, other: np.ndarray, start_offset: int, end_offset: int
) -> Iterator[tuple[int, int]]:
    """Yield the ranges of offsets that are not covered by equal batches, `_WINDOW` at a time."""
    equal = np.intersect1d(one, other)
    position = start_offset
    for first, last in [*zip(equal["first"], equal["last"], strict=True), (end_offset, end_offset)]:
        stop = min(int(first), end_offset)
        while position < stop:
            yield position, min(position + _WINDOW, stop)
            position += _WINDOW
        position = max(min(position, stop), int(last) + 1)


def _difference(one: LocalLog, other: LocalLog, first: int, last: int) -> ReplicaDifference | None:
    """Return the first difference of two replicas between two offsets; None without one."""
    offsets, records = _read(one, first, last)
    other_offsets, other_records = _read(other, first, last)
    missing = [
        (int(offset), log)
        for log, held, lacking in (
            (other, offsets, other_offsets),
            (one, other_offsets, offsets),
        )
        for offset in np.setdiff1d(held, lacking)
    ]
    lost = [offset for offset, log in missing if not _may_lack(log, offset)]
    _, here, there = np.intersect1d(offsets, other_offsets, return_indices=True)
    changed = _first_unequal(records.take(pa.array(here)), other_records.take(pa.array(there)))
    found = [ReplicaDifference(min(lost), "one of them lacks the record")] if lost else []
    if changed is not None:
        found.append(ReplicaDifference(int(offsets[here[changed]]), "the records differ"))
    return min(found, key=lambda each: each.offset, default=None)


def _read(log: LocalLog, first: int, last: int) -> tuple[np.ndarray, pa.Table]:
    """Return offsets and records between two offsets, control records included."""
    offsets, tables = [np.empty(0, np.int64)], [RECORD_SCHEMA.empty_table()]
    for batch, next_offset in log.stream(first, columns=RECORD_SCHEMA.names):
        if batch is not None:
            mine = batch.offsets()
            count = int(np.searchsorted(mine, last))
            offsets.append(mine[:count])
            rows = pa.Table.from_batches([batch.records.slice(0, count)])
            tables.append(rows.select(RECORD_SCHEMA.names).cast(RECORD_SCHEMA))
        if next_offset >= last:
            break
    return np.concatenate(offsets), pa.concat_tables(tables).combine_chunks()


def _first_unequal(one: pa.Table, other: pa.Table) -> int | None:
    """Return the first row that differs in two tables of the same length; None if none does."""
    if one.equals(other):
        return None
    low, high = 0, one.num_rows  # rows before `low` are equal, some row before `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        if one.slice(low, middle - low).equals(other.slice(low, middle - low)):
            low = middle
        else:
            high = middle
    return low


def _may_lack(log: LocalLog, offset: int) -> bool:
    """Return whether a rewrite of the segment with an offset may have removed the record.

    A compaction may remove any. A merge that wrote a Parquet file removes all records of a batch of
    an aborted transaction, and keeps its header.
    """
    view = log.observe()
    index = view.live.index_of(offset)
    if index < 0:
        return False
    segment = view.live.segments[index]
    if segment.name.is_compacted or not segment.name.is_parquet:
        return segment.name.is_compacted
    reader = log.files.open_listed(segment, view.observed_ms)
    headers = reader.header_array()
    at = int(np.searchsorted(headers["last_offset_delta"], offset - reader.base_offset))
    is_transactional = headers["attributes"][at] & BatchHeader.TRANSACTIONAL_BIT
    return bool(is_transactional) and not headers["record_count"][at]
