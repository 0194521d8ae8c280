"""Records of a topic: by offset, by time, or newest first; a single record with its full value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.decoding import Form
from spark_log.console.reading import (
    MAX_HEADERS,
    PREVIEW_BYTES,
    DecodedRecord,
    read_backward,
    read_forward,
    shown_records,
)
from spark_log.console.view import (
    Isolation,
    Offset,
    Parameters,
    PartitionNumber,
    Time,
    TopicName,
    View,
    time_us,
)
from spark_log.errors import InvalidConfigurationError, OffsetOutOfRangeError
from spark_log.log import FetchedRecords, PartitionLog

MAX_PARTITIONS: Final = 64
"""Maximum number of partitions whose records are shown together."""


class RecordsParameters(Parameters):
    """The records that are shown: the newest ones if neither an offset nor a time is given."""

    topic: TopicName
    partition: PartitionNumber = None
    offset: Annotated[
        Offset | None, Field(description="First offset; needs a partition if there are several.")
    ] = None
    before: Annotated[
        Offset | None,
        Field(description="Show the last records before this offset; needs a partition, too."),
    ] = None
    time: Annotated[Time | None, Field(description="First event time.")] = None
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of records.")] = 50
    form: Annotated[Form, Field(description="Form in which values are shown.")] = "auto"
    isolation: Isolation = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class RecordsPage:
    """Records of a topic.

    Attributes:
        topic: the topic's name.
        partitions: the numbers of all of the topic's partitions.
        order: ``offset``, ``time``, or ``newest`` for newest first.
        records: the records. In the order ``time`` they are sorted by timestamp.
        before: the offset of ``partition`` before which there may be more records; None otherwise.
        after: the offset from which there may be more records; None for several partitions.
        partition: the partition of ``before`` and ``after``.
        is_cut: whether values are shortened, because they have too many bytes.
    """

    topic: str
    partitions: tuple[int, ...]
    order: Literal["offset", "time", "newest"]
    records: tuple[DecodedRecord, ...]
    before: int | None
    after: int | None
    partition: int | None
    is_cut: bool


def read_records(console: Console, parameters: RecordsParameters, budget: Budget) -> RecordsPage:
    """Read the records of one page.

    Raises:
        UnknownTopicOrPartitionError: the topic or partition does not exist.
        OffsetOutOfRangeError: the offset is not in the log.
        InvalidConfigurationError: parameters exclude each other.
    """
    given = [name for name in ("offset", "before", "time") if getattr(parameters, name) is not None]
    if len(given) > 1:
        raise InvalidConfigurationError(
            f"{given[0]} and {given[1]} exclude each other; give one of them"
        )
    topic = console.cluster.topic(parameters.topic)
    every = tuple(sorted(topic.partitions))
    number = parameters.partition
    if number is None and len(every) == 1:
        number = every[0]
    if number is None and ("offset" in given or "before" in given):
        raise InvalidConfigurationError(
            f"topic {topic.name!r} has {len(every)} partitions; give the partition of the offset"
        )
    if number is None and len(every) > MAX_PARTITIONS:
        raise InvalidConfigurationError(
            f"topic {topic.name!r} has {len(every)} partitions, more than the {MAX_PARTITIONS} "
            f"that are shown together; give one of them"
        )
    logs = {
        each: console.cluster.partition_log(topic, each)
        for each in (every if number is None else (number,))
    }
    with console.cluster.detecting_deletion(topic):
        found = _read(logs, parameters, budget)
    order: Literal["offset", "time", "newest"] = "newest"
    if parameters.time is not None:
        order = "time"
    elif given:
        order = "offset"
    avro = console.settings.avro.get(topic.name)
    chosen, sizes = _chosen(found, parameters.limit, order, is_one=number is not None)
    most = PREVIEW_BYTES if sizes * PREVIEW_BYTES < console.settings.max_answer_bytes else 200
    records = [
        record for rows in chosen for record in shown_records(rows, parameters.form, avro, most)
    ]
    if number is None:
        records.sort(key=lambda each: (each.timestamp_us, each.partition, each.offset))
    if order == "newest":
        records.reverse()
    offsets = [each.offset for each in records]
    has_offsets = number is not None and bool(offsets)
    return RecordsPage(
        topic.name,
        every,
        order,
        tuple(records),
        min(offsets) if has_offsets and min(offsets) > 0 else None,
        max(offsets) + 1 if has_offsets else None,
        number,
        most < PREVIEW_BYTES,
    )


def _read(
    logs: Mapping[int, PartitionLog], parameters: RecordsParameters, budget: Budget
) -> list[FetchedRecords]:
    limit, isolation = parameters.limit, parameters.isolation
    wanted_us = time_us("time", parameters.time)
    found: list[FetchedRecords] = []
    for number, log in logs.items():
        budget.check()
        offset = parameters.offset
        if wanted_us is not None:
            first = log.offset_for_time(wanted_us, isolation_level=isolation)
            if first is None:
                continue
            offset = first[0]
        if offset is None:
            found += read_backward(log, number, parameters.before, limit, budget, isolation)
        else:
            found += read_forward(log, number, offset, limit, budget, isolation)
    return found


def _chosen(
    found: Iterable[FetchedRecords], limit: int, order: str, *, is_one: bool
) -> tuple[list[FetchedRecords], int]:
    """Return the rows of one page, and their number; rows of several partitions are merged."""
    rows = list(found)
    if is_one:
        return rows, sum(map(len, rows))
    places = [
        (int(at_us), index, row)
        for index, each in enumerate(rows)
        for row, at_us in enumerate(each.timestamps_us)
    ]
    places.sort(reverse=order == "newest")
    chosen = [rows[index].slice(row, 1) for _, index, row in places[:limit]]
    return chosen, len(chosen)


class RecordParameters(Parameters):
    """The record that is shown."""

    topic: TopicName
    partition: Annotated[int, Field(ge=0, lt=2**31, description="Number of the partition.")]
    offset: Annotated[Offset, Field(description="Offset of the record.")]
    form: Annotated[Form, Field(description="Form in which the value is shown.")] = "auto"


@dataclass(frozen=True, slots=True)
class RecordPage:
    """A single record, with up to ``max_value_bytes`` of each value.

    Attributes:
        topic: the name of the record's topic.
        record: the record.
    """

    topic: str
    record: DecodedRecord


def read_record(console: Console, parameters: RecordParameters, budget: Budget) -> RecordPage:
    """Read one record.

    Raises:
        UnknownTopicOrPartitionError: the topic or partition does not exist.
        OffsetOutOfRangeError: no record has this offset.
    """
    topic = console.cluster.topic(parameters.topic)
    log = console.cluster.partition_log(topic, parameters.partition)
    with console.cluster.detecting_deletion(topic):
        found = read_forward(
            log, parameters.partition, parameters.offset, 1, budget, "read_uncommitted"
        )
    if not found or int(found[0].offsets[0]) != parameters.offset:
        raise OffsetOutOfRangeError(
            f"{topic.name}-{parameters.partition}: no record has the offset {parameters.offset}",
            offset=parameters.offset,
            log_start_offset=0,
            log_end_offset=0,
        )
    avro = console.settings.avro.get(topic.name)
    most = console.settings.max_value_bytes
    (record,) = shown_records(found[0], parameters.form, avro, most, MAX_HEADERS)
    return RecordPage(topic.name, record)


RECORDS = View("/records", "Records", RecordsParameters, RecordsPage, read_records, "records.html")
RECORD = View("/record", "Record", RecordParameters, RecordPage, read_record, "record.html")
