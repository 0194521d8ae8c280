"""The cooperative step assigns no partition before it is released, and two steps are enough."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.coordinator.assignors import (
    CooperativeStickyAssignor,
    Subscription,
    claims_in_force,
    cooperative_step,
)
from spark_log.types import TopicPartition

assign = CooperativeStickyAssignor().assign


def first_step(partitions, subscriptions, racks=None):
    target = assign(partitions, subscriptions, racks)
    return cooperative_step(target, claims_in_force(subscriptions))


def test_a_partition_that_moves_waits_until_it_was_given_up(member, tps):
    subscriptions = {"c1": member("t", "t-0 t-1 t-2", 1), "c2": member("t", "", 1)}
    assert first_step({"t": 3}, subscriptions) == {"c1": tps("t-0 t-1"), "c2": []}
    subscriptions["c1"] = member("t", "t-0 t-1", 2)
    assert first_step({"t": 3}, subscriptions) == {"c1": tps("t-0 t-1"), "c2": tps("t-2")}


def test_what_nobody_owns_is_handed_out_at_once(member, tps):
    subscriptions = {"c1": member("t", "t-0", 1), "c2": member("t", "t-1", 1), "c3": member("t")}
    expected = {"c1": tps("t-0"), "c2": tps("t-1"), "c3": tps("t-2")}
    assert first_step({"t": 3}, subscriptions) == expected


def test_one_partition_that_waits_holds_up_no_other(member, tps):
    """t-1 moves from c1 to c2; t-3 is new and is assigned at once."""
    subscriptions = {"c1": member("t", "t-0 t-1 t-2", 1), "c2": member("t", "", 1)}
    assert first_step({"t": 4}, subscriptions) == {"c1": tps("t-0 t-1"), "c2": tps("t-3")}


def test_what_two_members_own_in_one_generation_waits_for_both(member, tps):
    subscriptions = {
        "c1": member("t", "t-0 t-1", 1),
        "c2": member("t", "t-0 t-2", 1),
        "c3": member("t", "", 1),
    }
    expected = {"c1": tps("t-1"), "c2": tps("t-2"), "c3": []}
    assert first_step({"t": 3}, subscriptions) == expected
    assert first_step({"t": 4}, subscriptions) == expected | {"c1": tps("t-1 t-3")}


def test_an_older_claim_holds_nothing_up(member, tps):
    subscriptions = {"c1": member("t", "t-0 t-1", 2), "c2": member("t", "t-1", 1)}
    assert first_step({"t": 3}, subscriptions) == {"c1": tps("t-0 t-1"), "c2": tps("t-2")}


def test_a_partition_that_two_own_is_left_out_even_for_one_of_them(tps):
    owned = {"c1": tps("t-0"), "c2": tps("t-0")}
    assert cooperative_step({"c1": tps("t-0"), "c2": []}, owned) == {"c1": [], "c2": []}


def test_an_owner_that_is_not_a_member_any_more_counts_too(tps):
    owned = {"gone": tps("t-0")}
    assert cooperative_step({"c1": tps("t-0 t-1")}, owned) == {"c1": tps("t-1")}


def test_the_order_of_the_target_is_kept(tps):
    target = {"c1": tps("t-3 t-1 t-0 t-2")}
    owned = {"c1": tps("t-0 t-3"), "c2": tps("t-1")}
    assert cooperative_step(target, owned) == {"c1": tps("t-3 t-0 t-2")}


@pytest.mark.parametrize(
    ("partitions", "topics", "factor", "owned", "step"),
    [
        (
            {"t1": 6, "t2": 7, "t3": 2}, ["t1 t2 t3"] * 3, 1,
            ["t1-0 t1-1 t1-2 t1-3 t1-4", "t1-5 t2-0 t2-1 t2-2 t2-3", "t2-4 t2-5 t2-6 t3-0 t3-1"],
            ["t1-0 t1-3", "t2-1", "t2-5 t3-1"],
        ),
        (
            {"t1": 6, "t2": 7, "t3": 2}, ["t1 t2 t3", "t1 t2 t3", "t1 t3"], 1,
            ["t1-0 t1-1 t1-2 t1-3 t1-4", "t1-5 t2-0 t2-1 t2-2 t2-3", "t2-4 t2-5 t2-6 t3-0 t3-1"],
            ["t1-3", "t2-1", "t3-1"],
        ),
        (
            {"t1": 6, "t2": 7, "t3": 2}, ["t1 t2 t3", "t1 t2 t3", "t1 t3"], 3,
            ["t1-0 t1-1 t1-2 t1-3 t1-4", "t1-5 t2-0 t2-1 t2-2 t2-3", "t2-4 t2-5 t2-6 t3-0 t3-1"],
            ["t1-2 t1-3 t1-4", "t2-0 t2-1 t2-2 t2-3", "t3-0 t3-1"],
        ),
        ({"t1": 4}, ["t1"] * 2, 1, ["t1-0 t1-1", "t1-2 t1-3"], ["t1-0", "t1-3"]),
    ],
)  # fmt: skip
def test_racks(partitions, topics, factor, owned, step, member, spread):
    """The steps that Kafka's own tests expect."""
    brokers = "abc"[: len(topics)]
    subscriptions = {
        f"c{i}": member(wanted, owned[i], 1, rack="abc"[i]) for i, wanted in enumerate(topics)
    }
    assigned = first_step(partitions, subscriptions, spread(partitions, brokers, factor))
    assert [" ".join(map(str, sorted(got))) for got in assigned.values()] == step


@given(data=st.data())
def test_two_steps_reach_the_target_and_no_partition_has_two_owners_on_the_way(data, check_valid):
    partitions = data.draw(st.dictionaries(st.sampled_from("tuv"), st.integers(1, 6)))
    topics = st.lists(st.sampled_from("tuv"), unique=True).map(tuple)
    names = [f"c{i}" for i in range(data.draw(st.integers(1, 6)))]
    # All members own partitions, no two the same one, as in a stable group.
    every = [TopicPartition(topic, i) for topic, count in partitions.items() for i in range(count)]
    owners = {each: data.draw(st.sampled_from([None, *names])) for each in every}
    owned = {name: {each for each in every if owners[each] == name} for name in names}
    wanted = {name: data.draw(topics) for name in names}
    subscriptions = {name: Subscription(wanted[name], frozenset(owned[name]), 1) for name in names}
    target = assign(partitions, subscriptions)

    step = cooperative_step(target, owned)
    # Some members still have the old assignment, and others have the new one already:
    at_work = Counter(each for name in names for each in owned[name] | set(step[name]))
    assert max(at_work.values(), default=1) == 1
    assert all(set(step[name]) <= set(target[name]) for name in names)
    assert all(set(target[name]) & owned[name] <= set(step[name]) for name in names)

    assert cooperative_step(target, step) == target
    # A second call returns the same assignment, or a better balanced one: the sticky algorithm is
    # a heuristic, which may find one more move from there.
    subscriptions = {name: Subscription(wanted[name], frozenset(step[name]), 2) for name in names}
    again = assign(partitions, subscriptions)
    assert max(map(len, again.values())) <= max(map(len, target.values()))
    assert cooperative_step(again, step) == again
    check_valid(partitions, subscriptions, again)
