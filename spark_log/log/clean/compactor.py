"""Compaction: of the records of one key only the last one stays (DESIGN.md, section 6).

Kafka's rules (``LogCleaner``, ``LogCleanerManager``): offsets never change; the last record of a
key is never left out; a tombstone, a record without value, stays for ``delete.retention.ms`` after
the first compaction that met it, so that a reader who began before learns of it; a record without a
key goes; the last batch of every producer stays, if need be without records, so that a late retry
is recognised. Records of aborted transactions go and replace nothing; a transaction's marker stays
until nothing else of it is left, and then for ``delete.retention.ms``; from the first transaction
on that is not decided nothing is compacted (`cleaned_transaction_metadata`). A compaction rewrites
all that may be compacted, from the log's start on, file by file.

What is different: there is no checkpoint file. Clean is what the newest compaction wrote, from the
log's start on (`generations`, ADR 16): whatever an older one puts late is dirty, or does not
count. A crash leaves the files that were written, and those that they did not replace.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa

from spark_log.errors import NotFoundError
from spark_log.log.clean.batch_filter import BatchFilter
from spark_log.log.clean.cleaned_transaction_metadata import (
    CleanedTransactionMetadata,
    read_transactions,
)
from spark_log.log.clean.compacted_segment import CompactedSegment, OnProgress, OpenSegment, groups
from spark_log.log.clean.generations import take_generation
from spark_log.log.clean.log_to_clean import is_recently_compacted, log_to_clean
from spark_log.log.clean.merger import live_batches
from spark_log.log.clean.offset_map import OffsetMap
from spark_log.log.partition_directory import LogView
from spark_log.log.partition_log import PartitionLog
from spark_log.record.batch_header import (
    BatchHeader,
)
from spark_log.storage import storage_time_us

DEDUPE_BUFFER_BYTES = 134_217_728
"""Kafka's default of ``log.cleaner.dedupe.buffer.size``."""

MIN_DEDUPE_BUFFER_BYTES = 1_048_576
"""Less takes more passes than it saves memory."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did.

    Attributes:
        start_offset: of the log, where it began.
        first_dirty_offset: before it each key had one record already.
        end_offset: before it each key has one record now, if `is_complete`.
        records_read: of all segments that were to be rewritten.
        records_written: of those that were.
        bytes_read: likewise, of files.
        bytes_written: likewise.
        segments_read: how many there were.
        segments_written: how many took their place.
        tombstones_removed: those whose time had passed.
        is_complete: False where another one was at work, and this one left it to that.
    """

    start_offset: int
    first_dirty_offset: int
    end_offset: int
    records_read: int = 0
    records_written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    segments_read: int = 0
    segments_written: int = 0
    tombstones_removed: int = 0
    is_complete: bool = True


