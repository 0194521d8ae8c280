"""Cleans the partitions of a root, and removes the files of its deleted topics.

Each partition is cleaned by the present configs of its topic, as in Kafka's cleaner. On an object
store they may be five seconds old.

Each replica is cleaned by itself, up to the high watermark. A record after the high watermark may
yet be lost, so it replaces no other record, and other replicas still copy its segment.

This module cleans topics only. Internal logs need no cleaner: the metadata log is small, a group's
log moves its own start, and the offsets table has its own maintenance.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Final, NamedTuple

from spark_log.cluster.cluster import Cluster
from spark_log.cluster.stray_replicas import StrayReplica, remove_stray_replicas
from spark_log.cluster.stripe_cleaning import CleanedStripe, clean_stripes
from spark_log.cluster.topic_deletion import DeletedTopic, finish_deletions
from spark_log.cluster.topic_tables import TopicTables
from spark_log.errors import (
    BrokerIdNotRegisteredError,
    ClockSkewError,
    CorruptRecordError,
    InvalidConfigurationError,
    ReplicationError,
    SparkLogError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import DirectoryListing
from spark_log.log.clean import DEDUPE_BUFFER_BYTES, CleanReport, OnProgress, PartitionCleaner
from spark_log.metadata import (
    METADATA_DIRECTORY,
    METADATA_LEASE_MS,
    ROOT_BROKER_ID,
    MetadataImage,
    TopicImage,
    state_of,
)
from spark_log.storage import StorageClock, check_clock_skew, storage_time_us
from spark_log.threads import call_beside
from spark_log.types import TopicPartition

FAILURES: Final = (StorageError, CorruptRecordError, ReplicationError, BrokerIdNotRegisteredError)
"""The errors of one replica or one table, which do not stop the cleaning of others."""

_MAX_AT_ONCE: Final = 16
"""Maximum number of partitions that are listed at the same time on an object store."""

_log = logging.getLogger(__name__)


def check_clock(cluster: Cluster) -> None:
    """Check that this process may delete files of a root: its clock agrees with the storage's.

    Raises:
        ClockSkewError: the clocks are more than ``max.clock.skew.ms`` apart.
        StorageError: the storage does not answer.
    """
    max_skew_ms = cluster.image().cluster_config().max_clock_skew_ms
    now_us = storage_time_us(cluster.store, METADATA_DIRECTORY)
    check_clock_skew(cluster.clock, now_us, max_skew_ms)


class CleanedPartition(NamedTuple):
    """The result of cleaning one replica of a partition.

    Attributes:
        partition: the topic and partition.
        report: the report of the cleaning; None if it failed.
        error: the reason of a failure; None after a success.
        broker_id: the id of the replica's broker; None if cleaning failed before the replicas were
            known.
    """

    partition: TopicPartition
    report: CleanReport | None
    error: SparkLogError | None = None
    broker_id: int | None = ROOT_BROKER_ID


def clean_replicas(
    cluster: Cluster,
    topic: TopicImage,
    partition: int,
    *,
    dry_run: bool,
    max_clock_skew_ms: int,
    on_progress: OnProgress,
    dedupe_buffer_bytes: int,
    storage_clock: StorageClock | None = None,
    rewriting: AbstractContextManager[object] | None = None,
    table_at_once: bool = False,
    tables: TopicTables | None = None,
) -> Iterator[CleanedPartition]:
    """Clean the replicas of a partition in turn; the failure of one does not stop the others.

    Args:
        cluster: the opened root.
        topic: the partition's topic.
        partition: the partition's number.
        dry_run: report what would be done, and do nothing.
        max_clock_skew_ms: the cluster's ``max.clock.skew.ms``.
        on_progress: called with the number of bytes just processed; it may sleep to throttle.
        dedupe_buffer_bytes: memory for the offset map of compaction.
        storage_clock: the storages' clock, shared by several partitions; None asks the storage.
        rewriting: entered while merging or compacting: a lock if several partitions are cleaned
            at the same time.
        table_at_once: whether segments of a topic that is a table are written as Parquet before
            ``table.commit.interval.ms`` has passed.
        tables: the tables of topics, shared by several partitions. The caller appends versions to
            the topic's table afterwards.

    Raises:
        UnknownTopicOrPartitionError: the topic was deleted.
        ClockSkewError: this process's clock is too far from the clock of the cluster's root.
    """

    def clean(broker_id: int, number: int, start_offset: int, limit_offset: int) -> CleanReport:
        if broker_id != ROOT_BROKER_ID:
            cluster.check_broker(broker_id)  # an empty mount point must not get files
        replica = cluster.replica_log(topic, partition, broker_id, number)
        is_listed = listing is not None and listing.view.origin == replica.files.url
        seen = listing if is_listed else None
        cleaner = PartitionCleaner(
            replica,
            on_progress=on_progress,
            dedupe_buffer_bytes=dedupe_buffer_bytes,
            max_clock_skew_ms=max_clock_skew_ms,
            start_offset=start_offset,
            limit_offset=limit_offset,
            storage_clock=storage_clock,
            rewriting=rewriting,
            listing=seen,
            table_at_once=table_at_once,
            table=of_topics.of_log(image, topic, partition, broker_id, seen),
        )
        return cleaner.plan() if dry_run else cleaner.clean()

    listing: DirectoryListing | None = None
    of_topics, image = tables or TopicTables(cluster), cluster.metadata.known_image()
    tp = TopicPartition(topic.name, partition)
    known = topic.partitions[partition]
    log = cluster.partition_log(topic, partition)
    try:
        view, state, listing = log.observe_replicas()
    except FAILURES as error:
        if len(known.replicas) > 1 or known.leader_epoch > 0:
            yield CleanedPartition(tp, None, error, None)
            return
        # A cleaner deletes spent files even of a damaged log, and reports the damage.
        start_offset = high_watermark = 0
        state = state_of(known)
    else:
        start_offset, high_watermark = view.log_start_offset, view.log_end_offset
    for broker_id in dict.fromkeys((*state.chain, *state.replicas)):
        try:
            limit_offset = high_watermark
            if broker_id not in state.isr:
                limit_offset = log.committed_end(state, broker_id)
            number = state.directory_number(broker_id)
            report = clean(broker_id, number, start_offset, limit_offset)
        except ClockSkewError as error:
            if broker_id == ROOT_BROKER_ID:
                raise
            yield CleanedPartition(tp, None, error, broker_id)
        except FAILURES as error:
            yield CleanedPartition(tp, None, error, broker_id)
        else:
            _log_report(tp, broker_id, report, dry_run=dry_run)
            yield CleanedPartition(tp, report, broker_id=broker_id)


def _log_report(tp: TopicPartition, broker_id: int, report: CleanReport, *, dry_run: bool) -> None:
    _log.debug(
        "%s on broker %d%s: log start offset %d; retention removed %d segments (%d bytes); merged "
        "%d segments into %d; compaction kept %d of %d records; deleted %d files (%d bytes)",
        tp,
        broker_id,
        ", in a dry run" if dry_run else "",
        report.log_start_offset,
        report.expired_segments,
        report.expired_bytes,
        report.merged_segments,
        report.merged_into,
        report.kept_records,
        report.compacted_records,
        report.deleted_files,
        report.deleted_bytes,
    )


class ClusterCleaner:
    """Cleans partitions; the failure of one does not stop the others.

    On an object store several partitions are listed at the same time. Only one of them at a time is
    merged or compacted, so that memory and throttling do not depend on their number. The stripes of
    the partitions are cleaned before, one after the other.

    Attributes:
        stripes: the results of the stripes, as far as they are cleaned.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Collection[str] | None = None,
        partitions: Collection[int] | None = None,
        *,
        dry_run: bool = False,
        on_progress: OnProgress = lambda done_bytes: None,
        dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
        table_at_once: bool = False,
    ) -> None:
        """Return a cleaner for some partitions of a root, or for all.

        Args:
            cluster: the opened root.
            topics: the names of topics; None for all, including the files of deleted topics.
            partitions: the numbers of the partitions to clean; None for all.
            dry_run: report what would be done, and do nothing.
            on_progress: called with the number of bytes just processed; it may sleep to throttle.
            dedupe_buffer_bytes: memory for the offset map of compaction.
            table_at_once: whether segments of topics that are tables are written as Parquet before
                ``table.commit.interval.ms`` has passed.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist, or has no such partition.
        """
        image = cluster.image()
        chosen = list(image.topics()) if topics is None else [image.topic(name) for name in topics]
        if any(topic.moving_to is not None for topic in chosen):
            from spark_log.cluster.stripes_change import complete_changes  # late: seldom needed

            chosen = complete_changes(cluster, chosen, dry_run=dry_run)
        self._topics = {
            TopicPartition(topic.name, number): topic
            for topic in chosen
            for number in (sorted(topic.partitions) if partitions is None else partitions)
            if topics is not None or number in topic.partitions
        }
        if partitions is not None:
            for tp, topic in self._topics.items():
                cluster.partition_log(topic, tp.partition)  # raises if there is no such partition
            if not self._topics:
                raise UnknownTopicOrPartitionError(f"no topic has a partition {list(partitions)}")
        self._cluster = cluster
        self._max_clock_skew_ms = image.cluster_config().max_clock_skew_ms
        self._is_whole = topics is None and partitions is None
        self._dry_run = dry_run
        self._on_progress = on_progress
        self._dedupe_buffer_bytes = dedupe_buffer_bytes
        self._table_at_once = table_at_once
        self.stripes: list[CleanedStripe] = []
        self._storage_clock = StorageClock(cluster.clock)
        self._tables = TopicTables(cluster)
        self._rewriting = threading.Lock()

    def __len__(self) -> int:
        """Return the number of partitions to clean."""
        return len(self._topics)

    def clean(self) -> Iterator[CleanedPartition]:
        """Clean the partitions; skip partitions whose topic was deleted meanwhile.

        Before, take home the stripes that they are in. Then append versions to the tables of their
        topics.

        Yields:
            The result for each replica, in the order of the partitions; for each stripe that could
            not be cleaned, the error, with its first partition; and for each table that could not
            be brought up to date, the error, with the topic's first partition.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's; the remaining
                partitions are not cleaned.
        """
        yield from self._clean_stripes()
        if self._cluster.store.is_local:
            for partition, topic in self._topics.items():
                yield from self._clean(partition, topic)
        else:
            yield from self._clean_at_once()
        if not self._dry_run:
            yield from self.commit_tables()
            self._cluster.keep_reserve()

    def _clean_stripes(self) -> Iterator[CleanedPartition]:
        """Take the stripes of the partitions home, and free their numbers; yield the errors."""
        cleaned = clean_stripes(
            self._cluster,
            self._topics,
            dry_run=self._dry_run,
            max_clock_skew_ms=self._max_clock_skew_ms,
            storage_clock=self._storage_clock,
            on_progress=self._on_progress,
        )
        for each in cleaned:
            self.stripes.append(each)
            if each.error is not None and not self._is_deleted(each.topic):
                yield CleanedPartition(
                    TopicPartition(each.topic.name, each.stripe), None, each.error
                )

    def commit_tables(self) -> Iterator[CleanedPartition]:
        """Append versions to the tables of the cleaned topics; yield the errors."""
        for topic in self._tables.used():
            cleaned = [tp.partition for tp, each in self._topics.items() if each.name == topic.name]
            try:
                self._tables.commit(topic.topic_id, cleaned, self._storage_clock)
            except (*FAILURES, InvalidConfigurationError) as error:
                if not self._is_deleted(topic):
                    yield CleanedPartition(TopicPartition(topic.name, min(cleaned)), None, error)

    def _clean_at_once(self) -> Iterator[CleanedPartition]:
        begun: deque[Callable[[], list[CleanedPartition]]] = deque()
        for partition, topic in self._topics.items():
            begun.append(call_beside(partial(list, self._clean(partition, topic))))
            if len(begun) == _MAX_AT_ONCE:
                yield from begun.popleft()()
        while begun:
            yield from begun.popleft()()

    def _clean(self, partition: TopicPartition, opened: TopicImage) -> Iterator[CleanedPartition]:
        topic, max_clock_skew_ms = opened, self._max_clock_skew_ms
        # Use the configs of this moment, if they can be read.
        with self._cluster.suppressed.suppress(
            "reading of settings", str(partition), StorageError, CorruptRecordError
        ):
            image = self._recent_image()
            max_clock_skew_ms = image.cluster_config().max_clock_skew_ms
            topic = image.find_by_id(opened.topic_id) or opened
        with suppress(UnknownTopicOrPartitionError):  # deleted
            for cleaned in clean_replicas(
                self._cluster,
                topic,
                partition.partition,
                dry_run=self._dry_run,
                max_clock_skew_ms=max_clock_skew_ms,
                on_progress=self._on_progress,
                dedupe_buffer_bytes=self._dedupe_buffer_bytes,
                storage_clock=self._storage_clock,
                rewriting=self._rewriting,
                table_at_once=self._table_at_once,
                tables=self._tables,
            ):
                if cleaned.error is None or not self._is_deleted(topic):
                    yield cleaned

    def _recent_image(self) -> MetadataImage:
        """Return the metadata; on an object store they may be `METADATA_LEASE_MS` old."""
        cluster = self._cluster
        if cluster.store.is_local:
            return cluster.image()
        return cluster.metadata.recent_image(METADATA_LEASE_MS) or cluster.image()

    def _is_deleted(self, topic: TopicImage) -> bool:
        """Return whether the topic was deleted since this cleaner was created."""
        try:
            return self._cluster.image().find_by_id(topic.topic_id) is None
        except (StorageError, CorruptRecordError):
            return False

    def deleted_topics(self) -> Iterator[DeletedTopic]:
        """Remove the files of deleted topics, if this cleaner is for all topics.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's.
            StorageError: the storage does not answer.
        """
        if self._is_whole:
            yield from finish_deletions(self._cluster, dry_run=self._dry_run)
            if not self._dry_run:
                self._cluster.keep_reserve()

    def stray_replicas(self) -> Iterator[StrayReplica]:
        """Remove the directories of former replicas, if this cleaner is for all topics.

        Raises:
            ClockSkewError: this process's clock is too far from a storage's.
            StorageError: the storage does not answer.
        """
        if self._is_whole:
            yield from remove_stray_replicas(self._cluster, dry_run=self._dry_run)
