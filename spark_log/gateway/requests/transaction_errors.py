"""Requests to a transaction's coordinator: whether they are late, and their error codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_log.errors import (
    InvalidTxnStateError,
    ProducerFencedError,
    SparkLogError,
    StorageError,
    TransactionAbortableError,
    UnknownOutcomeError,
)
from spark_log.gateway.errors import ErrorCode, error_code

if TYPE_CHECKING:
    from spark_log.gateway.gateway import Gateway

_FIRST_WITH_PRODUCER_FENCED = {22: 4, 24: 2, 25: 2, 26: 2}
"""The first version of an API that knows PRODUCER_FENCED (KIP-588). Batches and offsets never get
this code: their clients know INVALID_PRODUCER_EPOCH."""


class LateRequestError(SparkLogError):
    """The request may be late: another gateway may have coordinated its transactional id since."""


def late_check(gateway: Gateway, transactional_id: str) -> Callable[[], None]:
    """Return a check for each decision of a request that arrives now; it may be late by then.

    The check raises `LateRequestError` (protocol G22).
    """
    term = gateway.term

    def check() -> None:
        if not gateway.has_coordinated(term, transactional_id, "transaction"):
            raise LateRequestError(
                f"nothing was changed for {transactional_id!r}: another gateway may coordinate it"
            )

    return check


def coordinator_error(error: SparkLogError) -> ErrorCode:
    """Return the error code for a client of KIP-890's second protocol.

    A storage that does not answer is a coordinator that is not available: clients ask again. They
    take the code of a broken log directory for the end of their producer.
    """
    if isinstance(error, LateRequestError):
        return ErrorCode.NOT_COORDINATOR
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
