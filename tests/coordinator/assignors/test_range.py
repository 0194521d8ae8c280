"""The range assignor returns the same as Kafka's, with and without racks (KIP-881)."""

import pytest

from spark_log.coordinator.assignors import RangeAssignor
from spark_log.types import TopicPartition

assign = RangeAssignor().assign

EVERY = "t1 t2 t3"
UNIFORM = [EVERY, EVERY, EVERY]
UNEVEN = {"t1": 6, "t2": 7, "t3": 2}
ALIKE = {"t1": 5, "t2": 5, "t3": 5}
PAIRS = {"t1": 6, "t2": 6, "t3": 2, "t4": 2}


def test_the_first_members_get_one_more_of_each_topic(member, shown):
    assigned = assign({"t": 3, "u": 3}, {"c2": member("t u"), "c1": member("u t")})
    assert shown(assigned) == {"c1": "t-0 t-1 u-0 u-1", "c2": "t-2 u-2"}


def test_shares_count_only_those_who_subscribed_to_the_topic(member, shown):
    subscriptions = {"c1": member("t"), "c2": member("t u"), "c3": member("t")}
    assigned = assign({"t": 3, "u": 2}, subscriptions)
    assert shown(assigned) == {"c1": "t-0", "c2": "t-1 u-0 u-1", "c3": "t-2"}


def test_topics_of_one_size_with_the_same_subscribers_are_co_partitioned(member):
    subscriptions = {f"c{i}": member("t u") for i in range(3)}
    for got in assign({"t": 8, "u": 8}, subscriptions).values():
        of_t, of_u = ({p.partition for p in got if p.topic == topic} for topic in "tu")
        assert of_t == of_u


def test_static_members_come_by_instance_id_and_before_the_others(member, shown):
    subscriptions = {
        "a": member("t u"),
        "b": member("t u", instance="instance2"),
        "c": member("t u", instance="instance1"),
    }
    assigned = assign({"t": 4, "u": 2}, subscriptions)
    assert shown(assigned) == {"c": "t-0 t-1 u-0", "b": "t-2 u-1", "a": "t-3"}


def test_a_new_dynamic_member_takes_the_place_of_the_one_that_left(member, shown):
    static = {f"c{i}": member("t u", instance=f"i{i}") for i in (1, 2, 3)}
    shares = {"c1": "t-0 t-1 u-0", "c2": "t-2 u-1", "c3": "t-3 u-2"}
    for newcomer in ("c4", "a5"):
        assigned = assign({"t": 5, "u": 4}, static | {newcomer: member("t u")})
        assert shown(assigned) == shares | {newcomer: "t-4 u-3"}


def test_static_members_keep_their_partitions_when_they_come_back_under_another_id(member, shown):
    static = [member("t u", instance=f"i{i}") for i in (1, 2, 3)]
    before = assign({"t": 5, "u": 5}, dict(zip(("c1", "c2", "c3"), static, strict=True)))
    after = assign({"t": 5, "u": 5}, dict(zip(("c1", "c5", "c4"), static, strict=True)))
    assert shown(before) == {
        "c1": "t-0 t-1 u-0 u-1",
        "c2": "t-2 t-3 u-2 u-3",
        "c3": "t-4 u-4",
    }
    assert shown(after) == dict(zip(("c1", "c5", "c4"), shown(before).values(), strict=True))


def without_racks(partitions, topics, member, shown):
    """Return the partitions of the members c0, c1, … in the notation of `test_racks`."""
    subscriptions = {f"c{i}": member(each) for i, each in enumerate(topics)}
    return list(shown(assign(partitions, subscriptions)).values())


@pytest.mark.parametrize(
    ("brokers", "factor", "members"),
    [
        pytest.param("abc", 3, "abc", id="every partition is in every rack"),
        pytest.param("abcd", 4, "abc", id="and in one more"),
        pytest.param("abc", 1, "def", id="no member is where a replica is"),
        pytest.param("abc", 1, ["", None, "f"], id="nor is any of those that tell their rack"),
    ],
)
@pytest.mark.parametrize("partitions", [UNEVEN, ALIKE])
@pytest.mark.parametrize("topics", [UNIFORM, [EVERY, EVERY, "t1 t3"]])
def test_racks_do_not_count_where(
    partitions, topics, brokers, factor, members, member, shown, spread
):
    subscriptions = {
        f"c{i}": member(each, rack=rack)
        for i, (each, rack) in enumerate(zip(topics, members, strict=True))
    }
    assigned = assign(partitions, subscriptions, spread(partitions, brokers, factor))
    assert list(shown(assigned).values()) == without_racks(partitions, topics, member, shown)


