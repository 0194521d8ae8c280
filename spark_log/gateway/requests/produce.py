"""Produce: batches of clients are appended to their partitions, together with those of others."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.partitions import ProducedBatch, ProduceResult
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.topics import topics_of
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import TopicIdPartition

_Response = message_class("ProduceResponse")

_PRODUCER: Final = struct.Struct(">qh")
_PRODUCER_POSITION: Final = 43
_ACKS: Final = (-1, 0, 1)
_FIRST_WITH_TOPIC_IDS: Final = 13


def _error_response(request: Any, code: int, message: str) -> Any:
    return _response(request, lambda _topic, _partition: ProduceResult(code, message=message))


# Versions 0 to 2 are advertised, because librdkafka up to 2.11 looks for them (KAFKA-18659).
API = Api(0, "Produce", 3, 13, advertised_min_version=0, error_response=_error_response)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Append the batches, and answer when all of them are durable.

    The batches take their places in the queues of their partitions in the order of requests. With
    ``acks`` 0 there is no answer. The answer to 1 is that to -1: all in-sync replicas have them.
    """
    if request.acks not in _ACKS:
        message = f"acks is {request.acks}; expected -1 (all), 0 or 1"
        return _error_response(request, ErrorCode.INVALID_REQUIRED_ACKS, message)
    topics = await topics_of(gateway, request.topic_data, context.api_version, "partition_data")
    results: dict[tuple[int, int], ProduceResult | Awaitable[ProduceResult]] = {}
    in_transaction: dict[TopicIdPartition, ProducedBatch] = {}
    size_bytes = 0
    for number, topic_data in enumerate(request.topic_data):
        topic = topics[number]
        for each in topic_data.partition_data:
            partition = None if topic is None else gateway.partitions.get(topic, each.index)
            key = number, each.index
            if topic is None or partition is None:
                unknown = topic is None and context.api_version >= _FIRST_WITH_TOPIC_IDS
                code = (
                    ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                results[key] = ProduceResult(code)
                continue
            records = memoryview(each.records if each.records is not None else b"")
            size_bytes += len(records)
            produced = ProducedBatch(records, transactional_id=request.transactional_id)
            if request.transactional_id is not None and len(records) > _PRODUCER_POSITION + 10:
                produced.is_ready = False
                in_transaction[TopicIdPartition(topic.topic_id, each.index)] = produced
            results[key] = partition.append(produced)
    if in_transaction:
        await _add_to_transaction(gateway, request.transactional_id, in_transaction)
    answers = {
        key: result if isinstance(result, ProduceResult) else await result
        for key, result in results.items()
    }
    response = _response(request, lambda number, index: answers[number, index])
    response.throttle_time_ms = gateway.partitions.quotas.throttle_ms(
        gateway.partitions.known_image,
        "producer",
        context.client_id or "",
        size_bytes,
        gateway.partitions.now_ms(),
    )
    return None if request.acks == 0 else response


async def _add_to_transaction(
    gateway: Gateway, transactional_id: str, batches: dict[TopicIdPartition, ProducedBatch]
) -> None:
    """Add partitions to the transaction of a request, then let its batches be appended (KIP-890).

    Clients that add partitions by a request of their own find them added already.
    """
    partitions = gateway.partitions
    by_producer: dict[ProducerIdAndEpoch, set[TopicIdPartition]] = {}
    for key, produced in batches.items():
        found = ProducerIdAndEpoch(*_PRODUCER.unpack_from(produced.data, _PRODUCER_POSITION))
        by_producer.setdefault(found, set()).add(key)
    failed: dict[TopicIdPartition, ProduceResult] = {}
    for producer, added in by_producer.items():
        try:
            await gateway.run_blocking(
                gateway.transactions.add_partitions, transactional_id, producer, added
            )
        except SparkLogError as error:
            result = ProduceResult(error_code(error), message=str(error))
            failed |= dict.fromkeys(added, result)
    image = partitions.known_image
    for key, produced in batches.items():
        produced.result, produced.is_ready = failed.get(key), True
        topic = image.find_by_id(key.topic_id)
        opened = None if topic is None else partitions.get(topic, key.partition)
        if opened is not None:
            opened.wake_appends()


def _response(request: Any, result_of: Any) -> Any:
    return _Response(
        responses=[
            _Response.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _partition_response(each.index, result_of(number, each.index))
                    for each in topic.partition_data
                ],
            )
            for number, topic in enumerate(request.topic_data)
        ]
    )


def _partition_response(index: int, result: ProduceResult) -> Any:
    errors: Sequence[Any] = ()
    if result.record_index >= 0:
        errors = [
            _Response.BatchIndexAndErrorMessage(
                batch_index=result.record_index, batch_index_error_message=result.message
            )
        ]
    return _Response.PartitionProduceResponse(
        index=index,
        error_code=result.error,
        base_offset=result.base_offset,
        log_append_time_ms=result.append_time_ms,
        record_errors=errors,
        error_message=result.message,
    )
