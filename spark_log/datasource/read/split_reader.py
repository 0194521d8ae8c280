"""Reads the records of a split as Arrow batches, in a Spark task."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.config import DEFAULT_API_TIMEOUT_MS
from spark_log.datasource.options import ReadOptions
from spark_log.datasource.read.log_split import LOST_DATA_ADVICE, LogSplit
from spark_log.datasource.read.record_filter import Bounds
from spark_log.datasource.read.split_replica import SplitReplica
from spark_log.errors import LogTruncatedError, OffsetOutOfRangeError, SparkLogError
from spark_log.log import (
    LogBatch,
    LogReader,
    LogView,
    RecordColumns,
    Selection,
    joined,
    stored_columns,
)
from spark_log.metadata import ROOT_BROKER_ID
from spark_log.record import READ_SCHEMA, times_us_of
from spark_log.storage import OutageWait, is_unavailable
from spark_log.threads import Deadline

_log = logging.getLogger(__name__)

ARROW_TYPES: Final[dict[str, pa.DataType]] = {each.name: each.type for each in READ_SCHEMA}
"""Arrow types of all columns that a read can have."""


def read_split(
    split: LogSplit, columns: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield a split's records in offset order, without control batches and aborted records.

    Args:
        split: the split.
        columns: names from `ARROW_TYPES`, in any order. Only these columns are read from storage.
        options: options of the query.

    Yields:
        Record batches with ``columns``, at least one row each.

    Raises:
        OffsetOutOfRangeError: offsets are no longer retained, and ``failOnDataLoss`` is true. If it
            is false, the existing records are read.
        CorruptRecordError: a batch is damaged; the error has file and position.
        KafkaTimeoutError: the storage did not answer for a minute.
    """
    assemble = _Assembler(columns, split)
    batches = map(
        assemble, _read_through_outages(split, _stored_columns(columns, split.times_us), options)
    )
    yield from joined(batches)


def _stored_columns(columns: Sequence[str], times_us: Bounds) -> list[str] | None:
    """Return the stored columns to read; None for whole records."""
    return stored_columns(columns if times_us.is_everything else [*columns, "timestamp"])


class _LacksOffsetsError(Exception):
    """A replica does not have all offsets of a split; another one may have them."""


def _read_through_outages(
    split: LogSplit, columns: list[str] | None, options: ReadOptions
) -> Iterator[LogBatch]:
    """Yield a split's batches; while its storage does not answer, wait, and continue there.

    Raises:
        KafkaTimeoutError: no replica answered for a minute.
        SparkLogError: `_read_replicas` failed.
    """
    position = _Position(split.start_offset)
    wait = OutageWait(
        lambda: Deadline(f"reading {split}", "default.api.timeout.ms", DEFAULT_API_TIMEOUT_MS)
    )
    while True:
        try:
            for batch in _read_replicas(split, position, columns, options):
                wait.end()
                if batch is not None and not batch.is_control:
                    yield batch
        except SparkLogError as error:
            if not is_unavailable(error):
                raise
            wait.check(error)
            wait.pause()
        else:
            return


@dataclass(slots=True)
class _Position:
    """The position of a read in its split.

    Attributes:
        offset: the next offset to read.
    """

    offset: int


def _read_replicas(
    split: LogSplit, position: _Position, columns: list[str] | None, options: ReadOptions
) -> Iterator[LogBatch | None]:
    """Yield a split's batches from its first replica; continue with the next if this one fails.

    Raises:
        StorageError, CorruptRecordError: no replica can be read; the error is the first one's.
        OffsetOutOfRangeError: offsets are no longer retained, and ``failOnDataLoss`` is true.
    """
    only = SplitReplica(ROOT_BROKER_ID, options.root, split.directory)
    replicas, lacking = list(split.replicas or (only,)), []
    failure = None
    while replicas:
        replica = replicas.pop(0)
        # If no replica can be read and has all offsets, read what is left in one that can be.
        is_last = not split.replicas or replica in lacking
        try:
            log = replica.open(split.topic_id, split.partition, options, split.stripe)
            _log.debug(
                "%s: reads from offset %d, columns %s, on broker %d",
                split,
                position.offset,
                "all" if columns is None else ", ".join(columns),
                replica.broker_id,
            )
            for batch, next_offset in _read_batches(
                log, split, position.offset, columns, options, is_last=is_last
            ):
                position.offset = next_offset
                yield batch
        except _LacksOffsetsError:
            lacking.append(replica)
        except LogTruncatedError:  # this process knows the stripe of a topic that was deleted since
            if options.fail_on_data_loss or split.stripe is None:
                raise
            return
        except SparkLogError as error:
            if not (split.replicas and _is_of_replica(error)):
                raise
            failure = failure or error
            _log.warning(
                "%s: the replica on broker %d cannot be read: %s", split, replica.broker_id, error
            )
        else:
            _log.debug("%s: read up to offset %d", split, position.offset)
            return
        if not replicas and not is_last and failure is None:
            replicas = lacking[:1]
    assert failure is not None
    raise failure


