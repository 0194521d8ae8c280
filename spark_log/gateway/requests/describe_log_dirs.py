"""DescribeLogDirs: the sizes of partitions, by the root that they lie in."""

from __future__ import annotations

from typing import Any

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext


def _failed(request: Any, code: int, message: str) -> Any:
    return _Response(error_code=code)


API = Api(35, "DescribeLogDirs", 1, 4, error_response=_failed)

_Response = message_class("DescribeLogDirsResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the roots, and with the partitions in them that this gateway leads.

    Clients ask all gateways, and so see each replica once.
    """
    return await gateway.run_blocking(_describe, gateway, request)


def _describe(gateway: Gateway, request: Any) -> Any:
    image = gateway.cluster.image()
    own = gateway.registered.gateway_id
    if request.topics is None:
        asked = {topic.name: sorted(topic.partitions) for topic in image.topics()}
    else:
        asked = {each.topic: each.partitions for each in request.topics}
    wanted: dict[str, list[int]] = {}
    for name, numbers in asked.items():
        topic = image.find(name)
        for number in numbers:
            if topic is None or number not in topic.partitions:
                continue
            if gateway.leader(topic.topic_id, number).gateway_id == own:
                wanted.setdefault(name, []).append(number)
    try:
        found = gateway.admin.describe_log_dirs(wanted)
    except SparkLogError as error:
        return _Response(error_code=error_code(error))
    results = []
    for log_dir in found:
        topics: dict[str, list[Any]] = {}
        for replica in log_dir.replicas:
            topics.setdefault(replica.topic, []).append(
                _Response.DescribeLogDirsPartition(
                    partition_index=replica.partition,
                    partition_size=max(0, replica.size_bytes),
                    offset_lag=max(0, replica.offset_lag),
                )
            )
        results.append(
            _Response.DescribeLogDirsResult(
                error_code=ErrorCode.KAFKA_STORAGE_ERROR if log_dir.error else 0,
                log_dir=log_dir.log_dir,
                topics=[
                    _Response.DescribeLogDirsTopic(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            )
        )
    return _Response(results=results)
