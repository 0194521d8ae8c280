"""ConsumerGroupDescribe: state, members and partitions of groups of the consumer protocol."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from spark_log.coordinator import CONSUMER_ASSIGNORS, Group, GroupLog, Member
from spark_log.errors import GroupIdNotFoundError, SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.authorized_operations import with_operations
from spark_log.types import TopicPartition

API = Api(69, "ConsumerGroupDescribe", 0, 1)

_Response = message_class("ConsumerGroupDescribeResponse")
_CONSUMER_MEMBER = 1
"""``MemberType`` of a member of the consumer protocol."""


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with what the groups' logs have; any gateway can."""
    return await gateway.run_blocking(
        lambda: _Response(
            groups=[
                with_operations(_described(gateway, each), request) for each in request.group_ids
            ]
        )
    )


def _described(gateway: Gateway, group_id: str) -> Any:
    described = _Response.DescribedGroup(group_id=group_id)
    if not group_id:
        described.error_code = ErrorCode.INVALID_GROUP_ID
        return described
    try:
        gateway.admin.describe_groups([group_id])
        group = GroupLog.view(gateway.cluster.store, group_id, gateway.cluster.clock).state
    except GroupIdNotFoundError as error:
        described.error_code, described.error_message = ErrorCode.GROUP_ID_NOT_FOUND, str(error)
        return described
    except SparkLogError as error:
        described.error_code, described.error_message = error_code(error), str(error)
        return described
    if group.consumer is None:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = f"group {group_id} is not a consumer group"
        return described
    described.group_state = group.state
    described.group_epoch = described.assignment_epoch = group.generation
    described.assignor_name = group.protocol or CONSUMER_ASSIGNORS[0]  # Kafka's without members
    described.members = [_member(group, each) for each in group.members.values()]
    return described


def _member(group: Group, member: Member) -> Any:
    assert group.consumer is not None
    known = group.consumer.members[member.member_id]
    # A member with partitions to revoke keeps its epoch until it has released them.
    epoch = known.epoch if member.revoking else group.generation
    return _Response.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=-2 if known.has_left else epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(known.topics),
        subscribed_topic_regex=known.regex,
        assignment=_assignment(group, member.held),
        target_assignment=_assignment(group, member.target),
        member_type=_CONSUMER_MEMBER,
    )


def _assignment(group: Group, partitions: Collection[TopicPartition]) -> Any:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return _Response.Assignment(
        topic_partitions=[
            _Response.TopicPartitions(
                topic_id=group.topics[topic].topic_id, topic_name=topic, partitions=numbers
            )
            for topic, numbers in by_topic.items()
        ]
    )
