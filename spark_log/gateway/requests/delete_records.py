"""DeleteRecords: moves the start of partitions (KIP-107)."""

from __future__ import annotations

from typing import Any

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.types import TopicPartition

API = Api(21, "DeleteRecords", 0, 2)

_Response = message_class("DeleteRecordsResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Delete the records before an offset in each partition, each by itself."""
    topics = await gateway.run_blocking(_delete_all, gateway, request)
    image = gateway.partitions.known_image
    for deleted in topics:
        topic = image.find(deleted.name)
        for each in deleted.partitions:
            if topic is None or each.error_code:
                continue
            partition = gateway.partitions.get(topic, each.partition_index)
            if partition is not None:  # its next fetches and ListOffsets know the new start
                partition.on_deleted(each.low_watermark)
    return _Response(topics=topics)


def _delete_all(gateway: Gateway, request: Any) -> list[Any]:
    return [
        _Response.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[_delete(gateway, topic.name, each) for each in topic.partitions],
        )
        for topic in request.topics
    ]


def _delete(gateway: Gateway, topic: str, partition: Any) -> Any:
    tp = TopicPartition(topic, partition.partition_index)
    result = _Response.DeleteRecordsPartitionResult(
        partition_index=partition.partition_index, low_watermark=-1
    )
    found = gateway.cluster.image().find(topic)
    if found is not None and "delete" not in found.config().cleanup_policy:
        result.error_code = ErrorCode.POLICY_VIOLATION  # as in Kafka
        return result
    try:
        deleted = gateway.admin.delete_records({tp: partition.offset})
        result.low_watermark = deleted[tp].low_watermark
    except SparkLogError as error:
        result.error_code = error_code(error)
    return result
