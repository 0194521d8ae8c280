"""The error codes of requests to a transaction's coordinator."""

from __future__ import annotations

from spark_log.errors import (
    InvalidTxnStateError,
    ProducerFencedError,
    SparkLogError,
    StorageError,
    TransactionAbortableError,
    UnknownOutcomeError,
)
from spark_log.gateway.errors import ErrorCode, error_code

_FIRST_WITH_PRODUCER_FENCED = {22: 4, 24: 2, 25: 2, 26: 2}
"""The first version of an API that knows PRODUCER_FENCED (KIP-588). Batches and offsets never get
this code: their clients know INVALID_PRODUCER_EPOCH."""


def coordinator_error(error: SparkLogError) -> ErrorCode:
    """Return the error code for a client of KIP-890's second protocol.

    A storage that does not answer is a coordinator that is not available: clients ask again. They
    take the code of a broken log directory for the end of their producer.
    """
    if isinstance(error, (StorageError, UnknownOutcomeError)):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode(error_code(error))


def kept_error(error: SparkLogError, api_key: int, api_version: int) -> ErrorCode:
    """Return the error code for a client that keeps its identity after a transaction.

    For such a client a transaction that was aborted by others is the end of its epoch, as in Kafka.
    """
    if isinstance(error, (ProducerFencedError, TransactionAbortableError)):
        first = _FIRST_WITH_PRODUCER_FENCED.get(api_key)
        is_known = first is not None and api_version >= first
        return ErrorCode.PRODUCER_FENCED if is_known else ErrorCode.INVALID_PRODUCER_EPOCH
    return coordinator_error(error)


def produce_error(error: SparkLogError, api_version: int, *, is_kept: bool) -> ErrorCode:
    """Return the error code for a batch in a transaction.

    A fenced producer gets INVALID_PRODUCER_EPOCH, as from Kafka's leaders.

    Args:
        error: why the batch was refused.
        api_version: the version of the request.
        is_kept: whether the client keeps its identity after a transaction.
    """
    if isinstance(error, ProducerFencedError):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if is_kept and isinstance(error, TransactionAbortableError):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if is_kept and isinstance(error, InvalidTxnStateError) and api_version >= _FIRST_WITH_ABORTABLE:
        return ErrorCode.TRANSACTION_ABORTABLE
    return ErrorCode(error_code(error))


_FIRST_WITH_ABORTABLE = 11
"""The first version of Produce that knows TRANSACTION_ABORTABLE (KIP-890)."""
