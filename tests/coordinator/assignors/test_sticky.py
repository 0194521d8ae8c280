"""The sticky assignor returns the same as Kafka's StickyAssignor: balanced, then with few moves."""

import random
from dataclasses import replace

import pytest

from spark_log.coordinator.assignors import Subscription
from spark_log.coordinator.assignors.sticky import StickyAssignor
from spark_log.types import TopicPartition

assign = StickyAssignor().assign

EVERY = "t1 t2 t3"
UNEVEN = {"t1": 6, "t2": 7, "t3": 2}


def check(partitions, subscriptions, expected, shown):
    """Lists are compared in order."""
    assert shown(assign(partitions, subscriptions)) == expected


# --- all subscribed to the same ------------------------------------------------------------------


def test_at_first_partitions_are_dealt_out_in_turn(member, shown):
    subscriptions = {"c2": member("t u"), "c1": member("u t")}
    check({"t": 3, "u": 3}, subscriptions, {"c1": "t-0 t-2 u-1", "c2": "t-1 u-0 u-2"}, shown)


def test_instance_ids_do_not_change_the_order(member, shown):
    subscriptions = {"c1": member("t"), "c2": member("t", instance="a")}
    check({"t": 1}, subscriptions, {"c1": "t-0", "c2": ""}, shown)


def test_what_is_new_goes_behind_what_was_owned(member, shown):
    subscriptions = {"c1": member("t u", "t-0 u-1", 1), "c2": member("t u", "t-1 u-2", 1)}
    expected = {"c1": "t-0 u-1 u-0", "c2": "t-1 u-2"}
    check({"t": 2, "u": 3}, subscriptions, expected, shown)


def test_when_too_many_have_more_than_the_least_the_last_of_them_keep_it_as_in_kafka(member, shown):
    """The first member by member id gets it; in Kafka the first one in a hash map."""
    subscriptions = {
        "c1": member("t u", "t-0 u-0", 1),
        "c2": member("t u", "t-1 u-1", 1),
        "c3": member("t u", "", 1),
    }
    expected = {"c1": "t-0 u-0", "c2": "t-1", "c3": "u-1"}
    check({"t": 2, "u": 2}, subscriptions, expected, shown)


def test_a_member_that_may_have_one_more_keeps_it_before_others_get_it(member, shown):
    subscriptions = {
        "c1": member("t", "t-2", 1),
        "c2": member("t", "t-0 t-1", 1),
        "c3": member("t", "", 1),
    }
    check({"t": 4}, subscriptions, {"c1": "t-2", "c2": "t-0 t-1", "c3": "t-3"}, shown)


def test_members_below_their_share_are_filled_up(member, shown):
    subscriptions = {
        "c1": member("t u", "t-0", 1),
        "c2": member("t u", "t-1", 1),
        "c3": member("t u", "", 1),
    }
    expected = {"c1": "t-0 u-1", "c2": "t-1 u-2", "c3": "u-0"}
    check({"t": 2, "u": 3}, subscriptions, expected, shown)


def test_a_joiner_gets_partitions_with_high_numbers_of_every_topic(member, rejoin):
    partitions = {"t": 12, "u": 12}
    subscriptions = {"c1": member("t u")}
    for joiners in (["c2"], ["c3", "c4"]):
        subscriptions = rejoin(subscriptions, assign(partitions, subscriptions))
        subscriptions |= {name: member("t u") for name in joiners}
        for got in assign(partitions, subscriptions).values():
            assert sum(each.topic == "t" for each in got) == len(got) / 2 == 12 / len(subscriptions)


def test_members_that_stay_keep_all_they_have_when_others_leave(member, rejoin, shown):
    partitions = {"t": 3, "u": 4}
    subscriptions = {"c1": member("t u"), "c2": member("t u")}
    first = assign(partitions, subscriptions)
    assert shown(first) == {"c1": "t-0 t-2 u-1 u-3", "c2": "t-1 u-0 u-2"}
    subscriptions = rejoin(subscriptions, first) | {"c3": member("t u"), "c4": member("t u")}
    second = assign(partitions, subscriptions)
    assert shown(second) == {
        "c1": "t-0 u-1",
        "c2": "u-0 t-1",
        "c3": "t-2 u-3",
        "c4": "u-2",
    }
    left = rejoin(subscriptions, second)
    del left["c1"], left["c2"]
    check(partitions, left, {"c3": "t-2 u-3 t-0 u-1", "c4": "u-2 t-1 u-0"}, shown)


