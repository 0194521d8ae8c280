"""SyncGroup: the leader gives each member its assignment; the others wait for theirs."""

from __future__ import annotations

from typing import Any

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.groups import MemberIdentity
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext

_Response = message_class("SyncGroupResponse")


def _error(_: Any, code: int, __: str) -> Any:
    return _Response(error_code=code, assignment=b"")


API = Api(14, "SyncGroup", 0, 5, error_response=_error)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the member's assignment."""
    if not request.group_id:
        return _error(request, ErrorCode.INVALID_GROUP_ID, "")
    if context.api_version >= 5 and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return _error(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    answer = await gateway.groups.sync(
        request.group_id,
        MemberIdentity(request.member_id, request.group_instance_id),
        request.generation_id,
        (request.protocol_type, request.protocol_name),
        {each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    return _Response(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )
