"""ListGroups: all groups of the root, of whatever clients."""

from __future__ import annotations

from typing import Any

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext

_Response = message_class("ListGroupsResponse")


def _error(_: Any, code: int, __: str) -> Any:
    return _Response(error_code=code)


API = Api(16, "ListGroups", 0, 5, error_response=_error)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with every group, filtered by state and type.

    An admin client asks all gateways and joins what they say by the groups' ids.
    """
    try:
        found = await gateway.run_blocking(gateway.admin.list_groups)
    except SparkLogError as error:
        return _error(request, error_code(error), "")
    states = {each.lower() for each in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    return _Response(
        groups=[
            _Response.ListedGroup(
                group_id=each.group_id,
                protocol_type=each.protocol_type,
                group_state=each.group_state,
                group_type=each.group_type,
            )
            for each in found
            if (not states or each.group_state.lower() in states)
            and (not types or each.group_type in types)
        ]
    )
