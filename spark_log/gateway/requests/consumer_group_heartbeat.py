"""ConsumerGroupHeartbeat: a member joins, is alive, or leaves; the gateway assigns (KIP-848)."""

from __future__ import annotations

from typing import Any

from spark_log.coordinator import CONSUMER_ASSIGNORS, Member
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.groups import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeat,
)
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.util import random_id

_Response = message_class("ConsumerGroupHeartbeatResponse")


def _error(_: Any, code: int, message: str) -> Any:
    return _Response(error_code=code, error_message=message)


API = Api(68, "ConsumerGroupHeartbeat", 0, 1, error_response=_error)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the member's epoch, and with its partitions if they have changed."""
    if reason := _invalid(request, context.api_version):
        return _error(request, ErrorCode.INVALID_REQUEST, reason)
    if request.server_assignor is not None and request.server_assignor not in CONSUMER_ASSIGNORS:
        return _error(
            request,
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"group.remote.assignor is {request.server_assignor!r}, expected one of "
            f"{', '.join(CONSUMER_ASSIGNORS)}",
        )
    member_id = request.member_id or random_id()  # version 1 clients make their ids
    regex = request.subscribed_topic_regex if context.api_version >= 1 else None
    names, owned = request.subscribed_topic_names, request.topic_partitions
    answer = await gateway.consumer_groups.heartbeat(
        request.group_id,
        ConsumerHeartbeat(
            Member(
                member_id,
                request.instance_id,
                context.client_id or "",
                f"/{context.client_host}",
                request.rack_id,
            ),
            request.member_epoch,
            None if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms,
            None if names is None else tuple(sorted(set(names))),
            regex,
            request.server_assignor,
            None
            if owned is None
            else {each.topic_id: frozenset(each.partitions) for each in owned},
        ),
    )
    response = _Response(
        error_code=answer.error,
        error_message=answer.message,
        member_id=member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.interval_ms,
    )
    if answer.assignment is not None:
        response.assignment = _Response.Assignment(
            topic_partitions=[
                _Response.TopicPartitions(topic_id=topic_id, partitions=list(numbers))
                for topic_id, numbers in answer.assignment.items()
            ]
        )
    return response


def _invalid(request: Any, version: int) -> str:
    """Return what is wrong with a request; empty if nothing is."""
    epoch = request.member_epoch
    regex = request.subscribed_topic_regex if version >= 1 else None
    is_join = epoch == JOIN_EPOCH
    wrong = (
        (not request.group_id, "GroupId is empty"),
        (
            request.instance_id == "" or request.rack_id == "",
            "InstanceId or RackId is empty; expected null without one",
        ),
        (
            not request.member_id and (version >= 1 or not is_join),
            "MemberId is empty; only version 0 gives out ids, to members that join",
        ),
        (epoch < LEAVE_STATIC_EPOCH, f"MemberEpoch is {epoch}, expected -2 or more"),
        (
            epoch == LEAVE_STATIC_EPOCH and request.instance_id is None,
            "MemberEpoch is -2, which is for static members, and InstanceId is null",
        ),
        (
            is_join and request.rebalance_timeout_ms < 0,
            "RebalanceTimeoutMs is missing in a request to join",
        ),
        (
            is_join and (request.topic_partitions is None or bool(request.topic_partitions)),
            "TopicPartitions is null or not empty in a request to join, expected an empty list",
        ),
        (
            is_join and request.subscribed_topic_names is None and regex is None,
            "SubscribedTopicNames and SubscribedTopicRegex are null in a request to join",
        ),
    )
    return next((reason for is_wrong, reason in wrong if is_wrong), "")
