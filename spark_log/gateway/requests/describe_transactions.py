"""DescribeTransactions (KIP-664)."""

from __future__ import annotations

from typing import Any

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext

API = Api(65, "DescribeTransactions", 0, 0)

_Response = message_class("DescribeTransactionsResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the state of each transactional id, or its error."""
    return _Response(transaction_states=await gateway.run_blocking(_describe_all, gateway, request))


def _describe_all(gateway: Gateway, request: Any) -> list[Any]:
    return [_describe(gateway, each) for each in request.transactional_ids]


def _describe(gateway: Gateway, transactional_id: str) -> Any:
    try:
        found = gateway.admin.describe_transactions([transactional_id])[transactional_id]
    except SparkLogError as error:
        return _Response.TransactionState(
            transactional_id=transactional_id, error_code=error_code(error)
        )
    numbers: dict[str, list[int]] = {}
    for topic, partition in sorted(found.topic_partitions):
        numbers.setdefault(topic, []).append(partition)
    return _Response.TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state,
        transaction_timeout_ms=found.transaction_timeout_ms,
        transaction_start_time_ms=found.transaction_start_time_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            _Response.TopicData(topic=topic, partitions=each) for topic, each in numbers.items()
        ],
    )
