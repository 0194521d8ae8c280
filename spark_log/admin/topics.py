"""Topics: creation, descriptions, growth and deletion."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from spark_log.admin._runtime import AdminRuntime
from spark_log.admin.cluster_calls import commit, poll_stripes
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
    Decide,
    MetadataImage,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicImage,
    begin_stripes_change,
    collision_key,
    partition_records,
    topic_records,
    validate_new_topic,
    validate_topic_name,
)
from spark_log.storage import map_requests, retry_append
from spark_log.threads import Deadline, LimitedCall
from spark_log.types import (
    NewPartitions,
    NewTopic,
    PartitionDescription,
    StripeDescription,
    TopicDescription,
    TopicPartition,
)
from spark_log.util import SYSTEM_CLOCK, random_id

_POLL_INTERVAL_MS = 100.0
_MIN_READ_MS = 1_000.0
"""Minimum time for the last read of an object store's metadata, even if the timeout has passed."""

_log = logging.getLogger(__name__)


# --- creation ------------------------------------------------------------------------------------


def create_topics(
    runtime: AdminRuntime, new_topics: Sequence[NewTopic], *, validate_only: bool
) -> dict[str, str]:
    """Create topics, all of them or none; return their ids by name.

    Unlike other changes this does not use the space reserved on a full disk.
    """
    topic_ids, decide = _decide_creation(new_topics)
    if validate_only:
        decide(runtime.image_or_empty())
    else:
        cluster = runtime.cluster(create=True)
        cluster.image()  # fails before anything is sent if the storage does not answer
        retry_append(lambda: cluster.metadata.commit(decide))
    return topic_ids


