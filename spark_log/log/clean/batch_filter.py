"""Removes the records of a batch that a compaction does not retain (Kafka's ``RecordFilter``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.log.clean.delete_horizons import DeleteHorizons, has_horizon
from spark_log.log.clean.offset_map import OffsetMap
from spark_log.log.clean.retained_markers import RetainedMarkers
from spark_log.log.rewrite import REWRITE_POOL
from spark_log.record import (
    NO_TIMESTAMP,
    BatchHeader,
    batch_crc32c,
    bool_array,
    bools_of,
    times_us_of,
)


@dataclass(frozen=True, slots=True)
class FilteredBatches:
    """The retained part of an Arrow batch.

    Attributes:
        headers: the headers of all batches in it, also of batches without a retained record.
        records: the retained records.
        is_last_of_producer: one item per batch: whether it is its producer's last one in the log.
    """

    headers: tuple[BatchHeader, ...]
    records: pa.RecordBatch
    is_last_of_producer: tuple[bool, ...]

    def retained_headers(self) -> tuple[BatchHeader, ...]:
        """Return the headers of batches with records, and of each producer's last batch.

        A last batch is retained even without records: it holds the producer's state.
        """
        pairs = zip(self.headers, self.is_last_of_producer, strict=True)
        return tuple(header for header, is_last in pairs if header.record_count or is_last)


class BatchFilter:
    """Filters the Arrow batches of a log in offset order.

    Attributes:
        tombstones_removed: number of removed tombstones that were the last record of their key.
    """

    def __init__(
        self,
        offset_map: OffsetMap | None,
        *,
        last_offsets: Collection[int],
        marked_epochs: Mapping[int, int],
        horizons: DeleteHorizons,
    ) -> None:
        """Start at the first row of ``offset_map``.

        Args:
            offset_map: a map with the keys of all rows that will be filtered; None removes only
                tombstones and markers past their delete horizons, from batches that an earlier
                compaction has filtered.
            last_offsets: the last offset of each producer's last batch.
            marked_epochs: newest epoch by producer id, for producers of which the log has only a
                marker.
            horizons: the delete horizons that have passed, and the new one of other tombstones.
        """
        self._offset_map = offset_map
        self._last_offsets = last_offsets
        self._marked_epochs = marked_epochs
        self._markers = RetainedMarkers()
        self._horizons = horizons
        self._next_row = 0
        self.tombstones_removed = 0

    def apply(
        self, headers: Sequence[BatchHeader], records: pa.RecordBatch, base_offset: int
    ) -> FilteredBatches:
        """Return the retained part of the next Arrow batch.

        Args:
            headers: the headers of the batches in it.
            records: the rows of these batches, with the column ``offset_delta``.
            base_offset: the offset that deltas are relative to.
        """
        kept = self._latest(records.num_rows)
        counts = [header.record_count for header in headers]
        ends = np.cumsum(counts)
        starts = ends - counts
        tombstones = self._tombstones(records)
        removable = []
        for header, start, end in zip(headers, starts, ends, strict=True):
            removable.append(self._is_removable(header))
            if header.is_control:
                kept[start:end] = not (
                    removable[-1] and self._horizons.has_passed(header, base_offset)
                )
            elif tombstones is not None and self._horizons.has_passed(header, base_offset):
                gone = tombstones[start:end] & kept[start:end]
                self.tombstones_removed += int(gone.sum())
                kept[start:end] &= ~gone
        if not kept.all():
            records = pc.filter(records, bool_array(kept), memory_pool=REWRITE_POOL)
        kept_before = np.concatenate([[0], np.cumsum(kept)])
        result = []
        for header, is_removable, start, end in zip(headers, removable, starts, ends, strict=True):
            rows = records.slice(kept_before[start], kept_before[end] - kept_before[start])
            if header.is_control:
                has_deletes = is_removable and rows.num_rows > 0
            else:
                has_deletes = tombstones is not None and (tombstones & kept)[start:end].any()
            result.append(self._header(header, rows, base_offset, bool(has_deletes)))
        is_last = (self._is_last_of_producer(each, base_offset) for each in headers)
        return FilteredBatches(tuple(result), records, tuple(is_last))

    def _latest(self, count: int) -> np.ndarray:
        """Return for each of the next rows whether it is the last of its key."""
        if self._offset_map is None:
            return np.ones(count, np.bool_)
        first, self._next_row = self._next_row, self._next_row + count
        return self._offset_map.is_latest(first, count)

    def _is_removable(self, header: BatchHeader) -> bool:
        """Return whether a batch is a marker that may be removed after its delete horizon."""
        if self._offset_map is None:  # the compaction that set the horizon read all batches
            return has_horizon(header)
        return not self._markers.must_retain(header)

    def _header(
        self, header: BatchHeader, rows: pa.RecordBatch, base_offset: int, has_deletes: bool
    ) -> BatchHeader:
        """Return the header for the retained records of a batch.

        The header has a delete horizon if the batch has tombstones, or is the marker of a
        transaction without any other retained batch (KIP-534).
        """
        if rows.num_rows == header.record_count and not (has_deletes or has_horizon(header)):
            return header
        attributes = header.attributes & ~header.DELETE_HORIZON_BIT
        first_us = latest_us = NO_TIMESTAMP
        if rows.num_rows:
            times_us = times_us_of(rows)
            first_us, latest_us = int(times_us[0]), int(times_us.max())
        if has_deletes:
            attributes |= header.DELETE_HORIZON_BIT
            first_us = self._horizons.next_us(header, base_offset)
        changed = replace(
            header,
            attributes=attributes,
            base_timestamp_us=first_us,
            max_timestamp_us=latest_us,
            record_count=rows.num_rows,
        )
        return replace(changed, crc32c=batch_crc32c(changed, rows))

    def _is_last_of_producer(self, header: BatchHeader, base_offset: int) -> bool:
        """Return whether a batch is its producer's last (``isBatchLastRecordOfProducer``)."""
        if base_offset + header.last_offset_delta in self._last_offsets:
            return True
        epoch = self._marked_epochs.get(header.producer_id)
        return header.is_control and epoch is not None and header.producer_epoch == epoch

    @staticmethod
    def _tombstones(records: pa.RecordBatch) -> np.ndarray | None:
        """Return for each row whether its value is null; None if no value is null."""
        values = records.column("value")
        if not values.null_count:
            return None
        return bools_of(values.is_null())
