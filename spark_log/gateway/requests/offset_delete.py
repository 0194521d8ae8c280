"""OffsetDelete: deletes committed offsets of topics that no member subscribes to (KIP-496)."""

from __future__ import annotations

from typing import Any

from spark_log.errors import GroupIdNotFoundError, GroupSubscribedToTopicError, SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.types import TopicPartition

_Response = message_class("OffsetDeleteResponse")


def _error(_: Any, code: int, __: str) -> Any:
    return _Response(error_code=code)


API = Api(47, "OffsetDelete", 0, 0, error_response=_error)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Delete the offsets topic by topic."""
    if not request.group_id:
        return _error(request, ErrorCode.INVALID_GROUP_ID, "")
    return await gateway.run_blocking(_delete, gateway, request)


def _delete(gateway: Gateway, request: Any) -> Any:
    image = gateway.cluster.image()
    has_existed = False
    topics = []
    for topic in request.topics:
        known = image.find(topic.name)
        code: int = ErrorCode.NONE
        numbers = [each.partition_index for each in topic.partitions]
        existing = [] if known is None else [each for each in numbers if each in known.partitions]
        try:
            gateway.admin.delete_group_offsets(
                request.group_id, [TopicPartition(topic.name, number) for number in existing]
            )
        except GroupSubscribedToTopicError:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        except GroupIdNotFoundError as error:
            # A group without members ends with its last offset, maybe one of the topic before.
            if not has_existed:
                return _error(request, error_code(error), "")
        except SparkLogError as error:
            return _error(request, error_code(error), "")
        has_existed = True
        topics.append(
            _Response.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    _Response.OffsetDeleteResponsePartition(
                        partition_index=number,
                        error_code=code
                        if number in existing
                        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    )
                    for number in numbers
                ],
            )
        )
    return _Response(topics=topics)
