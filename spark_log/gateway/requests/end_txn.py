"""EndTxn: commits or aborts a transaction."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.transaction_errors import coordinator_error, kept_error, late_check
from spark_log.record import ProducerIdAndEpoch

API = Api(26, "EndTxn", 0, 5)

_FIRST_WITH_EPOCH = 5
"""The first version of KIP-890's second protocol: its client takes the producer id and epoch of the
answer. Earlier ones keep theirs."""

_Response = message_class("EndTxnResponse")

_LIBRDKAFKA: Final = re.compile(r"rdkafka-v?(\d+)\.")
"""The major version of librdkafka in the name and version of a client, of which some are
``confluent-kafka-python-2.16.0-rdkafka-2.16.0``."""


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Decide the transaction; answer with the producer's epoch in its next one."""
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if context.api_version < _FIRST_WITH_EPOCH:
        return _Response(error_code=await _end_kept(gateway, context, request, producer))
    try:
        following = await gateway.run_blocking(
            partial(
                gateway.transactions.end,
                request.transactional_id,
                producer,
                is_committed=request.committed,
                check=late_check(gateway, request.transactional_id),
            )
        )
    except SparkLogError as error:
        return _Response(error_code=coordinator_error(error))
    return _Response(producer_id=following.producer_id, producer_epoch=following.producer_epoch)


async def _end_kept(
    gateway: Gateway, context: RequestContext, request: Any, client: ProducerIdAndEpoch
) -> ErrorCode:
    transactional_id, transactions = request.transactional_id, context.transactions
    try:
        unknown = await gateway.run_blocking(
            partial(
                gateway.transactions.end_kept,
                transactional_id,
                client,
                is_committed=request.committed,
                known=transactions.get(transactional_id),
                never_aborts_commits=_never_aborts_commits(context.client_software),
                check=late_check(gateway, transactional_id),
            )
        )
    except SparkLogError as error:
        return kept_error(error, context.api_key, context.api_version)
    if unknown is None:
        return ErrorCode.NONE
    # The first request of this connection in the transaction, or one of an earlier transaction that
    # is late. Its client asks again only in the first case.
    transactions[transactional_id] = unknown
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def _never_aborts_commits(software: tuple[str, str] | None) -> bool:
    """Return whether a client aborts no transaction whose commit it has asked for.

    librdkafka asks for the end of a transaction if its AddPartitionsToTxn had no answer, or was
    refused because the storage did not answer: nothing may have begun. An error would be fatal for
    it. From 2.0 on it does not let its application abort after a commit whose outcome is unknown.
    Other clients ask for no end then.
    """
    found = None if software is None else _LIBRDKAFKA.search("-".join(software))
    return found is not None and int(found[1]) >= 2
