"""The errors of one attempt of an append, and what the sender does after each of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from spark_log.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    NotEnoughReplicasAfterAppendError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
)


class TopicDeletedError(Exception):
    """The topic was deleted: nobody can read its records."""


class DeleteDelayLoweredError(UnknownOutcomeError):
    """``file.delete.delay.ms`` was lowered during the append, whose name may have been reused."""


class Reaction(Enum):
    """The sender's action for the batches in flight after a failed attempt.

    RETRY: append them again, if attempts are left.
    RETRY_IN_NEW_EPOCH: the log lost or expired this producer's earlier appends. This append is not
        in the log, so that it may begin a new epoch
        (``TransactionManager.requestIdempotentEpochBump``).
    MOVE: append them to the new topic of the same name; fail them without one.
    FAIL: fail them with the error.
    FAIL_TRANSACTION: fail them; their transaction can then only be aborted. Others have ended it,
        or the log has a late record of an earlier epoch, which the marker of the abort ends.
    FENCE: fail all records of the producer: a newer one has taken over its id.
    """

    RETRY = auto()
    RETRY_IN_NEW_EPOCH = auto()
    MOVE = auto()
    FAIL = auto()
    FAIL_TRANSACTION = auto()
    FENCE = auto()


def reaction_to(
    error: Exception,
    *,
    is_transactional: bool,
    is_outcome_unknown: bool,
    is_retriable: Callable[[Exception], bool],
) -> Reaction:
    """Return what is done after a failed attempt; the first match counts.

    Args:
        error: the error of the attempt.
        is_transactional: whether the producer is transactional.
        is_outcome_unknown: whether this attempt or an earlier one may have appended the batches.
        is_retriable: tells whether the same append may succeed later. It may look at the storage,
            so it is called last.
    """
    if isinstance(error, TopicDeletedError):
        return Reaction.MOVE
    if is_transactional and isinstance(error, InvalidProducerEpochError | InvalidTxnStateError):
        return Reaction.FAIL_TRANSACTION
    may_bump_epoch = not is_transactional and not is_outcome_unknown
    if may_bump_epoch and isinstance(error, OutOfOrderSequenceError):
        return Reaction.RETRY_IN_NEW_EPOCH
    if isinstance(error, InvalidProducerEpochError | ProducerFencedError):
        return Reaction.FENCE
    return Reaction.RETRY if is_retriable(error) else Reaction.FAIL


def makes_outcome_unknown(error: Exception) -> bool:
    """Return whether an attempt that failed with this error may have appended the batches."""
    return isinstance(error, UnknownOutcomeError | NotEnoughReplicasAfterAppendError)


def unknown_outcome(partition: object, error: Exception) -> UnknownOutcomeError:
    """Return the error of records that may be in the log, and are not retried any more.

    Args:
        partition: the topic and partition, for the message.
        error: the reason why the append was given up.
    """
    if isinstance(error, UnknownOutcomeError):
        return error
    unknown = UnknownOutcomeError(
        f"{partition}: an append may be in the log or not, and it was given up: {error}"
    )
    unknown.__cause__ = error
    return unknown


def unknown_topic(topic: str, partition: int, num_partitions: int) -> UnknownTopicOrPartitionError:
    """Return the error of records whose topic was deleted while they waited.

    Args:
        topic: the topic's name.
        partition: the partition that the records were sent to.
        num_partitions: number of partitions of the topic that has the name now; 0 without one.
    """
    if num_partitions:
        return UnknownTopicOrPartitionError(
            f"topic {topic!r} was deleted and created again with {num_partitions} partitions, "
            f"numbered from 0, while records for partition {partition} waited; they were not "
            f"appended",
            topic=topic,
        )
    return UnknownTopicOrPartitionError(
        f"topic {topic!r} was deleted while records for it waited; they were not appended to any "
        f"topic that exists",
        topic=topic,
    )
