"""`group_checks` finds errors that are planted in notes, a history, a group's log and offsets."""

from dataclasses import replace

import pytest

from spark_log.coordinator.group.group import Group, GroupTopic, Member
from spark_log.types import TopicPartition
from tests.faults.group_checks import MemberNotes, PolledRange, reckon_group, unbalanced
from tests.faults.group_history import Row
from tests.testing.history.operations import assign, history, poll, send

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
VALUES = [f"value {number}" for number in range(30)]
ROWS = list(enumerate(VALUES))
TOPICS = {"t": GroupTopic("id", 2)}


def member(name, *owned, **others):
    return Member(name, client_id=name, topics=("t",), owned=frozenset(owned), **others)


def group(generation, *members, protocol="range"):
    return Group("g", generation, protocol, TOPICS, {each.member_id: each for each in members})


def taken(generation, who, first, last, partition=P0):
    return PolledRange(who, generation, who, partition, first, last, is_handled=True)


def row(number, generation, who, offset, partition=P0):
    fences = 0, generation
    return Row(number, *fences, generation, number, who, partition, offset, f"c{number}")


class World:
    """A group of two members: ``a`` reads partition 0; after it has expired, ``b`` does.

    The commit of the last records that ``a`` handled was refused.
    """

    def __init__(self):
        self.groups = {
            1: group(1, member("a", P0), member("b", P1)),
            2: group(2, member("b", P0, P1)),
        }
        self.taken = [
            taken(1, "a", 0, 9),
            taken(1, "b", 0, 29, P1),
            taken(1, "a", 10, 14),
            taken(2, "b", 10, 29),
        ]
        self.rows = [
            row(1, 1, "a", 10),
            row(2, 1, "b", 30, P1),
            row(3, 2, "b", 30),
        ]
        self.outcomes = {"c1": "committed", "c2": "committed", "late": "refused", "c3": "unknown"}
        self.operations = history(
            *(
                (f"p{to.partition}", send(value, at, to=to))
                for to in (P0, P1)
                for at, value in ROWS
            ),
            *(("a", assign(0, of=P0)), ("a", poll(*ROWS[:15], of=P0))),
            *(("b", assign(of=P0)), ("b", poll(*ROWS, of=P1)), ("b", poll(*ROWS[10:], of=P0))),
        )
        self.topics = {P0: list(ROWS), P1: list(ROWS)}

    def check_results(self):
        notes = MemberNotes(self.taken, self.outcomes)
        return reckon_group(notes, self.operations, self.topics, self.groups, self.rows)


@pytest.fixture
def world():
    return World()


def assert_found(world, complaint):
    with pytest.raises(AssertionError, match=complaint):
        world.check_results()


def test_nothing_is_wrong_with_a_member_that_is_expired_and_handles_what_it_cannot_commit(world):
    assert world.check_results() == {
        "records": 60,
        "handled": 65,
        "generations": 2,
        "positions": 3,
        "commits committed": 2,
        "commits refused": 1,
        "commits unknown": 1,
    }


def test_a_record_that_nobody_handled(world):
    world.taken[3] = taken(2, "b", 16, 29)
    assert_found(world, r"acknowledged and never handled: \[15\]")


def test_a_record_that_was_taken_and_not_handled(world):
    world.taken[0] = replace(world.taken[0], is_handled=False)
    world.rows[0] = replace(world.rows[0], offset=0)
    world.outcomes["c1"] = "unknown"
    assert_found(world, "never handled")


def test_an_acknowledged_record_that_is_not_there(world):
    world.operations += history(("p2", send("value 30", 30, to=P1)))
    assert_found(world, "unseen.* 'value 30'")


def test_another_record_than_was_acknowledged(world):
    world.topics[P1][7] = 7, "another"
    assert_found(world, "offset 7 has 2 values")


def test_two_members_that_handle_one_partition_in_one_generation(world):
    world.taken.append(taken(1, "b", 0, 9))
    assert_found(world, "two members in one generation")


def test_a_member_that_handles_what_is_not_its_own(world):
    world.taken.append(taken(2, "a", 10, 14))
    world.taken.pop(3)
    assert_found(world, "no member of that generation")


def test_a_member_that_goes_on_with_what_is_revoked(world):
    b = member("b", P1, revoking=frozenset([P0]))
    world.groups[2] = group(2, b)
    assert_found(world, "not its partition in that generation")


def test_a_record_that_was_handed_out_with_other_contents(world):
    world.operations += history(("c", poll((7, "value 8"), of=P1)))
    assert_found(world, "offset 7 has 2 values")


def test_a_record_that_a_member_passed_by(world):
    world.operations += history(("c", poll(ROWS[1], of=P1)), ("c", poll(ROWS[3], of=P1)))
    assert_found(world, "poll-skip.*, from 2 on")


def test_a_position_that_goes_back(world):
    world.rows.append(row(4, 2, "b", 20))
    assert_found(world, "went back")


def test_a_fence_that_goes_back(world):
    world.rows.append(replace(row(4, 1, "a", 30), fence_before=2))
    assert_found(world, "the fence went back")


def test_a_commit_in_another_generation_than_the_fence(world):
    world.rows[2] = replace(world.rows[2], generation=1, fence_before=2)
    assert_found(world, "of another generation than the fence")
    world.rows[2] = replace(world.rows[2], generation=3)
    assert_found(world, "of another generation than the fence")


def test_commits_of_two_generations_in_one_version_are_nothing_wrong(world):
    world.rows[2] = replace(world.rows[2], version=2, fence_before=1)
    world.rows[1] = replace(world.rows[1], fence_before=1, fence=2)
    assert world.check_results()["positions"] == 3


def test_the_commit_of_a_zombie(world):
    world.rows.insert(2, row(3, 2, "a", 15))
    assert_found(world, "no member of that generation")


def test_the_commit_of_somebody_elses_partition(world):
    world.rows.insert(1, row(1, 1, "b", 10))
    assert_found(world, "not its partition")


def test_a_commit_of_what_is_not_handled(world):
    world.rows[0] = replace(world.rows[0], offset=12)
    assert_found(world, "committed and not handled")


def test_a_refused_commit_that_is_there(world):
    world.outcomes["c2"] = "refused"
    assert_found(world, "was refused, and is there all the same")


def test_an_acknowledged_commit_that_is_not_there(world):
    world.outcomes["late"] = "committed"
    assert_found(world, "was acknowledged, and is not there")


def test_a_member_that_begins_before_what_was_committed(world):
    world.taken[3] = taken(2, "b", 8, 29)
    assert_found(world, "committed up to 10 before, and again")


def test_a_group_that_is_balanced_has_nothing_wrong():
    assert unbalanced(group(1, member("a", P0), member("b", P1))) is None


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ([member("a", P0, P1), member("b")], "range shares ['t'] as [2, 0]"),
        ([member("a", P0)], "nobody has"),
        ([member("a", P0, P1, revoking=frozenset([P1])), member("b")], "it is Reconciling"),
        ([], "it is Empty"),
    ],
)
def test_a_group_that_is_not_balanced_has_something_wrong(members, complaint):
    assert complaint in unbalanced(group(1, *members))


def test_range_is_fair_topic_by_topic_and_the_others_altogether():
    topics = {"s": GroupTopic("id-s", 1), "t": GroupTopic("id", 1)}
    s0 = TopicPartition("s", 0)
    members = {"a": member("a", s0, P0), "b": member("b")}
    assert unbalanced(Group("g", 1, "range", topics, members)) is None
    assert "as [2, 0]" in unbalanced(Group("g", 1, "sticky", topics, members))
