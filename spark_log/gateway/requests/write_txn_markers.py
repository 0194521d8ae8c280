"""WriteTxnMarkers: an administrator ends a transaction that is open in a partition (KIP-664)."""

from __future__ import annotations

from typing import Any

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.types import AbortTransactionSpec, TopicPartition

API = Api(27, "WriteTxnMarkers", 1, 2)

_Response = message_class("WriteTxnMarkersResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """End transactions as `Admin.abort_transaction` does; answer with the error of each partition.

    Kafka's broker writes the marker that it is told to write. Here the state of the transaction
    decides: one that nobody has decided is aborted in all of its partitions, one that is committed
    stays so, and one that is ended, or has another epoch, is refused. The epoch of the coordinator
    is not read: an abort of a transaction that was ended meanwhile finds another epoch.
    """
    return _Response(markers=await gateway.run_blocking(_write_all, gateway, request))


def _write_all(gateway: Gateway, request: Any) -> list[Any]:
    return [
        _Response.WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=[
                _Response.WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        _Response.WritableTxnMarkerPartitionResult(
                            partition_index=number,
                            error_code=_write(gateway, marker, TopicPartition(topic.name, number)),
                        )
                        for number in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ],
        )
        for marker in request.markers
    ]


def _write(gateway: Gateway, marker: Any, tp: TopicPartition) -> int:
    if marker.transaction_result:
        return ErrorCode.INVALID_REQUEST  # coordinators commit, and need no request for it
    spec = AbortTransactionSpec(tp, marker.producer_id, marker.producer_epoch)
    try:
        gateway.admin.abort_transaction(spec)
    except SparkLogError as error:
        return error_code(error)
    return ErrorCode.NONE
