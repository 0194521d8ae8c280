"""Reads a bounded number of a partition's records, forward or backward from an offset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark_log.console.budget import Budget
from spark_log.console.decoding import DecodedBytes, Form, show
from spark_log.console.settings import AvroDecoder
from spark_log.log import FetchedRecords, IsolationLevel, PartitionLog

PREVIEW_BYTES: Final = 2_000
"""Maximum bytes of a key, value or header in a list of records."""

MAX_HEADERS: Final = 500
"""Maximum number of a record's headers that are shown; in a list of records a tenth of it."""


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record."""

    name: str
    value: DecodedBytes


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """A record in a form that a person can read.

    Attributes:
        partition: the number of the record's partition.
        offset: the record's offset.
        timestamp_us: the record's timestamp, in microseconds since the epoch.
        timestamp_type: 0 for create time, 1 for log append time.
        leader_epoch: the leader epoch in which the record was written.
        key: the record's key.
        value: the record's value.
        headers: the first `MAX_HEADERS` headers in order, with duplicates; in a list a tenth of
            this number.
        header_count: the number of all headers.
    """

    partition: int
    offset: int
    timestamp_us: int
    timestamp_type: int
    leader_epoch: int
    key: DecodedBytes
    value: DecodedBytes
    headers: tuple[Header, ...]
    header_count: int


def shown_records(
    rows: FetchedRecords,
    form: Form,
    avro: AvroDecoder | None,
    max_bytes: int,
    max_headers: int = MAX_HEADERS // 10,
) -> Iterator[DecodedRecord]:
    """Yield each row as a record in readable form.

    Args:
        rows: the records.
        form: the form in which values are shown.
        avro: the decoder of values; None without a decoder.
        max_bytes: the maximum bytes of a key, a value, a header, and a header's name.
        max_headers: the maximum number of headers of a record.
    """
    keys = rows.records.column("key").to_pylist()
    values = rows.records.column("value").to_pylist()
    headers = rows.records.column("headers").to_pylist()
    times_us = rows.timestamps_us
    plain: Form = "hex" if form == "hex" else "auto"
    for row, offset in enumerate(rows.offsets.tolist()):
        yield DecodedRecord(
            rows.partition,
            offset,
            int(times_us[row]),
            rows.timestamp_type,
            rows.leader_epoch,
            show(keys[row], plain, max_bytes=max_bytes),
            show(values[row], form, max_bytes=max_bytes, avro=avro),
            tuple(_headers((headers[row] or ())[:max_headers], plain, max_bytes)),
            len(headers[row] or ()),
        )


def read_forward(
    log: PartitionLog,
    partition: int,
    offset: int,
    limit: int,
    budget: Budget,
    isolation: IsolationLevel,
) -> list[FetchedRecords]:
    """Return the first ``limit`` records at or after an offset.

    Raises:
        OffsetOutOfRangeError: the offset is not in the log.
    """
    found: list[FetchedRecords] = []
    for batch in log.scan(offset, isolation_level=isolation):
        budget.check()
        rows = FetchedRecords.of_batch(partition, batch).slice(0, limit)
        found.append(rows)
        limit -= len(rows)
        if limit <= 0:
            break
    return found


def read_backward(
    log: PartitionLog,
    partition: int,
    end_offset: int | None,
    limit: int,
    budget: Budget,
    isolation: IsolationLevel,
) -> list[FetchedRecords]:
    """Return the last ``limit`` records before an offset, in offset order.

    Offsets may be missing in a compacted log, so the range that is read grows until it has
    enough records.

    Args:
        log: the log of the partition.
        partition: the number of the partition.
        end_offset: the offset to stop before; None for the log's end.
        limit: the maximum number of records.
        budget: the budget of the request.
        isolation: the isolation level of the read.
    """
    view = log.observe()
    start = view.log_start_offset
    end = view.log_end_offset if end_offset is None else min(end_offset, view.log_end_offset)
    window = limit
    found: list[FetchedRecords] = []
    while start < end:
        begin = max(start, end - window)
        found, count = [], 0
        for batch in log.scan(begin, end, isolation_level=isolation):
            budget.check()
            found.append(FetchedRecords.of_batch(partition, batch))
            count += len(found[-1])
            while count - len(found[0]) >= limit:
                count -= len(found.pop(0))
        if count >= limit:
            found[0] = found[0].slice(count - limit, limit)
            break
        if begin == start:
            break
        window *= 8
    return found


def _headers(headers: Sequence[dict[str, Any]], form: Form, max_bytes: int) -> Iterator[Header]:
    for header in headers:
        yield Header(header["key"][:max_bytes], show(header["value"], form, max_bytes=max_bytes))
