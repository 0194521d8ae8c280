"""`RootMirror`: copies topics of one root to another one, segment by segment.

The target's topics have the names and the ids of the source's, and its segments are the source's
files. So every record has the same offset, and nothing is decoded or encoded. The checksum of each
batch is checked before it is copied, where the source's files are mapped.

A crash at any point leaves a prefix of the source's log, at which the next copy continues. Two
mirrors at once copy the same files under the same names, so one of them finds them there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from spark_log.errors import InvalidConfigurationError, InvalidTopicError, LeaderNotAvailableError
from spark_log.log import (
    NO_LEADER,
    DivergedReplicaError,
    LeaderFailedError,
    Replica,
    ReplicaFetcher,
    follow_log_start,
)
from spark_log.metadata import (
    Cluster,
    MetadataImage,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    TopicImage,
    partition_records,
    topic_records,
)
from spark_log.mirror.replication_policy import TopicFilter
from spark_log.record import RECORD_SCHEMA
from spark_log.types import NewTopic, TopicPartition

_THREADS: Final = 4
"""Partitions that are copied at the same time."""


@dataclass(frozen=True, slots=True)
class CopiedPartition:
    """What a copy of a partition did.

    Attributes:
        topic_partition: the partition.
        copied_bytes: size of the segments that were copied.
        copied_segments: their number.
        end_offset: the log end offset of the target now.
        lag: number of offsets up to the last stable offset of the source.
    """

    topic_partition: TopicPartition
    copied_bytes: int
    copied_segments: int
    end_offset: int
    lag: int


class RootMirror:
    """Copies topics of a source root to a target root. Nobody else may write to them there.

    Only what is decided is copied: a segment with records of a transaction that is open in the
    source is copied when the transaction has ended. A topic of the target has one replica.
    """

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        topics: TopicFilter,
        on_progress: Callable[[int], object] = lambda done_bytes: None,
    ) -> None:
        """Access nothing yet.

        Args:
            source: the root that is read.
            target: the root that is written.
            topics: which topics are copied.
            on_progress: called with the size of each segment after it was copied, by any thread.
        """
        self._source = source
        self._target = target
        self._topics = topics
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._bytes = 0
        self._lag: dict[TopicPartition, int] = {}

    def copy(self) -> list[CopiedPartition]:
        """Create what the target lacks, and copy every partition up to its last stable offset.

        Returns:
            What was done, by partition.

        Raises:
            InvalidConfigurationError: source and target are one root.
            InvalidTopicError: the target has another topic with the name of one that is copied.
            DivergedReplicaError: somebody else has written to a partition of the target.
            CorruptRecordError: the source is damaged. The damage was not copied.
            SparkLogError: a root cannot be read or written. What was copied stays.
        """
        if self._source.cluster_id == self._target.cluster_id:
            raise InvalidConfigurationError(
                f"source and target have the same cluster id, {self._source.cluster_id}: they are "
                f"one root, or one is a copy of the other's files; give two roots"
            )
        image = self._source.image()
        topics = [each for each in image.topics() if self._topics(each.name)]
        self._target.metadata.commit(lambda there: _records(topics, image, there))
        partitions = [
            TopicPartition(topic.name, number) for topic in topics for number in topic.partitions
        ]
        found = self._target.image()
        with ThreadPoolExecutor(_THREADS, "spark-log-mirror") as threads:
            done = list(threads.map(lambda tp: self._copy(tp, image, found), partitions))
        self._lag = {each.topic_partition: each.lag for each in done}
        return done

    def metrics(self) -> dict[str, float]:
        """Return metrics since the mirror was made, under the names of `Mirror.metrics`."""
        return {
            "byte-count": self._bytes,
            "records-lag": sum(self._lag.values()),
            "records-lag-max": max(self._lag.values(), default=0),
            "partition-count": len(self._lag),
        }

    def _copy(
        self, tp: TopicPartition, image: MetadataImage, target: MetadataImage
    ) -> CopiedPartition:
        log = self._source.partition_log(image.topic(tp.topic), tp.partition)
        state = log.states.refresh()
        if state.leader == NO_LEADER:
            raise LeaderNotAvailableError(
                f"{tp} has no leader: nothing can be copied", topic=tp.topic, partition=tp.partition
            )
        leader = log.replica_of(state.leader, state.directory_number(state.leader))
        there = self._target.partition_log(target.topic(tp.topic), tp.partition)
        present = there.states.refresh()
        number = present.directory_number(present.leader)
        follower = there.replica_of(present.leader, number)
        copied: list[int] = []

        def count(done_bytes: int) -> None:
            copied.append(done_bytes)
            with self._lock:
                self._bytes += done_bytes
            self._on_progress(done_bytes)

        fetcher = ReplicaFetcher(leader, follower, count, check_crcs=True)
        offset = follower.follower.observe().log_end_offset
        view = log.observe()
        if view.log_start_offset < offset <= view.log_end_offset:
            last = offset - 1
            if _record(leader, last) != _record(follower, last):
                raise DivergedReplicaError(
                    f"{tp} has another record at offset {last} in the target than in the source: "
                    f"somebody else has written to the target. Delete its topic, or exclude it",
                    offset=last,
                )
        elif offset > view.log_end_offset:
            raise DivergedReplicaError(
                f"{tp} ends at offset {offset} in the target, and at {view.log_end_offset} in the "
                f"source: somebody else has written to the target. Delete its topic, or exclude it",
                offset=view.log_end_offset,
                is_ahead=True,
            )
        end = log.end_offset(view, isolation_level="read_committed")
        try:
            offset = fetcher.fetch(offset, end, whole=False)
        except LeaderFailedError as failed:
            raise failed.error from failed
        follow_log_start(follower, min(view.log_start_offset, offset))
        return CopiedPartition(tp, sum(copied), len(copied), offset, max(0, end - offset))


def _records(
    topics: list[TopicImage], source: MetadataImage, target: MetadataImage
) -> list[MetadataRecord]:
    """Return what the target's metadata lack: topics, partitions, epochs and producer ids."""
    records: list[MetadataRecord] = []
    # The ids of the source's producers are in its segments: a producer of the target gets others.
    if target.next_producer_id < source.next_producer_id:
        records.append(ProducerIdsRecord(next_producer_id=source.next_producer_id))
    for topic in topics:
        found = target.find(topic.name)
        if found is None:
            new = NewTopic(topic.name, topic.num_partitions, 1, _settings(topic.overrides))
            created = topic_records(new, topic.topic_id, target)
        elif found.topic_id != topic.topic_id:
            raise InvalidTopicError(
                f"the target has another topic {topic.name!r}, which was not copied from this "
                f"source: delete it, or exclude it",
                topic=topic.name,
            )
        elif found.num_partitions < topic.num_partitions:
            created = partition_records(found, topic.num_partitions, target)
        else:
            created = []
        records += created
        for number, partition in topic.partitions.items():
            known = found.partitions.get(number) if found else None
            behind = partition.leader_epoch - (known.leader_epoch if known else 0)
            leader = known.leader if known else 0
            change = PartitionChangeRecord(
                topic_id=topic.topic_id, partition_id=number, leader=leader
            )
            records += [change] * behind  # the log has the barriers of the source's epochs
    return records


def _record(replica: Replica, offset: int) -> object:
    """Return the record at an offset, which may be a marker; None if compaction has removed it."""
    files = replica.files
    for position, _, reader in files.walk(files.observe(), offset, offset + 1):
        for batch in reader.read(position, offset + 1):
            at = batch.offsets().tolist()
            if offset in at:
                columns = batch.records.select(RECORD_SCHEMA.names)
                return columns.slice(at.index(offset), 1).to_pylist()
    return None


def _settings(overrides: Mapping[str, str]) -> dict[str, object]:
    """Return the settings of a new topic: those of the source, but for its replicas."""
    return {key: value for key, value in overrides.items() if key != "min.insync.replicas"}
