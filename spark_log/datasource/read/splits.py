"""Planning of a read on the driver: the partitions and offsets that each task reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Final

from spark_log.datasource.options import ReadOptions
from spark_log.datasource.read.log_split import LOST_DATA_ADVICE, LogSplit
from spark_log.datasource.read.offset_ranges import OffsetRange, split_ranges
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.datasource.read.record_filter import EVERYTHING, Bounds, RecordFilter
from spark_log.datasource.read.segment_sizes import with_segments
from spark_log.datasource.read.split_stripe import SplitStripe
from spark_log.errors import InvalidOptionError, OffsetOutOfRangeError
from spark_log.log import LogView, TransactionIndex, prune_segments
from spark_log.types import TopicPartition

_MAX_SEGMENTS_TO_OPEN: Final = 16
"""Maximum number of segments per partition to open for pruning by time; tasks prune the others."""


def plan_splits(options: ReadOptions, where: RecordFilter = EVERYTHING) -> list[LogSplit]:
    """Return the splits of a batch read.

    Each partition is listed once, so its start, end and segments are consistent.

    Args:
        options: parsed options of a batch.
        where: filter; partitions, offsets and segments without a match are left out.

    Raises:
        UnknownTopicOrPartitionError: a topic does not exist.
        InvalidOptionError: the offsets do not name exactly the partitions of the topics, or end
            before they start.
        OffsetOutOfRangeError: offsets to read are not retained, or with ``read_committed`` a
            transaction before the end is open, and ``failOnDataLoss`` is true.
    """
    reader = OffsetReader(options)
    start = reader.starting_offsets(is_batch=True)
    end = reader.ending_offsets()
    _check_order(start, end)
    views = reader.views({tp: (first, 0) for tp, first in start.items()})
    last = reader.end_offsets(views)
    for tp, view in views.items():
        if options.fail_on_data_loss:
            _check_retained(view, tp, start[tp], end[tp])
            _check_stable(tp, end[tp], last[tp])
        else:
            end[tp] = min(end[tp], last[tp])
            start[tp] = min(max(start[tp], view.log_start_offset), end[tp])
    return splits_between(reader, start, end, where)


def splits_between(
    reader: OffsetReader,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    where: RecordFilter = EVERYTHING,
) -> list[LogSplit]:
    """Return the splits between offsets, in order; for batches and micro-batches.

    The storage is read only if ranges have to be split or a filter prunes by time. Ranges with both
    Parquet and Arrow segments are split after one look into a Parquet file of each partition.

    Args:
        reader: gives the partitions' logs; its options set the number and size of splits.
        start: first offset of each partition.
        end: offset after the last. Partitions that are missing in one of the two are left out.
        where: filter; partitions, offsets and segments without a match are left out.

    Raises:
        UnknownTopicOrPartitionError: a partition does not exist.
    """
    options = reader.options
    ranges = [
        OffsetRange(tp, max(start[tp], where.offsets.low), min(end[tp], where.offsets.high))
        for tp in sorted(start.keys() & end.keys())
        if where.may_match(tp)
    ]
    ranges = [each for each in ranges if len(each)]
    if not where.times_us.is_everything:
        ranges = [
            piece for each in ranges for piece in _prune_by_time(reader, each, where.times_us)
        ]
    # With an assignor tasks own whole partitions, so nothing is split.
    min_partitions = options.min_partitions if options.assignor is None else None
    if _must_cut(min_partitions, options.max_records_per_partition, ranges):
        ranges = with_segments(reader, ranges)
    pieces = split_ranges(
        ranges,
        min_partitions=min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    splits = [_split(reader, piece, where) for piece in pieces]
    return _with_transactions(reader, splits) if options.reads_committed else splits


def _split(reader: OffsetReader, piece: OffsetRange, where: RecordFilter) -> LogSplit:
    files = reader.log(piece.topic_partition).files
    return LogSplit(
        *piece.topic_partition,
        files.topic_id,
        files.path,
        piece.start,
        piece.end,
        where.times_us,
        replicas=reader.replicas(piece.topic_partition),
        stripe=_stripe(reader, piece.topic_partition),
    )


def _stripe(reader: OffsetReader, tp: TopicPartition) -> SplitStripe | None:
    stripe = reader.log(tp).stripe
    if stripe is None:
        return None
    found = stripe.directory
    return SplitStripe(found.topic_id, found.path, found.stripe, found.config.file_delete_delay_ms)


def _with_transactions(reader: OffsetReader, splits: list[LogSplit]) -> list[LogSplit]:
    """Return the splits, in order, each with the aborted transactions of its range."""
    found: list[LogSplit] = []
    for tp, those in groupby(
        splits, key=lambda split: TopicPartition(split.topic, split.partition)
    ):
        of_partition = list(those)
        index = reader.transactions(tp, of_partition[0].start_offset, of_partition[-1].end_offset)
        aborted = index.aborted
        for split in of_partition:
            start, end = split.start_offset, split.end_offset
            overlapping = [
                each for each in aborted if each.first_offset < end and each.marker_offset >= start
            ]
            known = TransactionIndex(
                end, aborted=overlapping, unlisted=index.unlisted_in(start, end)
            )
            found.append(replace(split, transactions=known))
    return found


def _must_cut(min_pieces: int | None, max_offsets: int | None, ranges: list[OffsetRange]) -> bool:
    return (min_pieces or 0) > len(ranges) > 0 or (
        max_offsets is not None and any(len(each) > max_offsets for each in ranges)
    )


def _prune_by_time(
    reader: OffsetReader, offset_range: OffsetRange, times_us: Bounds
) -> list[OffsetRange]:
    """Return the parts of a range whose segments can hold records within time bounds.

    Uses the newest snapshot if it covers all but a few segments. Otherwise the range stays whole,
    and the task that reads it skips segments.
    """
    view = reader.view(offset_range.topic_partition, offset_range.end, offset_range.start)
    snapshots = view.live.snapshots
    known = view.live.index_of(snapshots[-1]) if snapshots else 0
    if len(view.live.segments) - max(0, known) > _MAX_SEGMENTS_TO_OPEN:
        return [offset_range]
    summaries, view = reader.log(offset_range.topic_partition).segments(view)
    parts = prune_segments(
        view,
        summaries,
        (offset_range.start, offset_range.end),
        (times_us.low, times_us.high),
    )
    return [replace(offset_range, start=start, end=end) for start, end in parts]


def _check_order(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
    for tp, begin in start.items():
        if begin > end[tp]:
            raise InvalidOptionError(
                f"{tp}: the range starts at offset {begin} and ends at {end[tp]}, before its "
                f"start; lower the start or raise the end",
                key="endingOffsets",
            )


def _check_stable(tp: TopicPartition, end: int, last_stable_offset: int) -> None:
    if end > last_stable_offset:
        raise OffsetOutOfRangeError(
            f"{tp}: the range ends at offset {end}, but a transaction is open since offset "
            f"{last_stable_offset}, the last stable offset; read again when it has ended, end at "
            f"latest, or set failOnDataLoss=false to read up to there",
            offset=end,
            log_end_offset=last_stable_offset,
        )


def _check_retained(view: LogView, tp: TopicPartition, start: int, end: int) -> None:
    for offset in (start, end):
        try:
            view.check_offset(offset, str(tp))
        except OffsetOutOfRangeError as error:
            advice = (
                LOST_DATA_ADVICE
                if offset < view.log_start_offset
                else "it was never written, or the topic was deleted and created again; give an "
                "offset up to the end, or set failOnDataLoss=false to read the existing records"
            )
            raise OffsetOutOfRangeError(
                f"{error.message}: {advice}",
                offset=offset,
                log_start_offset=view.log_start_offset,
                log_end_offset=view.log_end_offset,
            ) from None
