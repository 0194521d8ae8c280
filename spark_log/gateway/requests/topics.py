"""The topics of a request, and the leader epochs that clients know of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import ZERO_UUID
from spark_log.metadata import MetadataImage, TopicImage

_FIRST_WITH_TOPIC_IDS = 13


async def topics_of(
    gateway: Gateway, topics: Sequence[Any], version: int, partitions: str
) -> list[TopicImage | None]:
    """Return the topic of each entry of a Produce or Fetch request; None for an unknown one.

    The metadata are read again if a topic, or one of its partitions, is not known. Requests return
    from here in the order of their arrival (`Partitions.image_in_order`).

    Args:
        gateway: the gateway.
        topics: the entries, with ``name`` (or ``topic``) or ``topic_id``.
        version: the request's version: topics have ids instead of names from 13 on.
        partitions: the name of the field with an entry's partitions.
    """

    def is_complete(image: MetadataImage) -> bool:
        for entry in topics:
            topic = _find(image, entry, version)
            if topic is None:
                return False
            for each in getattr(entry, partitions):
                if _number(each) not in topic.partitions:
                    return False
        return True

    image = await gateway.partitions.image_in_order(is_complete)
    return [_find(image, each, version) for each in topics]


async def topics_by_name(gateway: Gateway, names: Collection[str]) -> list[TopicImage | None]:
    """Return topics; None for an unknown one. The metadata are read again if one is not known."""
    image = await gateway.partitions.image_in_order(
        lambda image: all(image.find(name) is not None for name in names)
    )
    return [image.find(name) for name in names]


async def leader_epoch_error(
    gateway: Gateway, topic: TopicImage, partition: int, current_leader_epoch: int
) -> ErrorCode:
    """Return the error for a client that knows another leader epoch; NONE if it knows this one.

    Metadata that are older than the client's are read again first.

    Args:
        gateway: the gateway.
        topic: the topic.
        partition: the partition's number.
        current_leader_epoch: the epoch that the client knows; -1 if it knows none.
    """
    if current_leader_epoch < 0:
        return ErrorCode.NONE
    epoch = topic.partitions[partition].leader_epoch
    if current_leader_epoch > epoch:
        newer = (await gateway.partitions.refresh()).find_by_id(topic.topic_id)
        if newer is None or partition not in newer.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        epoch = newer.partitions[partition].leader_epoch
    if current_leader_epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH if current_leader_epoch > epoch else ErrorCode.NONE


def _find(image: MetadataImage, entry: Any, version: int) -> TopicImage | None:
    if version >= _FIRST_WITH_TOPIC_IDS and entry.topic_id != ZERO_UUID:
        return image.find_by_id(entry.topic_id)
    return image.find(entry.name if hasattr(entry, "name") else entry.topic)


def _number(partition: Any) -> int:
    number = partition.index if hasattr(partition, "index") else partition.partition
    return int(number)
