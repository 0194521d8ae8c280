"""The cooperative step: nothing is handed out before it was given up, and two steps are enough."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.coordinator.assignors import Subscription, claims_in_force, cooperative_step
from spark_log.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from spark_log.types import TopicPartition

assign = CooperativeStickyAssignor().assign


def first_step(partitions, subscriptions):
    target = assign(partitions, subscriptions)
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
    """t-1 moves from c1 to c2; t-3 is new and needs no waiting."""
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


def test_a_first_step_as_kafkas_own_tests_expect(member, shown):
    """One of three members has left a topic: it waits for what the others give up."""
    subscriptions = {
        "c0": member("t1 t2 t3", "t1-0 t1-1 t1-2 t1-3 t1-4", 1),
        "c1": member("t1 t2 t3", "t1-5 t2-0 t2-1 t2-2 t2-3", 1),
        "c2": member("t1 t3", "t2-4 t2-5 t2-6 t3-0 t3-1", 1),
    }
    step = first_step({"t1": 6, "t2": 7, "t3": 2}, subscriptions)
    expected = {"c0": "t1-2 t1-3 t1-4", "c1": "t2-0 t2-1 t2-2 t2-3", "c2": "t3-0 t3-1"}
    assert shown({name: sorted(got) for name, got in step.items()}) == expected


@st.composite
def groups(draw):
    """Partitions, what members subscribed to, and what each owns: no two the same."""
    partitions = draw(st.dictionaries(st.sampled_from("tuv"), st.integers(1, 6)))
    topics = st.lists(st.sampled_from("tuv"), unique=True).map(tuple)
    names = [f"c{i}" for i in range(draw(st.integers(1, 6)))]
    every = [TopicPartition(topic, i) for topic, count in partitions.items() for i in range(count)]
    owners = {each: draw(st.sampled_from([None, *names])) for each in every}
    owned = {name: {each for each in every if owners[each] == name} for name in names}
    if draw(st.booleans()):
        wanted = dict.fromkeys(names, draw(topics))
    else:
        wanted = {name: draw(topics) for name in names}
    return partitions, wanted, owned


def subscribed(wanted, owned, generation):
    return {
        name: Subscription(topics, frozenset(owned[name]), generation)
        for name, topics in wanted.items()
    }


def sets(assignment):
    return {name: set(got) for name, got in assignment.items()}


@given(group=groups())
def test_two_steps_reach_the_target_and_no_partition_has_two_owners_on_the_way(group):
    partitions, wanted, owned = group
    target = assign(partitions, subscribed(wanted, owned, 1))

    step = cooperative_step(target, owned)
    # While some are still at the old assignment and some at the new one already:
    at_work = Counter(each for name in wanted for each in owned[name] | set(step[name]))
    assert max(at_work.values(), default=1) == 1
    assert all(set(step[name]) <= set(target[name]) for name in wanted)
    assert all(set(target[name]) & owned[name] <= set(step[name]) for name in wanted)

    assert cooperative_step(target, step) == target


@given(group=groups())
def test_a_member_keeps_all_it_has_when_the_assignor_is_asked_again_at_the_target(group):
    """No move makes sizes more even at the target; that is when the assignor leaves off."""
    partitions, wanted, owned = group
    target = assign(partitions, subscribed(wanted, owned, 1))
    assert sets(assign(partitions, subscribed(wanted, target, 2))) == sets(target)


@given(group=groups())
def test_asked_again_on_the_way_the_assignor_balances_as_well(group, check_valid, check_balanced):
    """What is on its way belongs to nobody then, and may go elsewhere than was meant.

    Where all subscribed to the same, sizes follow from the numbers of partitions and members, and
    what a member has fits its size: the same sizes come out, and nobody gives up anything. Where
    they did not, Kafka's ``generalAssign`` is a greedy search that ends when no single move makes
    sizes more even (``performReassignments``): that holds, and no more. The largest member may get
    more than in the first target, or less, and a partition may have to move once more.
    """
    partitions, wanted, owned = group
    target = assign(partitions, subscribed(wanted, owned, 1))
    step = cooperative_step(target, owned)
    again = assign(partitions, subscribed(wanted, step, 2))
    check_valid(partitions, subscribed(wanted, step, 2), again)
    check_balanced(subscribed(wanted, step, 2), again)
    if len(set(map(frozenset, wanted.values()))) == 1:
        assert sorted(map(len, again.values())) == sorted(map(len, target.values()))
        assert all(set(step[name]) <= set(again[name]) for name in wanted)


@pytest.mark.parametrize(
    ("partitions", "topics", "owned", "largest", "steps"),
    [
        (
            {"t": 6, "u": 5, "v": 3, "w": 1},
            ["t u v w", "u v", "t v", "u"],
            ["t-3 t-5 u-0 v-0 v-1 v-2", "", "", ""],
            [5, 4],
            3,
        ),
        (
            {"t": 4, "u": 4, "v": 4},
            ["t v", "t u v", "", "t", "t u"],
            ["t-1", "t-0 t-2 u-2", "u-1 v-0", "t-3 u-0 v-1 v-2", "v-3"],
            [3, 4],
            2,
        ),
    ],
)
def test_asked_again_on_the_way_it_may_find_something_better_or_worse(
    partitions, topics, owned, largest, steps, member, tps
):
    """As Kafka's group leader is; a group here keeps its target until a member or topic changes."""
    wanted = {f"c{i}": tuple(each.split()) for i, each in enumerate(topics)}
    held = {f"c{i}": tps(each) for i, each in enumerate(owned)}
    targets: list[Any] = []
    taken = 0
    while not targets or held != targets[-1]:
        taken += 1
        targets.append(assign(partitions, subscribed(wanted, held, taken)))
        held = cooperative_step(targets[-1], held)
    assert [max(map(len, target.values())) for target in targets[:2]] == largest
    assert taken == steps


@given(group=groups())
def test_asked_again_at_every_step_it_comes_to_an_end(group, check_valid, check_balanced):
    """Within five steps, which is what Kafka's ``CooperativeStickyAssignorTest`` allows."""
    partitions, wanted, held = group
    for generation in range(1, 6):
        subscriptions = subscribed(wanted, held, generation)
        target = assign(partitions, subscriptions)
        held = cooperative_step(target, held)
        if held == target:
            break
    assert held == target
    check_valid(partitions, subscriptions, target)
    check_balanced(subscriptions, target)
