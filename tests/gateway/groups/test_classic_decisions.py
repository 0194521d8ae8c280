"""The classic protocol's rules, event by event, as Kafka's GroupMetadataManagerTest names them."""

import pytest

from spark_log.coordinator.group.group import Group
from spark_log.gateway.groups import GroupLimits
from tests.gateway.groups.driver import LIMITS, PROTOCOLS, REBALANCE_MS, SESSION_MS, Driver


def test_a_first_member_is_given_an_id_and_joins_with_it():
    group = Driver()
    first = group.join()
    assert group.error(first) == "MEMBER_ID_REQUIRED"
    name = group.answers[first].member_id
    assert group.timers["pending", name] == SESSION_MS
    token = group.join(name)
    assert token not in group.answers
    assert group.timers["join", ""] == LIMITS.initial_delay_ms
    group.begin()
    answer = group.answers[token]
    assert (answer.error.name, answer.generation, answer.protocol) == ("NONE", 1, "range")
    assert (answer.leader, [each.member_id for each in answer.members]) == (name, [name])
    assert group.phase == "CompletingRebalance"
    assert group.changes == ["join"]


def test_older_clients_join_without_an_id():
    group = Driver()
    _, token = group.join_fully(known_id=False)
    group.begin()
    assert group.answers[token].generation == 1


def test_the_first_delay_is_repeated_while_members_arrive():
    group = Driver()
    _, token = group.join_fully()
    left_ms = REBALANCE_MS
    for _ in range(2):
        group.join_fully()
        left_ms -= LIMITS.initial_delay_ms
        assert group.state.first_delay_left_ms == left_ms
        group.expire("join")
        assert group.timers["join", ""] == LIMITS.initial_delay_ms
    group.expire("join")
    assert len(group.answers[token].members) == 3


def test_followers_are_told_no_members_and_wait_for_the_leader():
    group = Driver()
    _, first = group.join_fully()
    _, second = group.join_fully()
    group.begin()
    leader, follower = group.answers[first].member_id, group.answers[second].member_id
    assert len(group.answers[first].members) == 2
    assert group.answers[second].members == ()
    assert group.answers[second].leader == leader
    waiting = group.sync(follower)
    assert waiting not in group.answers
    assert ("session", follower) not in group.timers, "it waits, and does not expire"
    done = group.sync(leader, assignments={leader: b"L", follower: b"F"})
    assert (group.answers[done].assignment, group.answers[waiting].assignment) == (b"L", b"F")
    assert group.phase == "Stable"
    assert group.changes == ["join", "sync"]
    assert group.timers["session", follower] == SESSION_MS
    assert ("sync", "") not in group.timers


def test_a_member_without_an_assignment_gets_an_empty_one():
    group = Driver()
    _, first = group.join_fully()
    _, second = group.join_fully()
    group.begin()
    group.sync(group.answers[first].member_id, assignments={"unknown": b"x"})
    token = group.sync(group.answers[second].member_id)
    assert group.answers[token].assignment == b""


def test_a_new_member_makes_all_others_join_again():
    group = Driver()
    first, second = group.stable()
    _, third = group.join_fully()
    assert group.phase == "PreparingRebalance"
    assert group.timers["join", ""] == REBALANCE_MS
    assert [group.heartbeat(each) for each in (first, second)] == ["REBALANCE_IN_PROGRESS"] * 2
    assert group.commit_error(first) == "NONE", "it still has its partitions"
    tokens = [group.join(first), group.join(second)]
    generations = {group.answers[token].generation for token in (*tokens, third)}
    assert generations == {2}
    assert group.answers[tokens[0]].leader == first
    assert len(group.answers[tokens[0]].members) == 3
    assert group.commit_error(first, 1) == "ILLEGAL_GENERATION"
    assert group.commit_error(first) == "REBALANCE_IN_PROGRESS"


