"""The plan of a read of table and log: the files of each partition, and the offsets of its log.

The table's version is read first, and then the log is listed (protocol B12). The listing gives the
end of the read: the last stable offset. So the read is one state of the topic, however long it
takes, and has no row of an open or aborted transaction, as the table has none.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from numbers import Integral
from typing import Final

import pyarrow as pa

from spark_log.cluster import Cluster
from spark_log.config import DEFAULT_API_TIMEOUT_MS
from spark_log.delta import DataFile
from spark_log.errors import (
    InvalidOptionError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import LogView, PartitionDirectory, PartitionLog
from spark_log.log.files import SegmentName
from spark_log.metadata import ROOT_BROKER_ID, TopicImage
from spark_log.storage import map_requests, retry_while_unavailable
from spark_log.table import PartitionTable, TableVersion, TopicTable, end_offset, read_of_both
from spark_log.threads import Deadline
from spark_log.topic_read.bounds import ReadBounds
from spark_log.values import DECODE_ERROR_FIELD, TypedValues, typed_values_of

_log = logging.getLogger(__name__)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FilePart:
    """A Parquet segment, or a part of one.

    Attributes:
        name: the segment's name.
        size_bytes: the file's size.
        low: rows before this offset are left out; None if the file has none.
        high: rows at and after this offset are left out; None if the file has none.
    """

    name: SegmentName
    size_bytes: int
    low: int | None = None
    high: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all rows of the file are read."""
        return self.low is None and self.high is None


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """The read of one partition.

    Attributes:
        partition: the partition's number.
        directory: the directory of the files.
        files: the files that may have rows, in offset order.
        log: the partition's log.
        start: the first offset.
        log_start: the first offset that is read from the log.
        end: the offset after the last one.
    """

    partition: int
    directory: PartitionDirectory
    files: tuple[FilePart, ...]
    log: PartitionLog
    start: int
    log_start: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicRead:
    """A planned read.

    Attributes:
        cluster: the cluster.
        topic: the topic.
        version: the version of the table; -1 without a table.
        typed: decodes the values into the typed columns: those of the topic or, if the read is of
            one version alone, those that the table had in it. None without any.
        partitions: the reads of the partitions, in order.
        bounds: the limits that the user gave.
    """

    cluster: Cluster
    topic: TopicImage
    version: int
    typed: TypedValues | None
    partitions: tuple[PartitionRead, ...]
    bounds: ReadBounds

    @property
    def typed_columns(self) -> pa.Schema:
        """The columns that files may have behind those of the log. The log's rows get them, too."""
        if self.typed is None:
            return pa.schema([])
        return self.typed.schema.append(DECODE_ERROR_FIELD)


def plan_read(
    cluster: Cluster, topic: str, bounds: ReadBounds, *, version: int | None = None
) -> TopicRead:
    """Plan the read of a topic.

    Args:
        cluster: the cluster.
        topic: the topic's name.
        bounds: the limits of the read.
        version: a version of the table, at whose ends the read ends; None for the newest one, and
            the log behind it.

    Raises:
        UnknownTopicOrPartitionError: the topic or a partition does not exist.
        InvalidOptionError: the version does not exist, or a partition ends before it starts.
        OffsetOutOfRangeError: an offset to start or end at is not retained, or does not exist yet.
        LogTruncatedError: a log ends before its table does.
        StorageError: the table is damaged.
        KafkaTimeoutError: the storage did not answer for a minute.
    """
    deadline = Deadline(
        f"planning the read of {topic}", "default.api.timeout.ms", DEFAULT_API_TIMEOUT_MS
    )

    def plan() -> TopicRead:
        image = cluster.topic(topic)
        with cluster.detecting_deletion(image):
            table = read_version(cluster, image, version)
            if table.is_outdated:  # this process knew older metadata than the table
                image = cluster.topic(topic)
                table = read_version(cluster, image, version)
            return plan_version(cluster, image, table, bounds, with_log=version is None)

    return retry_while_unavailable(plan, deadline)


def read_version(cluster: Cluster, topic: TopicImage, number: int | None) -> TableVersion:
    """Return a version of a topic's table.

    Args:
        cluster: the cluster.
        topic: the topic.
        number: the version; None for the newest one, which is -1 without a table.

    Raises:
        InvalidOptionError: the version does not exist.
    """
    if number is not None and not isinstance(number, Integral):
        raise InvalidOptionError(
            f"version is {number!r}, expected the number of a version of the table", key="version"
        )
    table = TopicTable(cluster.store, topic, cluster.clock)
    newest = table.refresh()
    found = newest if number is None else table.at(number)
    if found is not None and (number is None or found.number >= 0):
        return found
    advice = f"the newest one is {newest.number}, and old ones are deleted after a time"
    if newest.number < 0:
        advice = "it has no table; set table.format=delta, or leave the version out"
    raise InvalidOptionError(
        f"the table of topic {topic.name!r} has no version {number}: {advice}", key="version"
    )


