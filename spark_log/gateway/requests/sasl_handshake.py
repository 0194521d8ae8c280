"""SaslHandshake: the client's choice of a mechanism."""

from __future__ import annotations

from typing import Any

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.security import AuthenticationError

API = Api(17, "SaslHandshake", 0, 1)
"""After version 0, messages of the exchange come in frames without headers; else in requests."""

_Response = message_class("SaslHandshakeResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Begin an exchange."""
    authenticator = context.authenticator
    if authenticator is None:
        return _Response(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        is_known = authenticator.begin(request.mechanism)
    except AuthenticationError:
        return _Response(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return _Response(
        error_code=0 if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        mechanisms=list(authenticator.mechanisms),
    )
