"""OffsetCommit: committed offsets of a group, in the table that all consumers have in common."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.groups import GroupError, MemberIdentity
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.metadata import MetadataImage
from spark_log.types import OffsetAndMetadata, TopicPartition

_Response = message_class("OffsetCommitResponse")

MAX_METADATA_BYTES = 4096
"""Kafka's default of ``offset.metadata.max.bytes``."""

_MEMBER_EPOCH_VERSION, _TOPIC_ID_VERSION = 9, 10
_REFUSED = (
    GroupError.UNKNOWN_MEMBER_ID,
    GroupError.ILLEGAL_GENERATION,
    GroupError.STALE_MEMBER_EPOCH,
)


def _all_refused(request: Any, code: int, _: str) -> Any:
    return _response(request, lambda *_: code)


API = Api(8, "OffsetCommit", 2, 10, error_response=_all_refused, needs_client=True)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Commit the offsets of all partitions that exist, all of them or none."""
    if not request.group_id:
        return _all_refused(request, ErrorCode.INVALID_GROUP_ID, "")
    member, term = request.member_id or context.client_id or "", gateway.term
    async with gateway.commit_order.turn(request.group_id, member):
        # Clients do not repeat an asynchronous commit that a coordinator refuses at its start.
        await gateway.until_known()
        return await _commit_existing(gateway, context, request, term)


async def _commit_existing(
    gateway: Gateway, context: RequestContext, request: Any, term: int
) -> Any:
    image = await gateway.run_blocking(gateway.cluster.image)
    by_id = context.api_version >= _TOPIC_ID_VERSION
    errors: dict[tuple[str, int], int] = {}
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.name
        for each in topic.partitions:
            found = _partition(image, key, each.partition_index, by_id=by_id)
            if isinstance(found, ErrorCode):
                errors[key, each.partition_index] = found
            elif len((each.committed_metadata or "").encode()) > MAX_METADATA_BYTES:
                errors[key, each.partition_index] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif each.committed_offset < 0:
                errors[key, each.partition_index] = ErrorCode.OFFSET_OUT_OF_RANGE
            else:
                offsets[found] = OffsetAndMetadata(
                    each.committed_offset,
                    each.committed_metadata or "",
                    each.committed_leader_epoch,
                )
    code: int
    try:
        code = await _commit(gateway, request, context.api_version, offsets, term)
    except SparkLogError as error:
        code = error_code(error)
    if code in _REFUSED:
        errors.clear()  # the whole request is refused
    return _response(
        request, lambda topic, at: errors.get((topic.topic_id if by_id else topic.name, at), code)
    )


async def _commit(
    gateway: Gateway,
    request: Any,
    version: int,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    term: int,
) -> GroupError:
    """Commit in the classic group, or that of the consumer protocol, that has this id."""
    group_id, member_id = request.group_id, request.member_id
    epoch = request.generation_id_or_member_epoch
    code = GroupError.UNKNOWN_MEMBER_ID
    is_coordinator = partial(gateway.has_coordinated, term)
    if not gateway.consumer_groups.has_loaded(group_id):
        identity = MemberIdentity(member_id, request.group_instance_id)
        code = await gateway.groups.commit(group_id, identity, epoch, offsets, is_coordinator)
    if code is not GroupError.UNKNOWN_MEMBER_ID or not member_id:
        return code
    code = await gateway.consumer_groups.commit(
        group_id, member_id, request.group_instance_id, epoch, offsets, is_coordinator
    )
    if code is GroupError.GROUP_ID_NOT_FOUND:
        return GroupError.UNKNOWN_MEMBER_ID
    if code is GroupError.STALE_MEMBER_EPOCH and version < _MEMBER_EPOCH_VERSION:
        return GroupError.UNSUPPORTED_VERSION  # as in Kafka: older clients cannot know the code
    return code


def _partition(
    image: MetadataImage, key: str, number: int, *, by_id: bool
) -> TopicPartition | ErrorCode:
    topic = image.find_by_id(key) if by_id else image.find(key)
    if topic is None and by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if topic is None or number not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TopicPartition(topic.name, number)


def _response(request: Any, code_of: Any) -> Any:
    return _Response(
        topics=[
            _Response.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _Response.OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=code_of(topic, each.partition_index),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
