"""DeleteGroups: deletes groups without members, with their committed offsets."""

from __future__ import annotations

from typing import Any

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext

API = Api(42, "DeleteGroups", 0, 2)

_Response = message_class("DeleteGroupsResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Delete the groups, each by itself."""
    return await gateway.run_blocking(
        lambda: _Response(results=[_deleted(gateway, each) for each in request.groups_names])
    )


def _deleted(gateway: Gateway, group_id: str) -> Any:
    code: int = ErrorCode.NONE if group_id else ErrorCode.INVALID_GROUP_ID
    if group_id:
        try:
            gateway.admin.delete_groups([group_id])
        except SparkLogError as error:
            code = error_code(error)
    return _Response.DeletableGroupResult(group_id=group_id, error_code=code)
