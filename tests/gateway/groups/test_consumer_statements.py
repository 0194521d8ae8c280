"""Heartbeats by which a member of the consumer protocol releases partitions, without a group."""

import pytest

from spark_log.coordinator import Member
from spark_log.gateway.groups.consumer_heartbeat import ConsumerHeartbeat
from spark_log.gateway.groups.consumer_statements import MAX_UNCONFIRMED, ConsumerStatements
from spark_log.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BEFORE = Member("a", owned=frozenset({T0, T1}))
AFTER = Member("a", owned=frozenset({T0}), revoking=frozenset({T1}))


def releases(statements, owned=None, *, everything=False, epoch=5, member=AFTER):
    """Return whether a heartbeat releases what a member is to revoke; it is answered if not."""
    request = ConsumerHeartbeat(
        Member("a"),
        epoch,
        rebalance_timeout_ms=1000 if everything else None,
        topics=("t",) if everything else None,
        owned=None if owned is None else {},
    )
    named = None if owned is None else frozenset(owned)
    is_released = statements.on_heartbeat(request, named, member.revoking)
    if not is_released:
        statements.on_answer(member)
    return is_released


@pytest.fixture
def told():
    """The statements of a member that was just told of T0 and T1."""
    statements = ConsumerStatements()
    statements.on_answer(BEFORE)
    return statements


@pytest.fixture
def named(told):
    """The same after it has named them."""
    assert not releases(told, [T0, T1], member=BEFORE)
    return told


def test_what_it_has_named_is_released_by_a_heartbeat_that_does_not_name_it(named):
    assert not releases(named, [T0, T1])
    assert releases(named, [T0])


def test_what_it_has_named_is_released_by_everything_and_a_confirmation(named):
    assert not releases(named, [T0], everything=True)
    assert releases(named)


def test_a_confirmation_confirms_the_heartbeat_before_it_alone(named):
    assert not releases(named, [T0], everything=True)
    assert not releases(named, [T0, T1])
    assert not releases(named)


def test_what_it_has_not_named_is_not_released_by_everything_and_confirmations(told):
    assert not releases(told, [], everything=True)
    assert not any(releases(told) for _ in range(10))
    assert not releases(told, [T0, T1])
    assert releases(told, [T0])


def test_what_others_may_have_told_it_of_counts_as_not_named():
    statements = ConsumerStatements.loaded(AFTER, frozenset())
    assert not releases(statements, [T0], everything=True)
    assert not releases(statements)
    assert releases(statements, [T0])


def test_what_it_had_named_by_the_log_is_released_by_everything_and_a_confirmation():
    statements = ConsumerStatements.loaded(AFTER, frozenset({T1}))
    assert not releases(statements)
    assert not releases(statements, [T0], everything=True)
    assert releases(statements)


def test_what_it_has_not_named_is_released_after_it_was_told_to_revoke_it(told):
    assert not releases(told, [], epoch=5)  # the end of what it did before
    assert releases(told, [T0])


@pytest.mark.parametrize("said", [{}, {"owned": [T0]}, {"owned": [T0], "everything": True}])
def test_what_it_was_never_told_of_is_released_by_any_heartbeat(said):
    statements = ConsumerStatements()
    statements.on_answer(Member("a", owned=frozenset({T0})))
    assert releases(statements, **said)


def test_what_it_was_told_of_is_not_released_with_what_it_was_never_told_of(named):
    t2 = TopicPartition("t", 2)
    member = Member("a", owned=frozenset({T0}), revoking=frozenset({T1, t2}))
    assert not releases(named, member=member)
    assert releases(named, [T0], member=member)


def test_what_it_got_again_has_to_be_named_again(named):
    assert releases(named, [T0])
    named.on_answer(Member("a", owned=frozenset({T0})))
    named.on_answer(BEFORE)
    assert not releases(named, [T0], everything=True)
    assert not releases(named)


def test_a_heartbeat_with_an_earlier_epoch_than_one_that_has_arrived_is_late(named):
    assert not releases(named, [], everything=True, epoch=4)
    assert not releases(named)
    assert not releases(named, [], epoch=4)
    assert releases(named, [T0])


def test_a_client_that_always_says_everything_releases_after_some_heartbeats(told):
    said = [releases(told, [T0], everything=True) for _ in range(MAX_UNCONFIRMED)]
    assert said == [False] * (MAX_UNCONFIRMED - 1) + [True]
