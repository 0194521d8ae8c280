"""ListPartitionReassignments (KIP-455)."""

from __future__ import annotations

from typing import Any

from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext


def _failed(request: Any, code: int, message: str) -> Any:
    return _Response(error_code=code, error_message=message)


API = Api(46, "ListPartitionReassignments", 0, 0, error_response=_failed)

_Response = message_class("ListPartitionReassignmentsResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the reassignments that are in progress; brokers are storage roots."""
    found = await gateway.run_blocking(gateway.admin.list_partition_reassignments)
    wanted = None
    if request.topics is not None:
        wanted = {
            (each.name, number) for each in request.topics for number in each.partition_indexes
        }
    topics: dict[str, list[Any]] = {}
    for tp, each in found.items():
        if wanted is None or tuple(tp) in wanted:
            topics.setdefault(tp.topic, []).append(
                _Response.OngoingPartitionReassignment(
                    partition_index=tp.partition,
                    replicas=list(each.replicas),
                    adding_replicas=list(each.adding_replicas),
                    removing_replicas=list(each.removing_replicas),
                )
            )
    return _Response(
        topics=[
            _Response.OngoingTopicReassignment(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )
