"""DeleteTopics: by name, and from version 6 on by id, too."""

from __future__ import annotations

from typing import Any

from spark_log.errors import SparkLogError, UnknownTopicOrPartitionError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import ZERO_UUID, message_class
from spark_log.gateway.request import Api, RequestContext

API = Api(20, "DeleteTopics", 1, 6)

_Response = message_class("DeleteTopicsResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Delete the topics, each by itself."""
    wanted = [(each.name, each.topic_id) for each in request.topics]
    wanted += [(name, ZERO_UUID) for name in request.topic_names]
    return _Response(responses=await gateway.run_blocking(_delete_all, gateway, wanted))


def _delete_all(gateway: Gateway, wanted: list[tuple[str | None, str]]) -> list[Any]:
    return [_delete(gateway, name, topic_id) for name, topic_id in wanted]


def _delete(gateway: Gateway, name: str | None, topic_id: str) -> Any:
    result = _Response.DeletableTopicResult(name=name, topic_id=topic_id)
    if (name is None) == (topic_id == ZERO_UUID):
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = "a topic has a name or an id, and not both"
        return result
    try:
        image = gateway.cluster.image()
        topic = image.find_by_id(topic_id) if name is None else image.topic(name)
        if topic is not None:
            result.name, result.topic_id = topic.name, topic.topic_id
        if name is None:
            gateway.admin.delete_topics(topic_ids=[topic_id])
        else:
            gateway.admin.delete_topics([name])
    except UnknownTopicOrPartitionError as error:
        is_by_id = name is None
        result.error_code = (
            ErrorCode.UNKNOWN_TOPIC_ID if is_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        result.error_message = str(error)
    except SparkLogError as error:
        result.error_code, result.error_message = error_code(error), str(error)
    return result