def test_who_does_not_join_again_in_time_is_removed():
    group = Driver()
    first, second = group.stable()
    token = group.join(first, protocols=[("sticky", b"other")])
    assert token not in group.answers
    group.begin()
    answer = group.answers[token]
    assert (answer.generation, answer.protocol) == (2, "sticky")
    assert group.heartbeat(second) == "UNKNOWN_MEMBER_ID"


def test_a_leader_that_is_gone_is_replaced():
    group = Driver()
    first, second = group.stable()
    token = group.join(second, protocols=[("range", b"other")])
    group.begin()
    assert group.answers[token].leader == second
    assert len(group.answers[token].members) == 1
    assert first not in group.state.classic.members


def test_a_follower_that_asks_again_gets_the_present_generation():
    group = Driver()
    first, second = group.stable()
    token = group.join(second)
    answer = group.answers[token]
    assert (answer.generation, answer.leader, answer.members) == (1, first, ())
    assert group.phase == "Stable"
    leader = group.join(first)
    assert leader not in group.answers, "a leader that joins wants a new assignment"
    assert group.phase == "PreparingRebalance"


def test_a_lost_answer_to_join_is_given_again_before_the_sync():
    group = Driver()
    name, token = group.join_fully()
    group.begin()
    again = group.join(name)
    assert group.answers[again] == group.answers[token]


def test_a_sync_in_a_rebalance_is_told_to_join():
    group = Driver()
    first, _ = group.stable()
    group.join_fully()
    assert group.error(group.sync(first)) == "REBALANCE_IN_PROGRESS"


def test_a_rebalance_answers_those_that_wait_for_their_assignment():
    group = Driver()
    _, first = group.join_fully()
    _, second = group.join_fully()
    group.begin()
    waiting = group.sync(group.answers[second].member_id)
    group.join_fully()
    assert group.error(waiting) == "REBALANCE_IN_PROGRESS"
    assert ("session", group.answers[second].member_id) in group.timers
    assert group.answers[first].error.name == "NONE"


def test_who_does_not_sync_in_time_is_removed():
    group = Driver()
    _, first = group.join_fully()
    _, second = group.join_fully()
    group.begin()
    leader, follower = group.answers[first].member_id, group.answers[second].member_id
    group.sync(leader, assignments={})
    group.expire("sync")
    assert group.phase == "PreparingRebalance"
    assert list(group.state.classic.members) == [leader]
    assert follower not in group.state.logged.members
    assert group.changes[-1] == "expire"


@pytest.mark.parametrize(
    ("name", "generation", "error"),
    [("other", 1, "UNKNOWN_MEMBER_ID"), ("m1", 0, "ILLEGAL_GENERATION"), ("m1", 1, "NONE")],
)
def test_heartbeats_syncs_and_commits_are_checked(name, generation, error):
    group = Driver()
    group.stable(1)
    assert group.heartbeat(name, generation) == error
    assert group.error(group.sync(name, generation)) == error
    assert group.commit_error(name, generation) == error


def test_a_protocol_that_is_not_the_groups_is_refused_in_a_sync():
    group = Driver()
    (name,) = group.stable(1)
    assert group.error(group.sync(name, protocol=("consumer", "range"))) == "NONE"
    wrong = [("connect", "range"), ("consumer", "sticky")]
    errors = {group.error(group.sync(name, protocol=each)) for each in wrong}
    assert errors == {"INCONSISTENT_GROUP_PROTOCOL"}


def test_a_commit_without_membership_needs_an_empty_group():
    group = Driver()
    assert group.commit_error("", -1) == "NONE"
    assert group.commit_error("an id of its own", -1) == "NONE"
    assert group.commit_error("", -1, instance="i") == "NONE"
    assert group.commit_error("a former member", 1) == "UNKNOWN_MEMBER_ID"
    (name,) = group.stable(1)
    assert group.commit_error("", -1) == "UNKNOWN_MEMBER_ID"
    assert group.commit_error("an id of its own", -1) == "UNKNOWN_MEMBER_ID"
    assert group.commit_error(name, -1) == "ILLEGAL_GENERATION"


