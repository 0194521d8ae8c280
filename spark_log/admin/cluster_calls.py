"""Functions of an opened root that several subjects of `Admin` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from spark_log.cluster import Cluster
from spark_log.log import PartitionLog
from spark_log.metadata import Decide, MetadataImage
from spark_log.storage import map_requests, retry_append, with_reserve
from spark_log.types import TopicPartition

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