def plan_version(
    cluster: Cluster,
    topic: TopicImage,
    version: TableVersion,
    bounds: ReadBounds,
    *,
    with_log: bool = True,
) -> TopicRead:
    """Plan the read of a version of a topic's table, and of the log behind it.

    Args:
        cluster: the cluster.
        topic: the topic.
        version: the version, which was read before this call.
        bounds: the limits of the read.
        with_log: whether the log is read behind the version's end; else the read ends there.
    """
    numbers = set(topic.partitions) if bounds.partitions is None else set(bounds.partitions)
    for number in sorted(numbers | bounds.starting_offsets.keys() | bounds.ending_offsets.keys()):
        if number not in topic.partitions:
            raise UnknownTopicOrPartitionError(
                f"topic {topic.name!r} has no partition {number}; it has {topic.num_partitions}, "
                f"numbered from 0",
                topic=topic.name,
            )
    logs = {number: cluster.partition_log(topic, number) for number in sorted(numbers)}
    stripes = {log.stripe for log in logs.values() if log.stripe is not None}
    map_requests(cluster.store, lambda stripe: stripe.reader.poll(), stripes)
    planner = _Planner(cluster, topic, version, bounds, with_log=with_log)
    reads = map_requests(
        cluster.store, lambda number: planner.partition(number, logs[number]), logs
    )
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug(
            "%s: reading version %d: %d files, and offsets %s of the log",
            topic.name,
            version.number,
            sum(len(each.files) for each in reads),
            {each.partition: (each.log_start, each.end) for each in reads},
        )
    typed = typed_values_of(topic.config()) if with_log else _typed_values(version)
    return TopicRead(cluster, topic, version.number, typed, tuple(reads), bounds)


def _typed_values(version: TableVersion) -> TypedValues | None:
    """Return the typed columns that the table had in a version; None without any."""
    setting = version.setting
    if setting.value_format == "none":
        return None
    return TypedValues(setting.value_format, setting.value_schema)


class _Planner:
    """Plans the read of each partition."""

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicImage,
        version: TableVersion,
        bounds: ReadBounds,
        *,
        with_log: bool,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._version = version
        self._bounds = bounds
        self._with_log = with_log

    def partition(self, number: int, log: PartitionLog) -> PartitionRead:
        """Return the read of a partition. Any thread may call this for another partition."""
        view = log.observe_polled()
        table = self._version.partitions.get(number, PartitionTable())
        both = read_of_both(table, view.log_start_offset)
        end = both.log_start
        if self._with_log:
            end = log.end_offset(view, isolation_level="read_committed")
            if end < both.log_start:
                raise LogTruncatedError(
                    f"{self._topic.name}-{number} ends at offset {end}, but its table has records "
                    f"up to {table.end}: files of the log were removed; to see which: "
                    f"spark-log verify",
                    path=log.files.path,
                )
        self._version.check_is_whole(self._topic, number)
        low = self._bounds.starting_offsets.get(number, both.start)
        high = self._bounds.ending_offsets.get(number, end)
        self._check(number, both.start, end, low, high)
        files = tuple(
            FilePart(
                name,
                file.size_bytes,
                low if name.base_offset < low else None,
                high if end_offset(name) > high else None,
            )
            for name in both.files
            for file in [self._version.file_of(number, name)]
            if name.base_offset < high and end_offset(name) > low
            if self._bounds.may_have(_times_us(file))
        )
        log_start = self._after_time(log, view, max(both.log_start, low), high)
        directory = log.files
        if files:  # they lie in the cluster's root, though another replica may be read
            directory = self._cluster.replica_log(self._topic, number, ROOT_BROKER_ID).files
        return PartitionRead(number, directory, files, log, low, min(log_start, high), high)

    def _after_time(self, log: PartitionLog, view: LogView, start: int, end: int) -> int:
        """Return the offset from which on records may have the wanted times."""
        if start >= end or self._bounds.from_us is None:
            return start
        found = log.offset_for_time(self._bounds.from_us, view)
        return end if found is None else max(start, found[0])

    def _check(self, number: int, start: int, end: int, low: int, high: int) -> None:
        """Check the offsets that the user gave for a partition."""
        tp = f"{self._topic.name}-{number}"
        for name, offset in (("starting_offsets", low), ("ending_offsets", high)):
            if start <= offset <= end:
                continue
            reason = "it was deleted by retention or delete_records"
            if offset > end:
                reason = "it was not written yet, or lies behind a transaction that is open"
                if not self._with_log:
                    reason = "the version of the table ends before it"
            raise OffsetOutOfRangeError(
                f"{name} has offset {offset} for {tp}, but the read can have offsets from {start} "
                f"to {end}: {reason}",
                offset=offset,
                log_start_offset=start,
                log_end_offset=end,
            )
        if low > high:
            raise InvalidOptionError(
                f"{tp}: the read starts at offset {low} and ends at {high}, before its start; "
                f"lower the start or raise the end",
                key="ending_offsets",
            )


def _times_us(file: DataFile) -> tuple[int, int] | None:
    """Return the smallest and the largest timestamp of a file, or values beyond them.

    Delta's statistics have whole milliseconds. None if they are not known.
    """
    least, most = file.min_values.get("timestamp"), file.max_values.get("timestamp")
    if least is None or most is None:
        return None
    return _time_us(least), _time_us(most)


def _time_us(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
