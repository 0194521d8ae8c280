"""Compaction: of the records of one key only the last one stays (DESIGN.md, section 6).

Kafka's rules (``LogCleaner``, ``LogCleanerManager``): offsets never change; the last record of a
key is never left out; a tombstone, a record without value, stays for ``delete.retention.ms`` after
the first compaction that met it, so that a reader who began before learns of it; a record without a
key goes; the last batch of every producer stays, if need be without records, so that a late retry
is recognised. Records of aborted transactions go and replace nothing; a transaction's marker stays
until nothing else of it is left, and then for ``delete.retention.ms``; from the first transaction
on that is not decided nothing is compacted (`log.decided_transactions`). A compaction rewrites all
that may be compacted, from the log's start on, file by file.

What is different: there is no checkpoint file. Clean is what the newest compaction wrote, from the
log's start on (`log.generations`, ADR 16): whatever an older one puts late is dirty, or does not
count. A crash leaves the files that were written, and those that they did not replace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa

from spark_log.errors import AlreadyExistsError, NotFoundError, StorageError
from spark_log.log.batch_filter import BatchFilter
from spark_log.log.decided_transactions import DecidedTransactions, transactions_of
from spark_log.log.file_deletion import COARSE_US, storage_time_us
from spark_log.log.file_names import SegmentName
from spark_log.log.generations import take_generation
from spark_log.log.latest_records import LatestRecords
from spark_log.log.merger import KEEP_COMPRESSION, compression_of, joined, live_batches
from spark_log.log.partition_directory import LogView
from spark_log.log.partition_log import PartitionLog
from spark_log.log.segment import SegmentReader
from spark_log.log.segment_writer import MAX_SEGMENT_BYTES, MAX_SEGMENT_RECORDS, SegmentWriter
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

Step = Callable[[int], None]
"""Called with numbers of bytes that were read and written; may take its time."""

DEDUPE_BUFFER_BYTES = 134_217_728
"""Kafka's default of ``log.cleaner.dedupe.buffer.size``."""

MIN_DEDUPE_BUFFER_BYTES = 1_048_576
"""Less takes more passes than it saves memory."""


_FILLED = 0.9
"""Of a file that holds as much as it may: the rest is offsets, headers and padding."""


@dataclass(frozen=True, slots=True)
class Cleanable:
    """What of a log may be compacted (``LogCleanerManager.cleanableOffsets``).

    Attributes:
        first_dirty_offset: before it each key has one record: the newest compaction wrote it.
        end_offset: from it on nothing may be compacted yet; equal to the former: nothing is to do.
        clean_bytes: of the segments before the former.
        dirty_bytes: of those between the two.
        is_overdue: whether a record has waited for longer than ``max.compaction.lag.ms``.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """The share of bytes that are dirty; 0 where there are none."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


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


def cleanable(log: PartitionLog, view: LogView, *, now_us: int) -> tuple[Cleanable, LogView]:
    """Return what of a log may be compacted, and the view that this is told of.

    Not the last segment, which is Kafka's active one, and nothing from the first segment on that
    has a record younger than ``min.compaction.lag.ms``.

    Args:
        log: the partition's.
        view: of it.
        now_us: microseconds since the epoch.

    Raises:
        CorruptRecordError: a segment is damaged or missing.
        StorageError: the storage does not answer.
    """
    summaries, view = log.segments(view)
    first_dirty = _first_dirty_offset(view)
    young_us = now_us - log.config.min_compaction_lag_ms * 1000
    overdue_us = now_us - log.config.max_compaction_lag_ms * 1000
    clean_bytes = dirty_bytes = 0
    end_offset, is_overdue = view.log_start_offset, False
    for summary in summaries[:-1]:
        if summary.end_offset > first_dirty and (
            log.config.min_compaction_lag_ms and summary.max_timestamp_us > young_us
        ):
            break
        end_offset = summary.end_offset
        if end_offset <= first_dirty:
            clean_bytes += summary.size_bytes
            continue
        dirty_bytes += summary.size_bytes
        oldest_us = summary.min_timestamp_us
        if oldest_us is None:
            oldest_us = summary.max_timestamp_us
        is_overdue |= 0 < oldest_us < overdue_us
    end_offset = max(end_offset, first_dirty)
    return Cleanable(first_dirty, end_offset, clean_bytes, dirty_bytes, is_overdue), view


