"""Batches that reads return: consecutive records, cut out of an Arrow batch by offset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from spark_log.record import OFFSET_DELTA_FIELD, BatchHeader, SmallBatch, ints_of

IsAborted = Callable[[BatchHeader, int], bool]
"""Function of a batch header and the batch's base offset: whether its transaction was aborted."""


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Consecutive records of one leader epoch and one set of attributes.

    Attributes:
        base_offset: offset of the first row, if the batch has no gaps.
        content: the records, as an Arrow batch or as the buffers of few of them.
        timestamp_type: 0 for create time, 1 for log append time.
        leader_epoch: leader epoch of all rows.
        is_control: whether the rows are control records, which users never get.
        segment_base_offset: the segment's base offset, which ``offset_delta`` is relative to.
        stored_bytes: stored size of the Arrow batch that contains the records; in a Parquet file
            the size of its records without compression.
        is_aborted: whether the rows belong to aborted transactions; False if the read did not ask.
    """

    base_offset: int
    content: pa.RecordBatch | SmallBatch
    timestamp_type: int
    leader_epoch: int
    is_control: bool
    segment_base_offset: int
    stored_bytes: int
    is_aborted: bool = False

    @property
    def records(self) -> pa.RecordBatch:
        """The requested columns, and ``offset_delta`` (int32) if the segment has gaps.

        Zero-copy if the file is local and not compressed.
        """
        content = self.content
        if isinstance(content, SmallBatch):
            content = content.records()
            object.__setattr__(self, "content", content)  # the same records, made only once
        return content

    @property
    def num_rows(self) -> int:
        """Number of records."""
        content = self.content
        return content.rows if isinstance(content, SmallBatch) else int(content.num_rows)

    @property
    def size_bytes(self) -> int:
        """Size of the records in memory."""
        content = self.content
        return len(content.content) if isinstance(content, SmallBatch) else int(content.nbytes)

    @property
    def has_gaps(self) -> bool:
        """Whether offsets between the rows may be missing."""
        content = self.content
        if isinstance(content, SmallBatch):
            return False
        return OFFSET_DELTA_FIELD.name in content.schema.names

    @property
    def end_offset(self) -> int:
        """The offset after the last row."""
        if self.has_gaps:
            last = self.records.column(OFFSET_DELTA_FIELD.name)[-1].as_py()
            return self.segment_base_offset + int(last) + 1
        return self.base_offset + self.num_rows

    def offsets(self) -> np.ndarray:
        """Return the offset of every row, int64."""
        if self.has_gaps:
            deltas = ints_of(self.records.column(OFFSET_DELTA_FIELD.name), np.int32)
            offsets: np.ndarray = deltas.astype(np.int64) + self.segment_base_offset
            return offsets
        return np.arange(self.base_offset, self.end_offset)


def cut_batches(
    headers: Sequence[BatchHeader],
    records: pa.RecordBatch | SmallBatch,
    *,
    segment_base_offset: int,
    start_offset: int,
    end_offset: int | None,
    stored_bytes: int,
    is_aborted: IsAborted | None = None,
) -> Iterator[LogBatch]:
    """Yield the records of an Arrow batch between two offsets.

    Each `LogBatch` covers consecutive headers of the same leader epoch and attributes, which are
    aborted or not.

    Args:
        headers: all headers of the Arrow batch.
        records: all rows of the Arrow batch; small ones have one header.
        segment_base_offset: base offset of the segment that contains the Arrow batch.
        start_offset: records before it are left out.
        end_offset: records at and after it are left out; None leaves out none.
        stored_bytes: stored size of the Arrow batch.
        is_aborted: function that returns whether a batch was aborted; None treats none as aborted.
    """
    row = 0
    for run, aborted in _runs(headers, segment_base_offset, is_aborted):
        count = sum(header.record_count for header in run)
        batch = LogBatch(
            segment_base_offset + run[0].base_offset_delta,
            records
            if isinstance(records, SmallBatch) or len(run) == len(headers)
            else records.slice(row, count),
            run[0].timestamp_type,
            run[0].leader_epoch,
            run[0].is_control,
            segment_base_offset,
            stored_bytes,
            aborted,
        )
        row += count
        end = segment_base_offset + run[-1].last_offset_delta + 1
        if start_offset > batch.base_offset or (end_offset is not None and end_offset < end):
            batch = _slice(batch, start_offset, end if end_offset is None else end_offset)
        if batch.num_rows:
            yield batch


def _runs(
    headers: Sequence[BatchHeader], segment_base_offset: int, is_aborted: IsAborted | None
) -> Iterator[tuple[Sequence[BatchHeader], bool]]:
    """Yield runs of headers that are read alike, and whether they were aborted."""
    if len(headers) == 1:
        (header,) = headers
        yield (
            headers,
            is_aborted is not None
            and is_aborted(header, segment_base_offset + header.base_offset_delta),
        )
        return

    def kind(header: BatchHeader) -> tuple[int, int, bool]:
        if is_aborted is None:
            return header.attributes, header.leader_epoch, False
        aborted = is_aborted(header, segment_base_offset + header.base_offset_delta)
        return header.attributes, header.leader_epoch, aborted

    for (_, _, aborted), run in groupby(headers, key=kind):
        yield list(run), aborted


def _slice(batch: LogBatch, start_offset: int, end_offset: int) -> LogBatch:
    if batch.has_gaps:
        first, last = np.searchsorted(batch.offsets(), [start_offset, end_offset])
    else:
        first = max(0, start_offset - batch.base_offset)
        last = max(first, min(batch.num_rows, end_offset - batch.base_offset))
    rows = batch.records.slice(int(first), int(last - first))
    return replace(batch, base_offset=max(batch.base_offset, start_offset), content=rows)
