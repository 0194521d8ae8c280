"""Rewriting neighbouring segments into one (DESIGN.md, section 6).

The rewritten segment ``<base>-<last>.<generation>.log`` holds what a reader would have read: the
same records, under batch headers that tell the same of producers, epochs and timestamps (those of
small batches joined, see `joined_headers`). It is made by put-if-absent, and counts from then on;
what it covers waits to be freed. A crash leaves nothing that a listing shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.errors import (
    AlreadyExistsError,
    CorruptRecordError,
    NotFoundError,
    StorageError,
)
from spark_log.log.clean.joined_headers import cut_header, joined_headers
from spark_log.log.file_names import SegmentName
from spark_log.log.partition_directory import LogView, PartitionDirectory
from spark_log.log.segment.index_builder import DEFAULT_INTERVAL_BYTES
from spark_log.log.segment.reader import SegmentReader
from spark_log.log.segment.writer import SegmentWriter
from spark_log.log.snapshot.snapshot import SegmentSummary
from spark_log.record.batch_header import BatchHeader
from spark_log.record.rebase import rebase
from spark_log.record.schema import OFFSET_DELTA_FIELD

KEEP_COMPRESSION: Final = "producer"
"""Of a merged segment: what the writers chose."""

_JOINED_RECORDS = 65_536
_JOINED_BYTES = 16_777_216
"""Small Arrow batches are joined up to this: below it, each costs more than its records do."""

_REMEMBERED_BYTES: Final = 33_554_432
"""So much of a mapped file counts as memory of a process that goes through it."""

_Batches = tuple[tuple[BatchHeader, ...], pa.RecordBatch]
"""Batch headers, relative to some base offset, and the rows of all of them."""


def merge(
    directory: PartitionDirectory,
    view: LogView,
    first: int,
    last: int,
    *,
    compression: str = KEEP_COMPRESSION,
    index_interval_bytes: int = DEFAULT_INTERVAL_BYTES,
    sync: bool = True,
    on_progress: Callable[[int], None] = lambda done_bytes: None,
) -> SegmentSummary:
    """Rewrite live segments that follow each other into one, and return what that holds.

    Any number may merge at once: where their segments overlap, all hold the same. So they may not
    take in what a compaction wrote, and do not count before that (ADR 16). Of the first batch
    all is taken, so that a log start inside of it keeps what lies before. Memory is that
    of one joined Arrow batch, of each segment up to 64 KiB, and 32 MiB of what is mapped.

    Args:
        directory: the partition's.
        view: of its log.
        first: index of the first segment in ``view.live.segments``.
        last: index of the last one.
        compression: of the new segment: ``none``, ``lz4``, ``zstd``, or ``producer``, which is what
            most bytes of the old ones have.
        index_interval_bytes: the topic's ``index.interval.bytes``.
        sync: whether it is durable on return, on a local file system. It takes the place of what
            has long been durable, whatever the topic's ``flush.on.append``: without, only where
            nothing is freed after it.
        on_progress: called with numbers of bytes as they are read and written; may take its time.

    Raises:
        OffsetOutOfRangeError: the log's start has passed the first one meanwhile.
        CorruptRecordError: one of them is damaged.
        InvalidRecordError: together they are more than a segment holds: 4 GiB, 2^31 offsets.
        NotFoundError: one of them was freed while it was read, or is a part of what another has
            merged or compacted; observe the log anew.
        UnknownOutcomeError: the new segment may be there; it does no harm, and may be made again.
        StorageError: it was not made.
    """
    segments = view.live.segments[first : last + 1]
    start_offset = segments[0].start_offset
    end_offset = segments[-1].end_offset or view.log_end_offset
    readers = []
    for position, each, reader in directory.walk(view, start_offset, end_offset):
        if each.name.is_compacted:
            raise _rewritten_meanwhile(reader.path)
        readers.append((position, reader))
    if not readers or readers[-1][1].end_offset < end_offset:  # only where the topic is deleted
        raise _rewritten_meanwhile(segments[-1].file.path)
    if readers[-1][1].end_offset > end_offset:  # in the middle of a batch, perhaps
        raise _rewritten_meanwhile(readers[-1][1].path)
    base_offset = first_base_offset(readers[0][1], start_offset)
    readers[0] = base_offset, readers[0][1]
    name = SegmentName(
        base_offset,
        end_offset - 1,
        1 + max(segment.name.generation for segment in segments),
    )
    with_offsets = any(reader.has_gaps for _, reader in readers)
    writer = SegmentWriter(
        directory.store,
        directory.path,
        topic_id=directory.topic_id,
        partition=directory.partition,
        compression=compression_of(readers) if compression == KEEP_COMPRESSION else compression,
        index_interval_bytes=index_interval_bytes,
        with_offsets=with_offsets,
        name=name,
    )
    record_count = 0
    try:
        batches = (
            rebase(headers, records, reader.base_offset - base_offset, with_offsets=with_offsets)
            for reader, headers, records in live_batches(directory, view, readers, on_progress)
        )
        written = 0
        for headers, records in joined(batches):
            writer.write_rewritten(records, joined_headers(headers, records))
            record_count += records.num_rows
            on_progress(writer.size_bytes - written)
            written = writer.size_bytes
        segment = writer.finish()
        path = directory.file_path(name.log)
        try:
            directory.store.put_if_absent(path, segment.staged, sync=sync)
        except AlreadyExistsError:  # another one has made the same, and may not have synced it
            directory.store.sync(path)
        else:
            # Derived: readers do without.
            with directory.suppressed.suppress("index", directory.path, StorageError):
                for derived, data in segment.derived_files(name):
                    directory.store.put(directory.file_path(derived), data, sync=False)
    finally:
        writer.discard()
    return SegmentSummary(
        name=name,
        end_offset=end_offset,
        record_count=record_count,
        size_bytes=segment.size_bytes,
        min_timestamp_us=segment.min_timestamp_us,
        max_timestamp_us=segment.max_timestamp_us,
    )


def compression_of(readers: Iterable[tuple[int, SegmentReader]]) -> str:
    """Return how most bytes of segments are compressed."""
    bytes_of: Counter[str] = Counter()
    for _, reader in readers:
        bytes_of[reader.compression(0)] += reader.size_bytes
        reader.forget()
    return bytes_of.most_common(1)[0][0]


def live_batches(
    directory: PartitionDirectory,
    view: LogView,
    readers: Iterable[tuple[int, SegmentReader]],
    on_progress: Callable[[int], None],
) -> Iterator[tuple[SegmentReader, tuple[BatchHeader, ...], pa.RecordBatch]]:
    """Yield the batches of segments, each segment's only if it is in the log when it is read."""
    # What is joined is looked at again when it is written: so they are forgotten once more.
    lately: list[SegmentReader] = []
    before: list[SegmentReader] = []
    passed_bytes = 0
    for position, reader in readers:
        try:
            for headers, records in _batches_from(reader, position):
                yield reader, headers, records
            reader.forget()
            lately.append(reader)
            passed_bytes += reader.size_bytes
            if passed_bytes > _JOINED_BYTES:
                for each in before:
                    each.forget()
                before, lately, passed_bytes = lately, [], 0
            on_progress(reader.size_bytes)
        except CorruptRecordError:
            _check_is_live(directory, view, reader)
            raise
        view = _check_is_live(directory, view, reader)


