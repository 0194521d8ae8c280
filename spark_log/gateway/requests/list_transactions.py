"""ListTransactions (KIP-664)."""

from __future__ import annotations

from functools import partial
from typing import Any

from spark_log.errors import InvalidConfigurationError
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.transaction import TransactionState


def _failed(request: Any, code: int, message: str) -> Any:
    return _Response(error_code=code)


API = Api(66, "ListTransactions", 0, 2, error_response=_failed)

_Response = message_class("ListTransactionsResponse")
_STATES = frozenset(map(str, TransactionState))


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the transactional ids that this gateway coordinates: clients ask all of them."""
    states = [each for each in request.state_filters if each in _STATES]
    unknown = [each for each in request.state_filters if each not in _STATES]
    if request.state_filters and not states:
        return _Response(unknown_state_filters=unknown)
    try:
        found = await gateway.run_blocking(
            partial(
                gateway.admin.list_transactions,
                state_filters=states or None,
                producer_id_filters=request.producer_id_filters or None,
                duration_filter_ms=request.duration_filter
                if request.duration_filter >= 0
                else None,
                transactional_id_pattern=request.transactional_id_pattern or None,
            )
        )
    except InvalidConfigurationError:
        return _Response(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    own = gateway.registered.gateway_id
    return _Response(
        unknown_state_filters=unknown,
        transaction_states=[
            _Response.TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state,
            )
            for each in found
            if gateway.coordinator("transaction", each.transactional_id).gateway_id == own
        ],
    )
