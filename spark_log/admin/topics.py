"""`Admin` methods for topics: creates, lists, describes, grows and deletes them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from spark_log.admin.cluster_access import ClusterAccess, limited
from spark_log.cluster import Cluster, mark_deleted, remove_data
from spark_log.errors import (
    BrokerIdNotRegisteredError,
    InvalidTopicError,
    KafkaTimeoutError,
    ReplicationError,
    StorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import LogView
from spark_log.metadata import (
    ROOT_BROKER_ID,
    MetadataImage,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicImage,
    collision_key,
    partition_records,
    topic_records,
    validate_new_topic,
    validate_topic_name,
)
from spark_log.storage import map_requests, retry_append, with_reserve
from spark_log.threads import Deadline, LimitedCall
from spark_log.types import (
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
    random_id,
)
from spark_log.util import SYSTEM_CLOCK

_POLL_INTERVAL_MS = 100.0
_MIN_LOOK_MS = 1_000.0
"""Minimum time for the last read of an object store's metadata, even if the timeout has passed."""

_log = logging.getLogger(__name__)


class TopicOperations(ClusterAccess):
    """Creates, lists, describes, grows and deletes topics."""

    @limited
    def create_topics(
        self,
        new_topics: Sequence[NewTopic],
        *,
        timeout_ms: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, str]:
        """Create topics, all of them or none, in one append to the metadata log.

        If the cluster root does not exist, it is created first.

        Args:
            new_topics: the topics to create.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.
            validate_only: whether to check everything and create nothing.

        Returns:
            Topic name → topic id.

        Raises:
            TopicAlreadyExistsError, InvalidTopicError, InvalidPartitionsError,
            InvalidReplicationFactorError, InvalidReplicaAssignmentError,
            InvalidConfigurationError: nothing was created.
        """
        for topic in [new_topics] if isinstance(new_topics, NewTopic | str) else new_topics:
            validate_new_topic(topic)
        if isinstance(new_topics, NewTopic):
            raise InvalidTopicError(
                f"new_topics is one NewTopic; give a list, such as [NewTopic({new_topics.name!r})]",
                topic=new_topics.name,
            )
        topic_ids = {topic.name: random_id() for topic in new_topics}

        def decide(image: MetadataImage) -> list[MetadataRecord]:
            names = {collision_key(topic.name): topic.name for topic in image.topics()}
            records: list[MetadataRecord] = []
            for topic in new_topics:
                if names.get(collision_key(topic.name)) == topic.name:
                    raise TopicAlreadyExistsError(
                        f"topic {topic.name!r} exists; describe it, or take another name",
                        topic=topic.name,
                    )
                validate_topic_name(topic.name, names)
                names[collision_key(topic.name)] = topic.name
                records += topic_records(topic, topic_ids[topic.name], image)
            return records

        if validate_only:
            decide(self._image_or_empty())
        else:
            cluster = self._cluster(create=True)
            cluster.image()  # fails before anything is sent if the storage does not answer
            retry_append(lambda: cluster.metadata.commit(decide))
        return topic_ids

    @limited
    def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted.

        The logs that spark-log keeps for itself (metadata, groups, committed offsets) are not
        topics and are not listed.
        """
        return [topic.name for topic in self._cluster().image().topics()]

    @limited
    def describe_topics(
        self, names: Sequence[str] | None = None, *, with_offsets: bool = True
    ) -> list[TopicDescription]:
        """Describe topics: partitions with their offsets and sizes, and config overrides.

        The offsets and sizes of a replicated partition that cannot be read are -1.

        Args:
            names: the topics to describe; None for all.
            with_offsets: whether to read offsets and sizes; if false, only the metadata are read,
                and offsets and sizes are -1.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
        """
        image = self._cluster().image()
        topics = list(image.topics()) if names is None else [image.topic(name) for name in names]
        views = self._observe_all(topics, skip_deleted=names is None) if with_offsets else {}
        online = {broker.broker_id for broker in image.brokers() if not broker.fenced}
        return [
            _describe_topic(topic, views.get(topic.topic_id, {}), online)
            for topic in topics
            if not with_offsets or topic.topic_id in views
        ]

    def wait_for_topics(self, topic_names: Sequence[str], timeout_ms: float = 10_000) -> None:
        """Return when all of these topics exist.

        A topic that `create_topics` has created exists when that call returns. This method is for
        topics that another process creates.

        Args:
            topic_names: the topics; neither they nor the root need exist yet.
            timeout_ms: the maximum time to wait.

        Raises:
            KafkaTimeoutError: a topic still did not exist after ``timeout_ms``.
            StorageError: the metadata cannot be read.
        """
        names = [topic_names] if isinstance(topic_names, str) else list(topic_names)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        left_ms = timeout_ms
        while missing := self._missing_topics(names, timeout_ms=max(left_ms, _MIN_LOOK_MS)):
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                raise KafkaTimeoutError(
                    f"not all topics existed after {timeout_ms:.0f} ms; missing: "
                    f"{', '.join(missing)}; create them, or wait longer"
                )
            self._clock.sleep_ms(min(left_ms, _POLL_INTERVAL_MS))

    @limited
    def _missing_topics(self, names: Sequence[str], *, timeout_ms: float) -> list[str]:
        image = self._image_or_empty()
        return [name for name in names if image.find(name) is None]

    def delete_topics(self, names: Sequence[str], *, timeout_ms: float | None = None) -> None:
        """Delete topics and their data, all of them or none.

        One append to the metadata log deletes the topics; their files on all brokers are removed
        after that. A cleaner removes files that are left after a crash, or on a broker that could
        not be reached.

        Args:
            names: the topics to delete.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist; nothing was deleted.
        """
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        cluster, topics = self._delete_from_metadata(names, timeout_ms=timeout_ms)
        self._remove_data(cluster, topics, began_ms, timeout_ms)
        cluster.keep_reserve()

    @limited
    def _delete_from_metadata(
        self, names: Sequence[str], *, timeout_ms: float | None
    ) -> tuple[Cluster, tuple[TopicImage, ...]]:
        """Delete topics from the metadata; return the cluster and the deleted topics."""
        cluster = self._cluster()
        cluster.image()  # a storage that does not answer is found before anything is sent
        topics: dict[str, TopicImage] = {}
        marked: set[str] = set()

        def decide(image: MetadataImage) -> list[MetadataRecord]:
            topics.clear()
            topics.update((name, image.topic(name)) for name in names)
            # This may also mark a topic that was created again since: a marker deletes nothing.
            unmarked = [each for each in topics.values() if each.topic_id not in marked]
            mark_deleted(cluster.store, unmarked)
            marked.update(each.topic_id for each in unmarked)
            return [RemoveTopicRecord(topic_id=topic.topic_id) for topic in topics.values()]

        with_reserve(cluster.store, lambda: retry_append(lambda: cluster.metadata.commit(decide)))
        return cluster, tuple(topics.values())

    def _remove_data(
        self,
        cluster: Cluster,
        topics: Collection[TopicImage],
        began_ms: float,
        timeout_ms: float | None,
    ) -> None:
        """Remove the data of deleted topics; after the timeout a cleaner removes the rest."""
        if self._is_local:
            remove_data(cluster, topics)
            return
        limit_ms, setting = self._limit(timeout_ms)
        left_ms = began_ms + limit_ms - SYSTEM_CLOCK.monotonic_ms()
        deadline = Deadline("removing deleted topics", setting, max(0.0, left_ms))
        removal = LimitedCall(lambda: remove_data(cluster, topics), deadline)
        if removal.wait(deadline.left_s()):
            removal.result()
        else:
            _log.warning(
                "not all data of deleted topics were removed within %s; a cleaner will remove the "
                "rest: %s",
                setting,
                ", ".join(topic.directory for topic in topics),
            )

    @limited
    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions],
        *,
        timeout_ms: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, int]:
        """Increase the number of partitions of topics, for all of them or none.

        Existing records do not move: new records of a key may go to another partition than older
        ones. A process that has a topic open sees the new partitions when it next refreshes the
        metadata.

        Args:
            topic_partitions: topic → its new total number of partitions, or `NewPartitions`.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.
            validate_only: whether to check everything and change nothing.

        Returns:
            Topic → number of partitions after the change.

        Raises:
            UnknownTopicOrPartitionError, InvalidPartitionsError, InvalidReplicationFactorError,
            InvalidReplicaAssignmentError: nothing was changed. The number of partitions can only
                grow.
        """
        totals = {
            name: count.total_count if isinstance(count, NewPartitions) else count
            for name, count in topic_partitions.items()
        }

        def decide(image: MetadataImage) -> list[MetadataRecord]:
            return [
                record
                for name, new in topic_partitions.items()
                for record in partition_records(image.topic(name), new, image)
            ]

        self._commit(decide, validate_only)
        return totals

    def _observe_all(
        self, topics: Sequence[TopicImage], *, skip_deleted: bool
    ) -> dict[str, dict[int, LogView | None]]:
        """Return the view of each partition's log by topic id, without topics deleted meanwhile.

        Raises:
            UnknownTopicOrPartitionError: a topic was deleted, and ``skip_deleted`` is false.
        """
        by_name = {topic.name: topic for topic in topics}
        deleted: set[str] = set()

        def observe(tp: TopicPartition) -> LogView | None:
            topic = by_name[tp.topic]
            if topic.topic_id in deleted:
                return None
            try:
                with self._cluster().detecting_deletion(topic):
                    return self._observe(topic, tp.partition)
            except UnknownTopicOrPartitionError:
                if not skip_deleted:
                    raise
                deleted.add(topic.topic_id)
                return None

        partitions = [
            TopicPartition(topic.name, number)
            for topic in by_name.values()
            for number in sorted(topic.partitions)
        ]
        found: dict[str, dict[int, LogView | None]] = {}
        views = map_requests(self._cluster().store, observe, partitions)
        for tp, view in zip(partitions, views, strict=True):
            found.setdefault(by_name[tp.topic].topic_id, {})[tp.partition] = view
        return {topic_id: found[topic_id] for topic_id in found.keys() - deleted}

    def _observe(self, topic: TopicImage, partition: int) -> LogView | None:
        """Return the view of a partition's log; None if it is replicated and cannot be read."""
        try:
            return self._cluster().partition_log(topic, partition).observe()
        except (BrokerIdNotRegisteredError, ReplicationError, StorageError):
            if topic.partitions[partition].replicas == (ROOT_BROKER_ID,):
                raise
            return None


