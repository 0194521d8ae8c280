"""AddPartitionsToTxn: partitions of a transaction, before the first batch there.

Clients that know KIP-890's second protocol do not send it: their batches add the partitions.
"""

from __future__ import annotations

from typing import Any

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.transaction_errors import kept_error, late_check
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import TopicIdPartition

_Response = message_class("AddPartitionsToTxnResponse")


def _failed(request: Any, code: int, message: str) -> Any:
    return _response(request, {}, code)


API = Api(24, "AddPartitionsToTxn", 0, 3, error_response=_failed)
"""Later versions are those of brokers, which verify batches with them."""


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Add all partitions or none; the first ones begin the transaction."""
    transactional_id = request.v3_and_below_transactional_id
    check = late_check(gateway, transactional_id)
    image = await gateway.image()
    added: set[TopicIdPartition] = set()
    unknown: dict[tuple[str, int], int] = {}
    for each in request.v3_and_below_topics:
        topic = image.find(each.name)
        for number in each.partitions:
            if topic is None or number not in topic.partitions:
                unknown[each.name, number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                added.add(TopicIdPartition(topic.topic_id, number))
    if unknown:
        return _response(request, unknown, ErrorCode.OPERATION_NOT_ATTEMPTED)
    client = ProducerIdAndEpoch(
        request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    )
    try:
        transaction = await gateway.run_blocking(
            gateway.transactions.add_kept, transactional_id, client, added, (), check
        )
    except SparkLogError as error:
        return _response(request, {}, kept_error(error, context.api_key, context.api_version))
    context.transactions[transactional_id] = transaction
    return _response(request, {}, ErrorCode.NONE)


def _response(request: Any, refused: dict[tuple[str, int], int], code: int) -> Any:
    return _Response(
        results_by_topic_v3_and_below=[
            _Response.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    _Response.AddPartitionsToTxnPartitionResult(
                        partition_index=number,
                        partition_error_code=refused.get((topic.name, number), code),
                    )
                    for number in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )
