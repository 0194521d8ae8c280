"""The round-robin assignor returns the same as Kafka's RoundRobinAssignor."""

from spark_log.coordinator.assignors.roundrobin import RoundRobinAssignor

assign = RoundRobinAssignor().assign


def test_partitions_of_all_topics_are_dealt_out_in_turn(member, shown):
    assigned = assign({"t": 3, "u": 3}, {"c2": member("u t"), "c1": member("t u")})
    assert shown(assigned) == {"c1": "t-0 t-2 u-1", "c2": "t-1 u-0 u-2"}


def test_who_did_not_subscribe_is_passed_over_and_the_turn_goes_on_behind_the_last(member, shown):
    subscriptions = {"c1": member("t"), "c2": member("t u"), "c3": member("t")}
    assigned = assign({"t": 3, "u": 2}, subscriptions)
    assert shown(assigned) == {"c1": "t-0", "c2": "t-1 u-0 u-1", "c3": "t-2"}


def test_different_subscriptions_may_leave_sizes_uneven(member, shown):
    """The sticky assignor balances this case better."""
    partitions = {"t1": 2, "t2": 1, "t3": 2, "t4": 1, "t5": 2}
    every, odd = member("t1 t2 t3 t4 t5"), member("t1 t3 t5")
    assigned = assign(partitions, {"c1": every, "c2": odd, "c3": odd, "c4": every})
    assert shown(assigned) == {
        "c1": "t1-0 t3-0 t5-0",
        "c2": "t1-1 t3-1 t5-1",
        "c3": "",
        "c4": "t2-0 t4-0",
    }


def test_static_members_come_by_instance_id_whatever_their_member_ids(member, shown):
    subscriptions = {
        "b": member("t u", instance="instance1"),
        "a": member("t u", instance="instance2"),
    }
    assigned = assign({"t": 3, "u": 3}, subscriptions)
    assert shown(assigned) == {"b": "t-0 t-2 u-1", "a": "t-1 u-0 u-2"}


def test_static_members_come_before_the_others(member, shown):
    assigned = assign({"t": 3}, {"b": member("t", instance="z"), "a": member("t")})
    assert shown(assigned) == {"b": "t-0 t-2", "a": "t-1"}


def test_static_members_keep_their_partitions_when_they_come_back_under_another_id(member, shown):
    static = [member("t u", instance=f"i{i}") for i in (1, 2, 3)]
    before = assign({"t": 5, "u": 5}, dict(zip(("c1", "c2", "c3"), static, strict=True)))
    after = assign({"t": 5, "u": 5}, dict(zip(("c1", "c5", "c4"), static, strict=True)))
    assert shown(before) == {
        "c1": "t-0 t-3 u-1 u-4",
        "c2": "t-1 t-4 u-2",
        "c3": "t-2 u-0 u-3",
    }
    assert list(after.values()) == list(before.values())
    assert list(after) == ["c1", "c5", "c4"]


def test_members_are_ordered_as_java_orders_strings(member, shown):
    """Members are sorted by UTF-16 code units: U+10000 is before U+FFFF."""
    assigned = assign({"t": 1}, {"\uffff": member("t"), "\U00010000": member("t")})
    assert shown(assigned) == {"\U00010000": "t-0", "\uffff": ""}