@pytest.mark.parametrize(
    ("partitions", "topics", "factor", "brokers", "members", "expected", "mismatched"),
    [
        pytest.param(
            UNEVEN,
            UNIFORM,
            1,
            "abc",
            "abc",
            ["t1-0 t1-3 t2-0 t2-3 t2-6", "t1-1 t1-4 t2-1 t2-4 t3-0", "t1-2 t1-5 t2-2 t2-5 t3-1"],
            0,
            id="all fits",
        ),
        pytest.param(
            UNEVEN,
            UNIFORM,
            2,
            "abc",
            "abc",
            [
                "t1-0 t1-2 t2-0 t2-2 t2-3 t3-1",
                "t1-1 t1-3 t2-1 t2-4 t3-0",
                "t1-4 t1-5 t2-5 t2-6",
            ],
            1,
            id="sizes come before racks",
        ),
        pytest.param(
            UNEVEN,
            UNIFORM,
            3,
            "ab",
            "abc",
            [
                "t1-0 t1-1 t2-0 t2-1 t2-2 t3-0",
                "t1-2 t1-3 t2-3 t2-4 t3-1",
                "t1-4 t1-5 t2-5 t2-6",
            ],
            4,
            id="a member in a rack without replicas",
        ),
        pytest.param(
            UNEVEN,
            [EVERY, EVERY, "t1 t3"],
            1,
            "abc",
            "abc",
            ["t1-0 t1-3 t2-0 t2-2 t2-3 t2-6", "t1-1 t1-4 t2-1 t2-4 t2-5 t3-0", "t1-2 t1-5 t3-1"],
            2,
            id="different subscriptions",
        ),
        pytest.param(
            ALIKE,
            UNIFORM,
            1,
            "abc",
            "abc",
            ["t1-0 t1-1 t2-0 t2-1 t3-0 t3-1", "t1-2 t1-3 t2-2 t2-3 t3-2 t3-3", "t1-4 t2-4 t3-4"],
            10,
            id="co-partitioning comes before racks",
        ),
        pytest.param(
            ALIKE,
            [EVERY, EVERY, "t1 t3"],
            1,
            "abc",
            "abc",
            [
                "t1-0 t1-1 t2-0 t2-1 t2-4 t3-0 t3-1",
                "t1-2 t1-3 t2-2 t2-3 t3-2 t3-3",
                "t1-4 t3-4",
            ],
            9,
            id="but only for topics with the same subscribers",
        ),
        pytest.param(
            ALIKE,
            [EVERY, EVERY, "t1 t3"],
            2,
            "abc",
            "abc",
            ["t1-2 t2-0 t2-1 t2-3 t3-2", "t1-0 t1-3 t2-2 t2-4 t3-0 t3-3", "t1-1 t1-4 t3-1 t3-4"],
            0,
            id="co-partitioned topics have racks in common",
        ),
        pytest.param(
            PAIRS,
            ["t1 t2", "t1 t2", "t3 t4", "t3 t4"],
            1,
            "ab",
            "abba",
            [
                "t1-0 t1-2 t1-4 t2-0 t2-2 t2-4",
                "t1-1 t1-3 t1-5 t2-1 t2-3 t2-5",
                "t3-1 t4-1",
                "t3-0 t4-0",
            ],
            0,
            id="two pairs of co-partitioned topics",
        ),
        pytest.param(
            PAIRS,
            ["t1 t2 t3 t4"] * 4,
            1,
            "abc",
            "abba",
            [
                "t1-0 t1-3 t2-0 t2-3 t3-0 t4-0",
                "t1-1 t1-4 t2-1 t2-4 t3-1 t4-1",
                "t1-2 t2-2",
                "t1-5 t2-5",
            ],
            6,
            id="and a rack without members",
        ),
    ],
)
def test_racks_match_as_kafkas_own_tests_expect(
    partitions, topics, factor, brokers, members, expected, mismatched, member, shown, spread
):
    """The answers that Kafka's own tests expect."""
    racks = spread(partitions, brokers, factor)
    subscriptions = {
        f"c{i}": member(each, rack=rack)
        for i, (each, rack) in enumerate(zip(topics, members, strict=True))
    }
    assigned = assign(partitions, subscriptions, racks)
    assert list(shown(assigned).values()) == expected
    wrong = [
        p for name, got in assigned.items() for p in got if subscriptions[name].rack not in racks[p]
    ]
    assert len(wrong) == mismatched


def test_a_member_without_a_rack_takes_what_comes_and_leaves_no_gap(member, shown):
    racks = {TopicPartition("t", i): frozenset("b" if i < 2 else "a") for i in range(4)}
    assigned = assign({"t": 4}, {"c1": member("t"), "c2": member("t", rack="b")}, racks)
    assert shown(assigned) == {"c1": "t-0 t-1", "c2": "t-2 t-3"}
    assigned = assign({"t": 4}, {"c1": member("t", rack="a"), "c2": member("t")}, racks)
    assert shown(assigned) == {"c1": "t-2 t-3", "c2": "t-0 t-1"}
