"""AlterPartitionReassignments: to other brokers, which are storage roots (KIP-455)."""

from __future__ import annotations

from functools import partial
from typing import Any

from spark_log.errors import InvalidReplicationFactorError, SparkLogError
from spark_log.gateway.errors import error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.types import TopicPartition

API = Api(45, "AlterPartitionReassignments", 0, 1)

_Response = message_class("AlterPartitionReassignmentsResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Begin, change or cancel reassignments, each by itself."""
    return _Response(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=await gateway.run_blocking(_alter_all, gateway, request),
    )


def _alter_all(gateway: Gateway, request: Any) -> list[Any]:
    return [
        _Response.ReassignableTopicResponse(
            name=topic.name,
            partitions=[_alter(gateway, request, topic.name, each) for each in topic.partitions],
        )
        for topic in request.topics
    ]


def _alter(gateway: Gateway, request: Any, topic: str, partition: Any) -> Any:
    result = _Response.ReassignablePartitionResponse(partition_index=partition.partition_index)
    call = partial(
        gateway.admin.alter_partition_reassignments,
        allow_replication_factor_change=request.allow_replication_factor_change,
    )
    try:
        if _is_as_shown(gateway, topic, partition):
            return result
        call({TopicPartition(topic, partition.partition_index): partition.replicas})
    except InvalidReplicationFactorError as error:
        result.error_code = error_code(error)
        result.error_message = (  # Kafka's words
            f"The replication factor is changed from {error.current} to {len(partition.replicas)}"
        )
    except SparkLogError as error:
        result.error_code, result.error_message = error_code(error), str(error)
    return result


def _is_as_shown(gateway: Gateway, topic: str, partition: Any) -> bool:
    """Return whether the target is the only replica that clients see, which is a gateway.

    Such a reassignment changes nothing, as in Kafka. A storage root of the same id is meant before
    a gateway is.
    """
    image = gateway.cluster.image()
    found = image.find(topic)
    if found is None or partition.partition_index not in found.partitions:
        return False
    shown = gateway.leader(found.topic_id, partition.partition_index).gateway_id
    roots = {each.broker_id for each in image.brokers()}
    return partition.replicas == [shown] and shown not in roots
