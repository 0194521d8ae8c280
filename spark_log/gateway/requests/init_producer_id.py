"""InitProducerId: an idempotent producer's id, or a new epoch of a transactional one."""

from __future__ import annotations

from typing import Any

from spark_log.errors import ProducerFencedError, SparkLogError
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.transaction_errors import coordinator_error, late_check
from spark_log.record import ProducerIdAndEpoch

API = Api(22, "InitProducerId", 0, 6, needs_client=True)

_Response = message_class("InitProducerIdResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with a producer id and an epoch."""
    if (code := _mistake(request)) is not None:
        return _refused(code)
    expected = None
    if request.producer_id != -1:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    transactional_id = request.transactional_id
    try:
        found = await gateway.run_blocking(
            gateway.transactions.init_producer_id,
            transactional_id,
            request.transaction_timeout_ms,
            expected,
            late_check(gateway, transactional_id),
        )
    except ProducerFencedError:
        is_new = context.api_version >= 4
        return _refused(ErrorCode.PRODUCER_FENCED if is_new else ErrorCode.INVALID_PRODUCER_EPOCH)
    except SparkLogError as error:
        return _refused(coordinator_error(error))
    return _Response(producer_id=found.producer_id, producer_epoch=found.producer_epoch)


def _mistake(request: Any) -> ErrorCode | None:
    """Return the error of a request that contradicts itself; None without one."""
    if request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is not None and request.transaction_timeout_ms <= 0:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    if request.enable2_pc:
        # Only who may leave transactions open without end has this right in Kafka.
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _refused(code: ErrorCode) -> Any:
    return _Response(error_code=code, producer_id=-1, producer_epoch=-1)
