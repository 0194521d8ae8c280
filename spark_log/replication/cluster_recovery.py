"""`ClusterRecovery`: returns many replicas of a cluster to the in-sync replicas, in turn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from spark_log.cluster import Cluster
from spark_log.errors import (
    BrokerIdNotRegisteredError,
    CorruptRecordError,
    LeaderNotAvailableError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from spark_log.metadata import MetadataImage, TopicImage, advance_reassignment
from spark_log.replication.replica_recovery import RecoveryReport, ReplicaRecovery
from spark_log.util import Throttle

_REPLICA_FAILURES = (
    BrokerIdNotRegisteredError,
    CorruptRecordError,
    LeaderNotAvailableError,
    StorageError,
)


class TopicPartitionReplica(NamedTuple):
    """A replica of a partition, as Kafka's class of this name."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker_id}"


class RecoveredReplica(NamedTuple):
    """The result of the recovery of one replica.

    Attributes:
        replica: the replica.
        report: the report of the recovery; None if it raised an error.
        error: the reason why the replica is not in sync; None if it is, or was moved away.
        completes_reassignment: whether the replica was the last one that a reassignment waited for,
            and the reassignment is completed now.
    """

    replica: TopicPartitionReplica
    report: RecoveryReport | None
    error: str | None = None
    completes_reassignment: bool = False

    def document(self) -> dict[str, Any]:
        """Return the result for JSON."""
        topic, partition, broker_id = self.replica
        document: dict[str, Any] = {"topic": topic, "partition": partition, "broker": broker_id}
        if self.report is not None:
            document["in_sync"] = self.report.is_in_sync
            document["directory"] = self.report.directory
            document["copied_segments"] = self.report.copied_segments
            document["copied_bytes"] = self.report.copied_bytes
        if self.completes_reassignment:
            document["completes_reassignment"] = True
        return document | ({"error": self.error} if self.error is not None else {})

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RecoveredReplica:
        """Return the result with this `document`."""
        broker_id = document["broker"]
        report = None
        if "in_sync" in document:
            report = RecoveryReport(
                broker_id,
                document["in_sync"],
                document["directory"],
                document["copied_segments"],
                document["copied_bytes"],
            )
        replica = TopicPartitionReplica(document["topic"], document["partition"], broker_id)
        completes = document.get("completes_reassignment", False)
        return cls(replica, report, document.get("error"), completes)


def out_of_sync_replicas(
    image: MetadataImage,
    topics: Collection[str] | None = None,
    brokers: Collection[int] | None = None,
) -> list[TopicPartitionReplica]:
    """Return the replicas that are not in sync.

    Args:
        image: the metadata.
        topics: the names of topics; None for all.
        brokers: the ids of the brokers whose replicas are returned; None for all.

    Raises:
        UnknownTopicOrPartitionError: a topic does not exist.
        BrokerIdNotRegisteredError: a broker is not registered.
    """
    chosen = list(image.topics()) if topics is None else [image.topic(name) for name in topics]
    ids = None if brokers is None else {image.broker(each).broker_id for each in brokers}
    return [
        TopicPartitionReplica(topic.name, number, broker_id)
        for topic in chosen
        for number, partition in sorted(topic.partitions.items())
        for broker_id in partition.replicas
        if broker_id not in partition.isr and (ids is None or broker_id in ids)
    ]


def replication_throttle(image: MetadataImage, bytes_per_second: float | None = None) -> Throttle:
    """Return the throttle of copies to replicas.

    Args:
        image: the metadata.
        bytes_per_second: the limit; None for ``replication.throttled.rate``.
    """
    if bytes_per_second is None:
        bytes_per_second = image.cluster_config().replication_throttled_rate
    return Throttle(bytes_per_second)


