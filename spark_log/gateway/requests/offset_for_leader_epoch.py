"""OffsetForLeaderEpoch: where a leader epoch ends, so that clients notice a log that was cut."""

from __future__ import annotations

import asyncio
from typing import Any

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.topics import leader_epoch_error, topics_by_name
from spark_log.log import PartitionLog
from spark_log.metadata import TopicImage

_Response = message_class("OffsetForLeaderEpochResponse")

_UNDEFINED = (-1, -1)


def _error_response(request: Any, code: int, message: str) -> Any:
    return _Response(
        topics=[
            _Response.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_failed(each, code) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


API = Api(23, "OffsetForLeaderEpoch", 2, 4, error_response=_error_response)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Look the epochs up in the headers of the log's batches."""
    topics = await topics_by_name(gateway, [each.topic for each in request.topics])
    answers = await asyncio.gather(
        *(
            _answer(gateway, topic, each)
            for topic, entry in zip(topics, request.topics, strict=True)
            for each in entry.partitions
        )
    )
    found = iter(answers)
    return _Response(
        topics=[
            _Response.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[next(found) for _ in topic.partitions]
            )
            for topic in request.topics
        ]
    )


async def _answer(gateway: Gateway, topic: TopicImage | None, each: Any) -> Any:
    partition = None if topic is None else gateway.partitions.get(topic, each.partition)
    if topic is None or partition is None:
        return _failed(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = await leader_epoch_error(gateway, topic, each.partition, each.current_leader_epoch)
    if error:
        return _failed(each, error)
    newest = topic.partitions[each.partition].leader_epoch

    def look_up(log: PartitionLog) -> tuple[int, int]:
        return end_of_epoch(log, each.leader_epoch, newest)

    try:
        epoch, end_offset = await gateway.run_blocking(partition.logs.call, look_up)
    except SparkLogError as failure:
        return _failed(each, error_code(failure))
    return _Response.EpochEndOffset(
        partition=each.partition, leader_epoch=epoch, end_offset=end_offset
    )


def end_of_epoch(log: PartitionLog, leader_epoch: int, newest: int) -> tuple[int, int]:
    """Return an epoch and the offset after its last record (``LeaderEpochFileCache.endOffsetFor``).

    Args:
        log: the partition's log.
        leader_epoch: the epoch that is asked for.
        newest: the partition's leader epoch.

    Returns:
        The largest epoch of the log that is not larger than the given one, and the offset at which
        a larger one begins, or the log's end; -1 for both if the epoch is newer than all others.
    """
    if leader_epoch < 0 or leader_epoch > newest:
        return _UNDEFINED
    view = log.observe()
    if leader_epoch == newest:
        return leader_epoch, view.log_end_offset
    epochs = log.replica.leader_epochs
    end_offset = epochs.start_offset_of(leader_epoch + 1, view)
    if end_offset <= view.log_start_offset:
        return leader_epoch, end_offset
    return epochs.epoch_for_offset(end_offset - 1, view), end_offset


def _failed(each: Any, code: int) -> Any:
    return _Response.EpochEndOffset(partition=each.partition, error_code=code)