def test_members_leave_and_the_last_one_leaves_an_empty_group():
    group = Driver()
    first, second = group.stable()
    assert group.leave(second, "nobody") == ["NONE", "UNKNOWN_MEMBER_ID"]
    assert (group.phase, group.changes[-1]) == ("PreparingRebalance", "leave")
    token = group.join(first)
    assert group.answers[token].generation == 2
    assert group.leave(first) == ["NONE"]
    assert (group.phase, group.state.generation) == ("Empty", 3)
    assert group.state.logged.state == "Empty"
    assert not [key for key in group.timers if key[0] != "join"]


def test_a_pending_id_may_leave_and_holds_a_rebalance_until_it_expires():
    group = Driver()
    (first,) = group.stable(1)
    pending = group.answers[group.join()].member_id
    token = group.join(first)
    assert token not in group.answers
    group.expire("pending", pending)
    assert group.answers[token].generation == 2
    again = group.answers[group.join()].member_id
    assert group.leave(again) == ["NONE"]
    assert group.error(group.join(again)) == "UNKNOWN_MEMBER_ID"


def test_a_member_without_heartbeats_expires():
    group = Driver()
    first, second = group.stable()
    group.expire("session", second)
    assert group.phase == "PreparingRebalance"
    assert group.heartbeat(second) == "UNKNOWN_MEMBER_ID"
    assert group.answers[group.join(first)].generation == 2


def test_what_no_member_may_be():
    limits = GroupLimits(2, 0, 6000, 1_800_000)
    group = Driver(limits=limits)
    assert group.error(group.join(session_ms=5999)) == "INVALID_SESSION_TIMEOUT"
    assert group.error(group.join(session_ms=1_800_001)) == "INVALID_SESSION_TIMEOUT"
    assert group.error(group.join(protocols=[])) == "INCONSISTENT_GROUP_PROTOCOL"
    assert group.error(group.join(kind="")) == "INCONSISTENT_GROUP_PROTOCOL"
    assert group.error(group.join("unknown")) == "UNKNOWN_MEMBER_ID"
    group.stable(2)
    assert group.error(group.join()) == "GROUP_MAX_SIZE_REACHED"
    assert group.error(group.join(instance="i")) == "GROUP_MAX_SIZE_REACHED"


def test_a_member_has_to_support_what_all_others_do():
    group = Driver()
    group.stable(2)
    assert group.error(group.join(protocols=[("x", b"")])) == "INCONSISTENT_GROUP_PROTOCOL"
    assert group.error(group.join(kind="connect")) == "INCONSISTENT_GROUP_PROTOCOL"
    assert group.error(group.join(protocols=[("sticky", b"")])) == "MEMBER_ID_REQUIRED"


def test_the_protocol_that_most_members_prefer_is_chosen():
    group = Driver()
    group.join_fully()
    group.join_fully(protocols=[PROTOCOLS[1], PROTOCOLS[0]])
    _, token = group.join_fully(protocols=[PROTOCOLS[1], PROTOCOLS[0]])
    group.begin()
    assert group.answers[token].protocol == "sticky"


# --- static members (KIP-345) -------------------------------------------------------------------


def static_pair(group):
    """Return the ids of two static members a and b with assignments; a is the leader."""
    tokens = [group.join(instance=each) for each in ("a", "b")]
    group.begin()
    names = [group.answers[token].member_id for token in tokens]
    for name, instance in zip(names, "ab", strict=True):
        group.sync(name, instance=instance, assignments={names[0]: b"A", names[1]: b"B"})
    assert group.phase == "Stable"
    return names


def test_a_static_member_that_starts_again_changes_nothing_for_the_others():
    group = Driver()
    first, second = static_pair(group)
    token = group.join(instance="b")
    answer = group.answers[token]
    assert answer.member_id not in (first, second)
    assert (answer.generation, answer.leader, answer.members) == (1, first, ())
    assert group.phase == "Stable"
    synced = group.sync(answer.member_id, instance="b")
    assert group.answers[synced].assignment == b"B"
    assert group.heartbeat(second, instance="b") == "FENCED_INSTANCE_ID"
    assert group.commit_error(second, instance="b") == "FENCED_INSTANCE_ID"
    assert group.heartbeat(first, instance="a") == "NONE"
    assert second not in group.state.logged.members


