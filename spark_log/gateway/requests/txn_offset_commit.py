"""TxnOffsetCommit: offsets of a group that are committed with a transaction (KIP-447)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_log.errors import CommitFailedError, ProducerFencedError, SparkLogError
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.transaction_errors import coordinator_error, kept_error
from spark_log.metadata import MetadataImage
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import TransactionOffset
from spark_log.types import ConsumerGroupMetadata

_Response = message_class("TxnOffsetCommitResponse")

_MAX_METADATA_BYTES = 4_096
"""Kafka's default of ``offset.metadata.max.bytes``."""


def _failed(request: Any, code: int, message: str) -> Any:
    return _response(request, lambda *_: code)


API = Api(28, "TxnOffsetCommit", 0, 5, error_response=_failed, needs_client=True)

_FIRST_THAT_ADDS = 5
"""The first version of KIP-890's second protocol: this request registers the group in the
transaction. Earlier clients have sent AddOffsetsToTxn."""


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Keep the offsets in the transaction, all of them or none; its end commits them."""
    if not request.group_id:
        return _failed(request, ErrorCode.INVALID_GROUP_ID, "")
    term = gateway.term

    def check() -> None:
        """Keep no offsets that are older than those that the client sent elsewhere since."""
        if not gateway.has_coordinated(term, request.group_id):
            raise CommitFailedError(
                f"offsets of group {request.group_id!r} were not kept: another gateway may "
                f"coordinate it"
            )

    image = await gateway.image()
    offsets: list[TransactionOffset] = []
    refused: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for each in topic.partitions:
            found = _offset(image, request.group_id, topic.name, each)
            if isinstance(found, ErrorCode):
                refused[topic.name, each.partition_index] = found
            else:
                offsets.append(found)
    code: int = ErrorCode.NONE
    if offsets:
        transactions, is_kept = gateway.transactions, context.api_version < _FIRST_THAT_ADDS
        try:
            await gateway.run_blocking(
                transactions.send_kept_offsets if is_kept else transactions.send_offsets,
                request.transactional_id,
                ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
                ConsumerGroupMetadata(
                    request.group_id,
                    request.generation_id,
                    request.member_id,
                    request.group_instance_id,
                ),
                offsets,
                check,
            )
        except CommitFailedError:
            is_here = gateway.has_coordinated(term, request.group_id)
            code = ErrorCode.ILLEGAL_GENERATION if is_here else ErrorCode.NOT_COORDINATOR
        except SparkLogError as error:
            code = coordinator_error(error)
            if is_kept:
                code = kept_error(error, context.api_key, context.api_version)
            elif isinstance(error, ProducerFencedError):
                code = ErrorCode.INVALID_PRODUCER_EPOCH  # as from Kafka
    return _response(request, lambda name, number: refused.get((name, number), code))


def _offset(
    image: MetadataImage, group_id: str, name: str, partition: Any
) -> TransactionOffset | ErrorCode:
    topic = image.find(name)
    if topic is None or partition.partition_index not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    metadata = partition.committed_metadata or ""
    if len(metadata.encode()) > _MAX_METADATA_BYTES:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    if partition.committed_offset < 0:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return TransactionOffset(
        group_id,
        name,
        topic.topic_id,
        partition.partition_index,
        partition.committed_offset,
        partition.committed_leader_epoch,
        metadata,
    )


def _response(request: Any, code_of: Callable[[str, int], int]) -> Any:
    return _Response(
        topics=[
            _Response.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    _Response.TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=code_of(topic.name, each.partition_index),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
