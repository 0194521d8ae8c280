"""Leader elections, and reassignments of partitions to brokers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from spark_log.admin.cluster_calls import all_partitions, commit
from spark_log.cluster import Cluster
from spark_log.errors import (
    ElectionNotNeededError,
    InvalidReplicationFactorError,
    ReplicationError,
    SparkLogError,
    UnknownTopicOrPartitionError,
)
from spark_log.metadata import (
    MetadataImage,
    MetadataRecord,
    cancel_reassignment,
    elect_leader,
    reassign_partition,
)
from spark_log.types import ElectionType, TopicPartition

_log = logging.getLogger(__name__)


def elect_leaders(
    cluster: Cluster, election_type: ElectionType, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, SparkLogError | None]:
    """Elect leaders; return the error of each partition, None after an election."""
    results: dict[TopicPartition, SparkLogError | None] = {}

    def decide(image: MetadataImage) -> list[MetadataRecord]:
        results.clear()
        records = []
        for tp in all_partitions(image) if partitions is None else partitions:
            try:
                records += elect_leader(image, _topic_id(image, tp), tp.partition, election_type)
                results[tp] = None
            except (ReplicationError, UnknownTopicOrPartitionError) as error:
                results[tp] = error
        return records

    commit(cluster, decide)
    elected = sum(error is None for error in results.values())
    _log.debug("%s: elected leaders of %d partitions", cluster.root, elected)
    if partitions is not None:
        return results
    return {
        tp: error for tp, error in results.items() if not isinstance(error, ElectionNotNeededError)
    }


def alter_partition_reassignments(
    cluster: Cluster,
    reassignments: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool,
) -> None:
    """Begin reassignments, change or cancel them; all of them or none."""

    def decide(image: MetadataImage) -> list[MetadataRecord]:
        records = []
        for tp, target in reassignments.items():
            topic_id = _topic_id(image, tp)
            if target is None:
                records += cancel_reassignment(image, topic_id, tp.partition)
                continue
            state = image.topic(tp.topic).partitions[tp.partition]
            count = len(state.replicas) - len(state.adding_replicas)
            if len(target) != count and not allow_replication_factor_change:
                raise InvalidReplicationFactorError(
                    f"partition {tp} has {count} replicas, and the target {list(target)} has "
                    f"{len(target)}; give {count} brokers, or allow the change",
                    current=count,
                )
            records += reassign_partition(image, topic_id, tp.partition, target)
        return records

    commit(cluster, decide)
    for tp, target in reassignments.items():
        if target is None:
            _log.debug("%s: cancelled the reassignment of %s", cluster.root, tp)
        else:
            _log.debug("%s: began to reassign %s to brokers %s", cluster.root, tp, list(target))


def _topic_id(image: MetadataImage, tp: TopicPartition) -> str:
    """Return the id of a partition's topic.

    Raises:
        UnknownTopicOrPartitionError: the partition does not exist.
    """
    topic = image.topic(tp.topic)
    if tp.partition not in topic.partitions:
        raise UnknownTopicOrPartitionError(
            f"topic {tp.topic!r} has no partition {tp.partition}; it has {topic.num_partitions}, "
            f"numbered from 0",
            topic=tp.topic,
        )
    return topic.topic_id
