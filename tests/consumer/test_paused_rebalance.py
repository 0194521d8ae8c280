"""Partitions that are paused while the group rebalances."""

import pytest

from spark_log import Admin
from tests.consumer.support import THREE, Notes, append, numbered, poll_until, settle

ALL = set(THREE)
STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


@pytest.fixture(params=STRATEGIES)
def member(request, join):
    """Creates members by one of the strategies; they poll one after the other."""

    def member(**settings):
        return join(partition_assignment_strategy=request.param, **settings)

    return member


def fill(root, values):
    for partition in THREE:
        append(root, values, to=partition)


def test_those_that_stay_are_paused_still_and_keep_their_positions(root, member):
    fill(root, numbered(0, 5))
    notes = Notes()
    a = member(listener=notes)
    poll_until(a, 15)
    a.commit()
    a.pause(*THREE)
    b = member()
    mine, others = settle({a: 2, b: 1})  # it polls, and drops what comes
    fill(root, numbered(5, 8))
    assert a.paused() == mine, "paused before, and not revoked"
    assert notes.told[1:] == [("revoked", others)]
    assert b.paused() == set(), "the state is not handed over"
    for _ in range(5):
        assert a.poll(20) == {}
    assert {a.position(tp) for tp in mine} == {5}
    found = poll_until(b, 3)
    assert {tp: [record.offset for record in records] for tp, records in found.items()} == {
        tp: [5, 6, 7] for tp in others
    }
    a.resume(*mine)
    found = poll_until(a, 6)
    assert {tp: [record.offset for record in records] for tp, records in found.items()} == {
        tp: [5, 6, 7] for tp in mine
    }


def test_one_that_was_away_is_not_paused_when_it_comes_back(root, member):
    fill(root, numbered(0, 5))
    a = member()
    poll_until(a, 15)
    a.commit()
    a.pause(*THREE)
    b = member()
    mine, (away,) = settle({a: 2, b: 1})
    b.close()
    settle({a: 3})  # it polls, and drops what comes
    fill(root, numbered(5, 6))
    assert a.paused() == mine
    assert [record.offset for record in poll_until(a, 1)[away]] == [5]
    assert {a.position(tp) for tp in mine} == {5}


def test_what_was_fetched_before_the_pause_comes_after_it_once(root, member):
    fill(root, numbered(0, 5))
    a = member(max_poll_records=1)
    poll_until(a, 1)
    a.commit()
    a.pause(*THREE)
    b = member()
    mine, _ = settle({a: 2, b: 1})
    read = {tp: a.position(tp) for tp in mine}
    assert a.poll(20) == {}
    a.resume(*mine)
    found = poll_until(a, sum(5 - start for start in read.values()))
    for tp, records in found.items():
        assert [record.offset for record in records] == list(range(read[tp], 5))


def test_new_partitions_of_the_topic_are_read_beside_paused_ones(root, member):
    a = member()
    settle({a: 3})
    a.pause(*THREE)
    fill(root, numbered(0, 2))
    Admin(root).create_partitions({"three": 4})
    (new,) = settle({a: 4})[0] - ALL
    append(root, numbered(0, 2), to=new)
    assert set(poll_until(a, 2)) == {new}
    assert a.paused() == ALL
