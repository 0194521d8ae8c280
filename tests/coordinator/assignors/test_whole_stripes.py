"""Members get whole stripes where sizes allow it; how many partitions each gets is as without."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.coordinator.assignors import Subscription, assign_whole_stripes, assignor
from spark_log.types import TopicPartition

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
every_assignor = pytest.mark.parametrize("name", NAMES)


def striped(partitions, stripes):
    """The stripe of each partition of the topics that have stripes."""
    return {
        topic: [number % stripes[topic] for number in range(count)]
        for topic, count in partitions.items()
        if stripes.get(topic)
    }


def assign(name, partitions, subscriptions, stripes):
    numbers = striped(partitions, stripes)
    return assign_whole_stripes(assignor(name), partitions, subscriptions, numbers)


def pairs(assignment, stripes, topic="t"):
    """The number of pairs of a member and a stripe that it has partitions of."""
    return len(
        {
            (member, each.partition % stripes)
            for member, got in assignment.items()
            for each in got
            if each.topic == topic
        }
    )


def sizes(assignment):
    """The number of partitions of each topic that each member has."""
    return {member: Counter(each.topic for each in got) for member, got in assignment.items()}


def members(count, topics="t"):
    return {f"c{number:03d}": Subscription(tuple(topics.split())) for number in range(count)}


def owning(subscriptions, assignment, generation=1):
    return {
        member: Subscription(each.topics, frozenset(assignment.get(member, ())), generation)
        for member, each in subscriptions.items()
    }


@every_assignor
@pytest.mark.parametrize(
    ("partitions", "stripes", "count", "expected"),
    [
        (1_000, 4, 1, 4),
        (1_000, 4, 2, 4),  # two whole stripes each
        (1_000, 4, 4, 4),
        (1_000, 4, 8, 8),  # half a stripe each
        (1_000, 4, 3, 6),  # 333 and 334 of stripes of 250: two stripes are cut
        (10, 4, 2, 4),  # stripes of 3, 3, 2 and 2: 3 + 2 each
        (10, 2, 4, 4),  # 3 + 2 of each stripe of 5
        (3, 16, 5, 3),
    ],
)
def test_members_get_whole_stripes(name, partitions, stripes, count, expected):
    assigned = assign(name, {"t": partitions}, members(count), {"t": stripes})
    assert pairs(assigned, stripes) == expected
    assert sorted(each for got in assigned.values() for each in got) == [
        TopicPartition("t", number) for number in range(partitions)
    ]


@every_assignor
def test_a_member_that_joins_takes_over_few_stripes(name):
    """Without regard to stripes it would get some of each."""
    before = assign(name, {"t": 120}, members(2), {"t": 4})
    after = assign(name, {"t": 120}, owning(members(3), before), {"t": 4})
    assert sizes(after) == sizes(assign(name, {"t": 120}, members(3), {"t": 4}))
    assert pairs(after, 4) == 6


def test_a_member_of_a_sticky_group_takes_over_what_goes_with_its_stripes():
    before = assign("sticky", {"t": 12}, members(3), {"t": 6})
    assert pairs(before, 6) == 6
    left = dict(list(owning(members(3), before).items())[:2])
    after = assign("sticky", {"t": 12}, left, {"t": 6})
    assert all(set(before[member]) <= set(after[member]) for member in left)
    assert pairs(after, 6) == 6


def test_topics_with_as_many_partitions_are_partitioned_alike_by_range():
    """Also if one of them has no stripes, or others: a join by key needs both sides."""
    partitions = {"t": 12, "u": 12, "v": 12, "w": 11}
    assigned = assign("range", partitions, members(5, "t u v w"), {"t": 3, "u": 4, "w": 2})
    for got in assigned.values():
        numbers = {
            topic: [each.partition for each in got if each.topic == topic] for topic in "tuv"
        }
        assert numbers["t"] == numbers["u"] == numbers["v"]
    assert pairs(assigned, 4, "u") == 6


@every_assignor
def test_topics_without_stripes_are_assigned_as_ever(name):
    partitions, subscriptions = {"t": 9, "u": 7}, members(4, "t u")
    expected = assignor(name).assign(partitions, subscriptions)
    assert assign(name, partitions, subscriptions, {}) == expected
    assert assign(name, partitions, subscriptions, {"t": 1}) == expected
    with_stripes = assign(name, partitions, subscriptions, {"t": 3})
    assert {m: [each for each in got if each.topic == "u"] for m, got in expected.items()} == {
        m: [each for each in got if each.topic == "u"] for m, got in with_stripes.items()
    }


@st.composite
def groups(draw):
    """Draw partitions, stripes and subscriptions, with valid and invalid claims."""
    topics = "tuv"
    partitions = draw(st.dictionaries(st.sampled_from(topics), st.integers(0, 12)))
    stripes = {topic: draw(st.integers(0, 5)) for topic in partitions}
    some_topics = st.lists(st.sampled_from(topics), unique=True).map(tuple)
    same = draw(some_topics) if draw(st.booleans()) else None
    claim = st.builds(TopicPartition, st.sampled_from(topics), st.integers(0, 13))
    subscription = st.builds(
        Subscription,
        topics=st.just(same) if same is not None else some_topics,
        owned=st.frozensets(claim, max_size=8),
        generation=st.integers(-1, 2),
        group_instance_id=st.none() | st.sampled_from("xyz"),
    )
    names = st.text("ab", min_size=1, max_size=3)
    return partitions, stripes, draw(st.dictionaries(names, subscription, max_size=7))


@given(group=groups())
def test_every_partition_goes_once_to_one_who_subscribed(check_valid, group):
    partitions, stripes, subscriptions = group
    for name in NAMES:
        check_valid(partitions, subscriptions, assign(name, partitions, subscriptions, stripes))


@given(group=groups())
def test_the_order_of_mappings_does_not_matter(group):
    partitions, stripes, subscriptions = group
    for name in NAMES:
        assert assign(name, partitions, subscriptions, stripes) == assign(
            name,
            dict(reversed(partitions.items())),
            dict(reversed(subscriptions.items())),
            dict(reversed(stripes.items())),
        )


@given(group=groups())
def test_sizes_are_those_of_the_assignor(check_balanced, group):
    partitions, stripes, subscriptions = group
    for name in ("range", "roundrobin"):
        assigned = assign(name, partitions, subscriptions, stripes)
        expected = assignor(name).assign(partitions, subscriptions)
        assert sizes(assigned) == sizes(expected)
    check_balanced(subscriptions, assign("sticky", partitions, subscriptions, stripes))


@given(
    count=st.integers(0, 40),
    stripes=st.integers(1, 12),
    before=st.integers(1, 9),
    gone=st.integers(0, 8),
    came=st.integers(0, 4),
)
def test_sticky_keeps_as_much_as_without_stripes(count, stripes, before, gone, came):
    first = members(before)
    left = dict(list(first.items())[min(gone, before - 1) :])
    new = {f"new{number}": Subscription(("t",)) for number in range(came)}

    def kept(assign_now):
        owned = assign_now(first)
        after = assign_now({**owning(left, owned), **new})
        return sum(len(set(owned[member]) & set(after[member])) for member in left)

    plain = kept(lambda group: assignor("sticky").assign({"t": count}, group))
    assert kept(lambda group: assign("sticky", {"t": count}, group, {"t": stripes})) == plain


@given(group=groups())
def test_sticky_changes_nothing_when_nothing_has_changed(group):
    partitions, stripes, subscriptions = group
    before = assign("sticky", partitions, subscriptions, stripes)
    after = assign("sticky", partitions, owning(subscriptions, before), stripes)
    assert {m: set(got) for m, got in after.items()} == {m: set(got) for m, got in before.items()}


@given(count=st.integers(1, 60), stripes=st.integers(1, 12), many=st.integers(1, 12))
def test_a_first_assignment_has_at_most_members_and_stripes_less_one_pairs(count, stripes, many):
    used, reading = min(stripes, count), min(many, count)
    for name in NAMES:
        found = pairs(assign(name, {"t": count}, members(many), {"t": stripes}), stripes)
        assert max(used, reading) <= found <= used + reading - 1
        if count % used == 0 and (used % reading == 0 or reading % used == count % reading == 0):
            assert found == max(used, reading)


def fewest_pairs(demands, supplies):
    """Search the minimum: each member of ``demands`` gets its number from some of ``supplies``."""
    best = len(demands) + len(supplies)

    def search(member, need, start, left, used):
        nonlocal best
        if used >= best:
            return
        if member == len(demands):
            best = used
            return
        if need == 0:
            following = demands[member + 1] if member + 1 < len(demands) else 0
            search(member + 1, following, 0, left, used)
            return
        for number in range(start, len(left)):
            for given_here in range(min(need, left[number]), 0, -1):
                rest = (*left[:number], left[number] - given_here, *left[number + 1 :])
                search(member, need - given_here, number + 1, rest, used + 1)

    search(0, demands[0], 0, tuple(supplies), 0)
    return best


def test_small_first_assignments_are_compared_with_a_search_for_the_minimum():
    """One pair more than the minimum is rare; to find the minimum always would need a search."""
    more: Counter[int] = Counter()
    for count in range(1, 15):
        for stripes in range(1, 5):
            for many in range(1, 5):
                assigned = assign("range", {"t": count}, members(many), {"t": stripes})
                demands = [len(got) for got in assigned.values() if got]
                supplies = list(Counter(n % stripes for n in range(count)).values())
                more[pairs(assigned, stripes) - fewest_pairs(demands, supplies)] += 1
    assert more == {0: 220, 1: 4}
