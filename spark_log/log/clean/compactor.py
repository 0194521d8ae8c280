"""Compaction: only the last record of each key is retained (protocol W9, W11).

Kafka's rules (``LogCleaner``, ``LogCleanerManager``):

- Offsets never change, and the last record of a key is always retained.
- A tombstone (a record without a value) is retained for ``delete.retention.ms`` after the first
  compaction that read it, so that a reader that began before the compaction sees it.
- A record without a key is removed.
- The last batch of each producer is retained, if necessary without records, so that a late retry
  is recognised.
- Records of aborted transactions are removed, and replace no other record. A transaction's marker
  is retained while the log has a batch of the transaction, and then for ``delete.retention.ms``.
- The log is compacted only up to the first transaction without a marker (`read_transactions`).

A compaction rewrites the cleanable range from the log's start, segment by segment. Unlike Kafka it
has no checkpoint file: the segments of the newest compaction at the log's start are clean
(`generations`, ADR 16). A segment that an older compaction puts late is dirty, or is not part of
the log. A crash leaves the new segments that were written, and the old ones that were not replaced
yet.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby, takewhile

import pyarrow as pa

from spark_log.errors import NotFoundError
from spark_log.log.clean.batch_filter import BatchFilter
from spark_log.log.clean.compacted_segment import (
    CompactedSegment,
    OnProgress,
    OpenSegment,
    group_segments,
)
from spark_log.log.clean.delete_horizons import DeleteHorizons
from spark_log.log.clean.generations import take_generation
from spark_log.log.clean.log_table import NO_LIMITS, LogTable
from spark_log.log.clean.log_to_clean import is_recently_compacted, log_to_clean
from spark_log.log.clean.offset_map import OffsetMap
from spark_log.log.clean.retained_markers import read_transactions
from spark_log.log.directory import LogView, OpenedSegments, open_in_order
from spark_log.log.local_log import LocalLog
from spark_log.log.producers import NOT_LISTED_US, OpenTransaction, ProducerState, TransactionIndex
from spark_log.log.rewrite import live_batches
from spark_log.record import BatchHeader
from spark_log.storage import storage_time_us
from spark_log.util import random_id

_log = logging.getLogger(__name__)

DEDUPE_BUFFER_BYTES = 134_217_728
"""Kafka's default of ``log.cleaner.dedupe.buffer.size``."""

