"""LeaveGroup: members leave; from version 3 on, several, and static ones by their instance ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.groups import GroupError, GroupRefusedError, MemberIdentity
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
        errors = await _leave(gateway, request.group_id, identities)
    except GroupRefusedError as refused:
        return _error(request, refused.error, "")
    if context.api_version < 3:
        return _Response(error_code=errors[0])
    return _Response(
        members=[
            _Response.MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
                error_code=error,
            )
            for identity, error in zip(identities, errors, strict=True)
        ]
    )


async def _leave(
    gateway: Gateway, group_id: str, identities: Sequence[MemberIdentity]
) -> Sequence[GroupError]:
    """Let members leave the classic group, or that of the consumer protocol, that has this id.

    Members of the latter do not send this request; admin clients do, to remove them.
    """
    if not gateway.consumer_groups.has_loaded(group_id):
        errors = (await gateway.groups.leave(group_id, identities)).errors
        if any(each is not GroupError.UNKNOWN_MEMBER_ID for each in errors):
            return errors
    return await gateway.consumer_groups.remove(group_id, identities)
