"""The tables of a cluster's topics, for those who clean logs and delete records.

A topic is a Delta table if ``table.format`` is ``delta``. `spark_log.table` is imported when a
topic may have a table: clusters that use none need neither the time nor the memory.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING

from spark_log.cluster.cluster import Cluster
from spark_log.log import DirectoryListing
from spark_log.metadata import MetadataImage, TopicImage
from spark_log.storage import StorageClock

if TYPE_CHECKING:
    from spark_log.table import TableCommitter, TableOfLog, TableVersion


class TopicTables:
    """The tables of the topics of one cluster. Thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        """Return the tables of a cluster; nothing is read yet."""
        self._cluster = cluster
        self._lock = threading.Lock()
        self._committers: dict[str, TableCommitter] = {}
        self._metadata_offset = -1
        self._used: dict[str, TopicImage] = {}

    def of_log(
        self,
        image: MetadataImage,
        topic: TopicImage,
        partition: int,
        broker_id: int,
        listing: DirectoryListing | None,
    ) -> TableOfLog | None:
        """Return the table of one replica's log, which cleaning it asks; no request is sent.

        Args:
            image: the metadata that has the topic.
            topic: the topic.
            partition: the partition's number.
            broker_id: the broker that has the replica.
            listing: a listing of the replica's directory, made a moment ago; None without one.

        Returns:
            The table; None if no topic of the cluster ever had one.
        """
        if not image.may_have_tables:
            return None
        from spark_log.table import TableOfLog

        files = None if listing is None or listing.files is None else listing.files[0]
        names = None if files is None else [file.name for file in files]
        committer = self.committer(image, topic)
        found = TableOfLog(committer, partition, broker_id, file_names=names)
        if not found.is_empty:
            self._used[topic.topic_id] = topic
        return found

    def used(self) -> Collection[TopicImage]:
        """Return the topics whose logs may have rows in a table, of those that were asked for."""
        return tuple(self._used.values())

    def commit(
        self,
        topic_id: str,
        partitions: Collection[int] | None = None,
        storage_clock: StorageClock | None = None,
    ) -> TableVersion | None:
        """Append versions to a topic's table until it has what it may have.

        Args:
            topic_id: the topic's id.
            partitions: the partitions whose logs have changed; None for all.
            storage_clock: the storage's clock, by which old versions are deleted, and, with all
                partitions, what other programs left; None deletes nothing.

        Returns:
            The newest version; None if the topic was deleted, or no topic ever had a table.

        Raises:
            InvalidConfigurationError: a partition has no replica in the cluster's root.
            CorruptRecordError: a segment is damaged.
            StorageError: the storage does not answer, or the table is damaged or was changed by
                another program.
        """
        image = self._cluster.image()
        topic = image.find_by_id(topic_id)
        if topic is None or not image.may_have_tables:
            return None
        committer = self.committer(image, topic)
        version = committer.commit(partitions)
        if storage_clock is not None and version.number >= 0:
            now_us = storage_clock.read(self._cluster.store, topic.directory).shown_us
            if committer.has_written_checkpoint:
                committer.delete_versions(now_us)
            if partitions is None or version.partitions.keys() <= set(partitions):
                committer.delete_left_files(now_us)
        return version

    def read(self, image: MetadataImage, topic: TopicImage) -> TableVersion | None:
        """Read the newest version of a topic's table; one request if no new version exists.

        Args:
            image: the metadata that has the topic.
            topic: the topic.

        Returns:
            The version, whose number is -1 if the topic has no table; None without a request if no
            topic of the cluster ever had one.

        Raises:
            StorageError: the storage does not answer, or the table is damaged.
        """
        if not image.may_have_tables:
            return None
        return self.committer(image, topic).table.refresh()

    def move_start(
        self, image: MetadataImage, topic: TopicImage, partition: int, offset: int
    ) -> None:
        """Move the start of a partition's table up to the log's start (protocol B11).

        Args:
            image: the metadata that has the topic.
            topic: the topic.
            partition: the partition's number.
            offset: the log start offset.

        Raises:
            StorageError: the table's start was not moved; call this again.
        """
        if image.may_have_tables:
            self.committer(image, topic).move_start(partition, offset)

    def committer(self, image: MetadataImage, topic: TopicImage) -> TableCommitter:
        """Return the committer of a topic's table; no request is sent.

        Args:
            image: the metadata that has the topic.
            topic: the topic.
        """
        from spark_log.table import TableCommitter, TopicTable

        with self._lock:
            if image.offset > self._metadata_offset:
                self._metadata_offset = image.offset
                self._forget_deleted(image)
            found = self._committers.get(topic.topic_id)
            if found is None or found.topic is not topic:
                table = TopicTable(self._cluster.store, topic, self._cluster.clock)
                found = TableCommitter(table, image.offset)
                self._committers[topic.topic_id] = found
            return found

    def _forget_deleted(self, image: MetadataImage) -> None:
        """Forget the committers of deleted topics: they hold the files of a whole table."""
        self._committers = {
            topic_id: each
            for topic_id, each in self._committers.items()
            if image.find_by_id(topic_id) is not None
        }
