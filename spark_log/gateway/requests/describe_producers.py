"""DescribeProducers: the idempotent producers that partitions remember (KIP-664)."""

from __future__ import annotations

from typing import Any

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.types import ActiveProducer, TopicPartition

API = Api(61, "DescribeProducers", 0, 0)

_Response = message_class("DescribeProducersResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the producers of each partition, or its error."""
    return _Response(topics=await gateway.run_blocking(_describe_all, gateway, request))


def _describe_all(gateway: Gateway, request: Any) -> list[Any]:
    return [
        _Response.TopicResponse(
            name=topic.name,
            partitions=[
                _describe(gateway, TopicPartition(topic.name, number))
                for number in topic.partition_indexes
            ],
        )
        for topic in request.topics
    ]


def _describe(gateway: Gateway, tp: TopicPartition) -> Any:
    result = _Response.PartitionResponse(partition_index=tp.partition)
    try:
        found = gateway.admin.describe_producers([tp])[tp]
    except SparkLogError as error:
        result.error_code, result.error_message = error_code(error), str(error)
        return result
    result.active_producers = [
        _Response.ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.last_timestamp,
            coordinator_epoch=_coordinator_epoch(each),
            current_txn_start_offset=each.current_transaction_start_offset,
        )
        for each in found.active_producers
    ]
    return result


def _coordinator_epoch(producer: ActiveProducer) -> int:
    """Return 0, which all markers have, if a marker is the producer's newest batch; else -1.

    Kafka remembers the epoch of the marker before an open transaction, too.
    """
    is_open = producer.current_transaction_start_offset >= 0
    return 0 if producer.last_sequence < 0 and not is_open else -1