def _describe_topic(
    topic: TopicImage, views: Mapping[int, LogView | None], online: Collection[int]
) -> TopicDescription:
    partitions = [
        _describe_partition(topic, topic.partitions[number], views.get(number), online)
        for number in sorted(topic.partitions)
    ]
    return TopicDescription(topic.name, topic.topic_id, tuple(partitions), dict(topic.overrides))


def _describe_partition(
    topic: TopicImage, state: PartitionRecord, view: LogView | None, online: Collection[int]
) -> PartitionDescription:
    segments = None if view is None else view.live.segments
    return PartitionDescription(
        partition=state.partition_id,
        leader=state.leader,
        replicas=state.replicas,
        isr=state.isr,
        log_start_offset=-1 if view is None else view.log_start_offset,
        log_end_offset=-1 if view is None else view.log_end_offset,
        size_bytes=-1 if segments is None else sum(each.file.size_bytes for each in segments),
        segments=-1 if segments is None else len(segments),
        leader_epoch=state.leader_epoch,
        eligible_leader_replicas=state.eligible_leader_replicas,
        last_known_elr=state.last_known_elr,
        offline_replicas=tuple(broker for broker in state.replicas if broker not in online),
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
        min_insync_replicas=topic.min_insync_replicas(state.partition_id),
    )
