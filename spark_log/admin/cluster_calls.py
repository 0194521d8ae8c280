"""Functions of an opened root that several subjects of `Admin` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from spark_log.cluster import Cluster
from spark_log.errors import UnknownTopicOrPartitionError
from spark_log.log import PartitionLog
from spark_log.metadata import Decide, MetadataImage, TopicImage
from spark_log.storage import map_requests, retry_append, with_reserve
from spark_log.types import TopicPartition

if TYPE_CHECKING:
    from spark_log.log.stripe import Stripe

_Result = TypeVar("_Result")


def commit(cluster: Cluster, decide: Decide, *, validate_only: bool = False) -> None:
    """Change the metadata; with ``validate_only``, only check."""
    image = cluster.image()  # fails before anything is sent if the storage does not answer
    if validate_only:
        decide(image)
    else:
        with_reserve(cluster.store, lambda: retry_append(lambda: cluster.metadata.commit(decide)))


def all_partitions(image: MetadataImage) -> list[TopicPartition]:
    """Return the partitions of all topics, sorted."""
    return [
        TopicPartition(topic.name, number)
        for topic in image.topics()
        for number in sorted(topic.partitions)
    ]


def open_log(cluster: Cluster, image: MetadataImage, tp: TopicPartition) -> PartitionLog:
    """Return the log of a partition.

    Raises:
        UnknownTopicOrPartitionError: the topic or the partition does not exist.
    """
    return cluster.partition_log(image.topic(tp.topic), tp.partition)


def poll_stripes(
    cluster: Cluster,
    topics: Mapping[TopicPartition, TopicImage],
    deleted: set[str] | None = None,
) -> None:
    """Learn the ends of all striped partitions, by one request for each stripe.

    `PartitionLog.observe_polled` then shows these ends. The stripes are kept until the next call,
    which costs one request for each of them, and for each object that was put since.

    Args:
        cluster: the opened root.
        topics: the topic of each partition.
        deleted: gets the ids of topics that were deleted meanwhile; None to raise the error.

    Raises:
        UnknownTopicOrPartitionError: a topic was deleted meanwhile, and ``deleted`` is None.
    """
    stripes: dict[Stripe, TopicImage] = {}
    for tp, topic in topics.items():
        if "stripes" in topic.overrides:  # most topics have none
            stripe = cluster.stripe_of(topic, tp.partition)
            if stripe is not None:
                stripes[stripe] = topic

    def poll(stripe: Stripe) -> None:
        try:
            with cluster.detecting_deletion(stripes[stripe]):
                stripe.reader.poll()
        except UnknownTopicOrPartitionError:
            if deleted is None:
                raise
            deleted.add(stripes[stripe].topic_id)

    if stripes:
        cluster.polled_stripes = tuple(stripes)
    map_requests(cluster.store, poll, stripes)


def map_partitions(
    cluster: Cluster,
    image: MetadataImage,
    read: Callable[[TopicPartition], _Result],
    partitions: Sequence[TopicPartition],
) -> dict[TopicPartition, _Result]:
    """Call ``read`` for each partition; in parallel if a read is a request.

    Raises:
        UnknownTopicOrPartitionError: a topic was deleted meanwhile.
    """

    def guarded(tp: TopicPartition) -> _Result:
        with cluster.detecting_deletion(image.topic(tp.topic)):
            return read(tp)

    results = map_requests(cluster.store, guarded, partitions)
    return dict(zip(partitions, results, strict=True))