def _check_is_live(directory: PartitionDirectory, view: LogView, reader: SegmentReader) -> LogView:
    """Return the view, or a newer one where it is too old to tell what was read.

    A name that is in the log now has never been freed: so all that was read under it is its own.

    Raises:
        NotFoundError: the segment is not in the log any more.
    """
    if directory.store.is_mapped or not directory.is_outdated(view.observed_ms):
        return view
    view = directory.observe()
    live = {directory.file_path(segment.name.log) for segment in view.live.segments}
    if reader.path not in live:
        raise _rewritten_meanwhile(reader.path)
    return view


def _rewritten_meanwhile(path: str) -> NotFoundError:
    return NotFoundError(f"{path} was rewritten or freed meanwhile", path=path)


def first_base_offset(reader: SegmentReader, start_offset: int) -> int:
    """Return where the batch begins that an offset lies in; the offset, if all of it is gone."""
    for headers in map(reader.headers, range(reader.batch_count)):
        for header in headers:
            if reader.base_offset + header.last_offset_delta >= start_offset:
                return min(reader.base_offset + header.base_offset_delta, start_offset)
    return start_offset


def _batches_from(reader: SegmentReader, start_offset: int) -> Iterator[_Batches]:
    """Yield what a segment holds from an offset on; batches of one Arrow batch together.

    All of the segment is read, and checked, also what lies before that offset: what a rewrite
    leaves out is deleted, and headers are known to be right only together with their records.
    """
    start = start_offset - reader.base_offset
    forgotten = 0
    previous: BatchHeader | None = None
    for ordinal in reader.in_order():
        if reader.position(ordinal) > forgotten + _REMEMBERED_BYTES:
            forgotten = reader.position(ordinal)
            reader.forget()
        headers, records = reader.read_batch(ordinal)
        reader.check_follows(previous, headers[0], ordinal)
        previous = headers[-1]
        if headers[-1].last_offset_delta < start:
            continue
        wanted = tuple(header for header in headers if header.last_offset_delta >= start)
        rows = sum(header.record_count for header in wanted)
        records = records.slice(records.num_rows - rows, rows)
        # Another merge, which overlaps this one, may have joined batches that are apart here.
        if wanted[0].base_offset_delta < start:
            wanted, records = _cut(wanted, records, start)
        yield wanted, records


def _cut(headers: tuple[BatchHeader, ...], records: pa.RecordBatch, start: int) -> _Batches:
    """Leave out what comes before an offset delta that the first batch contains."""
    first, skipped = headers[0], start - headers[0].base_offset_delta
    skipped_rows = skipped
    if OFFSET_DELTA_FIELD.name in records.schema.names:
        deltas = records.column(OFFSET_DELTA_FIELD.name).to_numpy()[: first.record_count]
        skipped_rows = int(np.searchsorted(deltas, start))
    rows = records.slice(skipped_rows, first.record_count - skipped_rows)
    return (cut_header(first, skipped, rows), *headers[1:]), records.slice(skipped_rows)


def joined(batches: Iterable[_Batches]) -> Iterator[_Batches]:
    """Join small Arrow batches; none is split."""
    headers: list[BatchHeader] = []
    pieces: list[pa.RecordBatch] = []
    joined_records = joined_bytes = 0
    for more_headers, records in batches:
        joined_records += records.num_rows
        joined_bytes += records.nbytes
        if pieces and (joined_records > _JOINED_RECORDS or joined_bytes > _JOINED_BYTES):
            yield tuple(headers), pa.concat_batches(pieces)
            headers, pieces = [], []
            joined_records, joined_bytes = records.num_rows, records.nbytes
        headers += more_headers
        pieces.append(records)
    if pieces:
        yield tuple(headers), pa.concat_batches(pieces)
