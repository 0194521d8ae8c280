"""Rewriting neighbouring segments into one (DESIGN.md, section 6).

The rewritten segment ``<base>-<last>.<generation>.log`` holds what a reader would have read: the
same records under the same batch headers, so that producers are recognised as before. It is made
by put-if-absent, and counts from that moment on; what it covers waits to be freed. A crash leaves
nothing that a listing shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import pyarrow as pa

from spark_log.errors import (
    AlreadyExistsError,
    CorruptRecordError,
    NotFoundError,
    StorageError,
)
from spark_log.log.file_names import SegmentName
from spark_log.log.partition_directory import LogView, PartitionDirectory
from spark_log.log.segment import SegmentReader
from spark_log.log.segment_writer import SegmentWriter
from spark_log.record.batch_header import BatchHeader
from spark_log.record.rebase import rebase

_JOINED_RECORDS = 65_536
_JOINED_BYTES = 16_777_216
"""Small Arrow batches are joined up to this: below it, each costs more than its records do."""

_Batches = tuple[tuple[BatchHeader, ...], pa.RecordBatch]
"""Batch headers, relative to some base offset, and the rows of all of them."""


def merge(
    directory: PartitionDirectory,
    view: LogView,
    first: int,
    last: int,
    *,
    compression: str = "none",
    sync: bool = True,
) -> SegmentName:
    """Rewrite live segments that follow each other into one, and return its name.

    Any number may merge at once: where their segments overlap, all hold the same. Whole batches are
    taken, so that a log start inside of one keeps what lies before it in the batch. Memory is that
    of one joined Arrow batch, and on an object store the end of each segment, up to 64 KiB.

    Args:
        directory: the partition's.
        view: of its log.
        first: index of the first segment in ``view.live.segments``.
        last: index of the last one.
        compression: of the new segment: ``none``, ``lz4`` or ``zstd``.
        sync: whether it is durable on return, on a local file system.

    Raises:
        OffsetOutOfRangeError: the log's start has passed the first one meanwhile.
        CorruptRecordError: one of them is damaged.
        InvalidRecordError: together they are more than a segment holds: 4 GiB, 2^31 offsets.
        NotFoundError: one of them was freed while it was read; observe the log anew.
        UnknownOutcomeError: the new segment may be there; it does no harm, and may be made again.
        StorageError: it was not made.
    """
    segments = view.live.segments[first : last + 1]
    start_offset = segments[0].start_offset
    end_offset = segments[-1].end_offset or view.log_end_offset
    readers = [
        (position, reader) for position, _, reader in directory.walk(view, start_offset, end_offset)
    ]
    base_offset = _base_offset(readers[0][1], start_offset)
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
        compression=compression,
        with_offsets=with_offsets,
    )
    try:
        batches = (
            rebase(headers, records, reader.base_offset - base_offset, with_offsets=with_offsets)
            for reader, headers, records in _live_batches(directory, view, readers, end_offset)
        )
        for headers, records in _joined(batches):
            writer.write_rewritten(records, headers)
        segment = writer.finish()
        with suppress(AlreadyExistsError):  # then another one has made the same
            path = directory.file_path(name.log)
            directory.store.put_if_absent(path, segment.staged, sync=sync)
            with suppress(StorageError):  # derived: readers do without
                for derived, data in segment.derived_files(name):
                    directory.store.put(directory.file_path(derived), data)
    finally:
        writer.discard()
    return name


def _live_batches(
    directory: PartitionDirectory,
    view: LogView,
    readers: Iterable[tuple[int, SegmentReader]],
    end_offset: int,
) -> Iterator[tuple[SegmentReader, tuple[BatchHeader, ...], pa.RecordBatch]]:
    """Yield the batches of segments, each segment's only if it is in the log when it is read."""
    for position, reader in readers:
        try:
            for headers, records in _batches_from(reader, position, end_offset):
                yield reader, headers, records
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
        raise NotFoundError(f"{reader.path} was rewritten or freed meanwhile", path=reader.path)
    return view


def _base_offset(reader: SegmentReader, start_offset: int) -> int:
    """Return where the batch begins that an offset lies in; the offset, if all of it is gone."""
    headers, _ = next(_batches_from(reader, start_offset, reader.end_offset), ((), None))
    first = reader.base_offset + headers[0].base_offset_delta if headers else start_offset
    return min(first, start_offset)


def _batches_from(reader: SegmentReader, start_offset: int, end_offset: int) -> Iterator[_Batches]:
    """Yield the batches of a segment that have offsets from ``start_offset`` to the end.

    Those of one Arrow batch come together.
    """
    start, end = start_offset - reader.base_offset, end_offset - reader.base_offset
    for ordinal in range(reader.batch_count):
        headers = reader.headers(ordinal)
        if headers[-1].last_offset_delta < start or headers[0].base_offset_delta >= end:
            continue
        headers, records = reader.read_batch(ordinal)
        before = [header for header in headers if header.last_offset_delta < start]
        wanted = tuple(
            header for header in headers[len(before) :] if header.base_offset_delta < end
        )
        first_row = sum(header.record_count for header in before)
        rows = sum(header.record_count for header in wanted)
        yield wanted, records.slice(first_row, rows)


def _joined(batches: Iterable[_Batches]) -> Iterator[_Batches]:
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
