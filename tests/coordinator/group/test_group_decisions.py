"""Decisions about a group, without storage."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_log.config import ClusterConfig
from spark_log.coordinator.group import group_decisions
from spark_log.coordinator.group.group import Group, GroupTopic, Member
from spark_log.coordinator.group.records import GroupRecord, from_json
from spark_log.errors import (
    CorruptRecordError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
)
from tests.coordinator.group_support import partitions, unowned

TOPICS = {"t": GroupTopic("id-t", 4), "u": GroupTopic("id-u", 2)}
CONFIG = ClusterConfig()


def member(name, *topics, **values):
    return Member(name, topics=topics or ("t",), **values)


def join(group, joining, topics=TOPICS, config=CONFIG):
    record = group_decisions.join(group, joining, topics, config)
    return group if record is None else group.replay(record)


def release_all(group):
    while any(each.revoking for each in group.members.values()):
        for each in list(group.members.values()):
            record = group_decisions.release(group, each.member_id, each.revoking)
            group = group if record is None else group.replay(record)
    return group


def members(*joining):
    group = Group("g")
    for each in joining:
        group = release_all(join(group, each))
    return group


def owned(group):
    return {name: set(each.owned) for name, each in group.members.items()}


class TestJoin:
    def test_the_first_one_has_everything_at_once(self):
        group = members(member("a", "t", "u"))
        assert owned(group) == {"a": partitions("t", 0, 1, 2, 3) | partitions("u", 0, 1)}
        assert (group.generation, group.state, group.protocol) == (1, "Stable", "range")

    def test_what_moves_is_first_revoked_then_given(self):
        group = join(members(member("a")), member("b"))
        assert group.members["a"].revoking == group.members["b"].pending == partitions("t", 2, 3)
        assert (owned(group)["b"], group.state) == (set(), "Reconciling")
        assert group.owners[next(iter(partitions("t", 2)))] == "a"
        group = release_all(group)
        assert owned(group) == {"a": partitions("t", 0, 1), "b": partitions("t", 2, 3)}
        assert (group.generation, group.state) == (3, "Stable")

    def test_a_part_of_it_may_be_released(self):
        group = join(members(member("a")), member("b"))
        record = group_decisions.release(group, "a", partitions("t", 2))
        group = group.replay(record)
        assert owned(group)["b"] == partitions("t", 2)
        assert group.members["a"].revoking == partitions("t", 3)

    def test_twice_is_once(self):
        group = members(member("a"))
        assert group_decisions.join(group, member("a"), TOPICS, CONFIG) is None

    def test_topics_that_do_not_exist_wait_until_they_do(self):
        group = members(member("a", "t", "new"))
        assert set(group.topics) == {"t"}
        new = {**TOPICS, "new": GroupTopic("id-new", 1)}
        group = group.replay(group_decisions.update_topics(group, new))
        assert partitions("new", 0) <= owned(group)["a"]

    def test_a_pattern_is_matched_from_the_start_of_names(self):
        topics = {name: GroupTopic(name, 1) for name in ("logs", "logs-2", "old-logs")}
        group = join(Group("g"), Member("a", pattern="logs"), topics)
        assert set(group.topics) == {"logs", "logs-2"}

    def test_another_subscription_gives_up_the_old_topics(self):
        group = join(members(member("a")), member("a", "u"))
        assert group.members["a"].revoking == partitions("t", 0, 1, 2, 3)
        assert group.members["a"].owned == partitions("u", 0, 1)
        assert set(group.topics) == {"t", "u"}, "it may commit what it had"
        group = release_all(group)
        assert set(group.topics) == {"u"}

    def test_there_are_no_more_than_group_max_size(self):
        config = ClusterConfig(group_max_size=1)
        with pytest.raises(GroupMaxSizeReachedError, match=r"group\.max\.size"):
            join(members(member("a")), member("b"), config=config)
        static = members(member("a", instance_id="i"))
        assert set(join(static, member("b", instance_id="i"), config=config).members) == {"b"}

    @pytest.mark.parametrize("timeout_ms", [5999, 1_800_001])
    def test_a_session_timeout_is_within_its_limits(self, timeout_ms):
        with pytest.raises(InvalidSessionTimeoutError, match="expected 6000"):
            join(Group("g"), member("a", session_timeout_ms=timeout_ms))

    def test_all_members_know_the_assignor(self):
        group = members(member("a", assignors=("range", "sticky")))
        with pytest.raises(InconsistentGroupProtocolError) as caught:
            join(group, member("b", assignors=("roundrobin",)))
        assert caught.value.common == ("range", "sticky")
        assert join(group, member("b", assignors=("roundrobin", "sticky"))).protocol == "sticky"

    def test_of_several_assignors_most_members_choose(self):
        group = members(
            member("a", assignors=("range", "sticky")),
            member("b", assignors=("sticky", "range")),
            member("c", assignors=("sticky", "range")),
        )
        assert group.protocol == "sticky"


class TestStaticMember:
    def test_takes_its_place_again_and_the_others_see_no_change(self):
        group = members(member("a", instance_id="i"), member("b"))
        back = join(group, member("a2", instance_id="i"))
        assert owned(back) == {"a2": owned(group)["a"], "b": owned(group)["b"]}
        assert (back.state, back.generation) == ("Stable", group.generation + 1)

    def test_that_comes_back_holds_nothing_that_was_to_be_revoked(self):
        group = join(members(member("a", instance_id="i")), member("b"))
        back = join(group, member("a2", instance_id="i"))
        assert owned(back) == {"a2": partitions("t", 0, 1), "b": partitions("t", 2, 3)}

    def test_that_comes_back_with_another_subscription_changes_the_group(self):
        group = members(member("a", instance_id="i"), member("b"))
        back = release_all(join(group, member("a2", "u", instance_id="i")))
        assert owned(back) == {"a2": partitions("u", 0, 1), "b": partitions("t", 0, 1, 2, 3)}


class TestRemove:
    @pytest.mark.parametrize("change", ["leave", "expire"])
    def test_what_they_had_is_free_at_once(self, change):
        group = members(member("a"), member("b"))
        group = group.replay(group_decisions.remove(group, {"a"}, TOPICS, change))
        assert owned(group) == {"b": partitions("t", 0, 1, 2, 3)}
        assert group.state == "Stable"

    def test_what_they_were_to_release_is_free_too(self):
        group = join(members(member("a")), member("b"))
        group = group.replay(group_decisions.remove(group, {"a"}, TOPICS, "expire"))
        assert owned(group) == {"b": partitions("t", 0, 1, 2, 3)}

    def test_the_last_one_leaves_an_empty_group(self):
        group = members(member("a"))
        group = group.replay(group_decisions.remove(group, {"a"}, TOPICS, "leave"))
        assert (group.state, group.protocol, group.topics) == ("Empty", None, {})
        assert group_decisions.remove(group, {"a"}, TOPICS, "leave") is None


class TestTopics:
    def test_that_are_as_they_were_change_nothing(self):
        group = members(member("a"))
        assert group_decisions.update_topics(group, TOPICS) is None
        other = {**TOPICS, "u": GroupTopic("id-u", 9)}
        assert group_decisions.update_topics(group, other) is None

    def test_that_grow_are_shared_anew(self):
        group = members(member("a"), member("b"))
        grown = {"t": GroupTopic("id-t", 6)}
        group = release_all(group.replay(group_decisions.update_topics(group, grown)))
        assert owned(group) == {"a": partitions("t", 0, 1, 2), "b": partitions("t", 3, 4, 5)}

    def test_that_are_deleted_are_nobodys(self):
        group = members(member("a", "t", "u"))
        group = group.replay(group_decisions.update_topics(group, {"u": TOPICS["u"]}))
        assert owned(group) == {"a": partitions("u", 0, 1)}
        assert group.members["a"].revoking == set()

    def test_that_are_created_again_are_others(self):
        """Partitions of the old topic that are moving are not waited for."""
        group = join(members(member("a")), member("b"))
        again = {"t": GroupTopic("id-again", 2)}
        group = group.replay(group_decisions.update_topics(group, again))
        assert owned(group) == {"a": partitions("t", 0), "b": partitions("t", 1)}
        assert group.state == "Stable"


class TestRelease:
    def test_of_what_was_given_back_meanwhile_changes_nothing(self):
        group = join(members(member("a")), member("b"))
        group = group.replay(group_decisions.remove(group, {"b"}, TOPICS, "leave"))
        assert group_decisions.release(group, "a", partitions("t", 2, 3)) is None
        assert owned(group) == {"a": partitions("t", 0, 1, 2, 3)}

    def test_by_who_is_no_member_changes_nothing(self):
        assert group_decisions.release(members(member("a")), "b", partitions("t", 0)) is None


class TestReplay:
    def test_a_record_read_back_makes_the_same_group(self):
        group = join(members(member("a", instance_id="i", rack="r", client_id="c")), member("b"))
        record = from_json(group.to_record("join", ("b",), "x").to_json())
        assert Group("g").replay(record) == group

    def test_a_partition_never_has_two_owners(self):
        group = members(member("a"), member("b"))
        twice = {name: Member(name, owned=frozenset(partitions("t", 0))) for name in ("a", "b")}
        record = Group("g", group.generation + 1, "range", TOPICS, twice).to_record("x", (), "")
        with pytest.raises(CorruptRecordError, match="two owners"):
            group.replay(record)

    def test_generations_rise(self):
        group = members(member("a"))
        with pytest.raises(
            CorruptRecordError, match="generation 1 follows 1, and its revision 0 follows 0"
        ):
            group.replay(group.to_record("x", (), ""))

    def test_another_groups_record_is_refused(self):
        with pytest.raises(CorruptRecordError, match="of group 'other'"):
            Group("g").replay(GroupRecord(group_id="other", generation=1, change_id="", change="x"))

    @pytest.mark.parametrize(
        "value",
        [b"", b"[]", b'{"type":"GroupRecord","version":0}', b'{"type":"X","version":0,"data":{}}'],
    )
    def test_what_is_no_record_is_refused(self, value):
        with pytest.raises(CorruptRecordError):
            from_json(value)

    def test_a_newer_version_asks_for_an_upgrade(self):
        with pytest.raises(CorruptRecordError, match="upgrade"):
            from_json(b'{"type":"GroupRecord","version":3,"data":{}}')


def test_the_generation_can_be_raised_and_not_lowered():
    group = members(member("a"))
    raised = group.replay(group_decisions.raise_generation(group, 9))
    assert (raised.generation, owned(raised)) == (9, owned(group))
    assert group_decisions.raise_generation(raised, 9) is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "static", "remove", "release", "grow", "again"]),
        st.integers(0, 5),
    ),
    max_size=25,
)


@settings(max_examples=150)
@given(STEPS, st.sampled_from(["range", "roundrobin", "sticky", "cooperative-sticky"]))
def test_after_any_changes_everything_is_owned_once_all_have_released(steps, assignor):
    group, topics, ids = Group("g"), dict(TOPICS), 0
    for what, number in steps:
        before, ids = group, ids + 1
        record = None
        names = list(group.members)
        chosen = names[number % len(names)] if names else "nobody"
        match what:
            case "join":
                wants = [("t",), ("u",), ("t", "u")][number % 3]
                joining = Member(f"m{ids}", topics=wants, assignors=(assignor,))
                record = group_decisions.join(group, joining, topics, CONFIG)
            case "static":
                joining = Member(
                    f"s{ids}", f"i{number % 2}", topics=("t", "u"), assignors=(assignor,)
                )
                record = group_decisions.join(group, joining, topics, CONFIG)
            case "remove":
                record = group_decisions.remove(group, {chosen}, topics, "expire")
            case "release" if names:
                revoking = group.members[chosen].revoking
                record = group_decisions.release(group, chosen, revoking)
            case "grow":
                topics["t"] = GroupTopic(topics["t"].topic_id, topics["t"].partitions + 1)
                record = group_decisions.update_topics(group, topics)
            case "again":
                topics["u"] = GroupTopic(f"id{ids}", 1 + number)
                record = group_decisions.update_topics(group, topics)
        if record is not None:
            group = group.replay(record)  # refuses two owners
            assert group.generation == before.generation + 1
        for partition, owner in group.owners.items():
            was = before.owners.get(partition)
            recreated = before.topics.get(partition.topic) is not None and (
                before.topics[partition.topic].topic_id != group.topics[partition.topic].topic_id
            )
            if was not in (None, owner) and was in group.members and not recreated:
                assert partition in before.members[was].revoking, "given away, and not released"
                assert what == "release"
    group = release_all(group)
    assert unowned(group) == []
    assert not any(each.pending for each in group.members.values())