def compact(
    log: PartitionLog,
    *,
    now_us: int,
    memory_bytes: int = DEDUPE_BUFFER_BYTES,
    on_progress: OnProgress = lambda done_bytes: None,
) -> Compaction:
    """Compact what may be compacted, however little of it is dirty.

    Nothing is done within ``file.delete.delay.ms`` after the compaction before.

    May be killed at any point and be run by any number at once, beside writers, readers, mergers
    and retention. Memory is what is said, that of one joined Arrow batch, and one bit for each
    record in a temporary file.

    Args:
        log: the partition's; its topic's settings count.
        now_us: the storage's time, or earlier, microseconds since the epoch.
        memory_bytes: for the keys of the log (``log.cleaner.dedupe.buffer.size``).
        on_progress: called with numbers of bytes as they are read and written; may take its time.

    Raises:
        CorruptRecordError: a segment is damaged or missing; nothing is replaced by less.
        NotFoundError: a segment was freed while it was read; compact again.
        OffsetOutOfRangeError: the log's start has moved meanwhile; likewise.
        StorageError: the storage does not answer; what was done stays, and may be done again.
    """
    found, view = log_to_clean(log, log.observe(), now_us=now_us)
    done = Compaction(view.log_start_offset, found.first_dirty_offset, found.end_offset)
    if found.first_dirty_offset == found.end_offset or is_recently_compacted(
        log, view, found, now_us
    ):
        return done
    readers = _open(log, view, found.end_offset)
    behind = (
        (segment.start_offset, log.files.open_listed(segment, view.observed_ms))
        for segment in view.live.segments[len(readers) :]
    )
    transactions, row_counts = read_transactions(readers, behind)
    readers = _decided(readers, transactions.first_unstable_offset)
    end_offset = readers[-1][1].end_offset if readers else done.start_offset
    done = replace(done, end_offset=max(end_offset, found.first_dirty_offset))
    if end_offset <= found.first_dirty_offset:
        return done
    generation = take_generation(log.files, view)
    if generation is None:
        return replace(done, is_complete=False)
    rows = sum(row_counts[: len(readers)])
    size_bytes = sum(reader.size_bytes for _, reader in readers)
    done = replace(done, records_read=rows, bytes_read=size_bytes, segments_read=len(readers))
    raw_bytes: Counter[str] = Counter()
    with OffsetMap(rows, size_bytes, memory_bytes=memory_bytes) as latest:
        for reader, headers, records in live_batches(log.files, view, readers, on_progress):
            raw_bytes[reader.path] += records.nbytes
            _take_in(latest, transactions, reader.base_offset, headers, records)
        last_offsets, marked_epochs = _last_of_producers(log)
        for _, reader in readers:  # whose headers that has read
            reader.forget()
        batch_filter = BatchFilter(
            latest,
            first_dirty_offset=found.first_dirty_offset,
            last_offsets=last_offsets,
            marked_epochs=marked_epochs,
            now_us=now_us,
            # Who calls may have stood still since it asked for the time, and the keys may have
            # taken long: tombstones would have less than theirs.
            compaction_time_us=max(now_us, storage_time_us(log.files.store, log.files.path)),
            delete_retention_ms=log.config.delete_retention_ms,
        )
        for group in groups(readers, log.config.segment_bytes):
            rewrite = CompactedSegment(log, view, generation)
            size_bytes = sum(raw_bytes[reader.path] for _, reader in group)
            rewrite.write(group, size_bytes, batch_filter, on_progress)
            for _, reader in group:
                reader.forget()
            done = replace(
                done,
                records_written=done.records_written + rewrite.records_written,
                bytes_written=done.bytes_written + rewrite.bytes_written,
                segments_written=done.segments_written + 1,
                tombstones_removed=batch_filter.tombstones_removed,
            )
    return done


def _open(log: PartitionLog, view: LogView, end_offset: int) -> list[OpenSegment]:
    """Open the segments of a view, of this one alone, from the log's start to an offset.

    Raises:
        NotFoundError: one was freed since, or the listing left something out.
    """
    readers = []
    for segment in view.live.segments:
        if segment.start_offset >= end_offset:
            break
        reader = log.files.open_listed(segment, view.observed_ms)
        if segment.end_offset not in (None, reader.end_offset) or reader.end_offset > end_offset:
            path = segment.file.path
            raise NotFoundError(f"{path}: the log goes on elsewhere than where it ends", path=path)
        readers.append((segment.start_offset, reader))
    return readers


def _decided(readers: list[OpenSegment], undecided_offset: int | None) -> list[OpenSegment]:
    """Return the segments before the one that an undecided transaction begins in."""
    if undecided_offset is None:
        return readers
    return [each for each in readers if each[1].end_offset <= undecided_offset]


def _take_in(
    latest: OffsetMap,
    transactions: CleanedTransactionMetadata,
    segment_base_offset: int,
    headers: tuple[BatchHeader, ...],
    records: pa.RecordBatch,
) -> None:
    """Take in the keys of an Arrow batch that are users', and not of aborted transactions."""

    def counts(header: BatchHeader) -> bool:
        base_offset = segment_base_offset + header.base_offset_delta
        return not (header.is_control or transactions.is_aborted(header, base_offset))

    keys, row = records.column("key"), 0
    for is_counted, run in groupby(headers, key=counts):
        count = sum(header.record_count for header in run)
        latest.add(keys.slice(row, count), counts=is_counted)
        row += count


def _last_of_producers(log: PartitionLog) -> tuple[frozenset[int], dict[int, int]]:
    """Return what has to stay of producers, though its records go.

    Returns:
        The offset of the last record of each producer that the log remembers; and the epoch of
        those of which only a marker tells it, so that older ones stay fenced.
    """
    entries = list(log.producers().entries())
    last_offsets = frozenset(entry.runs[-1].end_offset - 1 for _, entry in entries if entry.runs)
    return last_offsets, {id_: entry.epoch for id_, entry in entries if not entry.runs}
