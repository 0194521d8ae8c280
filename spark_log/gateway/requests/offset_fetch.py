"""OffsetFetch: the committed offsets of one group, and from version 8 on of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_log.errors import SparkLogError, UnstableOffsetCommitError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.groups import GroupError
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.types import OffsetAndMetadata, TopicPartition

_Response = message_class("OffsetFetchResponse")
_GROUPS_VERSION, _TOPIC_ID_VERSION = 8, 10
_NONE = OffsetAndMetadata(-1, "", -1)


def _error(_: Any, code: int, __: str) -> Any:
    return _Response(error_code=code)


API = Api(9, "OffsetFetch", 1, 10, error_response=_error)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the offsets of the partitions that are asked for, or of all."""
    version = context.api_version
    if version < _GROUPS_VERSION:
        found = await gateway.run_blocking(_fetch, gateway, request, request, version)
        return _Response(topics=found.topics, error_code=found.error_code)
    refused = {
        group.group_id: code
        for group in request.groups
        if (code := await _member_error(gateway, group)) is not GroupError.NONE
    }
    groups = await gateway.run_blocking(
        lambda: [
            _Response.OffsetFetchResponseGroup(
                group_id=group.group_id, error_code=refused[group.group_id]
            )
            if group.group_id in refused
            else _fetch(gateway, request, group, version)
            for group in request.groups
        ]
    )
    return _Response(groups=groups)


async def _member_error(gateway: Gateway, group: Any) -> GroupError:
    """Return why a member of the consumer protocol may not fetch offsets; NONE if it may."""
    if not group.group_id or group.member_id is None or group.member_epoch < 0:
        return GroupError.NONE
    code = await gateway.consumer_groups.check_member(
        group.group_id, group.member_id, group.member_epoch
    )
    # Of a group of another kind, anyone may fetch offsets.
    return GroupError.NONE if code is GroupError.GROUP_ID_NOT_FOUND else code


def _fetch(gateway: Gateway, request: Any, group: Any, version: int) -> Any:
    response = _Response.OffsetFetchResponseGroup(group_id=group.group_id)
    if not group.group_id:
        response.error_code = ErrorCode.INVALID_GROUP_ID
        return response
    fetch = gateway.admin.list_group_offsets
    asked = None if group.topics is None else _asked(gateway, group.topics, version)
    wanted = None
    if asked is not None:
        wanted = [TopicPartition(name, each) for name, _, numbers in asked for each in numbers]
    try:
        offsets = fetch(group.group_id, wanted, require_stable=request.require_stable)
    except UnstableOffsetCommitError:
        # One of the partitions that are asked for has no stable offset yet: the client asks again.
        return _topics(
            gateway, response, asked, version, lambda _: ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
    except SparkLogError as error:
        response.error_code = error_code(error)
        return response
    return _topics(gateway, response, asked, version, lambda tp: offsets.get(tp, _NONE), offsets)


def _asked(gateway: Gateway, topics: Any, version: int) -> list[tuple[str, str, list[int]]]:
    """Return the name, the id and the partitions of each topic of a request.

    The name is empty if there is no topic with the id, and the id if the request has names.
    """
    if version < _TOPIC_ID_VERSION:
        return [(each.name, "", each.partition_indexes) for each in topics]
    image = gateway.cluster.image()
    found = [(image.find_by_id(each.topic_id), each) for each in topics]
    return [
        ("" if topic is None else topic.name, each.topic_id, each.partition_indexes)
        for topic, each in found
    ]


def _topics(
    gateway: Gateway,
    response: Any,
    asked: list[tuple[str, str, list[int]]] | None,
    version: int,
    look_up: Callable[[TopicPartition], OffsetAndMetadata | ErrorCode],
    everything: Any = (),
) -> Any:
    """Return the answer for the partitions that are asked for; for all that have an offset."""
    if asked is None:
        image = gateway.cluster.image()
        wanted: dict[str, list[int]] = {}
        for topic, partition in sorted(everything):
            wanted.setdefault(topic, []).append(partition)
        asked = [
            (name, found.topic_id, numbers)
            for name, numbers in wanted.items()
            if (found := image.find(name)) is not None
        ]
        if not everything and look_up(TopicPartition("", 0)) is ErrorCode.UNSTABLE_OFFSET_COMMIT:
            response.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    response.topics = [
        _topic(name, topic_id, numbers, version, look_up) for name, topic_id, numbers in asked
    ]
    return response


def _topic(
    name: str,
    topic_id: str,
    numbers: list[int],
    version: int,
    look_up: Callable[[TopicPartition], OffsetAndMetadata | ErrorCode],
) -> Any:
    is_group = version >= _GROUPS_VERSION
    topic_class = (
        _Response.OffsetFetchResponseTopics if is_group else _Response.OffsetFetchResponseTopic
    )
    part_class = (
        _Response.OffsetFetchResponsePartitions
        if is_group
        else _Response.OffsetFetchResponsePartition
    )
    partitions = []
    for number in numbers:
        found: OffsetAndMetadata | ErrorCode = look_up(TopicPartition(name, number))
        if version >= _TOPIC_ID_VERSION and not name:
            found = ErrorCode.UNKNOWN_TOPIC_ID
        code = found if isinstance(found, ErrorCode) else ErrorCode.NONE
        offset = _NONE if isinstance(found, ErrorCode) else found
        partitions.append(
            part_class(
                partition_index=number,
                committed_offset=offset.offset,
                committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                metadata=offset.metadata or "",
                error_code=code,
            )
        )
    topic = topic_class(name=name, partitions=partitions)
    if topic_id and is_group:
        topic.topic_id = topic_id
    return topic
