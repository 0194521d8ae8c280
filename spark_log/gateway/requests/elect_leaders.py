"""ElectLeaders: of partitions that have replicas in several roots (KIP-460)."""

from __future__ import annotations

from typing import Any

from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.types import ElectionType, TopicPartition


def _failed(request: Any, code: int, message: str) -> Any:
    return _Response(error_code=code)


API = Api(43, "ElectLeaders", 0, 2, error_response=_failed)

_Response = message_class("ElectLeadersResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Elect leaders; answer with the error of each partition that has one."""
    try:
        election_type = ElectionType(request.election_type)
    except ValueError:
        return _Response(error_code=ErrorCode.INVALID_REQUEST)
    partitions = None
    if request.topic_partitions is not None:
        partitions = [
            TopicPartition(topic.topic, number)
            for topic in request.topic_partitions
            for number in topic.partitions
        ]
    found = await gateway.run_blocking(gateway.admin.elect_leaders, election_type, partitions)
    results: dict[str, list[Any]] = {}
    for tp, error in found.items():
        results.setdefault(tp.topic, []).append(
            _Response.PartitionResult(
                partition_id=tp.partition,
                error_code=0 if error is None else error_code(error),
                error_message=None if error is None else str(error),
            )
        )
    return _Response(
        replica_election_results=[
            _Response.ReplicaElectionResult(topic=topic, partition_result=each)
            for topic, each in results.items()
        ]
    )
