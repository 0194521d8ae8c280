"""`RootMirror`: copies topics of one root to another one, segment by segment.

The target's topics have the names and the ids of the source's, and its segments are the source's
files. Every record has the same offset, and nothing is decoded or encoded. If the source's files
are mapped, the checksum of each batch is checked before it is copied. A topic with stripes has them
in the target, too, with the source's objects.

A crash at any point leaves a prefix of the source's log, and the next copy continues after it. Two
mirrors at the same time copy the same files under the same names, so one of them finds files of the
other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from spark_log.cluster import Cluster
from spark_log.errors import InvalidConfigurationError, InvalidTopicError
from spark_log.metadata import (
    ROOT_BROKER_ID,
    MetadataImage,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    TopicImage,
    partition_records,
    topic_records,
)
from spark_log.mirror.replication_policy import TopicFilter
from spark_log.mirror.root.copied_partition import CopiedPartition
from spark_log.mirror.root.partition_mirror import PartitionMirror
from spark_log.mirror.root.stripe_mirror import StripedPartition, StripeMirror
from spark_log.types import NewTopic, TopicPartition

_log = logging.getLogger(__name__)

_THREADS: Final = 4
"""Number of partitions that are copied at the same time."""


class RootMirror:
    """Copies topics of a source root to a target root. No other program may write to the copies.

    Only decided records are copied: a segment with records of a transaction that is open in the
    source is copied when the transaction has ended. A topic of the target has one replica.
    """

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        topics: TopicFilter,
        on_progress: Callable[[int], object] = lambda done_bytes: None,
    ) -> None:
        """Return a mirror; no root is accessed yet.

        Args:
            source: the root that is read.
            target: the root that is written.
            topics: the filter of the topics that are copied.
            on_progress: called with the size of each segment after it was copied, by any thread.
        """
        self._source = source
        self._target = target
        self._topics = topics
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._bytes = 0
        self._lag: dict[TopicPartition, int] = {}
        self._partitions: dict[TopicPartition, tuple[object, PartitionMirror]] = {}
        self._stripes: dict[tuple[str, int], tuple[object, StripeMirror]] = {}

    def copy(self) -> list[CopiedPartition]:
        """Create missing topics in the target; copy partitions up to their last stable offsets.

        Returns:
            The results, one per partition.

        Raises:
            InvalidConfigurationError: source and target are one root.
            InvalidTopicError: the target has another topic with the name of one that is copied.
            DivergedReplicaError: another program has written to a partition of the target.
            CorruptRecordError: the source is damaged. The damage was not copied.
            SparkLogError: a root cannot be read or written. Copied segments stay, and all other
                partitions were copied.
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
        for gone in self._partitions.keys() - set(partitions):
            del self._partitions[gone]
        found = self._target.metadata.known_image()  # the commit has read it
        mirrors: list[Callable[[], list[CopiedPartition]]] = []
        for topic in topics:
            there = found.find(topic.name)
            if there is None or there.stripes != topic.stripes:
                mirrors.append(partial(_refuse, topic))
            else:
                mirrors += self._mirrors(topic, there)
        for number in self._stripes.keys() - {
            (topic.topic_id, number) for topic in topics for number in _stripes_of(topic)
        }:
            del self._stripes[number]
        with ThreadPoolExecutor(_THREADS, "spark-log-mirror") as threads:
            copies = [threads.submit(each) for each in mirrors]
        known = {tp: self._lag[tp] for tp in partitions if tp in self._lag}
        done = [each for copy in copies if copy.exception() is None for each in copy.result()]
        _log.debug("copied %d of %d partitions", len(done), len(partitions))
        self._lag = known | {each.topic_partition: each.lag for each in done}
        results = [each for copy in copies for each in copy.result()]
        return sorted(results, key=lambda each: each.topic_partition)

    def metrics(self) -> dict[str, float]:
        """Return metrics since the mirror was created, under the names of `Mirror.metrics`."""
        return {
            "byte-count": self._bytes,
            "records-lag": sum(self._lag.values()),
            "records-lag-max": max(self._lag.values(), default=0),
            "partition-count": len(self._lag),
        }

    def _mirrors(
        self, topic: TopicImage, there: TopicImage
    ) -> list[Callable[[], list[CopiedPartition]]]:
        """Return the copies of a topic's partitions: one of each, or one of each stripe."""
        stripes = _stripes_of(topic)
        if stripes:
            return [self._stripe(number, topic, there).copy for number in stripes]

        def copy(partition: PartitionMirror) -> list[CopiedPartition]:
            return [partition.copy()]

        numbers = topic.partitions
        return [
            partial(copy, self._partition(TopicPartition(topic.name, each), topic, there))
            for each in numbers
        ]

    def _stripe(self, number: int, topic: TopicImage, there: TopicImage) -> StripeMirror:
        """Keep the mirror of a stripe, or replace it if the settings of its topics changed."""
        made_by = topic.config(), there.config(), topic.num_partitions
        key = topic.topic_id, number
        known = self._stripes.get(key)
        if known is None or known[0] != made_by:
            partitions = {
                each: StripedPartition(
                    self._source.replica_log(topic, each, ROOT_BROKER_ID),
                    self._target.replica_log(there, each, ROOT_BROKER_ID),
                    self._target.partition_log(there, each),
                )
                for each in sorted(topic.partitions)
                if topic.stripe_of(each) == number
            }
            mirror = StripeMirror(
                topic.name,
                self._source.stripe(topic, number).directory,
                self._target.stripe(there, number).directory,
                partitions,
                self._count,
            )
            known = self._stripes[key] = made_by, mirror
        return known[1]

    def _partition(
        self, tp: TopicPartition, topic: TopicImage, there: TopicImage
    ) -> PartitionMirror:
        """Keep the mirror of a partition, or replace it if the settings of its topics changed."""
        made_by = topic.topic_id, topic.config(), there.config()
        known = self._partitions.get(tp)
        if known is None or known[0] != made_by:
            source = self._source.partition_log(topic, tp.partition)
            target = self._target.partition_log(there, tp.partition)
            known = made_by, PartitionMirror(tp, source, target, self._count)
            self._partitions[tp] = known
        return known[1]

    def _count(self, done_bytes: int) -> None:
        with self._lock:
            self._bytes += done_bytes
        self._on_progress(done_bytes)


def _stripes_of(topic: TopicImage) -> range:
    """Return the numbers of a topic's stripes that have partitions."""
    return topic.stripes[: topic.num_partitions]


def _records(
    topics: list[TopicImage], source: MetadataImage, target: MetadataImage
) -> list[MetadataRecord]:
    """Return the target's missing records: topics, partitions, epochs and producer ids."""
    records: list[MetadataRecord] = []
    # The ids of the source's producers are in its segments: producers of the target get others.
    if target.next_producer_id < source.next_producer_id:
        records.append(ProducerIdsRecord(next_producer_id=source.next_producer_id))
    for topic in topics:
        found = target.find(topic.name)
        there = range(len(topic.stripes)) if found is None else found.stripes
        if there != topic.stripes:
            continue  # it is not copied: see `_refuse`
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


def _refuse(topic: TopicImage) -> list[CopiedPartition]:
    """Refuse to copy a topic whose number of stripes has changed since its copy was made."""
    raise InvalidTopicError(
        f"the number of stripes of topic {topic.name!r} has changed, which its copy cannot follow; "
        f"what was copied stays. Delete the copy and exclude the topic, or copy it to a new topic",
        topic=topic.name,
    )


def _settings(overrides: Mapping[str, str]) -> dict[str, object]:
    """Return the settings of a new topic: those of the source, without ``min.insync.replicas``."""
    return {key: value for key, value in overrides.items() if key != "min.insync.replicas"}
