"""AlterReplicaLogDirs: a replica stays in its directory, which is a storage root (KIP-113)."""

from __future__ import annotations

from typing import Any

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.metadata import ROOT_BROKER_ID

API = Api(34, "AlterReplicaLogDirs", 1, 2)

_Response = message_class("AlterReplicaLogDirsResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer LOG_DIR_NOT_FOUND for each partition that is to leave its directory.

    A broker of this log has one directory, its storage root, and DescribeLogDirs shows it. A
    partition moves to another one by a reassignment.
    """
    return _Response(results=await gateway.run_blocking(_alter_all, gateway, request))


def _alter_all(gateway: Gateway, request: Any) -> list[Any]:
    return [
        _Response.AlterReplicaLogDirTopicResult(
            topic_name=topic.name,
            partitions=[
                _Response.AlterReplicaLogDirPartitionResult(
                    partition_index=number,
                    error_code=_error(gateway, log_dir.path, topic.name, number),
                )
                for number in topic.partitions
            ],
        )
        for log_dir in request.dirs
        for topic in log_dir.topics
    ]


def _error(gateway: Gateway, path: str, topic: str, number: int) -> int:
    try:
        image = gateway.cluster.image()
    except SparkLogError as error:
        return error_code(error)
    found = image.find(topic)
    if found is None or number not in found.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    roots = {
        gateway.cluster.root if each.broker_id == ROOT_BROKER_ID else each.root
        for each in image.brokers()
        if each.broker_id in found.partitions[number].replicas
    }
    return 0 if path in roots else ErrorCode.LOG_DIR_NOT_FOUND
