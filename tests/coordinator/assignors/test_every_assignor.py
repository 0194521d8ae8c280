"""Properties of all assignors: tables of small groups, and random groups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.coordinator.assignors import Subscription, assignor
from spark_log.errors import InvalidConfigurationError
from spark_log.types import TopicPartition

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
TOPICS = ("t", "u", "v", "w")
every_assignor = pytest.mark.parametrize("name", NAMES)


@st.composite
def groups(draw, *, equal: bool | None = None):
    """Draw partitions and subscriptions, with valid and invalid claims."""
    partitions = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 8)))
    some_topics = st.lists(st.sampled_from(TOPICS), unique=True).map(tuple)
    same = draw(some_topics) if equal or (equal is None and draw(st.booleans())) else None
    claim = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 9))
    subscription = st.builds(
        Subscription,
        topics=st.just(same) if same is not None else some_topics,
        owned=st.frozensets(claim, max_size=8),
        generation=st.integers(-1, 3),
        group_instance_id=st.none() | st.sampled_from("xyz"),
    )
    members = st.text("ab\uffff\U00010000", min_size=1, max_size=3)
    subscriptions = draw(st.dictionaries(members, subscription, max_size=7))
    return partitions, subscriptions


def backwards(mapping):
    return dict(reversed(mapping.items()))


@every_assignor
def test_a_group_without_members_is_assigned_nothing(name):
    assert assignor(name).assign({"t": 3}, {}) == {}


@every_assignor
def test_a_member_without_topics_gets_an_empty_list(name, member):
    assert assignor(name).assign({}, {"c": member("")}) == {"c": []}


@every_assignor
def test_a_topic_that_does_not_exist_is_passed_over(name, member, tps):
    subscriptions = {"c": member("nowhere t empty")}
    assert assignor(name).assign({"t": 1, "empty": 0}, subscriptions) == {"c": tps("t-0")}


@every_assignor
def test_one_member_gets_all_of_the_topics_it_subscribed_to_and_no_others(name, member, tps):
    partitions = {"u": 2, "other": 3, "t": 1}
    assert assignor(name).assign(partitions, {"c": member("u t")}) == {"c": tps("t-0 u-0 u-1")}


@every_assignor
def test_a_topic_that_is_named_twice_counts_once(name, member, tps):
    subscriptions = {"c1": member("t t"), "c2": member("t")}
    assigned = assignor(name).assign({"t": 2}, subscriptions)
    assert assigned == {"c1": tps("t-0"), "c2": tps("t-1")}


@every_assignor
def test_members_beyond_the_number_of_partitions_idle(name, member, tps):
    subscriptions = {each: member("t") for each in ("c1", "c2", "c3")}
    assigned = assignor(name).assign({"t": 2}, subscriptions)
    assert assigned == {"c1": tps("t-0"), "c2": tps("t-1"), "c3": []}


@every_assignor
def test_a_name_finds_its_assignor(name):
    assert assignor(name).name == name


def test_an_unknown_name_is_answered_with_those_that_exist():
    with pytest.raises(InvalidConfigurationError) as caught:
        assignor("round-robin")
    assert caught.value.key == "partition.assignment.strategy"
    assert caught.value.nearest == "roundrobin"
    assert "range, roundrobin, sticky, cooperative-sticky" in str(caught.value)


@given(group=groups())
def test_every_partition_goes_once_to_one_who_subscribed(check_valid, group):
    partitions, subscriptions = group
    for name in NAMES:
        assigned = assignor(name).assign(partitions, subscriptions)
        check_valid(partitions, subscriptions, assigned)


@given(group=groups())
def test_the_order_of_mappings_does_not_matter(group):
    partitions, subscriptions = group
    for name in NAMES:
        assigned = assignor(name).assign(partitions, subscriptions)
        assert assigned == assignor(name).assign(backwards(partitions), backwards(subscriptions))


@given(group=groups(equal=True))
def test_sizes_differ_by_at_most_one_where_all_subscribed_to_the_same(group):
    partitions, subscriptions = group
    for name in ("roundrobin", "sticky"):
        assigned = assignor(name).assign(partitions, subscriptions)
        sizes = [len(each) for each in assigned.values()]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1


@given(group=groups())
def test_range_gives_neighbours_of_each_topic_in_equal_shares(group):
    partitions, subscriptions = group
    assigned = assignor("range").assign(partitions, subscriptions)
    for topic, count in partitions.items():
        shares = {
            name: [each.partition for each in assigned[name] if each.topic == topic]
            for name, each in subscriptions.items()
            if topic in each.topics
        }
        assert all(len(each) - count // len(shares) in (0, 1) for each in shares.values())
        assert all(each == list(range(each[0], each[-1] + 1)) for each in shares.values() if each)


@given(group=groups())
def test_sticky_leaves_no_move_that_would_make_sizes_more_even(check_balanced, group):
    partitions, subscriptions = group
    check_balanced(subscriptions, assignor("sticky").assign(partitions, subscriptions))


@given(group=groups())
def test_sticky_changes_nothing_when_nothing_has_changed(rejoin, group):
    partitions, subscriptions = group
    before = assignor("sticky").assign(partitions, subscriptions)
    after = assignor("sticky").assign(partitions, rejoin(subscriptions, before))
    assert {m: set(each) for m, each in after.items()} == {
        m: set(each) for m, each in before.items()
    }


@given(group=groups(equal=True), gone=st.integers(0, 6), came=st.integers(0, 3))
def test_sticky_moves_no_more_than_sizes_ask_for(rejoin, group, gone, came):
    """If all subscribe to the same topics, a member with at most its quota keeps all partitions."""
    partitions, subscriptions = group
    before = assignor("sticky").assign(partitions, subscriptions)
    second = dict(list(rejoin(subscriptions, before).items())[gone:])
    topics = next(iter(subscriptions.values()), Subscription(())).topics
    second |= {f"new{i}": Subscription(topics) for i in range(came)}
    if not second:
        return
    after = assignor("sticky").assign(partitions, second)
    quota, larger = divmod(sum(map(len, after.values())), len(second))
    owned = {name: set(before.get(name, ())) for name in second}
    kept = sum(len(owned[name] & set(after[name])) for name in second)
    over = sum(len(each) > quota for each in owned.values())
    assert kept == sum(min(len(each), quota) for each in owned.values()) + min(over, larger)
