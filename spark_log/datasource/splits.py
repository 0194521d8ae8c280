"""Planning a read: which offsets of which partitions, decided once on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from spark_log.datasource.offsets import EARLIEST, LATEST, parse_offsets
from spark_log.datasource.options import ReadOptions
from spark_log.errors import InvalidOptionError
from spark_log.log import LogView, PartitionLog
from spark_log.metadata import Cluster, MetadataImage
from spark_log.types import TopicPartition


@dataclass
class LogSplit(InputPartition):
    """What one task reads: a range of offsets of one partition, and where that partition lies."""

    topic: str
    partition: int
    topic_id: str
    directory: str
    start_offset: int
    end_offset: int


def plan_splits(options: ReadOptions) -> list[LogSplit]:
    """Return one split for every partition with something to read.

    Raises:
        UnknownTopicOrPartitionError: a topic does not exist.
        InvalidOptionError: the offsets do not name exactly the partitions of the topics, or end
            before they start.
        OffsetOutOfRangeError: a range lies outside of what is retained.
    """
    starting = parse_offsets(options.starting_offsets, "startingOffsets")
    ending = parse_offsets(options.ending_offsets, "endingOffsets")
    if starting == LATEST or ending == EARLIEST:
        raise InvalidOptionError(
            "a batch read cannot start at latest or end at earliest; give an offset or a time",
            key="startingOffsets" if starting == LATEST else "endingOffsets",
        )
    cluster = Cluster(options.root, options.storage_options)
    image = cluster.image()
    wanted = _wanted(options, image)
    for offsets, option in ((starting, "startingOffsets"), (ending, "endingOffsets")):
        if isinstance(offsets, dict):
            _check_names_all(offsets, wanted, option)

    splits = []
    for named in wanted:
        topic = image.topic(named.topic)
        log = cluster.partition_log(topic, named.partition)
        view = log.observe()
        start = _resolve(log, view, starting, named, options.starting_timestamp_ms)
        end = _resolve(log, view, ending, named, options.ending_timestamp_ms)
        _check_range(named, view, start, end)
        if start < end:
            splits.append(LogSplit(*named, topic.topic_id, log.directory, start, end))
    return splits


def _wanted(options: ReadOptions, image: MetadataImage) -> list[TopicPartition]:
    topics = [image.topic(name) for name in options.topics]
    if options.assigned is not None:
        return sorted(options.assigned)
    return [
        TopicPartition(topic.name, number)
        for topic in topics
        for number in sorted(topic.partitions)
    ]


def _resolve(
    log: PartitionLog,
    view: LogView,
    offsets: Mapping[TopicPartition, int] | int,
    named: TopicPartition,
    timestamp_ms: int | None,
) -> int:
    """Return a start or end as an offset; a time goes before offsets, as in the connector."""
    if timestamp_ms is not None:
        found = log.offset_for_time(timestamp_ms * 1000)
        return view.log_end_offset if found is None else min(found[0], view.log_end_offset)
    offset = offsets if isinstance(offsets, int) else offsets[named]
    if offset == EARLIEST:
        return view.log_start_offset
    return view.log_end_offset if offset == LATEST else offset


def _check_range(named: TopicPartition, view: LogView, start: int, end: int) -> None:
    for offset in (start, end):
        view.check_offset(offset, str(named))
    if start > end:
        raise InvalidOptionError(
            f"{named}: the range starts at offset {start} and ends before it, at {end}",
            key="endingOffsets",
        )


def _check_names_all(
    offsets: Mapping[TopicPartition, int], wanted: list[TopicPartition], option: str
) -> None:
    if missing := sorted(set(wanted) - offsets.keys()):
        raise InvalidOptionError(
            f"option {option!r} has no offset for {', '.join(map(str, missing))}; name every "
            f"partition (-2 earliest, -1 latest)",
            key=option,
        )
    if unknown := sorted(offsets.keys() - set(wanted)):
        raise InvalidOptionError(
            f"option {option!r} names {', '.join(map(str, unknown))}, which is not read here",
            key=option,
        )