def compact(
    log: PartitionLog,
    *,
    now_us: int,
    memory_bytes: int = DEDUPE_BUFFER_BYTES,
    step: Step = lambda done_bytes: None,
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
        step: called with numbers of bytes as they are read and written; may take its time.

    Raises:
        CorruptRecordError: a segment is damaged or missing; nothing is replaced by less.
        NotFoundError: a segment was freed while it was read; compact again.
        OffsetOutOfRangeError: the log's start has moved meanwhile; likewise.
        StorageError: the storage does not answer; what was done stays, and may be done again.
    """
    found, view = cleanable(log, log.observe(), now_us=now_us)
    done = Compaction(view.log_start_offset, found.first_dirty_offset, found.end_offset)
    if found.first_dirty_offset == found.end_offset or _is_fresh(log, view, found, now_us):
        return done
    readers = _open(log, view, found.end_offset)
    behind = (
        (segment.start_offset, log.files.open_listed(segment, view.observed_ms))
        for segment in view.live.segments[len(readers) :]
    )
    transactions, row_counts = transactions_of(readers, behind)
    readers = _decided(readers, transactions.first_undecided_offset)
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
    with LatestRecords(rows, size_bytes, memory_bytes=memory_bytes) as latest:
        for reader, headers, records in live_batches(log.files, view, readers, step):
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
            met_us=max(now_us, storage_time_us(log.files)),
            delete_retention_ms=log.config.delete_retention_ms,
        )
        for group in _groups(readers, log.config.segment_bytes):
            rewrite = _Rewrite(log, view, generation)
            size_bytes = sum(raw_bytes[reader.path] for _, reader in group)
            rewrite.run(group, size_bytes, batch_filter, step)
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


_Segment = tuple[int, SegmentReader]
"""Where to begin in a segment, and its file, opened."""


class _Rewrite:
    """One group of segments becomes one."""

    def __init__(self, log: PartitionLog, view: LogView, generation: int) -> None:
        self._log = log
        self._view = view
        self._generation = generation
        self.records_written = 0
        self.bytes_written = 0

    def run(
        self,
        group: list[_Segment],
        raw_bytes: int,
        batch_filter: BatchFilter,
        step: Step,
    ) -> None:
        """Write the segment, and put it in its place.

        Args:
            group: what it takes the place of.
            raw_bytes: what that is without compression.
            batch_filter: in the state in which the group before left it.
            step: see `compact`.
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
        )
        try:
            batches = self._batches(group, base_offset, batch_filter, step)
            for headers, records in joined(batches):
                writer.write_rewritten(records, headers)
                self.records_written += records.num_rows
                step(records.nbytes)
            segment = writer.finish()
            with suppress(AlreadyExistsError):  # nobody else has this generation: it is this one
                path = files.file_path(name.log)
                sync = self._log.config.flush_on_append
                files.store.put_if_absent(path, segment.staged, sync=sync)
            self.bytes_written = segment.size_bytes
            with suppress(StorageError):  # derived: readers do without
                for derived, data in segment.derived_files(name):
                    files.store.put(files.file_path(derived), data)
        finally:
            writer.discard()

    def _compression(self, group: list[_Segment], raw_bytes: int) -> str:
        config = self._log.config
        chosen = config.compression_type
        if chosen == KEEP_COMPRESSION:
            chosen = config.merge_compression_type
        # What was compressed may be more than one file can hold once it is not any more.
        is_too_large = raw_bytes > MAX_SEGMENT_BYTES * _FILLED
        return compression_of(group) if is_too_large or chosen == KEEP_COMPRESSION else chosen

    def _batches(
        self,
        group: list[_Segment],
        base_offset: int,
        batch_filter: BatchFilter,
        step: Step,
    ) -> Iterator[tuple[tuple[BatchHeader, ...], pa.RecordBatch]]:
        """Yield what stays of the group's batches; if nothing does, the last one, empty."""
        is_empty, spare = True, None
        for reader, headers, records in live_batches(self._log.files, self._view, group, step):
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


def _open(log: PartitionLog, view: LogView, end_offset: int) -> list[_Segment]:
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


def _decided(readers: list[_Segment], undecided_offset: int | None) -> list[_Segment]:
    """Return the segments before the one that an undecided transaction begins in."""
    if undecided_offset is None:
        return readers
    return [each for each in readers if each[1].end_offset <= undecided_offset]


def _take_in(
    latest: LatestRecords,
    transactions: DecidedTransactions,
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


def _nothing(group: list[_Segment], base_offset: int) -> tuple[BatchHeader, pa.RecordBatch]:
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


def _first_dirty_offset(view: LogView) -> int:
    """Return up to where the newest compaction's segments reach from the log's start on.

    It looked at the log after every other one whose segments count, or ever will before its own.
    """
    end_offset = view.log_start_offset
    for segment in view.live.segments:
        name = segment.name
        if name.last_offset is None or name.generation != view.live.compaction:
            break
        end_offset = name.last_offset + 1
    return end_offset


def _is_fresh(log: PartitionLog, view: LogView, found: Cleanable, now_us: int) -> bool:
    """Whether the log was compacted less than ``file.delete.delay.ms`` ago.

    A listing that began before that, and shows what was left out then, may still count. When a
    tombstone goes, what it replaced must not be in any (see `generations`).
    """
    delay_us = log.config.file_delete_delay_ms * 1000 + COARSE_US
    return any(
        segment.file.modified_us > now_us - delay_us
        for segment in view.live.segments
        if segment.start_offset < found.first_dirty_offset
    )


def _groups(readers: list[_Segment], segment_bytes: int) -> Iterator[list[_Segment]]:
    """Yield segments that become one: as many as were not more than one together."""
    group: list[_Segment] = []
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


def _last_of_producers(log: PartitionLog) -> tuple[frozenset[int], dict[int, int]]:
    """Return what has to stay of producers, though its records go.

    Returns:
        The offset of the last record of each producer that the log remembers; and the epoch of
        those of which only a marker tells it, so that older ones stay fenced.
    """
    entries = list(log.producers().entries())
    last_offsets = frozenset(entry.runs[-1].end_offset - 1 for _, entry in entries if entry.runs)
    return last_offsets, {id_: entry.epoch for id_, entry in entries if not entry.runs}
