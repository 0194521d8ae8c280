"""The sender's action after each error of an append."""

import pytest

from spark_log import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    NotEnoughReplicasAfterAppendError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    StorageTimeoutError,
    UnknownOutcomeError,
)
from spark_log.producer.send.append_errors import (
    DeleteDelayLoweredError,
    Reaction,
    TopicDeletedError,
    makes_outcome_unknown,
    reaction_to,
    unknown_outcome,
)


def reaction(error, *, transactional=False, unknown=False):
    return reaction_to(
        error,
        is_transactional=transactional,
        is_outcome_unknown=unknown,
        is_retriable=lambda error: error is SLOW,
    )


SLOW = StorageTimeoutError("slow")
OUT_OF_ORDER = OutOfOrderSequenceError("a gap")
OLD_EPOCH = InvalidProducerEpochError("an old epoch")


@pytest.mark.parametrize(
    ("error", "alone", "in_transaction"),
    [
        (TopicDeletedError(), Reaction.MOVE, Reaction.MOVE),
        (SLOW, Reaction.RETRY, Reaction.RETRY),
        (InvalidRecordError("bad"), Reaction.FAIL, Reaction.FAIL),
        (OUT_OF_ORDER, Reaction.RETRY_IN_NEW_EPOCH, Reaction.FAIL),
        (OLD_EPOCH, Reaction.FENCE, Reaction.FAIL_TRANSACTION),
        (ProducerFencedError("replaced"), Reaction.FENCE, Reaction.FENCE),
        (InvalidTxnStateError("late"), Reaction.FAIL, Reaction.FAIL_TRANSACTION),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_each_error_has_its_reaction(error, alone, in_transaction):
    assert reaction(error) is alone
    assert reaction(error, transactional=True) is in_transaction


def test_no_new_epoch_begins_after_an_attempt_that_may_be_in_the_log():
    assert reaction(OUT_OF_ORDER, unknown=True) is Reaction.FAIL


def test_the_storage_is_asked_for_no_error_that_decides_by_itself():
    def ask(error):
        raise AssertionError(error)

    for error in (TopicDeletedError(), OLD_EPOCH, OUT_OF_ORDER):
        reaction_to(error, is_transactional=False, is_outcome_unknown=False, is_retriable=ask)


@pytest.mark.parametrize(
    ("error", "is_unknown"),
    [
        (UnknownOutcomeError("lost"), True),
        (DeleteDelayLoweredError("lowered"), True),
        (NotEnoughReplicasAfterAppendError("two of three"), True),
        (SLOW, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_errors_after_which_the_records_may_be_in_the_log(error, is_unknown):
    assert makes_outcome_unknown(error) is is_unknown


def test_the_error_of_an_append_that_was_given_up_names_its_cause():
    error = unknown_outcome("orders-0", SLOW)
    assert str(error) == ("orders-0: an append may be in the log or not, and it was given up: slow")
    assert error.__cause__ is SLOW
    assert unknown_outcome("orders-0", error) is error
