"""The records of small segments that were just appended, to merge them from memory.

A merge of the log's end would open a hundred files of a few records each, and decode and check what
this process has encoded, or read and checked, a moment ago. The records take a tenth of the files'
bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_log.log.cache_budget import CacheBudget, LogCache
from spark_log.log.segment import AppendedSegment, StagedSegment
from spark_log.record import (
    COMPRESSIONS,
    HEADERS_TYPE,
    RECORD_SCHEMA,
    BatchHeader,
    timestamp_array,
    unpack_headers,
)

_ENTRY_BYTES: Final = 160
"""Approximate memory of a batch besides its headers and records."""

_FIELDS: Final = struct.Struct("<qiii")
"""End offset, size of the file, number of its compression, and length of the headers. Behind them
are the headers and the content."""

RECENT_BATCHES: Final = CacheBudget(8_388_608)
"""Memory of the recent batches of all logs of this process."""

_ALL_NULL: Final = 2


class RecentBatch(NamedTuple):
    """The records of a small plain segment.

    Attributes:
        end_offset: the offset after the last record.
        size_bytes: size of the segment's file.
        compression: compression of the file.
        headers: its batch headers, as `BatchHeader.pack` returns each.
        content: its columns (`SmallBatch.content`).
    """

    end_offset: int
    size_bytes: int
    compression: str
    headers: bytes
    content: bytes

    @classmethod
    def of_own(cls, segment: StagedSegment, end_offset: int) -> RecentBatch | None:
        """Return the records of a segment that this process has put; None if they are not few."""
        if segment.content is None:
            return None
        return cls(
            end_offset,
            segment.size_bytes,
            segment.compression,
            segment.packed_headers,
            segment.content,
        )

    @classmethod
    def of_other(cls, segment: AppendedSegment) -> RecentBatch | None:
        """Return the records of a segment of another process; None if they are not few."""
        if segment.content is None:
            return None
        headers = b"".join([header.pack() for header in segment.headers])
        return cls(
            segment.end_offset, segment.size_bytes, segment.compression, headers, segment.content
        )


class RecentBatches(LogCache):
    """The recent batches of one log, by base offset. All of it can be lost at any time."""

    def __init__(self) -> None:
        self._share = RECENT_BATCHES.share(self)
        self._batches: dict[int, bytes] = {}
        self._size_bytes = 0

    def drop(self) -> None:
        """Forget all batches."""
        self._batches, self._size_bytes = {}, 0

    def add(self, base_offset: int, batch: RecentBatch) -> None:
        """Add the segment that was put at an offset."""
        end_offset, size_bytes, compression, headers, content = batch
        fields = _FIELDS.pack(end_offset, size_bytes, COMPRESSIONS.index(compression), len(headers))
        self._put(base_offset, b"".join((fields, headers, content)))

    def _put(self, base_offset: int, packed: bytes) -> None:
        self._batches[base_offset] = packed
        self._size_bytes += _ENTRY_BYTES + len(packed)
        self._share.hold(self._size_bytes)

    def take(self, segments: Iterable[tuple[int, int, int]]) -> list[RecentBatch] | None:
        """Return the batches of segments, and forget all batches up to the last of them.

        Args:
            segments: base offset, end offset and size of consecutive plain segments.

        Returns:
            One batch for each segment; None if one of them is not known.
        """
        batches, base_offset = self._batches, -1
        found: list[RecentBatch] = []
        for base_offset, end_offset, size_bytes in segments:
            packed = batches.get(base_offset)
            batch = None if packed is None else _unpack(packed)
            if batch is None or (batch.end_offset, batch.size_bytes) != (end_offset, size_bytes):
                found = []
                break
            found.append(batch)
        kept = {base: packed for base, packed in batches.items() if base > base_offset}
        self.drop()
        for base, packed in kept.items():
            self._put(base, packed)
        return found or None


def _unpack(packed: bytes) -> RecentBatch:
    end_offset, size_bytes, compression, headers_bytes = _FIELDS.unpack_from(packed)
    behind = _FIELDS.size + headers_bytes
    headers, content = packed[_FIELDS.size : behind], packed[behind:]
    return RecentBatch(end_offset, size_bytes, COMPRESSIONS[compression], headers, content)


def joined_batch(
    base_offset: int, start_offset: int, batches: Sequence[RecentBatch], most_records: int
) -> tuple[tuple[BatchHeader, ...], pa.RecordBatch]:
    """Return headers and records of consecutive segments from an offset on.

    Args:
        base_offset: base offset of the first segment; the headers are relative to it.
        start_offset: base offset of the segment to begin with.
        batches: the segments.
        most_records: number of records with which to stop; one segment may have more.
    """
    headers: list[BatchHeader] = []
    keys, values = _Column(), _Column()
    times: list[bytes] = []
    rows, shift = 0, start_offset - base_offset
    for batch in batches:
        if batch.end_offset <= start_offset:
            continue
        count = batch.end_offset - start_offset - rows
        if rows and rows + count > most_records:
            break
        for header in unpack_headers(batch.headers):
            first, last = header.base_offset_delta, header.last_offset_delta
            headers.append(
                replace(
                    header,
                    base_offset_delta=shift + rows + first,
                    last_offset_delta=shift + rows + last,
                )
            )
        behind = keys.read(batch.content, 0, count)
        behind = values.read(batch.content, behind, count)
        times.append(batch.content[-8 * count :])
        rows += count
    columns = [
        keys.array(),
        values.array(),
        pa.nulls(rows, HEADERS_TYPE),
        timestamp_array(np.frombuffer(b"".join(times), np.int64)),
    ]
    return tuple(headers), pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


class _Column:
    """A binary column of several batches."""

    def __init__(self) -> None:
        self._ends: list[int] = [0]
        self._data: list[bytes] = []
        self._nulls: list[tuple[int, int]] = []

    def read(self, content: bytes, at: int, rows: int) -> int:
        """Add the column of a batch; return the position behind it.

        Args:
            content: the batch's columns.
            at: the column's position.
            rows: number of rows.
        """
        end = self._ends[-1]
        if content[at] == _ALL_NULL:
            first = len(self._ends) - 1
            self._nulls.append((first, first + rows))
            self._ends += [end] * rows
            return at + 1
        offsets = struct.unpack_from(f"<{rows}i", content, at + 5)
        data = at + 5 + 4 * rows
        self._ends += [end + offset for offset in offsets]
        behind = data + int(offsets[-1])
        self._data.append(content[data:behind])
        return behind

    def array(self) -> pa.Array:
        """Return the column."""
        rows = len(self._ends) - 1
        nulls = sum(last - first for first, last in self._nulls)
        if nulls == rows:
            return pa.nulls(rows, pa.binary())
        validity = None
        if nulls:
            valid = np.ones(rows, np.bool_)
            for first, last in self._nulls:
                valid[first:last] = False
            validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
        offsets = pa.py_buffer(np.array(self._ends, np.int32))
        return pa.Array.from_buffers(
            pa.binary(), rows, [validity, offsets, pa.py_buffer(b"".join(self._data))], nulls
        )
