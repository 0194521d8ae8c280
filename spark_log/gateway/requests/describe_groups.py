"""DescribeGroups: state and members of classic groups, and of those of our own consumers."""

from __future__ import annotations

from typing import Any

from spark_log.coordinator import (
    CONSUMER_PROTOCOL_TYPE,
    STABLE,
    ClassicMember,
    Group,
    GroupLog,
    Member,
    encode_assignment,
)
from spark_log.errors import GroupIdNotFoundError, SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.authorized_operations import with_operations

API = Api(15, "DescribeGroups", 0, 6)

_Response = message_class("DescribeGroupsResponse")
_NOT_FOUND_VERSION = 6


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with what the groups' logs have; any gateway can."""
    return await gateway.run_blocking(
        lambda: _Response(
            groups=[
                with_operations(_described(gateway, each, context.api_version), request)
                for each in request.groups
            ]
        )
    )


def _described(gateway: Gateway, group_id: str, version: int) -> Any:
    described = _Response.DescribedGroup(group_id=group_id)
    if not group_id:
        described.error_code = ErrorCode.INVALID_GROUP_ID
        return described
    try:
        gateway.admin.describe_groups([group_id])
        group = GroupLog.view(gateway.cluster.store, group_id, gateway.cluster.clock).state
    except GroupIdNotFoundError as error:
        described.group_state = "Dead"
        if version >= _NOT_FOUND_VERSION:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = str(error)
        return described
    except SparkLogError as error:
        described.error_code, described.error_message = error_code(error), str(error)
        return described
    if group.consumer is not None and group.members:
        # Clients ask with ConsumerGroupDescribe first.
        described.group_state = "Dead"
        if version >= _NOT_FOUND_VERSION:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"group {group_id} is not a classic group"
        return described
    described.group_state = group.state
    described.protocol_type = group.protocol_type
    if group.classic is None:
        described.protocol_type = CONSUMER_PROTOCOL_TYPE
        described.protocol_data = group.protocol or ""
        described.members = [_native(each) for each in group.members.values()]
        return described
    # In a rebalance, metadata and assignments are not those of the next generation.
    is_stable = group.classic.state == STABLE
    described.protocol_data = (group.protocol or "") if is_stable else ""
    described.members = [
        _classic(group, each, is_stable=is_stable) for each in group.classic.members.values()
    ]
    return described


def _classic(group: Group, member: ClassicMember, *, is_stable: bool) -> Any:
    return _Response.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol) if is_stable else b"",
        member_assignment=member.assignment if is_stable else b"",
    )


def _native(member: Member) -> Any:
    return _Response.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=f"/{member.client_host}",
        member_metadata=b"",
        member_assignment=encode_assignment(member.held),
    )
