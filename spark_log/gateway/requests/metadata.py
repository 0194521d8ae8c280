"""Metadata: the gateways, and the topics with a gateway for each partition."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from spark_log.errors import SparkLogError, TopicAlreadyExistsError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import ZERO_UUID, message_class
from spark_log.gateway.registry import rack_of_client
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.authorized_operations import (
    CLUSTER_OPERATIONS,
    NOT_REQUESTED,
    TOPIC_OPERATIONS,
)
from spark_log.metadata import MetadataImage, TopicImage
from spark_log.types import NewTopic

API = Api(3, "Metadata", 0, 13)

_Response = message_class("MetadataResponse")
_log = logging.getLogger(__name__)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the topics that were asked for, and create those that are missing if allowed.

    The leader epochs are the log's own: clients refuse to go back to a lower one. A gateway never
    answers that a partition has no leader, because any gateway can serve it.
    """
    rack = rack_of_client(context.client_id)
    is_all = request.topics is None or (context.api_version == 0 and not request.topics)
    # A list of all topics has those that another gateway has just created.
    image = await (gateway.run_blocking(gateway.cluster.image) if is_all else gateway.image())
    topics: list[Any] = []
    if is_all:
        topics = [_topic(gateway, topic, rack, request) for topic in image.topics()]
    else:
        if _has_unknown(image, request.topics):  # it may be new
            image = await gateway.run_blocking(gateway.cluster.image)
        creates = gateway.config.auto_create_topics_enable and (
            context.api_version < 4 or request.allow_auto_topic_creation
        )
        for wanted in request.topics:
            found = await _find_or_create(gateway, image, wanted, creates=creates)
            if isinstance(found, TopicImage):
                topics.append(_topic(gateway, found, rack, request))
            else:
                # From version 12 on a name, even an empty one, would be taken for that of the id.
                nameless = _is_by_id(wanted) and context.api_version >= 12
                name = None if nameless else wanted.name or ""
                topics.append(
                    _Response.MetadataResponseTopic(
                        error_code=found, name=name, topic_id=wanted.topic_id
                    )
                )
    return _Response(
        brokers=[
            _Response.MetadataResponseBroker(
                node_id=each.gateway_id, host=each.host, port=each.port, rack=each.rack or None
            )
            for each in gateway.gateways
        ],
        cluster_id=gateway.cluster.cluster_id,
        controller_id=gateway.registered.gateway_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


def _has_unknown(image: MetadataImage, wanted: Iterable[Any]) -> bool:
    return any(
        (image.find_by_id(each.topic_id) if _is_by_id(each) else image.find(each.name)) is None
        for each in wanted
    )


def _is_by_id(wanted: Any) -> bool:
    """Return whether a topic is asked for by its id.

    Java's consumer sends an empty name with the ids of the topics that are assigned to it.
    """
    return wanted.name is None or wanted.topic_id != ZERO_UUID


async def _find_or_create(
    gateway: Gateway, image: MetadataImage, wanted: Any, *, creates: bool
) -> TopicImage | ErrorCode:
    """Return a topic, or the code of the error."""
    if _is_by_id(wanted):
        if wanted.topic_id == ZERO_UUID:
            return ErrorCode.INVALID_REQUEST
        return image.find_by_id(wanted.topic_id) or ErrorCode.UNKNOWN_TOPIC_ID
    found = image.find(wanted.name)
    if found is not None:
        return found
    if not creates:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        return await gateway.run_blocking(_create, gateway, wanted.name)
    except SparkLogError as error:
        _log.debug("topic %r was not created: %s", wanted.name, error)
        return error_code(error)


def _create(gateway: Gateway, name: str) -> TopicImage:
    """Create a topic, unless somebody else was faster; return it."""
    try:
        gateway.admin.create_topics([NewTopic(name, gateway.config.num_partitions)])
        _log.info("%s: created topic %r for a client", gateway.cluster.root, name)
    except TopicAlreadyExistsError:
        pass
    return gateway.cluster.topic(name)


def _topic(gateway: Gateway, topic: TopicImage, rack: str, request: Any) -> Any:
    return _Response.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _partition(gateway, topic, number, rack) for number in sorted(topic.partitions)
        ],
        topic_authorized_operations=(
            TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_REQUESTED
        ),
    )


def _partition(gateway: Gateway, topic: TopicImage, number: int, rack: str) -> Any:
    """Return a partition: its replicas are gateways, whatever roots the log lies in."""
    replicas = gateway.replicas(topic.topic_id, number, rack)
    return _Response.MetadataResponsePartition(
        partition_index=number,
        leader_id=replicas[0],
        leader_epoch=topic.partitions[number].leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
    )
