"""SaslAuthenticate: a message of the exchange."""

from __future__ import annotations

import asyncio
from typing import Any

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.security import AuthenticationError

API = Api(36, "SaslAuthenticate", 0, 2)

_Response = message_class("SaslAuthenticateResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Take the client's message; answer after a pause if it is wrong, so that guessing is slow."""
    authenticator = context.authenticator
    if authenticator is None:
        return _Response(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="this listener has no SASL; use security.protocol=PLAINTEXT or SSL",
        )
    try:
        answer = await gateway.run_blocking(authenticator.step, request.auth_bytes)
    except AuthenticationError as error:
        await asyncio.sleep(gateway.config.connection_failed_authentication_delay_ms / 1000)
        return _Response(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error))
    lifetime_ms = authenticator.session_lifetime_ms if authenticator.principal else 0
    return _Response(auth_bytes=answer, session_lifetime_ms=lifetime_ms)
