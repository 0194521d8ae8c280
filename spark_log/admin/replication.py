"""`Admin` methods for replicas: leader elections, and reassignments of partitions to brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spark_log.admin.cluster_access import ClusterAccess, limited
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
    list_reassignments,
    reassign_partition,
)
from spark_log.types import ElectionType, PartitionReassignment, TopicPartition


class ReplicationOperations(ClusterAccess):
    """Elects leaders, and moves partitions."""

    @limited
    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, SparkLogError | None]:
        """Elect leaders (KIP-183, KIP-460).

        The replicas before the new leader in the chain leave the in-sync replicas, and return at
        the end of the chain (by ``spark-log replicate``, or a controller).

        Args:
            election_type: the type of election. ``PREFERRED`` elects the first replica, which has
                to be in sync. ``UNCLEAN`` elects a replica that is not in sync if no other one can
                lead and ``unclean.leader.election.enable`` is true. Records that it lacks are lost.
            partitions: the partitions; None for all that need such an election.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Returns:
            Partition → None if a leader was elected, else the error: `ElectionNotNeededError`,
            `PreferredLeaderNotAvailableError`, `EligibleLeadersNotAvailableError` or
            `UnknownTopicOrPartitionError`.

        Raises:
            UnknownOutcomeError: it is not known whether leaders were elected.
        """
        results: dict[TopicPartition, SparkLogError | None] = {}

        def decide(image: MetadataImage) -> list[MetadataRecord]:
            results.clear()
            records = []
            for tp in _all_partitions(image) if partitions is None else partitions:
                try:
                    records += elect_leader(
                        image, _topic_id(image, tp), tp.partition, election_type
                    )
                    results[tp] = None
                except (ReplicationError, UnknownTopicOrPartitionError) as error:
                    results[tp] = error
            return records

        self._commit(decide, False)
        if partitions is not None:
            return results
        return {
            tp: error
            for tp, error in results.items()
            if not isinstance(error, ElectionNotNeededError)
        }

    @limited
    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: float | None = None,
    ) -> None:
        """Move partitions to other brokers, or give them more or fewer replicas (KIP-455).

        All reassignments of the call begin, or none. The new replicas are copied by a controller,
        by ``spark-log replicate`` or by ``jobs/replicate.py``. When all are in sync the others are
        removed. Until then a reassignment can be changed, or cancelled.

        Args:
            reassignments: partition → the ids of its new brokers, the preferred leader first; None
                to cancel its reassignment.
            allow_replication_factor_change: whether the number of replicas may change (KIP-860).
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
            InvalidReplicaAssignmentError: a target is empty, or names a broker twice, or a broker
                that cannot be used; or no original replica can lead after a cancellation.
            InvalidReplicationFactorError: the number of replicas would change.
            NoReassignmentInProgressError: a partition to cancel has no reassignment.
            UnknownOutcomeError: it is not known whether the reassignments began.
        """

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
                        f"{len(target)}"
                    )
                records += reassign_partition(image, topic_id, tp.partition, target)
            return records

        self._commit(decide, False)

    @limited
    def list_partition_reassignments(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the reassignments in progress, sorted.

        Args:
            partitions: the partitions to return; None for all.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.
        """
        return list_reassignments(self._cluster().image(), partitions)


def _all_partitions(image: MetadataImage) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, number)
        for topic in image.topics()
        for number in sorted(topic.partitions)
    ]


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
