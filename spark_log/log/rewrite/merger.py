"""Merges neighbouring segments into one (protocol W1, W2).

The new segment ``<base>-<last>.<generation>.log`` has the same records, and batch headers with the
same producers, epochs and timestamps (consecutive small batches are joined, `joined_headers`). Or
it is a Parquet file, ``<base>-<last>.<generation>.parquet``, without the records of aborted
transactions (`aborted_batches`). It is put by put-if-absent, and is part of the log from then on;
the segments that it covers are spent and wait to be freed. A crash leaves no file that a listing
shows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from spark_log.errors import (
    AlreadyExistsError,
    CorruptRecordError,
    NotFoundError,
)
from spark_log.log.directory import LogView, PartitionDirectory
from spark_log.log.files import SegmentName
from spark_log.log.rewrite.aborted_batches import without_aborted
from spark_log.log.rewrite.joined_headers import cut_header, joined_headers
from spark_log.log.rewrite.key_indexes import IndexedParquetWriter, put_indexes
from spark_log.log.rewrite.recent_batches import RecentBatch, joined_batch
from spark_log.log.rewrite.split_batches import split_batches
from spark_log.log.segment import (
    DEFAULT_INTERVAL_BYTES,
    IsAborted,
    SegmentReader,
    SegmentSummary,
    SegmentWriter,
)
from spark_log.record import OFFSET_DELTA_FIELD, BatchHeader, ints_of, rebase_batches

if TYPE_CHECKING:
    from spark_log.values import TypedValues

_log = logging.getLogger(__name__)

KEEP_COMPRESSION: Final = "producer"
"""The setting by which a merged segment has the compression of the segments it is made of."""

_JOINED_RECORDS = 65_536
_JOINED_BYTES = 16_777_216
"""Maximum size of joined Arrow batches: reading a smaller batch is mostly overhead."""

REWRITE_POOL: Final = pa.system_memory_pool()
"""Memory pool of joined and filtered batches, which take up to 16 MB again and again. The C library
keeps such a block for the next one. Arrow's default pool returns the block to the system, which has
to clear its pages."""

_MAPPED_BYTES: Final = 33_554_432
"""Maximum bytes of a mapped file that stay in memory while the file is read."""

_Batches = tuple[tuple[BatchHeader, ...], pa.RecordBatch]
"""Batch headers, relative to a base offset, and the rows of all of them."""


def merge(
    directory: PartitionDirectory,
    view: LogView,
    first: int,
    last: int,
    *,
    compression: str = KEEP_COMPRESSION,
    index_interval_bytes: int = DEFAULT_INTERVAL_BYTES,
    sync: bool = True,
    to_parquet: IsAborted | None = None,
    typed: TypedValues | None = None,
    on_progress: Callable[[int], None] = lambda done_bytes: None,
) -> SegmentSummary:
    """Merge consecutive live segments into one; return its summary. One segment may be merged, too.

    Any number of merges may run at once: merged segments that overlap have the same records, except
    those of aborted transactions. For this reason a merge never includes a compacted segment, and a
    compacted segment always takes precedence over a merged one (ADR 16). The first batch is merged
    as a whole, even if the log start offset is inside of it; if another file replaces its first
    part, only the rest of it is merged. Memory: one joined Arrow batch, up to
    64 KiB for each segment, and 32 MiB of mapped files.

    Args:
        directory: the partition's directory.
        view: a view of its log.
        first: index of the first segment in ``view.live.segments``.
        last: index of the last segment.
        compression: compression of the new segment: ``none``, ``lz4``, ``zstd``, or ``producer``
            for the compression of most bytes in the old segments.
        index_interval_bytes: the topic's ``index.interval.bytes``.
        sync: whether the new segment is durable on return, on a local file system. It replaces
            durable segments, whatever the topic's ``flush.on.append``; use False only if these
            segments are not freed.
        to_parquet: function that returns whether a batch was aborted, to write a Parquet file
            without the records of such batches; their headers stay. All transactions in the
            segments must have their markers. None writes an Arrow file, with all records.
        typed: the typed columns of a Parquet file; None if the topic has none.
        on_progress: called with numbers of bytes as they are read and written; may block.

    Raises:
        OffsetOutOfRangeError: the log start offset has passed the first segment meanwhile.
        CorruptRecordError: a segment is damaged.
        InvalidRecordError: together the segments are too large for one (4 GiB, 2^31 offsets).
        NotFoundError: a segment was freed, or another process has merged or compacted it; list the
            log again.
        UnknownOutcomeError: the new segment may exist. This does no harm; it may be written again.
        StorageError: the new segment was not written.
    """
    began_ms = directory.clock.monotonic_ms()
    segments = view.live.segments[first : last + 1]
    start_offset = segments[0].start_offset
    end_offset = segments[-1].end_offset or view.log_end_offset
    readers = []
    for position, each, reader in directory.walk(view, start_offset, end_offset):
        if each.name.is_compacted:
            raise _rewritten_error(reader.path)
        readers.append((position, reader))
        on_progress(0)
    if not readers or readers[-1][1].end_offset < end_offset:  # only if the topic is deleted
        raise _rewritten_error(segments[-1].file.path)
    if readers[-1][1].end_offset > end_offset:  # in the middle of a batch, perhaps
        raise _rewritten_error(readers[-1][1].path)
    is_log_start = start_offset == view.log_start_offset
    base_offset = first_base_offset(readers[0][1], start_offset) if is_log_start else start_offset
    readers[0] = base_offset, readers[0][1]
    name = SegmentName(
        base_offset,
        end_offset - 1,
        1 + max(segment.name.generation for segment in segments),
        is_parquet=to_parquet is not None,
    )
    with_offsets = name.is_parquet or any(reader.has_gaps for _, reader in readers)
    writer: SegmentWriter | IndexedParquetWriter
    if name.is_parquet:
        writer = IndexedParquetWriter(directory, name, typed)
    else:
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
        batches: Iterator[_Batches] = (
            rebase_batches(
                headers, records, reader.base_offset - base_offset, with_offsets=with_offsets
            )
            for reader, headers, records in live_batches(directory, view, readers, on_progress)
        )
        if to_parquet is not None:
            kept = (without_aborted(*each, base_offset, to_parquet) for each in batches)
            batches = moderate_batches(kept)
        written = 0
        for headers, records in join_batches(batches):
            writer.write_rewritten(records, joined_headers(headers, records))
            record_count += records.num_rows
            on_progress(writer.size_bytes - written)
            written = writer.size_bytes
        merged = _put(directory, name, writer, record_count, sync=sync)
    finally:
        writer.discard()
    _log_merged(directory, [reader.size_bytes for _, reader in readers], merged, began_ms)
    return merged


def merge_recent(
    directory: PartitionDirectory,
    base_offset: int,
    batches: Sequence[RecentBatch],
    *,
    index_interval_bytes: int = DEFAULT_INTERVAL_BYTES,
    on_progress: Callable[[int], None] = lambda done_bytes: None,
) -> SegmentSummary:
    """Merge consecutive plain segments whose records are in memory; return the new one's summary.

    The new segment has the records and the headers that `merge` gives it. The files are not read,
    but each has to exist.

    Args:
        directory: the partition's directory.
        base_offset: base offset of the first segment.
        batches: the segments.
        index_interval_bytes: the topic's ``index.interval.bytes``.
        on_progress: called with numbers of bytes as they are written; may block.

    Raises:
        NotFoundError: a segment does not exist any more.
        UnknownOutcomeError: the new segment may exist. This does no harm; it may be written again.
        StorageError: the new segment was not written.
    """
    began_ms = directory.clock.monotonic_ms()
    _check_exist(directory, [base_offset, *(batch.end_offset for batch in batches[:-1])])
    end_offset = batches[-1].end_offset
    name = SegmentName(base_offset, end_offset - 1, 1)
    writer = SegmentWriter(
        directory.store,
        directory.path,
        topic_id=directory.topic_id,
        partition=directory.partition,
        compression=_of_most_bytes((batch.compression, batch.size_bytes) for batch in batches),
        index_interval_bytes=index_interval_bytes,
        name=name,
    )
    try:
        start_offset = base_offset
        while start_offset < end_offset:
            headers, records = joined_batch(base_offset, start_offset, batches, _JOINED_RECORDS)
            written = writer.size_bytes
            writer.write_rewritten(records, joined_headers(headers, records))
            start_offset += records.num_rows
            on_progress(writer.size_bytes - written)
        merged = _put(directory, name, writer, end_offset - base_offset, sync=True)
    finally:
        writer.discard()
    _log_merged(directory, [batch.size_bytes for batch in batches], merged, began_ms)
    return merged


def _check_exist(directory: PartitionDirectory, base_offsets: Iterable[int]) -> None:
    """Check that no file of plain segments is missing. The store is local.

    Raises:
        NotFoundError: one of them is missing.
    """
    store = directory.store
    for base_offset in base_offsets:
        path = directory.file_path(SegmentName(base_offset).file_name)
        if not store.shows_gone:
            store.head(path)
        elif store.is_gone(path):
            raise NotFoundError(f"{path}: no such file", path=path)


def write_home(
    directory: PartitionDirectory,
    base_offset: int,
    batches: Iterable[_Batches],
    *,
    compression: str,
    index_interval_bytes: int = DEFAULT_INTERVAL_BYTES,
) -> SegmentName:
    """Put records that another kind of file has, as a rewritten segment; return its name.

    Any number of processes may do so at once: segments that overlap have the same records at the
    same offsets.

    Args:
        directory: the partition's directory.
        base_offset: the first record's offset.
        batches: headers relative to this offset, and the rows of all of them, in order and without
            gaps; at least one. Their checksums have been checked.
        compression: compression of the segment: ``none``, ``lz4`` or ``zstd``.
        index_interval_bytes: the topic's ``index.interval.bytes``.

    Raises:
        InvalidRecordError: together the records are too large for one segment.
        UnknownOutcomeError: the segment may exist. This does no harm; it may be written again.
        StorageError: the segment was not written.
    """
    batches = list(batches)
    record_count = batches[-1][0][-1].last_offset_delta + 1
    name = SegmentName(base_offset, base_offset + record_count - 1, 1)
    writer = SegmentWriter(
        directory.store,
        directory.path,
        topic_id=directory.topic_id,
        partition=directory.partition,
        compression=compression,
        index_interval_bytes=index_interval_bytes,
        name=name,
    )
    try:
        for headers, records in join_batches(batches):
            writer.write_rewritten(records, joined_headers(headers, records))
        _put(directory, name, writer, record_count, sync=True)
    finally:
        writer.discard()
    return name


def _put(
    directory: PartitionDirectory,
    name: SegmentName,
    writer: SegmentWriter | IndexedParquetWriter,
    record_count: int,
    *,
    sync: bool,
) -> SegmentSummary:
    """Put the segment that was written, with its indexes, unless another merge has put it."""
    assert name.last_offset is not None
    segment = writer.finish()
    path = directory.file_path(name.file_name)
    try:
        directory.store.put_if_absent(path, segment.staged, sync=sync)
    except AlreadyExistsError:  # another merge wrote the same, and may not have synced it
        directory.store.sync(path)
    else:
        put_indexes(directory, name, writer, segment)
    return SegmentSummary(
        name=name,
        end_offset=name.last_offset + 1,
        record_count=record_count,
        size_bytes=segment.size_bytes,
        min_timestamp_us=segment.min_timestamp_us,
        max_timestamp_us=segment.max_timestamp_us,
    )


def _log_merged(
    directory: PartitionDirectory,
    sizes_bytes: Sequence[int],
    merged: SegmentSummary,
    began_ms: float,
) -> None:
    _log.debug(
        "%s: merged %d segments of %d bytes into %s of %d bytes, in %d ms",
        directory.path,
        len(sizes_bytes),
        sum(sizes_bytes),
        merged.name.file_name,
        merged.size_bytes,
        directory.clock.monotonic_ms() - began_ms,
    )


def compression_of(readers: Iterable[tuple[int, SegmentReader]]) -> str:
    """Return the compression that most bytes of some segments have."""

    def sizes() -> Iterator[tuple[str, int]]:
        for _, reader in readers:
            yield reader.compression(0), reader.size_bytes
            reader.forget()

    return _of_most_bytes(sizes())


def _of_most_bytes(sizes: Iterable[tuple[str, int]]) -> str:
    """Return the compression that has most bytes, of compressions and sizes of segments."""
    bytes_of: Counter[str] = Counter()
    for compression, size_bytes in sizes:
        bytes_of[compression] += size_bytes
    return bytes_of.most_common(1)[0][0]


def live_batches(
    directory: PartitionDirectory,
    view: LogView,
    readers: Iterable[tuple[int, SegmentReader]],
    on_progress: Callable[[int], None],
) -> Iterator[tuple[SegmentReader, tuple[BatchHeader, ...], pa.RecordBatch]]:
    """Yield the batches of segments; each segment must be in the log when it is read.

    Raises:
        CorruptRecordError: a segment is damaged.
        NotFoundError: a segment was rewritten or freed.
    """
    # Joined batches are read again when they are written, which maps their pages again. Therefore
    # each reader forgets its pages twice.
    recent: list[SegmentReader] = []
    earlier: list[SegmentReader] = []
    passed_bytes = 0
    for position, reader in readers:
        try:
            for headers, records in _batches_from(reader, position):
                yield reader, headers, records
            reader.forget()
            recent.append(reader)
            passed_bytes += reader.size_bytes
            if passed_bytes > _JOINED_BYTES:
                for each in earlier:
                    each.forget()
                earlier, recent, passed_bytes = recent, [], 0
            on_progress(reader.size_bytes)
        except CorruptRecordError:
            _check_is_live(directory, view, reader)
            raise
        view = _check_is_live(directory, view, reader)


def _check_is_live(directory: PartitionDirectory, view: LogView, reader: SegmentReader) -> LogView:
    """Check that the segment of a reader was not freed; return the view, or a newer one.

    A name that is in the log now was never freed, so the bytes that were read are the segment's.

    Raises:
        NotFoundError: the segment is not in the log any more.
    """
    if directory.store.is_mapped or not directory.is_outdated(view.observed_ms):
        return view
    view = directory.observe()
    live = {directory.file_path(segment.name.file_name) for segment in view.live.segments}
    if reader.path not in live:
        raise _rewritten_error(reader.path)
    return view


def _rewritten_error(path: str) -> NotFoundError:
    return NotFoundError(f"{path} was rewritten or freed after the log was listed", path=path)


def first_base_offset(reader: SegmentReader, start_offset: int) -> int:
    """Return the base offset of the batch with an offset; the offset itself if no batch has it."""
    for headers in map(reader.headers, range(reader.batch_count)):
        for header in headers:
            if reader.base_offset + header.last_offset_delta >= start_offset:
                return min(reader.base_offset + header.base_offset_delta, start_offset)
    return start_offset


def _batches_from(reader: SegmentReader, start_offset: int) -> Iterator[_Batches]:
    """Yield the batches of a segment from an offset on; batches of one Arrow batch together.

    The whole segment is read and checked, also before that offset: a rewrite deletes the rest, and
    a header can be checked only together with its records.
    """
    start = start_offset - reader.base_offset
    forgotten = 0
    previous: BatchHeader | None = None
    for ordinal in reader.in_order():
        if reader.position(ordinal) > forgotten + _MAPPED_BYTES:
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
        # Another merge, which overlaps this one, may have joined batches across this offset.
        if wanted[0].base_offset_delta < start:
            wanted, records = _cut(wanted, records, start)
        yield wanted, records


def _cut(headers: tuple[BatchHeader, ...], records: pa.RecordBatch, start: int) -> _Batches:
    """Remove the records before an offset delta that is inside of the first batch."""
    first, skipped = headers[0], start - headers[0].base_offset_delta
    skipped_rows = skipped
    if OFFSET_DELTA_FIELD.name in records.schema.names:
        deltas = ints_of(records.column(OFFSET_DELTA_FIELD.name), np.int32)
        deltas = deltas[: first.record_count]
        skipped_rows = int(np.searchsorted(deltas, start))
    rows = records.slice(skipped_rows, first.record_count - skipped_rows)
    return (cut_header(first, skipped, rows), *headers[1:]), records.slice(skipped_rows)


def moderate_batches(batches: Iterable[_Batches]) -> Iterator[_Batches]:
    """Yield batches of which none is larger than a joined Arrow batch, for row groups.

    Args:
        batches: headers and rows, with the column ``offset_delta``.
    """
    for headers, records in batches:
        yield from split_batches(headers, records, _JOINED_RECORDS, _JOINED_BYTES)


def join_batches(batches: Iterable[_Batches]) -> Iterator[_Batches]:
    """Join small Arrow batches. No batch is split."""
    headers: list[BatchHeader] = []
    pieces: list[pa.RecordBatch] = []
    joined_records = joined_bytes = 0
    for more_headers, records in batches:
        joined_records += records.num_rows
        joined_bytes += records.nbytes
        if pieces and (joined_records > _JOINED_RECORDS or joined_bytes > _JOINED_BYTES):
            yield tuple(headers), pa.concat_batches(pieces, memory_pool=REWRITE_POOL)
            headers, pieces = [], []
            joined_records, joined_bytes = records.num_rows, records.nbytes
        headers += more_headers
        pieces.append(records)
    if pieces:
        yield tuple(headers), pa.concat_batches(pieces, memory_pool=REWRITE_POOL)
