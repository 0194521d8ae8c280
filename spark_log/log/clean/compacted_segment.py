"""Writing what a compaction leaves of neighbouring segments, as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from spark_log.errors import AlreadyExistsError, StorageError
from spark_log.log.clean.batch_filter import BatchFilter
from spark_log.log.clean.merger import KEEP_COMPRESSION, compression_of, joined, live_batches
from spark_log.log.file_names import SegmentName
from spark_log.log.partition_directory import LogView
from spark_log.log.partition_log import PartitionLog
from spark_log.log.segment.reader import SegmentReader
from spark_log.log.segment.writer import MAX_SEGMENT_BYTES, MAX_SEGMENT_RECORDS, SegmentWriter
from spark_log.record.batch_header import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
)
from spark_log.record.checksum import batch_crc32c
from spark_log.record.rebase import rebase
from spark_log.record.schema import OFFSET_DELTA_FIELD, RECORD_SCHEMA

OnProgress = Callable[[int], None]
"""Called with numbers of bytes that were read and written; may take its time."""

OpenSegment = tuple[int, SegmentReader]
"""Where to begin in a segment, and its file, opened."""

_FILLED = 0.9
"""Of a file that holds as much as it may: the rest is offsets, headers and padding."""


def groups(readers: list[OpenSegment], segment_bytes: int) -> Iterator[list[OpenSegment]]:
    """Yield segments that become one: as many as were not more than one together."""
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
    """A segment that takes the place of a group of others."""

    def __init__(self, log: PartitionLog, view: LogView, generation: int) -> None:
        """Touches nothing yet.

        Args:
            log: the partition's.
            view: that its sources are of.
            generation: of the compaction.
        """
        self._log = log
        self._view = view
        self._generation = generation
        self.records_written = 0
        self.bytes_written = 0

    def write(
        self,
        group: list[OpenSegment],
        raw_bytes: int,
        batch_filter: BatchFilter,
        on_progress: OnProgress,
    ) -> None:
        """Write the segment, and put it in its place.

        Args:
            group: what it takes the place of.
            raw_bytes: what that is without compression.
            batch_filter: in the state in which the group before left it.
            on_progress: see `compact`.
        """
        files = self._log.files
        base_offset, end_offset = group[0][0], group[-1][1].end_offset
        name = SegmentName(base_offset, end_offset - 1, self._generation)
        writer = SegmentWriter(
            files.store,
            files.path,
            topic_id=files.topic_id,
            partition=files.partition,
            compression=self._compression(group, raw_bytes),
            index_interval_bytes=self._log.config.index_interval_bytes,
            with_offsets=True,
            name=name,
        )
        try:
            batches = self._batches(group, base_offset, batch_filter, on_progress)
            for headers, records in joined(batches):
                writer.write_rewritten(records, headers)
                self.records_written += records.num_rows
                on_progress(records.nbytes)
            segment = writer.finish()
            with suppress(AlreadyExistsError):  # nobody else has this generation: it is this one
                # Synced in any topic: what it takes the place of has long been durable.
                files.store.put_if_absent(files.file_path(name.log), segment.staged)
            self.bytes_written = segment.size_bytes
            # Derived: readers do without.
            with files.suppressed.suppress("index", files.path, StorageError):
                for derived, data in segment.derived_files(name):
                    files.store.put(files.file_path(derived), data, sync=False)
        finally:
            writer.discard()

    def _compression(self, group: list[OpenSegment], raw_bytes: int) -> str:
        config = self._log.config
        chosen = config.compression_type
        if chosen == KEEP_COMPRESSION:
            chosen = config.merge_compression_type
        # What was compressed may be more than one file can hold once it is not any more.
        is_too_large = raw_bytes > MAX_SEGMENT_BYTES * _FILLED
        return compression_of(group) if is_too_large or chosen == KEEP_COMPRESSION else chosen

    def _batches(
        self,
        group: list[OpenSegment],
        base_offset: int,
        batch_filter: BatchFilter,
        on_progress: OnProgress,
    ) -> Iterator[tuple[tuple[BatchHeader, ...], pa.RecordBatch]]:
        """Yield what stays of the group's batches; if nothing does, the last one, empty."""
        is_empty, spare = True, None
        for reader, headers, records in live_batches(
            self._log.files, self._view, group, on_progress
        ):
            shift = reader.base_offset - base_offset
            filtered = batch_filter.apply(
                *rebase(headers, records, shift, with_offsets=True), base_offset
            )
            spare = filtered.headers[-1], filtered.records.slice(0, 0)
            needed = filtered.needed()
            if needed:
                is_empty = False
                yield needed, filtered.records
        if is_empty:
            header, rows = spare or _nothing(group, base_offset)
            yield (_nobodys(header, rows),), rows


def _nobodys(header: BatchHeader, rows: pa.RecordBatch) -> BatchHeader:
    """Return the header of a batch whose producer has written others since, or is forgotten."""
    bare = replace(
        header,
        attributes=header.attributes & BatchHeader.TIMESTAMP_TYPE_BIT,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
    )
    return replace(bare, crc32c=batch_crc32c(bare, rows))


def _nothing(group: list[OpenSegment], base_offset: int) -> tuple[BatchHeader, pa.RecordBatch]:
    """Return what stands for segments that have no batch any more behind the log's start."""
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
