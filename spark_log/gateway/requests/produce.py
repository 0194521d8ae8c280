"""Produce: batches of clients are appended to their partitions, together with those of others."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.partitions import GatewayPartition, ProducedBatch, ProduceResult
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, EndConnectionError, RequestContext
from spark_log.gateway.requests.topics import topics_of
from spark_log.gateway.requests.transaction_errors import produce_error
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import PresentProducer, TopicIdPartition

_Response = message_class("ProduceResponse")

_PRODUCER: Final = struct.Struct(">qh")
_PRODUCER_POSITION: Final = 43
_ACKS: Final = (-1, 0, 1)
_MIN_TIMEOUT_MS: Final = 1_000
"""The least ``timeout_ms`` that has an effect. A broker's own append does not count for it, so
clients may give less than an append to an object store takes."""
_FIRST_WITH_TOPIC_IDS: Final = 13
_FIRST_THAT_ADDS: Final = 12
"""The first version of KIP-890's second protocol: the request adds its partitions to the
transaction. Earlier clients have sent AddPartitionsToTxn."""


def _error_response(request: Any, code: int, message: str) -> Any:
    if request.acks == 0:
        raise EndConnectionError(ErrorCode(code), message)
    return _response(request, lambda _topic, _partition: ProduceResult(code, message=message))


# Versions 0 to 2 are advertised, because librdkafka up to 2.11 looks for them (KAFKA-18659).
API = Api(
    0, "Produce", 3, 13, advertised_min_version=0, error_response=_error_response, overlaps=True
)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Append the batches, and answer when all of them are durable.

    The batches take their places in the queues of their partitions in the order of requests. They
    are durable with ``acks`` -1 when all in-sync replicas have them, with 1 when the leader has
    them. With 0 there is no answer; after an error the connection is closed instead, as in Kafka,
    so that the client reads the metadata again. After ``timeout_ms`` a batch whose append has not
    begun is not appended any more.
    """
    deadline_ms = gateway.partitions.now_ms() + max(request.timeout_ms, _MIN_TIMEOUT_MS)
    if request.acks not in _ACKS:
        message = f"acks is {request.acks}; expected -1 (all), 0 or 1"
        return _error_response(request, ErrorCode.INVALID_REQUIRED_ACKS, message)
    topics = await topics_of(gateway, request.topic_data, context.api_version, "partition_data")
    results: dict[tuple[int, int], ProduceResult] = {}
    appends: dict[tuple[int, int], _Append] = {}
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
            produced = ProducedBatch(
                records,
                partition=each.index,
                transactional_id=request.transactional_id,
                waits_for_all=request.acks == -1 or request.transactional_id is not None,
            )
            if request.transactional_id is not None and len(records) > _PRODUCER_POSITION + 10:
                produced.is_ready = False
                in_transaction[TopicIdPartition(topic.topic_id, each.index)] = produced
            appends[key] = _Append(partition, partition.append(produced))
    if in_transaction:
        try:
            await _add_to_transaction(
                gateway, request.transactional_id, in_transaction, context.api_version
            )
        except BaseException:  # nothing would append them, and others wait behind them
            for append in appends.values():
                append.partition.withdraw(append.future)
            raise
    timeout_ms = None if request.acks == 0 else deadline_ms - gateway.partitions.now_ms()
    await _wait(gateway, context, appends.values(), timeout_ms)
    results |= {key: each.result for key, each in appends.items()}
    throttle_ms = gateway.partitions.quotas.throttle_ms(
        gateway.partitions.known_image,
        "producer",
        context.client_id or "",
        size_bytes,
        gateway.partitions.now_ms(),
    )
    if request.acks == 0:
        for result in results.values():
            if result.error:
                raise EndConnectionError(ErrorCode(result.error), result.message or "")
        return None
    response = _response(request, lambda number, index: results[number, index])
    response.throttle_time_ms = throttle_ms
    return response


