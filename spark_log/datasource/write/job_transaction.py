"""The end of a transaction: the driver commits the task attempts that Spark has counted."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from spark_log.datasource.write.commit_message import TaskCommitMessage
from spark_log.datasource.write.open_root import OpenRoot
from spark_log.datasource.write.task_transaction import JoinedTransaction, ended_elsewhere
from spark_log.errors import ProducerFencedError, TransactionAbortableError

_log = logging.getLogger(__name__)


def commit_transaction(
    root: OpenRoot, messages: Sequence[WriterCommitMessage | None], batch_id: int
) -> None:
    """Commit the records of the attempts that Spark has counted, and abort those of the others.

    Does nothing if no task has appended a record, or if the micro-batch is committed already. The
    markers are appended on return. If one cannot be appended now, the next micro-batch appends it,
    or a reader that waits for the transaction's end.

    Args:
        root: the opened root.
        messages: commit messages of the attempts that Spark has counted.
        batch_id: number of the micro-batch; higher than that of any earlier one.

    Raises:
        TransactionAbortableError: others have aborted the transaction.
        UnknownOutcomeError: the transaction may be committed; the micro-batch must run again.
        StorageError: the transaction is not committed.
    """
    joined = _joined(messages)
    if not joined:
        return
    coordinator = root.coordinator(joined[0].transactional_id)
    if coordinator.refresh().batch_id >= batch_id:
        return
    owner = joined[0].owner
    if any(each.owner != owner for each in joined):  # one was aborted, and another one begun
        raise ended_elsewhere(coordinator)
    try:
        coordinator.commit(owner, [each.producer for each in joined], batch_id=batch_id)
    except (ProducerFencedError, TransactionAbortableError) as error:
        raise ended_elsewhere(coordinator) from error
    _log.debug(
        "%s: micro-batch %d is committed, with %d producers",
        joined[0].transactional_id,
        batch_id,
        len(joined),
    )


def abort_transaction(root: OpenRoot, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort the transaction that any of the attempts has joined, unless it is decided.

    If no attempt has reported the transaction, the next run of the query aborts it. Any other
    process that finds it open for longer than ``transaction.timeout.ms`` does so, too.

    Raises:
        UnknownOutcomeError: the transaction may be aborted.
        StorageError: the transaction is not aborted.
    """
    joined = _joined(messages)
    if not joined:
        return
    coordinator = root.coordinator(joined[0].transactional_id)
    state = coordinator.refresh()
    owners = {each.owner for each in joined}
    if state.is_ongoing and state.owner in owners:
        _log.debug("%s: aborting the transaction", joined[0].transactional_id)
        coordinator.abort(state.owner)


def _joined(messages: Sequence[WriterCommitMessage | None]) -> list[JoinedTransaction]:
    return [
        message.joined
        for message in messages
        if isinstance(message, TaskCommitMessage) and message.joined is not None
    ]
