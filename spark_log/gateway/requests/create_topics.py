"""CreateTopics."""

from __future__ import annotations

from collections import Counter
from typing import Any

from spark_log.errors import InvalidConfigurationError, SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.config_codes import config_source
from spark_log.types import ConfigEntry, ConfigResource, ConfigResourceType, NewTopic

API = Api(19, "CreateTopics", 2, 7)

_Response = message_class("CreateTopicsResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Create the topics, each by itself: one that is refused does not hold the others."""
    return _Response(topics=await gateway.run_blocking(_create_all, gateway, request))


def _create_all(gateway: Gateway, request: Any) -> list[Any]:
    counts = Counter(topic.name for topic in request.topics)
    results = {}
    for topic in request.topics:
        if counts[topic.name] > 1:
            results[topic.name] = _Response.CreatableTopicResult(
                name=topic.name,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="the request has this topic more than once",
            )
        else:
            results[topic.name] = _create(gateway, topic, validate_only=request.validate_only)
    return list(results.values())


def _create(gateway: Gateway, topic: Any, *, validate_only: bool) -> Any:
    try:
        new = _new_topic(gateway, topic)
        topic_ids = gateway.admin.create_topics([new], validate_only=validate_only)
        result = _Response.CreatableTopicResult(
            name=topic.name,
            num_partitions=len(new.replica_assignment or ()) or new.num_partitions,
            replication_factor=max(1, new.replication_factor or 1),
            configs=[],
        )
        if not validate_only:
            result.topic_id = topic_ids[topic.name]
            found = gateway.cluster.topic(topic.name)
            result.replication_factor = len(found.partitions[0].replicas)
            result.configs = _configs(gateway, topic.name)
        return result
    except SparkLogError as error:
        return _Response.CreatableTopicResult(
            name=topic.name, error_code=error_code(error), error_message=str(error)
        )


def _new_topic(gateway: Gateway, topic: Any) -> NewTopic:
    """Return a topic to create.

    Replicas are assigned to brokers, which are storage roots. An assignment to gateways, which are
    the brokers that clients see, says only how many partitions there are.
    """
    configs = {each.name: each.value for each in topic.configs}
    without = [name for name, value in configs.items() if value is None]
    if without:
        raise InvalidConfigurationError(
            f"Null value not supported for topic configs: {', '.join(without)}", key=without[0]
        )
    assignment = {each.partition_index: list(each.broker_ids) for each in topic.assignments}
    gateways = {each.gateway_id for each in gateway.gateways}
    count = gateway.config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = topic.replication_factor
    if assignment and gateways.issuperset(each for ids in assignment.values() for each in ids):
        count, factor, assignment = len(assignment), -1, {}
    if assignment:
        return NewTopic(topic.name, topic_configs=configs, replica_assignment=assignment)
    return NewTopic(topic.name, count, factor, configs)


def _configs(gateway: Gateway, name: str) -> list[Any]:
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    entries: dict[str, ConfigEntry] = gateway.admin.describe_configs([resource])["topic"][name]
    return [
        _Response.CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=config_source(entry.source),
            is_sensitive=entry.is_sensitive,
        )
        for entry in entries.values()
    ]