@dataclass(slots=True)
class _Append:
    """A batch that was given to its partition.

    Attributes:
        partition: the partition.
        future: the result of the append.
        timed_out: the result if the append did not end in time.
    """

    partition: GatewayPartition
    future: asyncio.Future[ProduceResult]
    timed_out: ProduceResult | None = None

    @property
    def result(self) -> ProduceResult:
        """The answer for this batch, after `_wait`."""
        return self.future.result() if self.timed_out is None else self.timed_out


async def _wait(
    gateway: Gateway,
    context: RequestContext,
    appends: Collection[_Append],
    timeout_ms: float | None,
) -> None:
    """Wait for appends; those that have not begun after the timeout are not done any more.

    Kafka's clients send a batch again that has timed out. An idempotent producer's batch whose
    append had begun is found to be a duplicate then.
    """
    if not appends:
        return
    timeout_s = None if timeout_ms is None else max(0.0, timeout_ms / 1000)
    await asyncio.wait([each.future for each in appends], timeout=timeout_s)
    for each in appends:
        if each.future.done():
            continue
        if each.partition.withdraw(each.future):
            outcome = "it was not appended"
        else:
            outcome = "it may still be appended"
            each.future.add_done_callback(partial(_on_late_append, gateway))
            context.memory.keep_until(each.future)
        each.timed_out = ProduceResult(
            ErrorCode.REQUEST_TIMED_OUT,
            message=f"the append of the batch did not end within timeout.ms; {outcome}",
        )


def _on_late_append(gateway: Gateway, future: asyncio.Future[ProduceResult]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        gateway.cluster.suppressed.add("Produce request", gateway.cluster.root, error)


async def _add_to_transaction(
    gateway: Gateway,
    transactional_id: str,
    batches: dict[TopicIdPartition, ProducedBatch],
    api_version: int,
) -> None:
    """Add partitions to the transaction of a request, then let its batches be appended (KIP-890).

    For clients that add partitions by a request of their own it is verified that they have.
    """
    partitions = gateway.partitions
    transactions, is_kept = gateway.transactions, api_version < _FIRST_THAT_ADDS
    by_producer: dict[ProducerIdAndEpoch, set[TopicIdPartition]] = {}
    for key, produced in batches.items():
        found = ProducerIdAndEpoch(*_PRODUCER.unpack_from(produced.data, _PRODUCER_POSITION))
        by_producer.setdefault(found, set()).add(key)
    code_of = partial(produce_error, api_version=api_version, is_kept=is_kept)
    failed: dict[TopicIdPartition, ProduceResult] = {}
    for producer, added in by_producer.items():
        try:
            await gateway.run_blocking(
                transactions.verify_kept if is_kept else transactions.add_partitions,
                transactional_id,
                producer,
                added,
            )
        except SparkLogError as error:
            result = ProduceResult(code_of(error), message=str(error))
            failed |= dict.fromkeys(added, result)
        for key in added:
            batches[key].code_of = code_of
            if is_kept:
                batches[key].verify = partial(_verify, gateway, transactional_id, producer, key)
    image = partitions.known_image
    for key, produced in batches.items():
        produced.result, produced.is_ready = failed.get(key), True
        topic = image.find_by_id(key.topic_id)
        opened = None if topic is None else partitions.get(topic, key.partition)
        if opened is not None:
            opened.wake_appends()


def _verify(
    gateway: Gateway,
    transactional_id: str,
    client: ProducerIdAndEpoch,
    partition: TopicIdPartition,
    is_recent: bool,
) -> PresentProducer:
    return gateway.transactions.verify_kept(
        transactional_id, client, {partition}, is_recent=is_recent
    )


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
    return _Response.PartitionProduceResponse(
        index=index,
        error_code=result.error,
        base_offset=result.base_offset,
        log_append_time_ms=result.append_time_ms,
        # Without messages of their own they have the batch's (KIP-467).
        record_errors=[
            _Response.BatchIndexAndErrorMessage(batch_index=each, batch_index_error_message=None)
            for each in result.record_indexes
        ],
        error_message=result.message,
    )