def _decide_creation(new_topics: Sequence[NewTopic]) -> tuple[dict[str, str], Decide]:
    """Return the ids of new topics by name, and the decision that creates the topics.

    Raises:
        InvalidTopicError, InvalidPartitionsError, InvalidReplicationFactorError,
        InvalidReplicaAssignmentError, InvalidConfigurationError: a topic cannot be created.
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

    return topic_ids, decide


def create_partitions(
    cluster: Cluster,
    topic_partitions: Mapping[str, int | NewPartitions],
    *,
    validate_only: bool,
) -> dict[str, int]:
    """Increase the number of partitions of topics; return the new numbers by topic."""
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

    commit(cluster, decide, validate_only=validate_only)
    return totals


def alter_stripes(
    cluster: Cluster,
    topic_stripes: Mapping[str, int],
    *,
    validate_only: bool,
    on_progress: Callable[[int], None],
) -> dict[str, int]:
    """Give topics another number of stripes; return the numbers by topic."""
    from spark_log.metadata import check_stripes  # late: few topics have stripes

    def decide(image: MetadataImage) -> list[MetadataRecord]:
        records = [
            record
            for name, stripes in topic_stripes.items()
            for record in begin_stripes_change(image, name, stripes)
        ]
        check_stripes(image, records)
        return records

    commit(cluster, decide, validate_only=validate_only)
    if not validate_only:
        from spark_log.cluster import change_stripes

        for name, stripes in topic_stripes.items():
            change_stripes(cluster, name, stripes, on_progress=on_progress)
    return dict(topic_stripes)


def wait_for_topics(runtime: AdminRuntime, topic_names: Sequence[str], timeout_ms: float) -> None:
    """Return when all of these topics exist.

    Raises:
        KafkaTimeoutError: a topic still did not exist after ``timeout_ms``.
    """
    names = [topic_names] if isinstance(topic_names, str) else list(topic_names)

    def missing_topics() -> list[str]:
        image = runtime.image_or_empty()
        return [name for name in names if image.find(name) is None]

    deadline_ms = runtime.clock.monotonic_ms() + timeout_ms
    left_ms = timeout_ms
    while missing := runtime.call("wait_for_topics", missing_topics, max(left_ms, _MIN_READ_MS)):
        left_ms = deadline_ms - runtime.clock.monotonic_ms()
        if left_ms <= 0:
            raise KafkaTimeoutError(
                f"not all topics existed after {timeout_ms:.0f} ms; missing: "
                f"{', '.join(missing)}; create them, or wait longer"
            )
        runtime.clock.sleep_ms(min(left_ms, _POLL_INTERVAL_MS))


# --- deletion ------------------------------------------------------------------------------------


def delete_topics(
    runtime: AdminRuntime,
    names: Sequence[str],
    topic_ids: Sequence[str],
    timeout_ms: float | None,
) -> None:
    """Delete topics from the metadata, and then their data.

    After the timeout a cleaner removes the data that are left.
    """
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    topics = runtime.call(
        "delete_topics",
        lambda: _delete_from_metadata(runtime.cluster(), names, topic_ids),
        timeout_ms,
    )
    cluster = runtime.cluster()
    deadline = runtime.deadline("removing deleted topics", began_ms, timeout_ms)
    if deadline is None:
        remove_data(cluster, topics)
    else:
        _remove_data_within(deadline, cluster, topics)
    cluster.keep_reserve()


def _delete_from_metadata(
    cluster: Cluster, names: Sequence[str], topic_ids: Sequence[str]
) -> tuple[TopicImage, ...]:
    """Delete topics from the metadata; return the deleted topics."""
    topics: dict[str, TopicImage] = {}
    marked: set[str] = set()

    def decide(image: MetadataImage) -> list[MetadataRecord]:
        topics.clear()
        found = [image.topic(name) for name in names]
        found += [_topic_with_id(image, topic_id) for topic_id in topic_ids]
        topics.update((each.topic_id, each) for each in found)
        # This may also mark a topic that was created again since: a marker deletes nothing.
        unmarked = [each for each in topics.values() if each.topic_id not in marked]
        mark_deleted(cluster.store, unmarked)
        marked.update(each.topic_id for each in unmarked)
        return [RemoveTopicRecord(topic_id=topic.topic_id) for topic in topics.values()]

    commit(cluster, decide)
    return tuple(topics.values())


def _topic_with_id(image: MetadataImage, topic_id: str) -> TopicImage:
    topic = image.find_by_id(topic_id)
    if topic is None:
        raise UnknownTopicOrPartitionError(
            f"there is no topic with the id {topic_id}; it was deleted, or never existed"
        )
    return topic


def _remove_data_within(
    deadline: Deadline, cluster: Cluster, topics: Collection[TopicImage]
) -> None:
    removal = LimitedCall(lambda: remove_data(cluster, topics), deadline)
    if removal.wait(deadline.left_s()):
        removal.result()
        return
    _log.warning(
        "not all data of deleted topics were removed within %s; a cleaner will remove the rest: %s",
        deadline.setting,
        ", ".join(topic.directory for topic in topics),
    )


# --- descriptions --------------------------------------------------------------------------------


def list_topics(cluster: Cluster) -> list[str]:
    """Return the names of all topics, sorted."""
    return [topic.name for topic in cluster.image().topics()]


def describe_topics(
    cluster: Cluster, names: Sequence[str] | None, *, with_offsets: bool
) -> list[TopicDescription]:
    """Return descriptions of topics; of all that are not deleted meanwhile if names are None."""
    image = cluster.image()
    topics = list(image.topics()) if names is None else [image.topic(name) for name in names]
    stripes = {topic.topic_id: cluster.stripes(topic) for topic in topics}  # partitions share them
    views = _observe_all(cluster, topics, skip_deleted=names is None) if with_offsets else {}
    shown = [
        (topic_id, each.directory)
        for topic_id, found in stripes.items()
        if topic_id in views
        for each in found
    ]
    described: dict[str, list[StripeDescription]] = {}
    for topic_id, description in map_requests(
        cluster.store, lambda pair: (pair[0], pair[1].describe()), shown
    ):
        described.setdefault(topic_id, []).append(description)
    online = {broker.broker_id for broker in image.brokers() if not broker.fenced}
    return [
        _describe_topic(
            topic, views.get(topic.topic_id, {}), online, described.get(topic.topic_id, ())
        )
        for topic in topics
        if not with_offsets or topic.topic_id in views
    ]


def _observe_all(
    cluster: Cluster, topics: Sequence[TopicImage], *, skip_deleted: bool
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
            with cluster.detecting_deletion(topic):
                return _observe(cluster, topic, tp.partition)
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
    poll_stripes(
        cluster, {tp: by_name[tp.topic] for tp in partitions}, deleted if skip_deleted else None
    )
    found: dict[str, dict[int, LogView | None]] = {}
    views = map_requests(cluster.store, observe, partitions)
    for tp, view in zip(partitions, views, strict=True):
        found.setdefault(by_name[tp.topic].topic_id, {})[tp.partition] = view
    return {topic_id: found[topic_id] for topic_id in found.keys() - deleted}


def _observe(cluster: Cluster, topic: TopicImage, partition: int) -> LogView | None:
    """Return the view of a partition's log; None if it is replicated and cannot be read."""
    try:
        return cluster.partition_log(topic, partition).observe_polled()
    except (BrokerIdNotRegisteredError, ReplicationError, StorageError):
        if topic.partitions[partition].replicas == (ROOT_BROKER_ID,):
            raise
        return None


def _describe_topic(
    topic: TopicImage,
    views: Mapping[int, LogView | None],
    online: Collection[int],
    stripes: Sequence[StripeDescription],
) -> TopicDescription:
    partitions = [
        _describe_partition(topic, topic.partitions[number], views.get(number), online)
        for number in sorted(topic.partitions)
    ]
    return TopicDescription(
        topic.name, topic.topic_id, tuple(partitions), dict(topic.overrides), tuple(stripes)
    )


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
