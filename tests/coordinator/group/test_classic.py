"""Groups of Kafka's clients in the group's log, beside consumers of this package."""

import struct
from dataclasses import replace

import pytest

from spark_log.config import ClusterConfig
from spark_log.coordinator.group import group_decisions
from spark_log.coordinator.group.classic import ClassicGroup, ClassicMember
from spark_log.coordinator.group.consumer_protocol import (
    assigned_partitions,
    encode_assignment,
    subscribed_topics,
)
from spark_log.coordinator.group.group import Group, Member, PendingOffsets
from spark_log.coordinator.group.records import from_json
from spark_log.errors import (
    CommitFailedError,
    CorruptRecordError,
    InconsistentGroupProtocolError,
)
from spark_log.record import ProducerIdAndEpoch
from tests.coordinator.group_support import partitions


def classic_member(name, *assigned, instance_id=None):
    assignment = encode_assignment(frozenset(partitions("t", *assigned)))
    subscription = struct.pack(">hih", 0, 1, 1) + b"t"
    protocols = (("range", subscription), ("other", b"\xff\x00"))
    return ClassicMember(name, instance_id, "client", "/h", 60_000, 10_000, protocols, assignment)


def classic_group(*members, generation=3, state="Stable"):
    found = {each.member_id: each for each in members}
    leader = members[0].member_id if members else None
    classic = ClassicGroup("consumer", state if members else "Empty", leader, found)
    return Group("g").with_classic(classic, "range" if members else None, generation)


def replayed(group, before=None):
    """Return the group as its record's bytes give it."""
    record = group.to_record("join", (), "an id")
    return (before or Group("g")).replay(from_json(record.to_json()))


def test_a_record_has_all_that_another_gateway_needs():
    group = classic_group(classic_member("a", 0, 1), classic_member("b", 2, instance_id="i"))
    record = group.to_record("sync", ("a",), "an id")
    assert record.stored_version == 2
    assert record.members == ()
    assert replayed(group) == group
    assert str(record) == "generation 3 by sync of a: Stable, 2 members of a gateway"


def test_a_classic_group_is_shown_as_any_other():
    group = replayed(classic_group(classic_member("a", 0, 1)))
    shown = group.members["a"]
    assert (shown.topics, shown.owned) == (("t",), frozenset(partitions("t", 0, 1)))
    assert (group.state, group.protocol_type) == ("Stable", "consumer")
    assert replayed(classic_group()).state == "Empty"


def test_two_members_with_one_partition_are_the_clients_own_fault():
    group = classic_group(classic_member("a", 0), classic_member("b", 0))
    assert replayed(group).members.keys() == {"a", "b"}


def test_what_cannot_be_read_of_a_members_bytes_is_shown_as_nothing():
    for data in (b"", b"\0", b"\0\0\xff\xff\xff\xff", b"\0\0\0\0\0\x01\0\x05ab", b"\x7f" * 9):
        assert subscribed_topics(data) == ()
        assert assigned_partitions(data) == frozenset()
    assert subscribed_topics(struct.pack(">hih", 1, 1, 1) + b"t" + b"later") == ("t",)


def test_a_consumer_of_this_package_cannot_join_kafkas_clients():
    group = classic_group(classic_member("a"))
    with pytest.raises(InconsistentGroupProtocolError, match="members that are Kafka's clients, a"):
        group_decisions.join(group, Member("ours", topics=("t",)), {}, ClusterConfig())


def test_a_group_that_is_empty_takes_either_kind():
    emptied = classic_group(generation=4)
    record = group_decisions.join(emptied, Member("ours", topics=("t",)), {}, ClusterConfig())
    assert record is not None
    group = emptied.replay(record)
    assert (group.generation, group.classic, list(group.members)) == (5, None, ["ours"])
    assert record.stored_version == 0


def test_members_are_removed_from_outside():
    group = classic_group(classic_member("a"), classic_member("b"))
    after = group.replay(group_decisions.remove(group, ["a", "x"], {}, "leave"))
    assert (after.generation, after.revision, after.state) == (3, 1, "PreparingRebalance")
    assert (after.classic.leader, after.last_removal) == ("b", 3)
    empty = after.replay(group_decisions.remove(after, ["b"], {}, "leave"))
    assert (empty.generation, empty.state, empty.classic.protocol_type) == (4, "Empty", "consumer")
    assert group_decisions.remove(empty, ["b"], {}, "leave") is None
    assert group_decisions.update_topics(group, {}) is None


def test_transactions_send_offsets_of_kafkas_clients():
    group = classic_group(classic_member("a"))
    sent = PendingOffsets("t", ProducerIdAndEpoch(1, 0), 3, "a", frozenset(partitions("t", 9)), 0)
    after = replayed(group.replay(group_decisions.send_offsets(group, sent)), group)
    assert (after.pending_offsets, after.classic) == ((sent,), group.classic)
    for wrong in (replace(sent, generation=2), replace(sent, member_id="x")):
        with pytest.raises(CommitFailedError):
            group_decisions.send_offsets(group, wrong)


@pytest.mark.parametrize(
    "change",
    [{"state": "Odd"}, {"state": "Empty"}, {"members": []}],
)
def test_a_state_that_does_not_fit_is_damage(change):
    part = classic_group(classic_member("a")).classic.to_part().model_copy(update=change)
    with pytest.raises(CorruptRecordError):
        ClassicGroup.of(part)


def test_bytes_that_are_not_base64_are_damage():
    part = classic_member("a").to_part().model_copy(update={"assignment": "%"})
    with pytest.raises(CorruptRecordError, match="base64"):
        ClassicMember.of(part)
