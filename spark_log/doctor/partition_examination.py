"""`PartitionExamination`: one partition, of which each file and offset is read at most once.

The number of requests for each partition and replica is a constant, whatever the partition holds:
two listings, the footer of the last segment, the newest snapshot and, if the snapshot does not have
the oldest segment, the headers of this segment. Only a suspicion costs more:
`LocalLog.transactions` reads further files for a transaction that seems to be open for a long time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from spark_log.config import TopicConfig
from spark_log.doctor.examination import Examination
from spark_log.errors import BrokerIdNotRegisteredError, NotFoundError, StorageError
from spark_log.log import LocalLog, LogView, PartitionDirectory, SegmentReader, Snapshot
from spark_log.metadata import ROOT_BROKER_ID, TopicImage
from spark_log.storage import FileInfo
from spark_log.types import TopicPartition
from spark_log.util import lazy

_MAX_BATCHES: Final = 256
"""Maximum number of a segment's batches whose headers are read for `oldest_us`."""


@dataclass(frozen=True, slots=True)
class ReplicaFiles:
    """The files of one replica.

    Attributes:
        broker_id: the id of the broker that has the replica.
        directory: the directory of the replica.
        files: the files in one listing.
        hidden: the temporary files in another listing.
    """

    broker_id: int
    directory: PartitionDirectory
    files: tuple[FileInfo, ...]
    hidden: tuple[FileInfo, ...]


class UnreachableError(Exception):
    """No replica of a partition can be used; another finding reports its failing brokers."""


class PartitionExamination:
    """One partition, whose files are read when they are first needed. Not thread-safe."""

    def __init__(self, examination: Examination, topic: TopicImage, partition: int) -> None:
        """Return the examination of a partition; nothing is read yet.

        Args:
            examination: the examination of the root.
            topic: the partition's topic.
            partition: the partition's number.
        """
        self.examination = examination
        self.topic = topic
        self.tp = TopicPartition(topic.name, partition)
        self.state = topic.partitions[partition]

    @lazy
    def config(self) -> TopicConfig:
        """The settings of the partition's topic."""
        return self.topic.config()

    @lazy
    def log(self) -> LocalLog:
        """The log of the last in-sync replica that can be used: all in-sync ones have its records.

        It is a replica, not the `PartitionLog` of the partition: that log would remove a replica
        that does not answer from the in-sync replicas, which changes the metadata.

        Raises:
            UnreachableError: no replica can be used.
        """
        cluster, state = self.examination.cluster, self.state
        for broker_id in dict.fromkeys((*reversed(state.isr), *state.replicas)):
            if broker_id in self.examination.failing_brokers:
                continue
            try:
                log = cluster.partition_log(self.topic, self.tp.partition)
                return log.replica_of(broker_id, state.directory_of(broker_id))
            except (BrokerIdNotRegisteredError, StorageError) as error:
                self.examination.failing_brokers[broker_id] = str(error)
        raise UnreachableError

    @lazy
    def view(self) -> LogView:
        """The view of the log from one listing.

        Raises:
            CorruptRecordError: the log is damaged.
            StorageError: the storage does not answer.
        """
        return self.log.observe()

    @lazy
    def view_at_home(self) -> LogView:
        """The view without records in a stripe, by one more listing if the topic has stripes.

        Merges, retention and compaction concern files of the partition's directory alone.
        """
        if not self.config.stripes:
            return self.view
        cluster = self.examination.cluster
        return cluster.replica_log(self.topic, self.tp.partition, ROOT_BROKER_ID).observe()

    @lazy
    def snapshot(self) -> Snapshot | None:
        """The newest snapshot that can be read; None without one."""
        return self.log.snapshots.newest(self.view)

    @lazy
    def oldest_segment(self) -> SegmentReader | None:
        """The first segment of the log; None if the log is empty, or was rewritten meanwhile."""
        if not self.view.live.segments:
            return None
        try:
            return self.log.files.open_listed(self.view.live.segments[0], self.view.observed_ms)
        except NotFoundError:
            return None

    @lazy
    def oldest_us(self) -> int | None:
        """The largest timestamp of the first segment, microseconds; None if it is not known.

        It is read from the snapshot, otherwise from the segment's headers. It is not known if the
        snapshot lacks the segment, and the segment has more than `_MAX_BATCHES` batches.
        """
        segments = self.view.live.segments
        if not segments:
            return None
        for summary in self.snapshot.segments if self.snapshot else ():
            if summary.name == segments[0].name:
                return summary.max_timestamp_us
        reader = self.oldest_segment
        if reader is None or reader.batch_count > _MAX_BATCHES:
            return None
        try:
            return int(reader.max_timestamp_us)
        except NotFoundError:
            return None

    @lazy
    def replicas(self) -> tuple[ReplicaFiles, ...]:
        """The files of the replicas whose brokers can be used.

        Raises:
            StorageError: a storage does not answer.
        """
        return tuple(self._list_replicas())

    def _list_replicas(self) -> Iterator[ReplicaFiles]:
        cluster = self.examination.cluster
        for broker_id in dict.fromkeys((*self.state.replicas, *self.state.joining)):
            if broker_id in self.examination.failing_brokers:
                continue
            directory = cluster.replica_log(self.topic, self.tp.partition, broker_id).files
            # List hidden files first: a file that gets its name meanwhile is then in both listings.
            hidden = tuple(directory.store.list_hidden(directory.path))
            files = tuple(directory.store.list(directory.path))
            yield ReplicaFiles(broker_id, directory, files, hidden)
