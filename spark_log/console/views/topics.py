"""Topics with size, rate, retention and cleaner state; a single topic with its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.view import Parameters, TopicName, View
from spark_log.errors import SparkLogError, UnknownTopicOrPartitionError
from spark_log.log import LogView
from spark_log.metadata import TopicImage
from spark_log.types import (
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    PartitionDescription,
    StripeDescription,
)


@dataclass(frozen=True, slots=True)
class CleanerState:
    """The cleaner's progress with a topic, from the names of the topic's segments.

    Attributes:
        policy: ``cleanup.policy``.
        retention_ms: ``retention.ms``; -1 for no limit.
        retention_bytes: ``retention.bytes``; -1 for no limit.
        segments: the number of segments.
        unmerged_segments: the number of segments that were not merged since an append wrote them.
        dirty_ratio: the share of bytes that were not compacted; None without compaction.
    """

    policy: str
    retention_ms: int
    retention_bytes: int
    segments: int
    unmerged_segments: int
    dirty_ratio: float | None


@dataclass(frozen=True, slots=True)
class TableState:
    """The Delta table of a topic.

    Attributes:
        format: ``table.format``: ``delta``, or ``none`` if the topic was a table.
        version: the number of the newest version; -1 before the first, or if it cannot be read.
        location: the table's URL, for programs that read it.
        files: the number of files in this version.
        size_bytes: the size of these files.
        lag: the number of offsets of the log that are not in the table yet.
        ends: partition → the offset before which the table has its records.
        error: the reason why the table cannot be read; None if it was read.
    """

    format: str
    version: int
    location: str
    files: int
    size_bytes: int
    lag: int
    ends: Mapping[int, int]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in the list.

    Attributes:
        name: the topic's name.
        partitions: the number of the topic's partitions.
        replication_factor: the maximum number of replicas of a partition.
        records: the number of offsets between log start and end, in all partitions that can be
            read.
        size_bytes: the size of the segments, of one replica of each partition.
        records_per_second: the mean rate since the page was read before, at most a minute ago; None
            if it was not.
        under_replicated: the number of partitions with replicas out of sync.
        unreadable: the number of partitions that cannot be read now.
        cleaner: the cleaner's progress.
        table_format: ``table.format``: ``delta`` if the topic is a Delta table, or ``none``.
    """

    name: str
    partitions: int
    replication_factor: int
    records: int
    size_bytes: int
    records_per_second: float | None
    under_replicated: int
    unreadable: int
    cleaner: CleanerState
    table_format: str


class TopicsParameters(Parameters):
    """The topics that are listed."""

    q: Annotated[str, Field(max_length=1000, description="Text that the name contains.")] = ""
    start: Annotated[int, Field(ge=0, description="Number of topics to skip.")] = 0
    limit: Annotated[int, Field(ge=1, le=200, description="Maximum number of topics.")] = 50


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """One page of the topics, sorted by name.

    Attributes:
        total: the number of topics whose names match.
        start: the number of topics before this page.
        topics: the topics of this page.
    """

    total: int
    start: int
    topics: tuple[TopicRow, ...]


def read_topics(console: Console, parameters: TopicsParameters, budget: Budget) -> TopicsPage:
    """Read the sizes of the topics of one page: a listing for each of their partitions."""
    wanted = parameters.q.lower()
    found = [each for each in console.cluster.image().topics() if wanted in each.name.lower()]
    page = found[parameters.start : parameters.start + parameters.limit]
    views = _views(console, page, budget)
    rows = []
    for topic in page:
        budget.check()
        with suppress(UnknownTopicOrPartitionError):  # deleted since the metadata were read
            rows.append(_topic_row(console, topic, views[topic.topic_id]))
    return TopicsPage(len(found), parameters.start, tuple(rows))


def _topic_row(
    console: Console, topic: TopicImage, views: Mapping[int, LogView | None]
) -> TopicRow:
    (description,) = console.admin.describe_topics([topic.name], with_offsets=False)
    known = [view for view in views.values() if view is not None]
    end = sum(view.log_end_offset for view in known)
    return TopicRow(
        topic.name,
        topic.num_partitions,
        max((len(each.replicas) for each in description.partitions), default=0),
        end - sum(view.log_start_offset for view in known),
        sum(_size(view) for view in known),
        console.rates.per_second(topic.topic_id, end),
        sum(each.is_under_replicated for each in description.partitions),
        len(views) - len(known),
        _cleaner(topic, known),
        topic.config().table_format,
    )


class TopicParameters(Parameters):
    """The topic that is shown."""

    topic: TopicName


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a topic. Numbers are -1 if the partition cannot be read now.

    Attributes:
        partition: the partition's number.
        leader: the id of the leader's broker; -1 without a leader.
        leader_epoch: the number of changes of the leader and of the in-sync replicas.
        replicas: the brokers that have a replica, the preferred leader first.
        isr: the in-sync replicas.
        offline_replicas: the replicas on brokers that are fenced.
        is_under_replicated: whether replicas are out of sync.
        log_start_offset: the first offset that can be read.
        log_end_offset: the next offset to be written.
        size_bytes: the size of the segments of one replica, and of its part of the objects of a
            stripe that are not at home.
        segments: the number of these segments, with those in the stripe.
        in_stripe: the number of objects of a stripe that have its records, and are not at home.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    is_under_replicated: bool
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    segments: int
    in_stripe: int


