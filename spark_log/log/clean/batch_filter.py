"""Which records of a batch a compaction keeps, and what its header says then (``RecordFilter``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from spark_log.log.clean.cleaned_transaction_metadata import RetainedMarkers
from spark_log.log.clean.offset_map import OffsetMap
from spark_log.record.arrays import times_us_of
from spark_log.record.batch_header import NO_TIMESTAMP, BatchHeader
from spark_log.record.checksum import batch_crc32c


@dataclass(frozen=True, slots=True)
class FilteredBatches:
    """What is left of an Arrow batch.

    Attributes:
        headers: of all its batches, those that have no record any more among them.
        records: that stay.
        is_last_of_producer: of each batch whether no later one of its producer is in the log.
    """

    headers: tuple[BatchHeader, ...]
    records: pa.RecordBatch
    is_last_of_producer: tuple[bool, ...]

    def needed(self) -> tuple[BatchHeader, ...]:
        """Return the headers that stay: a producer's last one tells what it has written."""
        pairs = zip(self.headers, self.is_last_of_producer, strict=True)
        return tuple(header for header, is_last in pairs if header.record_count or is_last)


class BatchFilter:
    """Filters the batches of a log, Arrow batch by Arrow batch, in offset order.

    Attributes:
        tombstones_removed: so far, of those that were the last record of their key.
    """

    def __init__(
        self,
        latest: OffsetMap,
        *,
        first_dirty_offset: int,
        last_offsets: Collection[int],
        marked_epochs: Mapping[int, int],
        now_us: int,
        compaction_time_us: int,
        delete_retention_ms: int,
    ) -> None:
        """Get ready.

        Args:
            latest: of all rows that will be filtered.
            first_dirty_offset: before it each key had one record before this compaction.
            last_offsets: of the last batches of producers.
            marked_epochs: the newest epochs of producers of which nothing but a marker tells.
            now_us: the storage's time, or earlier, microseconds since the epoch; tombstones whose
                time has passed by then go.
            compaction_time_us: when this compaction listed the log, or later. From then on
                tombstones without a delete horizon are kept for ``delete_retention_ms``.
            delete_retention_ms: the topic's ``delete.retention.ms``.
        """
        self._latest = latest
        self._first_dirty_offset = first_dirty_offset
        self._last_offsets = last_offsets
        self._marked_epochs = marked_epochs
        self._markers = RetainedMarkers()
        self._now_us = now_us
        self._horizon_us = compaction_time_us + delete_retention_ms * 1000
        self._next_row = 0
        self.tombstones_removed = 0

    def apply(
        self, headers: Sequence[BatchHeader], records: pa.RecordBatch, base_offset: int
    ) -> FilteredBatches:
        """Return what stays of the next Arrow batch.

        Args:
            headers: of its batches.
            records: their rows, with ``offset_delta``.
            base_offset: what offsets count from.
        """
        kept = self._latest.kept(self._next_row, records.num_rows)
        self._next_row += records.num_rows
        counts = [header.record_count for header in headers]
        ends = np.cumsum(counts)
        starts = ends - counts
        tombstones = self._tombstones(records)
        may_go = []
        for header, start, end in zip(headers, starts, ends, strict=True):
            rows = records.slice(start, end - start) if header.is_control else records
            may_go.append(not self._markers.is_needed(header, rows))
            if header.is_control:
                kept[start:end] = not (may_go[-1] and self._is_past_horizon(header, base_offset))
            elif tombstones is not None and self._is_past_horizon(header, base_offset):
                gone = tombstones[start:end] & kept[start:end]
                self.tombstones_removed += int(gone.sum())
                kept[start:end] &= ~gone
        if not kept.all():
            records = records.filter(_bool_array(kept))
        kept_before = np.concatenate([[0], np.cumsum(kept)])
        result = []
        for header, is_free, start, end in zip(headers, may_go, starts, ends, strict=True):
            rows = records.slice(kept_before[start], kept_before[end] - kept_before[start])
            if header.is_control:
                has_deletes = is_free and rows.num_rows > 0
            else:
                has_deletes = tombstones is not None and (tombstones & kept)[start:end].any()
            result.append(self._header(header, rows, base_offset, bool(has_deletes)))
        is_last = (self._is_last_of_producer(each, base_offset) for each in headers)
        return FilteredBatches(tuple(result), records, tuple(is_last))

    def _header(
        self, header: BatchHeader, rows: pa.RecordBatch, base_offset: int, has_deletes: bool
    ) -> BatchHeader:
        """Return the header of what is left of a batch.

        With a delete horizon where it has tombstones, or is the marker of a transaction of which
        nothing else is left (KIP-534).
        """
        had_horizon = bool(header.attributes & header.DELETE_HORIZON_BIT)
        if rows.num_rows == header.record_count and not (has_deletes or had_horizon):
            return header
        attributes = header.attributes & ~header.DELETE_HORIZON_BIT
        first_us = latest_us = NO_TIMESTAMP
        if rows.num_rows:
            times_us = times_us_of(rows)
            first_us, latest_us = int(times_us[0]), int(times_us.max())
        if has_deletes:
            attributes |= header.DELETE_HORIZON_BIT
            is_known = had_horizon and self._is_clean(header, base_offset)
            first_us = header.base_timestamp_us if is_known else self._horizon_us
        changed = replace(
            header,
            attributes=attributes,
            base_timestamp_us=first_us,
            max_timestamp_us=latest_us,
            record_count=rows.num_rows,
        )
        return replace(changed, crc32c=batch_crc32c(changed, rows))

    def _is_past_horizon(self, header: BatchHeader, base_offset: int) -> bool:
        """Whether nobody needs a batch's tombstones, or a marker, any more.

        What they replaced or decided is gone, since all that is before the first dirty offset was
        compacted.
        """
        return (
            bool(header.attributes & header.DELETE_HORIZON_BIT)
            and header.base_timestamp_us <= self._now_us
            and self._is_clean(header, base_offset)
        )

    def _is_last_of_producer(self, header: BatchHeader, base_offset: int) -> bool:
        """Whether no later batch tells of the producer (``isBatchLastRecordOfProducer``)."""
        if base_offset + header.last_offset_delta in self._last_offsets:
            return True
        epoch = self._marked_epochs.get(header.producer_id)
        return header.is_control and epoch is not None and header.producer_epoch == epoch

    def _is_clean(self, header: BatchHeader, base_offset: int) -> bool:
        return base_offset + header.last_offset_delta < self._first_dirty_offset

    @staticmethod
    def _tombstones(records: pa.RecordBatch) -> np.ndarray | None:
        """Return of each row whether it has no value; None where all have one."""
        values = records.column("value")
        if not values.null_count:
            return None
        tombstones: np.ndarray = values.is_null().to_numpy(zero_copy_only=False)
        return tombstones


def _bool_array(values: np.ndarray) -> pa.Array:
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])
