"""The range assignor returns the same as Kafka's."""

from spark_log.coordinator.assignors.range import RangeAssignor

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
