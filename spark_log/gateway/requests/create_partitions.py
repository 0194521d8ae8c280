"""CreatePartitions: more partitions of a topic."""

from __future__ import annotations

from typing import Any

from spark_log.errors import InvalidReplicaAssignmentError, SparkLogError
from spark_log.gateway.errors import error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.types import NewPartitions

API = Api(37, "CreatePartitions", 0, 3)

_Response = message_class("CreatePartitionsResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Give each topic its new number of partitions, each by itself."""
    return _Response(results=await gateway.run_blocking(_create_all, gateway, request))


def _create_all(gateway: Gateway, request: Any) -> list[Any]:
    return [
        _create(gateway, topic, validate_only=request.validate_only) for topic in request.topics
    ]


def _create(gateway: Gateway, topic: Any, *, validate_only: bool) -> Any:
    result = _Response.CreatePartitionsTopicResult(name=topic.name)
    try:
        wanted = {topic.name: NewPartitions(topic.count, _assignments(gateway, topic))}
        gateway.admin.create_partitions(wanted, validate_only=validate_only)
    except SparkLogError as error:
        result.error_code, result.error_message = error_code(error), str(error)
    return result


def _assignments(gateway: Gateway, topic: Any) -> list[list[int]] | None:
    """Return the storage roots of new partitions, or None if the root chooses them.

    Clients see gateways, so an assignment to gateways says nothing about roots.

    Raises:
        InvalidReplicaAssignmentError: gateways are given for more or fewer partitions than are new.
    """
    if topic.assignments is None:
        return None
    assignments = [list(each.broker_ids) for each in topic.assignments]
    gateways = {each.gateway_id for each in gateway.gateways}
    if not gateways.issuperset(each for ids in assignments for each in ids):
        return assignments
    new = topic.count - gateway.cluster.image().topic(topic.name).num_partitions
    if new > 0 and len(assignments) != new:
        raise InvalidReplicaAssignmentError(
            f"topic {topic.name!r} gets {new} new partitions, but the gateways of "
            f"{len(assignments)} are given; give those of each new partition, or of none",
            partition=min(len(assignments), new),
        )
    return None
