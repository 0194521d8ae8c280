"""LeaveGroup: members leave; from version 3 on, several, and static ones by their instance ids."""

from __future__ import annotations

from typing import Any

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.groups import GroupRefusedError, MemberIdentity
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext

_Response = message_class("LeaveGroupResponse")


def _error(_: Any, code: int, __: str) -> Any:
    return _Response(error_code=code)


API = Api(13, "LeaveGroup", 0, 5, error_response=_error)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with an error for each member; older versions have one member."""
    if not request.group_id:
        return _error(request, ErrorCode.INVALID_GROUP_ID, "")
    identities = [
        MemberIdentity(each.member_id, each.group_instance_id) for each in request.members
    ]
    if context.api_version < 3:
        identities = [MemberIdentity(request.member_id)]
    try:
        answer = await gateway.groups.leave(request.group_id, identities)
    except GroupRefusedError as refused:
        return _error(request, refused.error, "")
    if context.api_version < 3:
        return _Response(error_code=answer.errors[0])
    return _Response(
        members=[
            _Response.MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
                error_code=error,
            )
            for identity, error in zip(identities, answer.errors, strict=True)
        ]
    )
