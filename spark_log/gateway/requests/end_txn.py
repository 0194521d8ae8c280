"""EndTxn: commits or aborts a transaction (KIP-890's second protocol)."""

from __future__ import annotations

from typing import Any

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.record import ProducerIdAndEpoch

API = Api(26, "EndTxn", 5, 5)
"""Earlier versions keep their epoch after the end, which the log does not allow."""

_Response = message_class("EndTxnResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Decide the transaction; answer with the producer's epoch in its next one."""
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        following = await gateway.run_blocking(
            _end, gateway, request.transactional_id, producer, request.committed
        )
    except SparkLogError as error:
        return _Response(error_code=error_code(error))
    return _Response(producer_id=following.producer_id, producer_epoch=following.producer_epoch)


def _end(
    gateway: Gateway, transactional_id: str, producer: ProducerIdAndEpoch, is_committed: bool
) -> ProducerIdAndEpoch:
    return gateway.transactions.end(transactional_id, producer, is_committed=is_committed)