def _is_of_replica(error: SparkLogError) -> bool:
    """Return whether an error is one of a replica, so that another one may be read."""
    from spark_log.log import REPLICA_ERRORS  # late: its module imports the code of appends

    return isinstance(error, REPLICA_ERRORS)


def _read_batches(
    log: LogReader,
    split: LogSplit,
    offset: int,
    columns: list[str] | None,
    options: ReadOptions,
    *,
    is_last: bool,
) -> Iterator[tuple[LogBatch | None, int]]:
    """Yield a split's batches from an offset on, each with the offset after it.

    Control batches are yielded, too, and None in place of an aborted batch.

    Raises:
        OffsetOutOfRangeError: offsets are no longer retained, and ``failOnDataLoss`` is true.
        _LacksOffsetsError: the log lacks offsets, and is not the last one to be read.
    """
    times_us = None if split.times_us.is_everything else (split.times_us.low, split.times_us.high)
    selection = Selection(columns, options.check_crcs, split.transactions, times_us)
    while offset < split.end_offset:
        view, last = log.files.observe_from(offset, split.end_offset)
        is_whole = view.log_start_offset <= offset and split.end_offset <= view.log_end_offset
        if not (is_last or is_whole):
            raise _LacksOffsetsError
        if not view.log_start_offset <= offset < view.log_end_offset:
            offset = _offset_after_loss(view, split, offset, options)
            continue
        with suppress(OffsetOutOfRangeError):  # the log start offset has moved
            for batch, next_offset in log.scan_view(
                view, offset, split.end_offset, selection, last
            ):
                yield batch, next_offset
                offset = next_offset


def _offset_after_loss(view: LogView, split: LogSplit, offset: int, options: ReadOptions) -> int:
    """Return the offset at which to continue if ``offset`` does not exist.

    Raises:
        OffsetOutOfRangeError: ``failOnDataLoss`` is true.
    """
    if options.fail_on_data_loss:
        raise OffsetOutOfRangeError(
            f"{split}: offset {offset} does not exist any more, the log has offsets from "
            f"{view.log_start_offset} to before {view.log_end_offset}: {LOST_DATA_ADVICE}",
            offset=offset,
            log_start_offset=view.log_start_offset,
            log_end_offset=view.log_end_offset,
        )
    return view.log_start_offset if offset < view.log_start_offset else split.end_offset


def _time_mask(records: pa.RecordBatch, times_us: Bounds) -> np.ndarray:
    """Return for each row whether its timestamp is within bounds."""
    times = times_us_of(records)
    mask: np.ndarray = (times >= times_us.low) & (times < times_us.high)
    return mask


class _Assembler:
    """Returns the rows within time bounds, with the columns that are not stored."""

    def __init__(self, columns: Sequence[str], split: LogSplit) -> None:
        schema = pa.schema([(name, ARROW_TYPES[name]) for name in columns])
        self._columns = RecordColumns(split.topic, split.partition, schema)
        self._times_us = split.times_us

    def __call__(self, batch: LogBatch) -> pa.RecordBatch:
        whole = self._columns.of(batch)
        if self._times_us.is_everything:
            return whole
        mask = _time_mask(batch.records, self._times_us)
        return whole if mask.all() else whole.filter(pa.array(mask))
