"""The batches of one segment that a read returns: the step that every read of a log repeats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from spark_log.errors import CorruptRecordError
from spark_log.log.directory import PartitionDirectory
from spark_log.log.producers import TransactionIndex
from spark_log.log.segment import LogBatch, SegmentReader

Batches = Iterator[tuple[LogBatch | None, int]]
"""Pairs of a batch and the offset after it. A pair without a batch only moves the offset: it stands
for an aborted batch, or for the end of a segment."""


class NewerLeaderEpochError(Exception):
    """The log has a newer leader epoch than a read may show (`LogReader.max_leader_epoch`)."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The records that a read returns, and the columns of them.

    Attributes:
        columns: names of columns of `RECORD_SCHEMA`, in this order; None for all.
        check_crcs: whether to check the checksums of batches.
        transactions: the log's transactions, so that batches of aborted ones are left out; None
            returns the records of all transactions.
        times_us: the first timestamp and the one after the last, in microseconds since the epoch.
            Batches without a record between them may be left out. None for all times.
    """

    columns: Sequence[str] | None = None
    check_crcs: bool = True
    transactions: TransactionIndex | None = None
    times_us: tuple[int, int] | None = None


def read_segment(
    directory: PartitionDirectory,
    reader: SegmentReader,
    begin: int,
    end_offset: int | None,
    observed_ms: float,
    selection: Selection,
    *,
    max_leader_epoch: int | None = None,
) -> Batches:
    """Yield the batches of one segment that a read returns, each with the offset after it.

    Args:
        directory: the partition's directory.
        reader: the segment's reader.
        begin: the first offset to read.
        end_offset: the offset before which the read ends; None for the segment's end.
        observed_ms: monotonic time before the listing that showed the segment began.
        selection: the records to return.
        max_leader_epoch: the newest leader epoch of a batch that may be returned; None for any.

    Raises:
        NotFoundError: on an object store, the segment was deleted meanwhile, or may have been.
        NewerLeaderEpochError: the next batch has a leader epoch that must not be read.
        CorruptRecordError: the segment is damaged; has file and position.
    """
    index = selection.transactions
    ranges: Iterable[tuple[int, int | None]] = ((begin, end_offset),)
    try:
        if index is not None:
            end = reader.end_offset if end_offset is None else end_offset
            _list_aborted(directory, index, reader, begin, end)
        if selection.times_us is not None:
            # A late import: few reads have times.
            from spark_log.log.read.pruning import parts_within_times

            end = reader.end_offset if end_offset is None else end_offset
            # On an object store, reading the timestamps first would fetch every batch twice.
            ranges = parts_within_times(
                reader, (begin, end), selection.times_us, reads_times_first=directory.store.is_local
            )
        for low, high in ranges:
            for batch in reader.read(
                low,
                high,
                columns=selection.columns,
                check_crcs=selection.check_crcs,
                is_aborted=None if index is None else index.is_aborted,
            ):
                directory.check_unchanged(reader, observed_ms)
                if max_leader_epoch is not None and batch.leader_epoch > max_leader_epoch:
                    raise NewerLeaderEpochError
                yield None if batch.is_aborted else batch, batch.end_offset
    except CorruptRecordError:
        directory.check_unchanged(reader, observed_ms)
        raise
    yield None, reader.end_offset if end_offset is None else end_offset


def read_batches(
    stream: Batches, offset: int, max_bytes: float = math.inf
) -> tuple[list[LogBatch], int]:
    """Return the batches of records at the beginning of a stream, and the offset to read next.

    Args:
        stream: batches, each with the offset after it. Control batches are left out.
        offset: the offset at which the stream begins.
        max_bytes: approximate size of the answer; the first batch may be larger.
    """
    batches: list[LogBatch] = []
    total_bytes = 0
    for batch, next_offset in stream:
        if batch is not None and not batch.is_control:
            if batches and total_bytes + batch.stored_bytes > max_bytes:
                break
            batches.append(batch)
            total_bytes += batch.stored_bytes
        offset = next_offset
        if batches and total_bytes >= max_bytes:
            break  # nothing more fits: the next segment is not opened
    return batches, offset


def _list_aborted(
    directory: PartitionDirectory,
    index: TransactionIndex,
    reader: SegmentReader,
    begin: int,
    end_offset: int,
) -> None:
    """List the aborted transactions that only the headers of a segment show.

    This reads the segment's headers if a range of `TransactionIndex.unlisted` requires it, and only
    once.

    Args:
        directory: the partition's directory.
        index: the transactions, to which the aborted ones are added.
        reader: the segment's reader.
        begin: the first offset that will be read.
        end_offset: the offset after the last one that will be read.

    Raises:
        CorruptRecordError: a segment is damaged.
    """
    for unlisted in index.unlisted_in(begin, end_offset):
        start, end = unlisted
        readers: Iterable[SegmentReader] = [reader]
        if start < reader.base_offset or reader.end_offset < end:
            # The log was rewritten since: the range lies in several segments.
            view = directory.observe()
            start = max(start, view.log_start_offset)
            readers = (each for _, _, each in directory.walk(view, start, end))
        index.list_range(unlisted, ((each.base_offset, each.header_array()) for each in readers))
