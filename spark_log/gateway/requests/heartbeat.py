"""Heartbeat: a member is alive; the answer tells it when the group rebalances."""

from __future__ import annotations

from typing import Any

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.groups import MemberIdentity
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext

_Response = message_class("HeartbeatResponse")


def _error(_: Any, code: int, __: str) -> Any:
    return _Response(error_code=code)


API = Api(12, "Heartbeat", 0, 4, error_response=_error)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer from memory."""
    if not request.group_id:
        return _error(request, ErrorCode.INVALID_GROUP_ID, "")
    identity = MemberIdentity(request.member_id, request.group_instance_id)
    answer = await gateway.groups.heartbeat(request.group_id, identity, request.generation_id)
    return _Response(error_code=answer.error)
