"""FindCoordinator: the gateway that coordinates a group or a transactional id."""

from __future__ import annotations

from typing import Any

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext

API = Api(10, "FindCoordinator", 0, 6)

_Response = message_class("FindCoordinatorResponse")
_KINDS = {0: "group", 1: "transaction"}


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with a gateway for each key; from version 4 on there may be several."""
    if context.api_version >= 4:
        return _Response(
            coordinators=[
                _coordinator(gateway, request.key_type, key) for key in request.coordinator_keys
            ]
        )
    found = _coordinator(gateway, request.key_type, request.key)
    return _Response(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(gateway: Gateway, key_type: int, key: str) -> Any:
    kind = _KINDS.get(key_type)
    if kind is None:
        return _Response.Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"there is no coordinator of the type {key_type}; expected 0 (group) or "
            f"1 (transaction)",
        )
    if not gateway.is_known_alive:
        # Others may have taken over: its registry is old.
        return _Response.Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            error_message="the gateway has not shown life in time; ask again",
        )
    found = gateway.coordinator(kind, key)
    return _Response.Coordinator(
        key=key, node_id=found.gateway_id, host=found.host, port=found.port
    )