def test_a_static_leader_that_starts_again_skips_the_assignment():
    group = Driver()
    first, _ = static_pair(group)
    answer = group.answers[group.join(instance="a")]
    assert answer.skip_assignment
    assert answer.leader == answer.member_id
    assert len(answer.members) == 2
    older = group.answers[group.join(instance="a", skips=False)]
    assert (older.skip_assignment, older.members) == (False, ())
    assert older.leader == answer.member_id != older.member_id, "it does not assign"
    assert first not in group.state.classic.members


def test_a_static_member_that_wants_another_protocol_rebalances():
    group = Driver()
    static_pair(group)
    token = group.join(instance="b", protocols=[("sticky", b"")])
    assert token not in group.answers
    assert group.phase == "PreparingRebalance"


def test_a_static_member_keeps_its_place_when_it_is_late():
    group = Driver()
    first, second = static_pair(group)
    token = group.join(first, instance="a", protocols=[PROTOCOLS[1]])
    group.begin()
    answer = group.answers[token]
    assert answer.generation == 2
    assert [each.member_id for each in answer.members] == [first, second]
    group.expire("session", second)
    assert list(group.state.classic.members) == [first]


def test_a_static_member_leaves_by_its_instance_id():
    group = Driver()
    first, second = static_pair(group)
    errors = group.leave(("", "b"), ("other", "a"), ("", "c"))
    assert errors == ["NONE", "FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID"]
    assert second not in group.state.classic.members
    assert first in group.state.classic.members


def test_only_static_members_that_are_all_late_wait_for_another_join():
    group = Driver()
    static_pair(group)
    group.leave(("", "b"))
    group.expire("join")
    assert group.phase == "PreparingRebalance"
    assert group.timers["join", ""] == REBALANCE_MS


def test_a_static_member_that_starts_again_before_the_sync_rebalances():
    group = Driver()
    tokens = [group.join(instance=each) for each in ("a", "b")]
    group.begin()
    leader = group.answers[tokens[0]].member_id
    token = group.join(instance="b")
    assert group.phase == "PreparingRebalance"
    again = group.join(leader, instance="a")
    assert {group.answers[each].generation for each in (token, again)} == {2}


# --- another coordinator ------------------------------------------------------------------------


def test_another_gateway_goes_on_without_a_rebalance():
    group = Driver()
    first, second = group.stable()
    other = group.reload()
    assert [other.heartbeat(each) for each in (first, second)] == ["NONE", "NONE"]
    assert other.answers[other.sync(second)].assignment == second.encode()
    assert other.timers["session", first] == SESSION_MS


def test_another_gateway_takes_the_assignment_of_a_generation_that_has_begun():
    group = Driver()
    tokens = [group.join_fully()[1] for _ in range(2)]
    group.begin()
    leader, follower = (group.answers[token].member_id for token in tokens)
    other = group.reload()
    assert other.phase == "CompletingRebalance"
    waiting = other.sync(follower)
    other.sync(leader, assignments={follower: b"F"})
    assert other.answers[waiting].assignment == b"F"


def test_another_gateway_goes_on_with_a_rebalance():
    group = Driver()
    first, second = group.stable()
    group.leave(second)
    other = group.reload()
    assert other.heartbeat(first) == "REBALANCE_IN_PROGRESS"
    assert other.answers[other.join(first)].generation == 2


def test_members_that_only_wait_are_not_in_the_log():
    group = Driver()
    first, second = group.stable()
    group.join_fully()
    group.leave(second)
    other = group.reload()
    assert list(other.state.classic.members) == [first]


def test_the_next_generation_is_above_the_fence_of_the_offsets():
    group = Driver(Group("g"), fence=7)
    _, token = group.join_fully()
    group.begin()
    assert group.answers[token].generation == 8
