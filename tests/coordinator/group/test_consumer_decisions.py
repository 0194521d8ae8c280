"""Decisions about groups of the consumer protocol: who gets which partition, in which epoch."""

import json

import pytest

from spark_log.config import ClusterConfig
from spark_log.coordinator.group.consumer import ConsumerMember
from spark_log.coordinator.group.consumer_decisions import (
    begin_generation,
    check_regex,
    leave_static,
    note_named,
    release_revoked,
    remove_consumers,
    subscribe_consumer,
    update_consumer_topics,
)
from spark_log.coordinator.group.group import Group, GroupTopic, Member
from spark_log.coordinator.group.group_decisions import join, remove
from spark_log.coordinator.group.records import GroupRecord
from spark_log.errors import CorruptRecordError, InconsistentGroupProtocolError
from spark_log.types import TopicPartition

TOPICS = {"t": GroupTopic("an id", 4)}


def after(group, record):
    """Return the group after a record, through its bytes."""
    return group.replay(type(record).model_validate_json(record.model_dump_json()))


def joined_record(group, name, existing=TOPICS, *, instance_id=None, **wanted):
    subscription = ConsumerMember(0, **{"topics": ("t",), **wanted})
    return subscribe_consumer(group, Member(name, instance_id), subscription, existing)


def joined(group, name, *existing, **fields):
    return after(group, joined_record(group, name, *existing, **fields))


def partitions(group, name):
    member = group.members[name]
    return tuple(
        sorted(each.partition for each in found)
        for found in (member.owned, member.revoking, member.pending)
    )


@pytest.fixture
def two():
    """Two members: the first one has to release two partitions."""
    return joined(joined(Group("g"), "a"), "b")


def test_a_release_gives_partitions_and_a_new_epoch(two):
    kept, revoking, _ = partitions(two, "a")
    assert (len(kept), len(revoking)) == (2, 2)
    assert partitions(two, "b") == ([], [], revoking)
    group = after(two, release_revoked(two, "a"))
    assert partitions(group, "b") == (revoking, [], [])
    epochs = {name: each.epoch for name, each in group.consumer.members.items()}
    assert epochs == {"a": group.generation, "b": two.generation}
    assert not group.consumer.may_commit("a", two.generation, group.generation)
    assert group.consumer.may_commit("b", two.generation, group.generation)


@pytest.mark.parametrize("strategy", ["uniform", "range"])
def test_members_share_a_topic_stripe_by_stripe(strategy):
    topics = {"t": GroupTopic("an id", 4, stripes=2)}
    group = joined(joined(Group("g"), "a", topics, assignor=strategy), "b", topics)
    assert group.protocol == strategy
    group = after(group, release_revoked(group, "a"))
    assert (partitions(group, "a")[0], partitions(group, "b")[0]) == ([0, 2], [1, 3])
    assert update_consumer_topics(group, topics) is None


def test_a_revoked_partition_comes_back_only_after_it_was_released(two):
    _, revoking, _ = partitions(two, "a")
    group = after(two, remove_consumers(two, ["b"], TOPICS, "leave"))
    assert partitions(group, "a")[1:] == (revoking, revoking)
    group = after(group, release_revoked(group, "a"))
    assert partitions(group, "a") == ([0, 1, 2, 3], [], [])


def test_a_record_has_what_a_member_named_of_what_it_is_to_revoke(two):
    _, revoking, _ = partitions(two, "a")
    first, second = (TopicPartition("t", number) for number in revoking)
    kept = TopicPartition("t", partitions(two, "a")[0][0])
    known = note_named(two, {"a": frozenset({kept, first})})
    group = after(two, begin_generation(known))
    assert group.generation == two.generation + 1
    assert group.members == two.members
    assert [each.named for each in group.consumer.members.values()] == [{first}, set()]
    group = after(group, joined_record(note_named(group, {"a": frozenset({second})}), "c"))
    assert group.consumer.members["a"].named == {second}
    group = after(group, release_revoked(group, "a"))
    assert group.consumer.members["a"].named == set()


def test_a_record_of_a_program_that_does_not_know_what_members_named_says_nothing_of_it(two):
    known = note_named(two, {"a": two.members["a"].revoking})
    data = json.loads(begin_generation(known).to_json())["data"]
    assert "named" not in data["consumer"]["members"]["b"]
    del data["consumer"]["members"]["a"]["named"]
    consumer = Group("g").replay(GroupRecord.model_validate(data)).consumer
    assert consumer is not None
    assert [each.named for each in consumer.members.values()] == [set(), set()]


def test_the_same_subscription_again_changes_nothing(two):
    wanted = two.consumer.members["a"]
    assert subscribe_consumer(two, two.members["a"], wanted, TOPICS) is None
    assert update_consumer_topics(two, TOPICS) is None


def test_the_assignor_that_most_members_name_is_taken():
    group = joined(Group("g"), "a")
    assert group.protocol == "uniform"
    assert joined(group, "b", assignor="range").protocol == "range"


def test_a_topic_that_was_created_again_is_another_one():
    group = joined(Group("g"), "a")
    topics = {"t": GroupTopic("another id", 2)}
    group = after(group, update_consumer_topics(group, topics))
    assert partitions(group, "a") == ([0, 1], [], [])
    group = after(group, update_consumer_topics(group, {}))
    assert partitions(group, "a") == ([], [], [])


def test_a_regular_expression_matches_whole_names():
    topics = {name: GroupTopic(name, 1) for name in ("t", "tt", "u")}
    group = joined(Group("g"), "a", topics, topics=("u",), regex="t")
    assert group.members["a"].topics == ("t", "u")
    with pytest.raises(ValueError, match="regular expression"):
        check_regex("t)|(u")


def test_a_static_member_leaves_its_partitions_to_its_successor():
    group = joined(joined(Group("g"), "a", instance_id="i"), "b")
    group = after(group, release_revoked(group, "a"))
    kept, *_ = partitions(group, "a")
    group = after(group, leave_static(group, "a", TOPICS))
    assert not group.consumer.may_commit("a", group.generation, group.generation)
    assert leave_static(group, "a", TOPICS) is None
    group = joined(group, "c", instance_id="i")
    assert list(group.members) == ["c", "b"]
    assert partitions(group, "c") == (kept, [], [])


def test_our_consumer_cannot_join_but_an_admin_may_remove_members(two, cluster_config):
    ours = Member("ours", topics=("t",))
    with pytest.raises(InconsistentGroupProtocolError):
        join(two, ours, TOPICS, cluster_config)
    empty = after(two, remove(two, ["a", "b"], TOPICS, "leave"))
    assert empty.consumer.members == {}
    assert after(empty, join(empty, ours, TOPICS, cluster_config)).consumer is None


def test_a_record_says_the_epoch_of_each_member(two):
    record = two.to_record("join", (), "an id")
    broken = record.model_copy(update={"consumer": type(record.consumer)(members={})})
    with pytest.raises(CorruptRecordError, match="epoch"):
        Group("g").replay(broken)
    assert record.stored_version == 2


@pytest.fixture
def cluster_config():
    return ClusterConfig.parse({})
