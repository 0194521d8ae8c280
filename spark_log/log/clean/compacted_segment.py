"""Writes the segment into which a compaction rewrites neighbouring segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from spark_log.errors import AlreadyExistsError
from spark_log.log.clean.batch_filter import BatchFilter
from spark_log.log.directory import LogView
from spark_log.log.files import SegmentName
from spark_log.log.local_log import LocalLog
from spark_log.log.rewrite import (
    KEEP_COMPRESSION,
    IndexedParquetWriter,
    compression_of,
    join_batches,
    live_batches,
    moderate_batches,
    put_indexes,
)
from spark_log.log.segment import (
    MAX_SEGMENT_BYTES,
    MAX_SEGMENT_RECORDS,
    SegmentReader,
    SegmentWriter,
)
from spark_log.record import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    OFFSET_DELTA_FIELD,
    RECORD_SCHEMA,
    BatchHeader,
    batch_crc32c,
    rebase_batches,
)
from spark_log.values import typed_values_of

OnProgress = Callable[[int], None]
"""A function that is called with numbers of bytes as they are read and written. It may block, to
limit the rate."""

OpenSegment = tuple[int, SegmentReader]
"""The first offset to read in a segment, and its reader."""

_DATA_RATIO = 0.9
"""Maximum share of records in the largest file; offsets, headers and padding need the rest."""


def group_segments(readers: list[OpenSegment], segment_bytes: int) -> Iterator[list[OpenSegment]]:
    """Yield groups of segments that together are not larger than one segment may be."""
    group: list[OpenSegment] = []
    size_bytes = 0
    for each in readers:
        _, reader = each
        if group and (
            size_bytes + reader.size_bytes > segment_bytes
            or reader.end_offset - group[0][0] > MAX_SEGMENT_RECORDS
        ):
            yield group
            group, size_bytes = [], 0
        group.append(each)
        size_bytes += reader.size_bytes
    yield group


class CompactedSegment:
    """A segment that replaces a group of segments.

    Attributes:
        records_written: number of records in the segment.
        bytes_written: the size of the segment's file.
    """

    def __init__(
        self, log: LocalLog, view: LogView, generation: int, compaction_id: str | None
    ) -> None:
        """Prepare the segment. Accesses no storage yet.

        Args:
            log: the partition's log.
            view: the view of the log that the replaced segments are from.
            generation: the generation of the compaction.
            compaction_id: random id of the compaction that read all keys; None if an earlier
                version gave it none.
        """
        self._log = log
        self._view = view
        self._generation = generation
        self._compaction_id = compaction_id
        self.records_written = 0
        self.bytes_written = 0

    def write(
        self,
        group: list[OpenSegment],
        raw_bytes: int,
        batch_filter: BatchFilter | None,
        on_progress: OnProgress,
        *,
        base_offset: int | None = None,
    ) -> None:
        """Write the segment and put it into the log. After a crash the log has the old segments.

        Args:
            group: the segments to replace.
            raw_bytes: the size of their records without compression.
            batch_filter: the filter, which has filtered the groups before this one; None retains
                all batches.
            on_progress: called with numbers of bytes as they are read and written; may block.
            base_offset: the first offset that the segment covers; None for the first one to read.
        """
        files = self._log.files
        base_offset = group[0][0] if base_offset is None else base_offset
        end_offset = group[-1][1].end_offset
        is_parquet = self._log.config.table_format != "none"
        name = SegmentName(base_offset, end_offset - 1, self._generation, is_parquet)
        writer: SegmentWriter | IndexedParquetWriter
        if is_parquet:
            typed = typed_values_of(self._log.config)
            writer = IndexedParquetWriter(files, name, typed, self._compaction_id)
        else:
            writer = SegmentWriter(
                files.store,
                files.path,
                topic_id=files.topic_id,
                partition=files.partition,
                compression=self._compression(group, raw_bytes),
                index_interval_bytes=self._log.config.index_interval_bytes,
                with_offsets=True,
                name=name,
                compaction_id=self._compaction_id,
            )
        try:
            batches = self._batches(group, base_offset, batch_filter, on_progress)
            if is_parquet:
                batches = moderate_batches(batches)
            for headers, records in join_batches(batches):
                writer.write_rewritten(records, headers)
                self.records_written += records.num_rows
                on_progress(records.nbytes)
            segment = writer.finish()
            with suppress(AlreadyExistsError):  # by this process, which owns the generation
                # Synced whatever flush.on.append says: the replaced segments are durable.
                files.store.put_if_absent(files.file_path(name.file_name), segment.staged)
            self.bytes_written = segment.size_bytes
            put_indexes(files, name, writer, segment)
        finally:
            writer.discard()

    def _compression(self, group: list[OpenSegment], raw_bytes: int) -> str:
        config = self._log.config
        chosen = config.compression_type
        if chosen == KEEP_COMPRESSION:
            chosen = config.merge_compression_type
        # With another compression the records may not fit into one file.
        is_too_large = raw_bytes > MAX_SEGMENT_BYTES * _DATA_RATIO
        return compression_of(group) if is_too_large or chosen == KEEP_COMPRESSION else chosen

    def _batches(
        self,
        group: list[OpenSegment],
        base_offset: int,
        batch_filter: BatchFilter | None,
        on_progress: OnProgress,
    ) -> Iterator[tuple[tuple[BatchHeader, ...], pa.RecordBatch]]:
        """Yield the retained batches of the group; if none is retained, an empty batch.

        A segment needs at least one batch.
        """
        is_empty, spare = True, None
        for reader, headers, records in live_batches(
            self._log.files, self._view, group, on_progress
        ):
            shift = reader.base_offset - base_offset
            rebased = rebase_batches(headers, records, shift, with_offsets=True)
            if batch_filter is None:
                is_empty = False
                yield rebased
                continue
            filtered = batch_filter.apply(*rebased, base_offset)
            spare = filtered.headers[-1], filtered.records.slice(0, 0)
            needed = filtered.retained_headers()
            if needed:
                is_empty = False
                yield needed, filtered.records
        if is_empty:
            header, rows = spare or _empty_batch(group, base_offset)
            yield (_without_producer(header, rows),), rows


def _without_producer(header: BatchHeader, rows: pa.RecordBatch) -> BatchHeader:
    """Return the header of an empty batch without the producer's fields.

    The producer has later batches, or has expired.
    """
    bare = replace(
        header,
        attributes=header.attributes & BatchHeader.TIMESTAMP_TYPE_BIT,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
    )
    return replace(bare, crc32c=batch_crc32c(bare, rows))


def _empty_batch(group: list[OpenSegment], base_offset: int) -> tuple[BatchHeader, pa.RecordBatch]:
    """Return an empty batch for segments that have no batch after the log's start."""
    _, reader = group[-1]
    last = reader.headers(reader.batch_count - 1)[-1]
    header = BatchHeader(
        base_offset_delta=0,
        last_offset_delta=reader.end_offset - 1 - base_offset,
        leader_epoch=last.leader_epoch,
        attributes=last.attributes & BatchHeader.TIMESTAMP_TYPE_BIT,
        crc32c=0,
        base_timestamp_us=NO_TIMESTAMP,
        max_timestamp_us=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=0,
    )
    schema = RECORD_SCHEMA.append(OFFSET_DELTA_FIELD)
    return header, pa.RecordBatch.from_pylist([], schema)
