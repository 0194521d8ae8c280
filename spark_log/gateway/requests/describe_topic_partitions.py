"""DescribeTopicPartitions: topics in pages (KIP-966)."""

from __future__ import annotations

from typing import Any

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.registry import rack_of_client
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.authorized_operations import TOPIC_OPERATIONS
from spark_log.metadata import TopicImage

API = Api(75, "DescribeTopicPartitions", 0, 0)

_Response = message_class("DescribeTopicPartitionsResponse")
_MAX_PARTITIONS = 2_000
"""Kafka's ``max.request.partition.size.limit``."""


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the partitions from the cursor on, up to a limit, and with the next cursor."""
    image = await gateway.image()
    names = sorted({each.name for each in request.topics})
    if not names:  # all topics, with those that another gateway has just created
        image = await gateway.run_blocking(gateway.cluster.image)
        names = [topic.name for topic in image.topics()]
    elif any(image.find(name) is None for name in names):  # it may be new
        image = await gateway.run_blocking(gateway.cluster.image)
    first = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first = max(0, request.cursor.partition_index)
    left = max(1, min(request.response_partition_limit, _MAX_PARTITIONS))
    rack = rack_of_client(context.client_id)
    topics: list[Any] = []
    for name in names:
        topic = image.find(name)
        if topic is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(
                _Response.DescribeTopicPartitionsResponseTopic(name=name, error_code=unknown)
            )
            continue
        numbers = [number for number in sorted(topic.partitions) if number >= first]
        if left == 0 or len(numbers) > left:
            if left:
                topics.append(_topic(gateway, topic, numbers[:left], rack))
                first = numbers[left]
            return _Response(
                topics=topics,
                next_cursor=_Response.Cursor(topic_name=name, partition_index=first),
            )
        topics.append(_topic(gateway, topic, numbers, rack))
        left -= len(numbers)
        first = 0
    return _Response(topics=topics)


def _topic(gateway: Gateway, topic: TopicImage, numbers: list[int], rack: str) -> Any:
    return _Response.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_partition(gateway, topic, number, rack) for number in numbers],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(gateway: Gateway, topic: TopicImage, number: int, rack: str) -> Any:
    replicas = gateway.replicas(topic.topic_id, number, rack)
    return _Response.DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=replicas[0],
        leader_epoch=topic.partitions[number].leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
        # Java's admin client takes no null here, though the schema allows it.
        eligible_leader_replicas=[],
        last_known_elr=[],
    )
