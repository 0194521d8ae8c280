"""`replica_checks` finds records that ``acks=1`` does not allow to be lost."""

import pytest

from spark_log import TopicPartition
from spark_log.testing.history import Operation, Outcome, Poll, Polled, Send
from tests.faults.replica_checks import LoggedRecord, check_lost, check_repeated, lost_values

PARTITION = TopicPartition("t", 0)


def sent(*values):
    """Return the sends of a writer, which were acknowledged at offsets from 0 on."""
    return [
        Operation("w", number, (Send(PARTITION, value, number),), Outcome.COMMITTED)
        for number, value in enumerate(values)
    ]


def log(**epochs):
    """Return a log with these values, each of which was appended in this leader epoch."""
    records = [LoggedRecord(offset, *each) for offset, each in enumerate(epochs.items())]
    return {PARTITION: records}


def test_what_is_in_no_log_is_lost_if_it_was_acknowledged():
    unknown = Operation("w", 9, (Send(PARTITION, "d"),))
    assert lost_values([*sent("a", "b", "c"), unknown], log(b=1), {"w"}) == {"a", "c"}


def test_those_of_other_writers_are_none_of_them():
    assert lost_values(sent("a"), log(), {"v"}) == set()


def test_the_last_ones_of_a_leader_epoch_may_be_lost():
    check_lost(sent("a", "b", "c", "d"), {"b", "c"}, log(a=1, d=2))


def test_the_last_ones_of_a_writer_may_be_lost():
    check_lost(sent("a", "b"), {"b"}, log(a=1))


def test_one_before_another_of_the_same_leader_epoch_may_not():
    with pytest.raises(AssertionError, match=r"'b'.* are lost within leader epoch 1"):
        check_lost(sent("a", "b", "c"), {"b"}, log(a=1, c=1))


def test_one_that_was_read_may_not():
    read = Operation("r", 0, (Poll((Polled(PARTITION, 1, "b"),)),), Outcome.COMMITTED)
    with pytest.raises(AssertionError, match="were read and are lost"):
        check_lost([*sent("a", "b"), read], {"b"}, log(a=1))


def test_only_writers_without_idempotence_may_repeat_a_record():
    logs = {PARTITION: [LoggedRecord(offset, "w-1.7", 0) for offset in (3, 4)]}
    assert check_repeated(logs, {"w-1"})
    assert not check_repeated({PARTITION: logs[PARTITION][:1]}, set())
    with pytest.raises(AssertionError, match=r"twice: \['w-1.7'\]"):
        check_repeated(logs, {"w-2"})
