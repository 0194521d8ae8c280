"""Changes a topic's number of stripes: its records move from where they are, offsets stay.

Each partition gets the barrier of its next leader epoch where it is: in its own log, or in the last
object of its stripe, which is then taken home. New stripes begin with the ends and the producers of
their partitions. Only then the metadata say where the next records are. Any number of processes may
do so at once, and each may be killed: the next call continues (protocol P9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from spark_log.cluster.cluster import Cluster
from spark_log.errors import FencedLeaderEpochError, SparkLogError
from spark_log.log import ProducerState
from spark_log.log.files import ExistenceMarker
from spark_log.log.stripe import begin_stripe, end_stripe
from spark_log.metadata import (
    ROOT_BROKER_ID,
    MetadataImage,
    MetadataRecord,
    TopicImage,
    begin_stripes_change,
    complete_stripes_change,
    is_same_change,
    stripes_after_change,
)
from spark_log.record import LeaderChange
from spark_log.storage import map_requests

_log = logging.getLogger(__name__)

OnPartitions = Callable[[int], None]
"""Is called with the number of partitions that are ready."""


def change_stripes(
    cluster: Cluster,
    topic_name: str,
    stripes: int,
    *,
    on_progress: OnPartitions = lambda partitions: None,
) -> TopicImage:
    """Give a topic another number of stripes, and return it.

    Appends wait from the barrier of their partition until the change is complete.

    Args:
        cluster: the opened root.
        topic_name: the topic's name.
        stripes: the new number; 0 for a log of its own for each partition.
        on_progress: called with the number of partitions that have just got their barrier.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        InvalidConfigurationError: the number is not allowed, or the topic cannot have stripes.
        UnknownOutcomeError: it is not known whether a barrier, or the change, was made; call this
            again.
        StorageError: the storage does not answer; call this again to complete the change.
    """

    def begin(image: MetadataImage) -> Sequence[MetadataRecord]:
        return begin_stripes_change(image, topic_name, stripes)

    cluster.metadata.commit(begin)
    complete_change_of_stripes(cluster, cluster.image().topic(topic_name), on_progress=on_progress)
    return cluster.image().topic(topic_name)


def complete_change_of_stripes(
    cluster: Cluster,
    topic: TopicImage,
    *,
    on_progress: OnPartitions = lambda partitions: None,
) -> bool:
    """Complete a change of a topic's number of stripes that was begun, perhaps by another process.

    Args:
        cluster: the opened root.
        topic: the topic.
        on_progress: called with the number of partitions that have just got their barrier.

    Returns:
        Whether a change was under way.

    Raises:
        SparkLogError: See `change_stripes`.
    """
    if topic.moving_to is None:
        return False
    barriers = {
        number: LeaderChange(each.leader_epoch + 1, each.isr, ())
        for number, each in topic.partitions.items()
    }
    end = _end_stripes if topic.stripes else _end_logs
    try:
        producers = end(cluster, topic, barriers, on_progress)
    except FencedLeaderEpochError:  # the log is in use again, after further changes
        if _is_under_way(cluster, topic):
            raise
        return True
    if not _is_under_way(cluster, topic):
        return True
    epochs = {number: each.leader_epoch for number, each in barriers.items()}
    for stripe in stripes_after_change(topic):
        first, step = stripe % topic.moving_to, topic.moving_to
        of_stripe = {p: producers[p] for p in sorted(topic.partitions)[first::step]}
        directory = cluster.stripe(topic, stripe).directory
        begin_stripe(directory, of_stripe, {p: epochs[p] for p in of_stripe})
    if not topic.moving_to:
        map_requests(
            cluster.store,
            lambda number: ExistenceMarker(topic.partition_directory(number)).create(cluster.store),
            sorted(topic.partitions),
        )

    def decide(image: MetadataImage) -> Sequence[MetadataRecord]:
        return complete_stripes_change(image, topic)

    cluster.metadata.commit(decide)
    _log.info("topic %s has stripes=%d now", topic.name, topic.moving_to)
    return True


def _is_under_way(cluster: Cluster, topic: TopicImage) -> bool:
    """Return whether no other process has completed a change meanwhile."""
    present = cluster.image().find_by_id(topic.topic_id)
    return present is not None and is_same_change(present, topic)


def complete_changes(
    cluster: Cluster, topics: Sequence[TopicImage], *, dry_run: bool = False
) -> list[TopicImage]:
    """Complete the changes of topics that other processes have begun; return the topics then.

    A change that cannot be completed now is left to a later call, and counted. No request is sent
    if no topic changes. In a dry run nothing is done.
    """
    if dry_run or all(topic.moving_to is None for topic in topics):
        return list(topics)
    for topic in topics:
        with cluster.suppressed.suppress("change of stripes", topic.directory, SparkLogError):
            complete_change_of_stripes(cluster, topic)
    image = cluster.image()
    return [found for topic in topics if (found := image.find(topic.name)) is not None]


def _end_logs(
    cluster: Cluster,
    topic: TopicImage,
    barriers: Mapping[int, LeaderChange],
    on_progress: OnPartitions,
) -> dict[int, ProducerState]:
    """Put the barriers into the partitions' logs; return the producers at their ends."""

    def end(partition: int) -> ProducerState:
        barrier = barriers[partition]
        log = cluster.partition_log(topic, partition).replica_of(ROOT_BROKER_ID, 0)
        log.append_barrier(barrier.leader_epoch, barrier.isr, barrier.joining)
        producers = log.producers()
        on_progress(1)
        return producers

    numbers = sorted(topic.partitions)
    return dict(zip(numbers, map_requests(cluster.store, end, numbers), strict=True))


def _end_stripes(
    cluster: Cluster,
    topic: TopicImage,
    barriers: Mapping[int, LeaderChange],
    on_progress: OnPartitions,
) -> dict[int, ProducerState]:
    """End the topic's stripes, and take them home; return the producers of all partitions."""
    producers: dict[int, ProducerState] = {}
    for stripe in cluster.stripes(topic):
        taken = stripe.take_home()
        while taken is not None and taken.has_more:
            taken = stripe.take_home()  # then appends wait only for what has come since
    for stripe in cluster.stripes(topic):
        number = stripe.directory.stripe
        of_stripe = {p: each for p, each in barriers.items() if topic.stripe_of(p) == number}
        state = end_stripe(stripe.directory, stripe.files_at_home, of_stripe)
        producers |= dict(state.partitions())
        on_progress(len(of_stripe))
    return producers