def test_a_topic_that_comes_and_one_that_goes_move_nothing_else(member, rejoin):
    subscriptions = {"c1": member("t"), "c2": member("t")}
    first = assign({"t": 3}, subscriptions)
    both = {name: member("t u", " ".join(map(str, got)), 1) for name, got in first.items()}
    second = assign({"t": 3, "u": 3}, both)
    assert all(set(first[name]) <= set(got) and len(got) == 3 for name, got in second.items())
    third = assign({"u": 3}, rejoin(both, second))
    assert all(set(got) <= set(second[name]) for name, got in third.items())
    assert sorted(map(len, third.values())) == [1, 2]


def test_new_partitions_of_a_topic_move_nothing_else(member, rejoin):
    subscriptions = {f"c{i}": member("t") for i in range(3)}
    before = assign({"t": 4}, subscriptions)
    after = assign({"t": 9}, rejoin(subscriptions, before))
    assert all(set(before[name]) <= set(got) and len(got) == 3 for name, got in after.items())


def test_claims_to_what_is_no_more_are_dropped(member, shown):
    """The claims: another topic, a deleted topic, partitions that the new topic does not have."""
    subscriptions = {"c1": member("t", "other-0 t-7 t-1", 1), "c2": member("t", "t-0", 1)}
    check({"t": 2}, subscriptions, {"c1": "t-1", "c2": "t-0"}, shown)
    check({}, subscriptions, {"c1": "", "c2": ""}, shown)
    check({"t": 2}, {"c1": member("t u", "u-0 t-0", 1)}, {"c1": "t-0 t-1"}, shown)
    check({"t": 2}, {"c1": member("t", "t-7", 1)}, {"c1": "t-0 t-1"}, shown)


def test_empty_subscriptions_that_come_first_are_not_equal_to_others(member, shown):
    """In Kafka the first member would get partitions of a topic that it does not subscribe to."""
    check({"t": 2}, {"c1": member(""), "c2": member("t")}, {"c1": "", "c2": "t-0 t-1"}, shown)


# --- claims --------------------------------------------------------------------------------------


@pytest.mark.parametrize("older", [9, -1])
def test_of_two_claims_the_newer_generation_wins(older, member, shown):
    subscriptions = {
        "c1": member("t u", "t-0 t-2 u-1", 10),
        "c2": member("t u", "t-0 t-2 u-1", older),
    }
    expected = {"c1": "t-0 u-1 t-2", "c2": "t-1 u-0 u-2"}
    check({"t": 3, "u": 3}, subscriptions, expected, shown)


def test_an_older_claim_that_nobody_disputes_counts(member, shown):
    subscriptions = {
        "c1": member("t u v", "t-0 u-0 v-0", 10),
        "c2": member("t u v", "t-1 u-1 v-1", 9),
        "c3": member("t u v", "u-1 v-0 v-2", 8),
    }
    expected = {"c1": "t-0 u-0 v-0", "c2": "t-1 u-1 v-1", "c3": "v-2 t-2 u-2"}
    check({"t": 3, "u": 3, "v": 3}, subscriptions, expected, shown)


def test_members_of_older_generations_keep_what_they_have_before_a_newcomer(member):
    topics = "t u v w"
    subscriptions = {
        "c1": member(topics),
        "c2": member(topics, "t-0 v-0 u-0", 9),
        "c3": member(topics, "w-2 v-2 u-1", 8),
        "c4": member(topics, "w-1 t-1 t-2", 7),
    }
    assigned = assign(dict.fromkeys(topics.split(), 3), subscriptions)
    for name in ("c2", "c3", "c4"):
        assert set(assigned[name]) == subscriptions[name].owned


