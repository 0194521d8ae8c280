"""ListOffsets: the first and last offsets of partitions, and offsets by timestamp."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.partitions import GatewayPartition
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.topics import leader_epoch_error, topics_by_name
from spark_log.log import IsolationLevel, PartitionLog, offset_of_max_timestamp
from spark_log.metadata import TopicImage

_Response = message_class("ListOffsetsResponse")

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING_UPLOAD: Final = -6

_NONE: Final = (-1, -1)
"""Offset and timestamp if no record is found."""


def _error_response(request: Any, code: int, message: str) -> Any:
    return _Response(
        topics=[
            _Response.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_failed(each, code) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


# Many clients ask for each partition by a request of its own, and wait for none of them.
API = Api(2, "ListOffsets", 1, 11, error_response=_error_response, only_reads=True)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Look the offsets up; each partition has its own error."""
    topics = await topics_by_name(gateway, [each.name for each in request.topics])
    isolation: IsolationLevel = (
        "read_committed" if getattr(request, "isolation_level", 0) else "read_uncommitted"
    )
    answers = await asyncio.gather(
        *(
            _answer(gateway, topic, each, isolation)
            for topic, entry in zip(topics, request.topics, strict=True)
            for each in entry.partitions
        )
    )
    found = iter(answers)
    return _Response(
        topics=[
            _Response.ListOffsetsTopicResponse(
                name=topic.name, partitions=[next(found) for _ in topic.partitions]
            )
            for topic in request.topics
        ]
    )


async def _answer(
    gateway: Gateway, topic: TopicImage | None, each: Any, isolation: IsolationLevel
) -> Any:
    partition = None if topic is None else gateway.partitions.get(topic, each.partition_index)
    if topic is None or partition is None:
        return _failed(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = await leader_epoch_error(
        gateway, topic, each.partition_index, each.current_leader_epoch
    )
    if error:
        return _failed(each, error)
    if each.timestamp < _EARLIEST_PENDING_UPLOAD:
        return _failed(each, ErrorCode.INVALID_REQUEST)
    try:
        offset, timestamp_ms = await _look_up(gateway, partition, each.timestamp, isolation)
        epoch = -1
        if offset >= 0:
            epoch = await _epoch_at(gateway, topic, partition, offset)
    except SparkLogError as failure:
        return _failed(each, error_code(failure))
    return _Response.ListOffsetsPartitionResponse(
        partition_index=each.partition_index,
        timestamp=timestamp_ms,
        offset=offset,
        leader_epoch=epoch,
    )


async def _look_up(
    gateway: Gateway, partition: GatewayPartition, timestamp_ms: int, isolation: IsolationLevel
) -> tuple[int, int]:
    """Return offset and timestamp of a record; the timestamp is -1 for a place in the log."""
    if timestamp_ms == _LATEST:
        end_offset = await partition.refresh_end()
        if isolation == "read_committed":
            return await partition.last_stable_offset(), -1
        return end_offset, -1
    if timestamp_ms in (_EARLIEST, _EARLIEST_LOCAL):
        await partition.observe()
        return partition.log_start_offset, -1
    if timestamp_ms in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NONE  # no segment is tiered: all lie on the same storage

    look_up: Callable[[PartitionLog], tuple[int, int] | None]
    if timestamp_ms == _MAX_TIMESTAMP:

        def look_up(log: PartitionLog) -> tuple[int, int] | None:
            return offset_of_max_timestamp(log, log.observe(keeps_for_next_read=True))
    else:

        def look_up(log: PartitionLog) -> tuple[int, int] | None:
            # A client reads the floor of a timestamp in microseconds: no record before this one
            # has these milliseconds.
            return log.offset_for_time(timestamp_ms * 1000, isolation_level=isolation)

    found = await gateway.run_blocking(partition.logs.call, look_up)
    return _NONE if found is None else (found[0], found[1] // 1000)


async def _epoch_at(
    gateway: Gateway, topic: TopicImage, partition: GatewayPartition, offset: int
) -> int:
    """Return the leader epoch of an offset; at the log's end, of the last batch."""
    if not topic.partitions[partition.partition].leader_epoch:
        return 0  # the first one

    def look_up(log: PartitionLog) -> int:
        view = log.observe()
        last = min(offset, view.log_end_offset - 1)
        if last < view.log_start_offset:
            return log.read_state.leader_epoch
        return log.replica.leader_epochs.epoch_for_offset(last, view)

    return int(await gateway.run_blocking(partition.logs.call, look_up))


def _failed(each: Any, code: int) -> Any:
    return _Response.ListOffsetsPartitionResponse(
        partition_index=each.partition_index, error_code=code
    )
