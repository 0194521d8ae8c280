"""AddOffsetsToTxn: a group whose offsets a transaction commits, before its TxnOffsetCommit.

Clients that know KIP-890's second protocol do not send it: TxnOffsetCommit adds the group.
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

API = Api(25, "AddOffsetsToTxn", 0, 4)

_Response = message_class("AddOffsetsToTxnResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Add the group; begin the transaction if none is ongoing."""
    if not request.group_id:
        return _Response(error_code=ErrorCode.INVALID_GROUP_ID)
    client = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        transaction = await gateway.run_blocking(
            gateway.transactions.add_kept,
            request.transactional_id,
            client,
            (),
            {request.group_id},
            late_check(gateway, request.transactional_id),
        )
    except SparkLogError as error:
        return _Response(error_code=kept_error(error, context.api_key, context.api_version))
    context.transactions[request.transactional_id] = transaction
    return _Response()