@pytest.mark.parametrize("other", ["t", "t u"])
def test_of_two_claims_in_the_same_generation_both_lose(other, member, shown):
    """This holds with equal and with different subscriptions."""
    subscriptions = {
        "c1": member("t", "t-0 t-1", 1),
        "c2": member("t", "t-0 t-2", 1),
        "c3": member(other, "", 1),
    }
    check({"t": 3}, subscriptions, {"c1": "t-1", "c2": "t-2", "c3": "t-0"}, shown)


@pytest.mark.parametrize("other", ["t", "t u"])
def test_a_newer_claim_wins_over_two_older_ones_whatever_the_order(other, member, shown):
    """In Kafka only if it is the first one, or if members subscribe to different topics."""
    claims = {"c1": ("t-0", 1), "c2": ("t-0", 1), "c3": ("t-0", 2)}
    subscriptions = {name: member("t", *claim) for name, claim in claims.items()}
    subscriptions["c3"] = replace(subscriptions["c3"], topics=tuple(other.split()))
    assert shown(assign({"t": 3}, subscriptions))["c3"] == "t-0"


@pytest.mark.parametrize(
    "generations", [(1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)]
)
def test_three_generations_claim_a_partition_with_different_subscriptions(
    generations, member, check_valid
):
    claims = ["t-0 t-2", "t-1 t-2 t-3", "t-2 t-4 t-5"]
    subscriptions = {
        f"c{i}": member("t", owned, generation)
        for i, (owned, generation) in enumerate(zip(claims, generations, strict=True))
    } | {"c3": member("u", "u-0", 2)}
    assigned = assign({"t": 6, "u": 1}, subscriptions)
    check_valid({"t": 6, "u": 1}, subscriptions, assigned)
    assert sorted(map(len, assigned.values())) == [1, 2, 2, 2]


def test_who_owned_a_partition_before_gets_it_back_when_it_has_to_move(member, shown):
    """Without the former owner it would go to c1, the first of those with the fewest partitions."""
    subscriptions = {
        "c1": member("t"),
        "c2": member("t", "t-0", 1),
        "c3": member("t u", "t-0 t-1 t-2 t-3", 2),
    }
    assigned = assign({"t": 4}, subscriptions)
    assert assigned["c2"][0] == TopicPartition("t", 0)


def test_nothing_goes_back_to_a_former_owner_that_is_no_longer_subscribed(
    member, check_valid, check_balanced
):
    """Kafka assigns it nevertheless, or raises."""
    subscriptions = {
        "c1": member("t u"),
        "c2": member("u", "t-0", 1),
        "c3": member("t", "t-0 t-1 t-2 t-3", 2),
    }
    assigned = assign({"t": 4, "u": 1}, subscriptions)
    check_valid({"t": 4, "u": 1}, subscriptions, assigned)
    check_balanced(subscriptions, assigned)


# --- different subscriptions ---------------------------------------------------------------------


def test_topics_with_few_subscribers_are_given_first(member, shown):
    subscriptions = {"c1": member("t"), "c2": member("t u"), "c3": member("t")}
    expected = {"c1": "t-0 t-2", "c2": "u-0 u-1", "c3": "t-1"}
    check({"t": 3, "u": 2}, subscriptions, expected, shown)


def test_sizes_are_even_where_round_robin_is_not(member, shown):
    every, odd = member("t1 t2 t3 t4 t5"), member("t1 t3 t5")
    partitions = {"t1": 2, "t2": 1, "t3": 2, "t4": 1, "t5": 2}
    assigned = assign(partitions, {"c1": every, "c2": odd, "c3": odd, "c4": every})
    assert shown(assigned) == {
        "c1": "t2-0 t3-0",
        "c2": "t1-0 t3-1",
        "c3": "t1-1 t5-0",
        "c4": "t4-0 t5-1",
    }


def test_owned_partitions_move_to_make_room_for_a_balanced_whole(
    member, check_valid, check_balanced
):
    partitions = {f"t{i}": 1 for i in range(1, 7)}
    subscriptions = {
        "c1": member("t1 t2", "t1-0", 1),
        "c2": member("t1 t2 t3 t4", "t2-0 t3-0", 1),
        "c3": member("t2 t3 t4 t5 t6", "t4-0 t5-0 t6-0", 1),
    }
    assigned = assign(partitions, subscriptions)
    check_valid(partitions, subscriptions, assigned)
    check_balanced(subscriptions, assigned)
    assert TopicPartition("t1", 0) in assigned["c1"]