MIN_DEDUPE_BUFFER_BYTES = 1_048_576
"""Minimum buffer size. A smaller buffer would need many more passes, and save little memory."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a compaction.

    Attributes:
        start_offset: the log start offset, at which the compaction began.
        first_dirty_offset: the offset before which each key already had only one record.
        end_offset: the offset before which each key has only one record now, if `is_complete`.
        records_read: the number of records in the segments to rewrite.
        records_written: the number of records in the new segments.
        bytes_read: the size of the segments to rewrite.
        bytes_written: the size of the new segments.
        segments_read: the number of segments to rewrite.
        segments_written: the number of new segments.
        tombstones_removed: number of tombstones that were removed after ``delete.retention.ms``.
        is_complete: whether the compaction was done; False if it gave up because another compaction
            was running.
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

    def with_rewritten(
        self, rewrite: CompactedSegment, batch_filter: BatchFilter
    ) -> CompactionResult:
        """Return the result with one more new segment, and the tombstones removed so far."""
        return replace(
            self,
            records_written=self.records_written + rewrite.records_written,
            bytes_written=self.bytes_written + rewrite.bytes_written,
            segments_written=self.segments_written + 1,
            tombstones_removed=batch_filter.tombstones_removed,
        )


def compact(
    log: LocalLog,
    *,
    now_us: int,
    memory_bytes: int = DEDUPE_BUFFER_BYTES,
    on_progress: OnProgress = lambda done_bytes: None,
    limit_offset: float = math.inf,
    opened: OpenedSegments | None = None,
    even_if_clean: bool = False,
    table: LogTable | None = None,
) -> CompactionResult:
    """Compact the cleanable range of a log, even if little of it is dirty.

    Nothing is done within ``file.delete.delay.ms`` after the previous compaction.

    The process may be killed at any point. Any number of compactions may run at once, together with
    writers, readers, mergers and retention. Memory: ``memory_bytes``, one joined Arrow batch, and
    one bit for each record in a temporary file; on an object store also the segments of up to
    1 MiB, each read once.

    Args:
        log: the partition's log, opened with the topic's config.
        now_us: the storage's time, or earlier, microseconds since the epoch.
        memory_bytes: memory for the keys of the log (``log.cleaner.dedupe.buffer.size``).
        on_progress: called with numbers of bytes as they are read and written; may block.
        limit_offset: the offset after which records are not compacted, and replace no other record.
        opened: segments that are open; None if none are.
        even_if_clean: whether to compact a log that has no dirty part.
        table: the table of this log; None if the topic has none.

    Raises:
        CorruptRecordError: a segment is damaged or missing; no records were lost.
        NotFoundError: a segment was deleted while it was read; compact again.
        OffsetOutOfRangeError: the log start offset has moved meanwhile; compact again.
        StorageError: the storage does not answer; finished segments stay; compact again.
    """
    found, view = log_to_clean(log, log.observe(), now_us=now_us, limit_offset=limit_offset)
    done = CompactionResult(view.log_start_offset, found.first_dirty_offset, found.end_offset)
    is_clean = found.first_dirty_offset == found.end_offset and not even_if_clean
    if is_clean or is_recently_compacted(log, view, found, now_us):
        return done
    readers = _open(log, view, found.end_offset, opened)
    following = (
        (segment.start_offset, log.files.open_listed(segment, view.observed_ms))
        for segment in view.live.segments[len(readers) :]
    )
    transactions, row_counts = read_transactions(readers, following)
    readers = _decided(readers, transactions.first_open)
    end_offset = readers[-1][1].end_offset if readers else done.start_offset
    done = replace(done, end_offset=max(end_offset, found.first_dirty_offset))
    if end_offset <= done.start_offset or (
        end_offset <= found.first_dirty_offset and not even_if_clean
    ):
        return done
    limits = NO_LIMITS if table is None else table.compaction_limits(now_us)
    own_end = done.end_offset if limits.names_end else None
    generation = take_generation(log.files, view, own_end=own_end)
    if generation is None:
        return replace(done, is_complete=False)
    rows = sum(row_counts[: len(readers)])
    size_bytes = sum(reader.size_bytes for _, reader in readers)
    done = replace(done, records_read=rows, bytes_read=size_bytes, segments_read=len(readers))
    compaction_id = random_id()
    raw_bytes: Counter[str] = Counter()
    with OffsetMap(rows, size_bytes, memory_bytes=memory_bytes) as offset_map:
        for reader, headers, records in live_batches(log.files, view, readers, on_progress):
            raw_bytes[reader.path] += records.nbytes
            _add_keys(offset_map, transactions, reader.base_offset, headers, records)
        open_segments = zip(view.live.segments, (reader for _, reader in readers), strict=False)
        batch_filter = batch_filter_of(
            log,
            view,
            offset_map,
            first_dirty_offset=found.first_dirty_offset,
            limit_offset=limit_offset,
            now_us=now_us,
            opened=OpenedSegments(open_segments),
            tombstones_from=limits.tombstones_from,
        )
        for _, reader in readers:  # reading producer state has mapped their headers
            reader.forget()
        for group in group_segments(readers, log.config.segment_bytes):
            rewrite = CompactedSegment(log, view, generation, compaction_id)
            size_bytes = sum(raw_bytes[reader.path] for _, reader in group)
            rewrite.write(group, size_bytes, batch_filter, on_progress)
            for _, reader in group:
                reader.forget()
            done = done.with_rewritten(rewrite, batch_filter)
    _log.debug(
        "%s: compacted offsets %d to %d: %d of %d records kept, %d segments into %d, generation %d",
        log.directory,
        done.start_offset,
        done.end_offset,
        done.records_written,
        done.records_read,
        done.segments_read,
        done.segments_written,
        generation,
    )
    return done


def _open(
    log: LocalLog, view: LogView, end_offset: int, opened: OpenedSegments | None
) -> list[OpenSegment]:
    """Open the segments of a view from the log's start to an offset.

    Raises:
        NotFoundError: a segment was deleted since the listing, or the listing is incomplete.
    """
    readers = []
    segments = takewhile(lambda each: each.start_offset < end_offset, view.live.segments)
    for segment, reader in open_in_order(log.files, segments, view.observed_ms, opened):
        if segment.end_offset not in (None, reader.end_offset) or reader.end_offset > end_offset:
            path = segment.file.path
            raise NotFoundError(f"{path}: the next segment does not begin where it ends", path=path)
        readers.append((segment.start_offset, reader))
    return readers


def _decided(readers: list[OpenSegment], undecided: OpenTransaction | None) -> list[OpenSegment]:
    """Return the segments before the one in which the first undecided transaction begins."""
    if undecided is None:
        return readers
    return [each for each in readers if each[1].end_offset <= undecided.first_offset]


def _add_keys(
    offset_map: OffsetMap,
    transactions: TransactionIndex,
    segment_base_offset: int,
    headers: tuple[BatchHeader, ...],
    records: pa.RecordBatch,
) -> None:
    """Add the keys of an Arrow batch, except those of markers and aborted transactions."""

    def is_user_data(header: BatchHeader) -> bool:
        base_offset = segment_base_offset + header.base_offset_delta
        return not (header.is_control or transactions.is_aborted(header, base_offset))

    keys, row = records.column("key"), 0
    for is_included, run in groupby(headers, key=is_user_data):
        count = sum(header.record_count for header in run)
        offset_map.add(keys.slice(row, count), include=is_included)
        row += count


def batch_filter_of(
    log: LocalLog,
    view: LogView,
    offset_map: OffsetMap | None,
    *,
    first_dirty_offset: int,
    limit_offset: float,
    now_us: int,
    opened: OpenedSegments,
    tombstones_from: float,
) -> BatchFilter:
    """Return the filter of the batches to rewrite, with what producer state needs of them.

    Args:
        log: the partition's log.
        view: a view of the log.
        offset_map: the keys of all rows to rewrite; None for rows that an earlier compaction has
            filtered.
        first_dirty_offset: the offset before which each key already had only one record.
        limit_offset: the offset after which records may yet be lost.
        now_us: the storage's time, or earlier, microseconds since the epoch.
        opened: segments of the view that are open.
        tombstones_from: the offset from which on no tombstone is removed.
    """
    last_offsets, marked_epochs = last_batches_of_producers(log, view, limit_offset, opened)
    # Read the clock again: the caller's time may be stale, and reading the keys may have taken
    # long. A stale time would shorten the retention of tombstones.
    compaction_time_us = max(now_us, storage_time_us(log.files.store, log.files.path))
    new_us = compaction_time_us + log.config.delete_retention_ms * 1000
    return BatchFilter(
        offset_map,
        last_offsets=last_offsets,
        marked_epochs=marked_epochs,
        horizons=DeleteHorizons(first_dirty_offset, now_us, new_us, tombstones_from),
    )


def last_batches_of_producers(
    log: LocalLog, view: LogView, limit_offset: float, opened: OpenedSegments
) -> tuple[frozenset[int], dict[int, int]]:
    """Return the batches that must be retained for producer state.

    Args:
        log: the partition's log.
        view: a view of the log.
        limit_offset: the offset after which records may yet be lost, so that they replace no other
            record.
        opened: segments of the view that are open.

    Returns:
        The last offset of each active producer; and the epoch of each producer that has only a
        marker, by producer id, so that older epochs stay fenced.
    """
    # A producer that has appended since the view was made keeps a batch more than it needs.
    state = log.producers(view, opened)
    entries = list(state.entries())
    if state.offset > limit_offset:
        active = {id_ for id_, _ in entries}
        committed = _replay_producers(log, view, limit_offset)
        entries = [(id_, entry) for id_, entry in committed.entries() if id_ in active]
    # The last run may be of an earlier epoch, from which the sequence may go on (protocol A18).
    last_offsets = frozenset(
        entry.all_runs[-1][1].end_offset - 1 for _, entry in entries if entry.all_runs
    )
    return last_offsets, {id_: entry.epoch for id_, entry in entries if not entry.runs}


def _replay_producers(log: LocalLog, view: LogView, limit_offset: float) -> ProducerState:
    """Return the producer state of the view's segments that end at or before an offset."""
    state = ProducerState(view.log_start_offset)
    for segment in view.live.segments:
        reader = log.files.open_listed(segment, view.observed_ms)
        if reader.end_offset > limit_offset:
            break
        for _, headers in reader.all_headers():
            state.replay(reader.base_offset, headers, NOT_LISTED_US)
        reader.forget()
    return state
