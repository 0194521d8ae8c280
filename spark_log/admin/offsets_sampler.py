"""Samples of a root's offsets: ends of partitions and committed offsets of groups, as one cut.

Committed offsets are read before the ends of the logs, and ends never move back. An end in a sample
is therefore not before an offset that was committed after the last record. A committed offset that
lies beyond the end for another reason has no lag: a lag is never negative.

A sample costs one request for new metadata, one for new commits, and one for each partition
(`PartitionSampler`), or one for each stripe with all of its partitions, and for each object that
was put there since. Lag in time costs the read of one batch for each committed offset that is
behind, once: a position has the same timestamp in the next sample. A topic that is a table costs
one request for its newest version, and the end of each of its partitions is a position, too.
Each stripe costs a listing once in half of ``file.delete.delay.ms``, and one more with details.
Members of groups cost a listing and one request for each group that ever had a member, and two more
if the group has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from zlib import crc32

from spark_log.admin.groups import describe_group
from spark_log.admin.partition_sampler import PartitionSample, PartitionSampler
from spark_log.cluster import Cluster, TopicTables
from spark_log.coordinator import GroupLog, OffsetsTable, PartitionKey
from spark_log.errors import SparkLogError, UnknownTopicOrPartitionError
from spark_log.log import Lag, StateView
from spark_log.metadata import MetadataImage, RegisterBrokerRecord, TopicImage
from spark_log.storage import listing_validity_ms, map_requests
from spark_log.types import GroupDescription, StripeDescription
from spark_log.util import SuppressedErrors

if TYPE_CHECKING:
    from spark_log.log.stripe import Stripe
    from spark_log.table import TableVersion

MAX_TIME_LOOKUPS: Final = 250
"""Maximum number of positions whose timestamps one sample reads; the largest lags come first."""

_MAX_LISTING_AGE_MS: Final = 600_000.0
"""Maximum age of the listing of a partition that has one replica and no new records, for samples
with details; and of a striped partition. Listings of 10,000 partitions take seconds, so they are
spread over this time."""

_Position = tuple[PartitionKey, int]


@dataclass(frozen=True, slots=True)
class GroupOffsetLag:
    """A group's committed offset in one partition, and its lag; or those of a topic's table.

    Attributes:
        offset: the committed offset, the next one to read; of a table, its end.
        lag: the number of offsets that the group can still read: from ``offset``, or from the log
            start offset if that is higher, to the log end offset; never negative.
        deleted: the number of offsets from ``offset`` to the log start offset, whose records were
            deleted before the group read them.
        lag_ms: the age of the first record of ``lag`` by its timestamp; 0 without such a record,
            None if it was not looked up or cannot be read.
    """

    offset: int
    lag: int
    deleted: int
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class TableSample:
    """The table of a topic at one moment.

    Attributes:
        version: the number of its newest version; -1 if none was made yet.
        files: the number of files in this version.
        size_bytes: the size of these files.
        lags: partition → its end in the table, and the lag of the table behind the log. Without
            partitions that cannot be in the table, or that could not be read.
    """

    version: int
    files: int
    size_bytes: int
    lags: Mapping[PartitionKey, GroupOffsetLag]


@dataclass(frozen=True, slots=True)
class OffsetsSample:
    """Topics, their offsets, and the groups' committed offsets, at one moment.

    Attributes:
        brokers: the registered brokers, and the root's.
        topics: the sampled topics, sorted by name. A topic that was deleted while it was read is
            left out.
        partitions: the partitions of these topics, without those that could not be read.
        groups: group id → partition → its committed offset and lag, in partitions of the sample.
        descriptions: group id → description, of groups that ever had a member; empty without
            details.
        tables: topic → its table, of topics with ``table.format=delta``; empty without details.
        stripes: topic → its stripes that could be listed, of topics with stripes; empty without
            details.
    """

    brokers: tuple[RegisterBrokerRecord, ...]
    topics: tuple[TopicImage, ...]
    partitions: Mapping[PartitionKey, PartitionSample]
    groups: Mapping[str, Mapping[PartitionKey, GroupOffsetLag]]
    descriptions: Mapping[str, GroupDescription]
    tables: Mapping[str, TableSample]
    stripes: Mapping[str, Sequence[StripeDescription]]


class OffsetsSampler:
    """Reads sample after sample of one root. One thread at a time uses it.

    Between two samples it keeps a few numbers for each partition and each position of a group.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str] | None = None,
        groups: Collection[str] = (),
        *,
        with_details: bool = False,
        failures: SuppressedErrors | None = None,
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            cluster: the opened root.
            topics: the names of the topics; None for all.
            groups: the ids of the groups; empty for all.
            with_details: whether to read lag in time, and the members of groups.
            failures: the counts of failed reads: partitions and groups that cannot be read are left
                out of a sample. None to raise their errors.
        """
        self._cluster = cluster
        self._names = topics
        self._groups = groups
        self._with_details = with_details
        self._failures = failures
        self._table = OffsetsTable(cluster)
        self._tables = TopicTables(cluster)
        self._samplers: dict[PartitionKey, PartitionSampler] = {}
        self._since_us: dict[_Position, int | None] = {}
        self._groups_before: dict[str, GroupLog] = {}
        self._topics_before: dict[str, TopicImage] = {}
        self._is_first = True

    def sample(self) -> OffsetsSample:
        """Read the present state of topics and groups.

        Raises:
            UnknownTopicOrPartitionError: a topic did not exist when the first sample was read.
            SparkLogError: the storage cannot be read, or is damaged.
        """
        image = self._cluster.image()
        topics = self._topics(image)
        # Committed offsets first: those that are read later may be ahead of the log ends.
        committed = {
            group_id: positions
            for group_id, positions in self._table.all_committed_offsets().items()
            if self._wants(group_id)
        }
        versions = self._read_tables(image, topics) if self._with_details else {}
        deleted: set[str] = set()
        partitions = self._read_partitions(topics, deleted)
        self._is_first = False
        if self._with_details:
            readers = [
                *_table_ends(topics, versions).values(),
                *(
                    {key: each.offset for key, each in positions.items()}
                    for positions in committed.values()
                ),
            ]
            self._look_up_times(readers, partitions)
        return OffsetsSample(
            tuple(image.brokers()),
            tuple(topic for topic in topics if topic.topic_id not in deleted),
            partitions,
            {
                group_id: {
                    key: self._offset_lag(key, position.offset, partitions[key])
                    for key, position in sorted(positions.items())
                    if key in partitions
                }
                for group_id, positions in sorted(committed.items())
            },
            self._describe_groups() if self._with_details else {},
            {
                topic: TableSample(
                    versions[topic].number,
                    len(versions[topic].data_files),
                    versions[topic].size_bytes,
                    {
                        key: self._offset_lag(key, end, partitions[key])
                        for key, end in ends.items()
                        if key in partitions
                    },
                )
                for topic, ends in _table_ends(topics, versions).items()
            },
            self._describe_stripes(topics, deleted) if self._with_details else {},
        )

    def _wants(self, group_id: str) -> bool:
        return not self._groups or group_id in self._groups

    def _topics(self, image: MetadataImage) -> list[TopicImage]:
        if self._names is None:
            return list(image.topics())
        if self._is_first:
            return [image.topic(name) for name in sorted(self._names)]
        return [topic for name in sorted(self._names) if (topic := image.find(name))]

    def _read_tables(
        self, image: MetadataImage, topics: Iterable[TopicImage]
    ) -> dict[str, TableVersion]:
        """Return the newest version of each table, by topic."""

        def read(topic: TopicImage) -> TableVersion | None:
            try:
                return self._tables.read(image, topic)
            except SparkLogError as error:
                if self._failures is None:
                    raise
                self._failures.add("table sample", topic.name, error)
            return None

        tables = [each for each in topics if each.config().table_format != "none"]
        found = map_requests(self._cluster.store, read, tables)
        return {
            topic.name: version
            for topic, version in zip(tables, found, strict=True)
            if version is not None
        }

    def _describe_stripes(
        self, topics: Iterable[TopicImage], deleted: Collection[str]
    ) -> dict[str, list[StripeDescription]]:
        """Return the stripes of each topic that has some, by a listing of each."""

        def describe(pair: tuple[TopicImage, Stripe]) -> StripeDescription | None:
            directory = pair[1].directory
            try:
                return directory.describe()
            except SparkLogError as error:
                if self._failures is None:
                    raise
                self._failures.add("stripe sample", directory.path, error)
            return None

        stripes = [
            (topic, stripe)
            for topic in topics
            if topic.topic_id not in deleted
            for stripe in self._cluster.stripes(topic)
        ]
        described: dict[str, list[StripeDescription]] = {}
        found = map_requests(self._cluster.store, describe, stripes)
        for (topic, _), each in zip(stripes, found, strict=True):
            if each is not None:
                described.setdefault(topic.name, []).append(each)
        return described

    def _read_partitions(
        self, topics: Iterable[TopicImage], deleted: set[str]
    ) -> dict[PartitionKey, PartitionSample]:
        """Return the sample of each partition; add the ids of deleted topics to ``deleted``."""
        by_key = {key: topic for topic in topics for key in partition_keys(topic)}
        for key in self._samplers.keys() - by_key.keys():
            del self._samplers[key]
        for key, topic in by_key.items():
            sampler = self._samplers.get(key)
            if sampler is None:
                self._samplers[key] = PartitionSampler(
                    self._cluster.partition_log(topic, key.partition),
                    is_new=not self._is_first,
                    max_listing_age_ms=self._max_listing_age_ms(topic, key.partition),
                )
            elif topic is not (known := self._topics_before.get(key.topic_id)) and topic != known:
                sampler.reopen(
                    self._cluster.partition_log(topic, key.partition),
                    self._max_listing_age_ms(topic, key.partition),
                )
        self._topics_before = {topic.topic_id: topic for topic in by_key.values()}

        unread = self._poll_stripes(by_key, deleted)

        def read(key: PartitionKey) -> PartitionSample | None:
            if self._samplers[key].stripe in unread:
                return None
            try:
                with self._cluster.detecting_deletion(by_key[key]):
                    return self._samplers[key].read()
            except UnknownTopicOrPartitionError:
                deleted.add(key.topic_id)
            except SparkLogError as error:
                if self._failures is None:
                    raise
                self._failures.add("partition sample", f"{key.topic}-{key.partition}", error)
            return None

        found = map_requests(self._cluster.store, read, by_key)
        return {
            key: sample
            for key, sample in zip(by_key, found, strict=True)
            if sample is not None and key.topic_id not in deleted
        }

    def _poll_stripes(
        self, by_key: Mapping[PartitionKey, TopicImage], deleted: set[str]
    ) -> set[Stripe | None]:
        """Learn the ends of striped partitions; return the stripes that could not be read."""
        stripes = {
            stripe: topic
            for key, topic in by_key.items()
            if (stripe := self._samplers[key].stripe) is not None
        }

        def poll(stripe: Stripe) -> bool:
            try:
                with self._cluster.detecting_deletion(stripes[stripe]):
                    stripe.reader.poll()
                    stripe.reader.look_for_home(is_recent_enough=True)
                    return True
            except UnknownTopicOrPartitionError:
                deleted.add(stripes[stripe].topic_id)
            except SparkLogError as error:
                if self._failures is None:
                    raise
                self._failures.add("stripe sample", stripe.directory.path, error)
            return False

        found = map_requests(self._cluster.store, poll, stripes)
        return {stripe for stripe, is_read in zip(stripes, found, strict=True) if not is_read}

    def _max_listing_age_ms(self, topic: TopicImage, partition: int) -> float:
        """Return the maximum age of a partition's listing.

        The listing of a replicated partition may be that of a replica that has left the in-sync
        replicas.
        """
        config = topic.config()
        valid_ms = listing_validity_ms(config.file_delete_delay_ms)
        is_replicated = len(topic.partitions[partition].replicas) > 1
        if is_replicated or not (self._with_details or config.stripes):
            return valid_ms
        spread = crc32(f"{topic.topic_id}-{partition}".encode()) % 1000 / 2000
        return max(valid_ms, _MAX_LISTING_AGE_MS * (1 - spread))

    def _look_up_times(
        self,
        readers: Iterable[Mapping[PartitionKey, int]],
        partitions: Mapping[PartitionKey, PartitionSample],
    ) -> None:
        """Look up the timestamps of first unread records, and forget those of other positions."""
        lags = {
            (key, lag.first_offset): lag.unread
            for positions in readers
            for key, offset in positions.items()
            if key in partitions and (lag := _lag(offset, partitions[key])).unread
        }
        known = {each: self._since_us[each] for each in lags.keys() & self._since_us.keys()}
        new = sorted(lags.keys() - known.keys(), key=lags.__getitem__, reverse=True)
        by_partition: dict[PartitionKey, list[int]] = {}
        for key, offset in new[:MAX_TIME_LOOKUPS]:
            by_partition.setdefault(key, []).append(offset)

        def look_up(key: PartitionKey) -> list[tuple[_Position, int | None]]:
            sampler = self._samplers[key]
            return [((key, each), sampler.first_unread_us(each)) for each in by_partition[key]]

        for found in map_requests(self._cluster.store, look_up, by_partition):
            known.update(found)
        self._since_us = known

    def _describe_groups(self) -> dict[str, GroupDescription]:
        store, clock = self._cluster.store, self._cluster.clock
        group_ids = [each for each in GroupLog.list_names(store, clock) if self._wants(each)]
        logs = {each: self._groups_before.get(each) for each in group_ids}
        self._groups_before = {
            group_id: log or GroupLog(store, group_id, clock) for group_id, log in logs.items()
        }

        def describe(group_id: str) -> GroupDescription | None:
            log = self._groups_before[group_id]
            try:
                log.replay()
            except SparkLogError as error:
                if self._failures is None:
                    raise
                self._failures.add("group sample", group_id, error)
                return None
            return describe_group(StateView(log.state))

        found = map_requests(store, describe, group_ids)
        return {each.group_id: each for each in found if each is not None}

    def _offset_lag(
        self, key: PartitionKey, offset: int, sample: PartitionSample
    ) -> GroupOffsetLag:
        lag = _lag(offset, sample)
        lag_ms = None if lag.unread else 0
        since_us = self._since_us.get((key, lag.first_offset))
        if lag.unread and since_us is not None:
            lag_ms = max(0, self._cluster.clock.time_us() - since_us) // 1000  # only shown
        return GroupOffsetLag(offset, lag.unread, lag.deleted, lag_ms)


def _lag(offset: int, sample: PartitionSample) -> Lag:
    return Lag.of(offset, sample.log_start_offset, sample.log_end_offset)


def _table_ends(
    topics: Iterable[TopicImage], versions: Mapping[str, TableVersion]
) -> dict[str, dict[PartitionKey, int]]:
    """Return the end of each partition in the table of its topic, by topic."""
    return {
        topic.name: {
            key: versions[topic.name].partitions[key.partition].end
            for key in partition_keys(topic)
            if key.partition in versions[topic.name].partitions
        }
        for topic in topics
        if topic.name in versions
    }


def partition_keys(topic: TopicImage) -> list[PartitionKey]:
    """Return the partitions of a topic, in order of their numbers."""
    return [PartitionKey(topic.name, topic.topic_id, each) for each in sorted(topic.partitions)]