def test_what_a_member_no_longer_wants_goes_to_others(member, shown):
    subscriptions = {"c1": member("u", "t-0 u-0", 1), "c2": member("t", "t-1", 1)}
    check({"t": 2, "u": 1}, subscriptions, {"c1": "u-0", "c2": "t-1 t-0"}, shown)


def test_no_two_partitions_of_a_topic_are_exchanged_when_a_member_leaves(
    member, rejoin, check_valid, check_balanced
):
    """Member i subscribes to the topics up to i; then one in the middle leaves."""
    partitions = {f"t{i:02d}": i for i in range(1, 20)}
    subscriptions = {
        f"c{i:02d}": member(" ".join(f"t{j:02d}" for j in range(1, i + 1))) for i in range(1, 20)
    }
    before = assign(partitions, subscriptions)
    check_balanced(subscriptions, before)
    subscriptions = rejoin(subscriptions, before)
    del subscriptions["c10"]
    after = assign(partitions, subscriptions)
    check_valid(partitions, subscriptions, after)
    check_balanced(subscriptions, after)
    assert_not_exchanged(before, after)


def test_a_partition_comes_back_instead_of_another_one_of_its_topic(member, shown):
    """Otherwise c3, which gets v-1 from c0, would give v-0 to c0."""
    subscriptions = {
        "c0": member("t u v", "t-0 t-1 u-0 v-1 v-2", 1),
        "c1": member("t", "", 1),
        "c2": member("t u", "", 1),
        "c3": member("t u v", "v-0", 1),
    }
    expected = {"c0": "t-1 v-1", "c1": "t-0", "c2": "u-0", "c3": "v-0 v-2"}
    check({"t": 2, "u": 1, "v": 3}, subscriptions, expected, shown)


@pytest.mark.parametrize("seed", range(10))
def test_random_subscriptions_that_change(seed, member, check_valid, check_balanced):
    chance = random.Random(seed)
    topics = [f"t{i:02d}" for i in range(chance.randint(10, 20))]
    partitions = {topic: i + 1 for i, topic in enumerate(topics)}

    def some() -> str:
        return " ".join(sorted(chance.sample(topics, chance.randint(0, len(topics)))))

    names = [f"c{i:02d}" for i in range(chance.randint(20, 40))]
    first = {name: member(some()) for name in names}
    before = assign(partitions, first)
    second = {
        name: member(some(), " ".join(map(str, before[name])), 1)
        for name in names
        if chance.random() < 0.8
    }
    after = assign(partitions, second)
    check_valid(partitions, second, after)
    check_balanced(second, after)
    assert_not_exchanged(before, after, second)


def assert_not_exchanged(before, after, subscriptions=None):
    """No two members exchange partitions of a topic that both subscribe to."""
    owner = {each: name for name, got in before.items() for each in got}
    moves = set()
    for name, got in after.items():
        for each in got:
            source = owner.get(each, name)
            wants = subscriptions is None or (
                source in subscriptions and each.topic in subscriptions[source].topics
            )
            if source != name and source in after and wants:
                moves.add((each.topic, source, name))
    assert not any((topic, to, source) in moves for topic, source, to in moves)


def test_a_thousand_partitions_and_two_hundred_members_with_different_subscriptions(
    check_valid, check_balanced
):
    """benchmarks/assignors.py measures larger groups."""
    names = [f"t{i}" for i in range(20)]
    partitions = dict.fromkeys(names, 50)
    subscriptions = {
        f"c{i:03d}": Subscription(tuple(names[:10] if i % 4 else names[10:])) for i in range(200)
    }
    assigned = assign(partitions, subscriptions)
    check_valid(partitions, subscriptions, assigned)
    assert {len(assigned[name]) for i, name in enumerate(subscriptions) if i % 4 == 0} == {10}
    assert {len(assigned[name]) for i, name in enumerate(subscriptions) if i % 4} == {3, 4}