@dataclass(frozen=True, slots=True)
class TopicPage:
    """A topic.

    Attributes:
        name: the topic's name.
        topic_id: the topic's id.
        records: the number of offsets between log start and end, in all partitions that can be
            read.
        size_bytes: the size of the segments, of one replica of each partition.
        records_per_second: the mean rate since the page was read before, at most a minute ago; None
            if it was not.
        cleaner: the cleaner's progress.
        table: the topic's Delta table; None if it has none.
        stripes: the topic's stripes, sorted by number; empty without stripes.
        partitions: the partitions, sorted by number.
        configs: the settings that users have made for this topic or for the cluster: key → value.
    """

    name: str
    topic_id: str
    records: int
    size_bytes: int
    records_per_second: float | None
    cleaner: CleanerState
    table: TableState | None
    stripes: tuple[StripeDescription, ...]
    partitions: tuple[Partition, ...]
    configs: Mapping[str, str | None]


def read_topic(console: Console, parameters: TopicParameters, budget: Budget) -> TopicPage:
    """Read one topic: a listing for each partition and stripe, and the newest version of its table.

    Raises:
        UnknownTopicOrPartitionError: the topic does not exist.
    """
    topic = console.cluster.topic(parameters.topic)
    (description,) = console.admin.describe_topics([topic.name], with_offsets=False)
    table = _table(console, topic)  # before the log: it never ends after the log then
    views = _views(console, [topic], budget)[topic.topic_id]
    known = [view for view in views.values() if view is not None]
    end = sum(view.log_end_offset for view in known)
    stripes = console.cluster.stripes(topic)
    return TopicPage(
        topic.name,
        topic.topic_id,
        end - sum(view.log_start_offset for view in known),
        sum(_size(view) for view in known),
        console.rates.per_second(topic.topic_id, end),
        _cleaner(topic, known),
        None if table is None else replace(table, lag=_lag(table, views)),
        tuple(console.map(lambda each: each.directory.describe(), stripes, budget)),
        tuple(
            _partition(each, views.get(each.partition), has_stripes=bool(stripes))
            for each in description.partitions
        ),
        {name: entry.value for name, entry in modified_configs(console, topic.name).items()},
    )


def _table(console: Console, topic: TopicImage) -> TableState | None:
    """Return the topic's table, without its lag; None if it has none."""
    image, table_format = console.cluster.image(), topic.config().table_format
    if not image.may_have_tables:
        return None
    table = console.tables.committer(image, topic).table
    try:
        version = table.refresh()
    except SparkLogError as error:
        console.cluster.suppressed.add("console table", table.directory, error)
        return TableState(table_format, -1, table.url, 0, 0, 0, {}, str(error))
    if version.number < 0 and table_format == "none":
        return None
    files, size_bytes = len(version.data_files), version.size_bytes
    return TableState(table_format, version.number, table.url, files, size_bytes, 0, version.ends())


def _lag(table: TableState, views: Mapping[int, LogView | None]) -> int:
    return sum(
        view.log_end_offset - max(table.ends.get(number, 0), view.log_start_offset)
        for number, view in views.items()
        if view is not None
    )


def modified_configs(console: Console, topic: str) -> Mapping[str, ConfigEntry]:
    """Return the settings that users have made for a topic or for the cluster."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    described = console.admin.describe_configs([resource], config_filter="modified")
    return described.get("topic", {}).get(topic, {})


def _views(
    console: Console, topics: Iterable[TopicImage], budget: Budget
) -> dict[str, dict[int, LogView | None]]:
    """Return the log of each partition by topic id and number; None if it cannot be read."""
    partitions = [(topic, number) for topic in topics for number in sorted(topic.partitions)]

    def observe(partition: tuple[TopicImage, int]) -> LogView | None:
        with suppress(UnknownTopicOrPartitionError):  # deleted since the metadata were read
            return console.observe(*partition)
        return None

    views: dict[str, dict[int, LogView | None]] = {}
    for (topic, number), view in zip(
        partitions, console.map(observe, partitions, budget), strict=True
    ):
        views.setdefault(topic.topic_id, {})[number] = view
    return views


def _partition(
    state: PartitionDescription, view: LogView | None, *, has_stripes: bool
) -> Partition:
    return Partition(
        state.partition,
        state.leader,
        state.leader_epoch,
        state.replicas,
        state.isr,
        state.offline_replicas,
        state.is_under_replicated,
        -1 if view is None else view.log_start_offset,
        -1 if view is None else view.log_end_offset,
        -1 if view is None else _size(view),
        -1 if view is None else len(view.live.segments),
        -1 if view is None else _in_stripe(view) if has_stripes else 0,
    )


def _in_stripe(view: LogView) -> int:
    """Return the number of segments that are entries in a stripe: those that were not rewritten."""
    return sum(segment.name.last_offset is None for segment in view.live.segments)


def _size(view: LogView) -> int:
    return sum(segment.file.size_bytes for segment in view.live.segments)


def _cleaner(topic: TopicImage, views: Iterable[LogView]) -> CleanerState:
    config = topic.config()
    segments = unmerged = clean_bytes = all_bytes = 0
    for view in views:
        is_clean = True
        for segment in view.live.segments:
            name = segment.name
            is_clean = (
                is_clean
                and name.last_offset is not None
                and name.is_compacted
                and name.generation >= view.live.clean_generation
            )
            segments += 1
            unmerged += name.last_offset is None
            all_bytes += segment.file.size_bytes
            clean_bytes += segment.file.size_bytes if is_clean else 0
    is_compacted = "compact" in config.cleanup_policy
    return CleanerState(
        ",".join(config.cleanup_policy),
        config.retention_ms,
        config.retention_bytes,
        segments,
        unmerged,
        round(1 - clean_bytes / all_bytes, 3) if is_compacted and all_bytes else None,
    )


TOPICS = View("/topics", "Topics", TopicsParameters, TopicsPage, read_topics, "topics.html")
TOPIC = View("/topic", "Topic", TopicParameters, TopicPage, read_topic, "topic.html")