class ClusterRecovery:
    """Returns replicas to the in-sync replicas in turn; one failure does not stop the others.

    Several replicas can be joining (`ReplicaRecovery.remaining_ms`) at the same time. Thread-safe,
    if no two threads work on one replica.
    """

    def __init__(
        self,
        cluster: Cluster,
        on_progress: Callable[[int], None] = lambda done_bytes: None,
        on_listed: Callable[[int], None] = lambda remaining_bytes: None,
        on_begin: Callable[[TopicPartitionReplica], None] = lambda replica: None,
    ) -> None:
        """Return the recovery of a cluster; no storage is accessed yet.

        Args:
            cluster: the opened root.
            on_progress: called with the number of bytes of each segment after it was copied; it may
                sleep to throttle.
            on_listed: called with the number of bytes that are still to be copied to a replica,
                whenever its leader's log was listed.
            on_begin: called with each replica before it is copied.
        """
        self._cluster = cluster
        self._on_progress = on_progress
        self._on_listed = on_listed
        self._on_begin = on_begin
        self._joining: dict[TopicPartitionReplica, ReplicaRecovery] = {}

    def run(self, replicas: Collection[TopicPartitionReplica]) -> Iterator[RecoveredReplica]:
        """Return replicas to the in-sync replicas; skip those whose topic was deleted meanwhile.

        Raises:
            StorageError: the metadata cannot be read.
        """
        for replica in replicas:
            self._on_begin(replica)
            yield from self.advance((replica,))
            yield from self.advance(self._due())
        while self._joining:
            self._cluster.clock.sleep_ms(self._remaining_ms())
            yield from self.advance(self._due())

    def advance(self, replicas: Collection[TopicPartitionReplica]) -> Iterator[RecoveredReplica]:
        """Advance replicas as `ReplicaRecovery.advance` does, without waiting for writers.

        Yields:
            A result for each replica, except replicas that are joining and replicas whose topic was
            deleted meanwhile. Call again for replicas that are joining.

        Raises:
            StorageError: the metadata cannot be read.
        """
        for replica in replicas:
            result = self._advance(replica)
            if result is not None:
                yield result

    def _due(self) -> list[TopicPartitionReplica]:
        joining = list(self._joining.items())
        return [replica for replica, recovery in joining if recovery.remaining_ms <= 0]

    def _remaining_ms(self) -> float:
        return min(recovery.remaining_ms for recovery in self._joining.values())

    def _advance(self, replica: TopicPartitionReplica) -> RecoveredReplica | None:
        """Advance a replica; return None if it is joining, or its topic was deleted.

        If the replica was the last one that a reassignment waited for, the reassignment is
        completed.

        Raises:
            StorageError: the metadata cannot be read.
        """
        recovery = self._joining.pop(replica, None)
        topic = self._cluster.image().find(replica.topic)
        if topic is None or replica.partition not in topic.partitions:
            return None
        try:
            with self._cluster.detecting_deletion(topic):
                recovery = recovery or ReplicaRecovery(
                    self._cluster,
                    topic,
                    replica.partition,
                    replica.broker_id,
                    on_progress=self._on_progress,
                    on_listed=self._on_listed,
                )
                report = recovery.advance()
        except UnknownTopicOrPartitionError:
            return None
        except _REPLICA_FAILURES as error:
            return RecoveredReplica(replica, None, str(error))
        if report.is_joining:
            self._joining[replica] = recovery
            return None
        if report.is_in_sync:
            completes = self._complete_reassignment(topic, replica.partition)
            return RecoveredReplica(replica, report, completes_reassignment=completes)
        return RecoveredReplica(replica, report, self._why_not(replica))

    def _complete_reassignment(self, topic: TopicImage, partition: int) -> bool:
        """Complete a partition's reassignment if all its replicas are in sync; return whether."""
        completed = self._cluster.metadata.commit(
            lambda image: advance_reassignment(image, topic.topic_id, partition)
        )
        return bool(completed)

    def _why_not(self, replica: TopicPartitionReplica) -> str | None:
        image = self._cluster.metadata.known_image()
        topic = image.find(replica.topic)
        if topic is None or replica.broker_id not in topic.partitions[replica.partition].replicas:
            return None  # moved away meanwhile
        return (
            f"broker {replica.broker_id} is fenced; unfence it when its root works: "
            f"spark-log brokers unfence {replica.broker_id}"
        )
