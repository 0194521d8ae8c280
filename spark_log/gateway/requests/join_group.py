"""JoinGroup: a member joins, and waits for the group's next generation."""

from __future__ import annotations

from typing import Any

from spark_log.coordinator import ClassicMember
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.groups import JoinRequest
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext

_Response = message_class("JoinGroupResponse")


def _error(request: Any, code: int, _: str) -> Any:
    return _Response(error_code=code, protocol_name="", member_id=request.member_id)


API = Api(11, "JoinGroup", 0, 9, error_response=_error)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer when the next generation has begun; the leader is told all members."""
    if not request.group_id:
        return _error(request, ErrorCode.INVALID_GROUP_ID, "")
    version = context.api_version
    timeout_ms = request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms
    member = ClassicMember(
        request.member_id,
        request.group_instance_id,
        context.client_id or "",
        f"/{context.client_host}",
        max(timeout_ms, 0),
        request.session_timeout_ms,
        tuple((each.name, bytes(each.metadata)) for each in request.protocols),
    )
    # From version 4 on a client joins again with the id that it is given (KIP-394).
    wanted = JoinRequest(member, request.protocol_type, version >= 4, version >= 9)
    answer = await gateway.groups.join(request.group_id, wanted)
    name = answer.protocol
    return _Response(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=name if name is not None or version >= 7 else "",
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            _Response.JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata(name),
            )
            for each in answer.members
        ],
    )
