"""Groups that make no progress, and committed offsets outside of the log."""

from pathlib import Path

import pytest

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import (
    STABLE,
    ClassicGroup,
    ClassicMember,
    GroupCoordinator,
    GroupLog,
    OffsetsTable,
)
from spark_log.doctor import CheckStatus, Severity
from tests.doctor.support import append

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
MINUTE_MS = 60_000


def commit(cluster, group="g", *, generation=0, member_id="", **offsets):
    """Commit offsets: ``t0=5`` is offset 5 in partition 0."""
    OffsetsTable(cluster).commit(
        group,
        {TopicPartition("t", int(name[1:])): OffsetAndMetadata(at) for name, at in offsets.items()},
        generation=generation,
        member_id=member_id,
    )


@pytest.fixture
def member(cluster):
    """The only member of group g."""
    coordinator = GroupCoordinator(cluster, "g")
    coordinator.join(["t"], client_id="c")
    return coordinator


def beat(member, patient, minutes):
    """Let minutes pass in which the member sends heartbeats."""
    for _ in range(minutes):
        patient.clock.advance_ms(MINUTE_MS)
        member.heartbeat()


def test_members_that_commit_nothing(patient, cluster, member):
    append(cluster, b"1", b"2", b"3")
    commit(cluster, generation=1, member_id=member.member_id, t0=1, t1=0)
    beat(member, patient, 10)
    assert patient.findings("groups") == []
    beat(member, patient, 1)
    (found,) = patient.findings("groups")
    assert (found.problem.code, found.severity) == ("group-stuck", Severity.ERROR)
    assert found.subject.text == "group g"
    assert (
        "have committed nothing for 11 min in t-0 (2 records, the first has waited for 11 min)"
        in (found.message)
    )
    assert member.member_id in found.message
    assert found.command == "spark-log groups describe g"
    commit(cluster, generation=1, member_id=member.member_id, t0=2)
    assert patient.findings("groups") == []


def test_a_member_that_waited_for_records_is_not_stuck_when_some_come(patient, cluster, member):
    append(cluster, b"1")
    commit(cluster, generation=1, member_id=member.member_id, t0=1)
    beat(member, patient, 60)
    append(cluster, b"2", age_ms=365 * 24 * 60 * MINUTE_MS)  # of long ago, but it just came
    beat(member, patient, 5)
    assert patient.findings("groups") == []


def test_members_whose_processes_have_ended(patient, cluster, member):
    append(cluster, b"1")
    commit(cluster, generation=1, member_id=member.member_id, t0=0)
    beat(member, patient, 1)
    patient.clock.advance_ms(11 * MINUTE_MS)
    (found,) = patient.findings("groups")
    assert found.problem.code == "group-members-gone"
    assert found.message.startswith("its 1 members have sent no heartbeat for 11 min")
    assert "unread: t-0 (1 records" in found.message


def test_kafkas_clients_keep_no_heartbeats_in_the_root(patient, cluster):
    """A gateway has them in memory; if all gateways ended, the members may still be in the log."""
    member = ClassicMember("m", None, "c", "/h", 60_000, 10_000, (("range", b""),))
    classic = ClassicGroup("consumer", STABLE, "m", {"m": member})
    GroupLog(cluster.store, "g", cluster.clock).commit(
        lambda group: group.with_classic(classic, "range", 1).to_record("join", ("m",), "")
    )
    append(cluster, b"1")
    commit(cluster, generation=1, member_id="m", t0=1)
    patient.clock.advance_ms(60 * MINUTE_MS)
    assert patient.findings("groups") == []


def test_no_members_and_a_lag_that_grows(patient, cluster):
    append(cluster, b"1")
    commit(cluster, t0=0)
    patient.clock.advance_ms(11 * MINUTE_MS)
    assert patient.findings("groups") == [], "the lag does not grow"
    append(cluster, b"2")
    (found,) = patient.findings("groups")
    assert (found.problem.code, found.severity) == ("group-without-members", Severity.WARNING)
    patient.clock.advance_ms(25 * 60 * MINUTE_MS)
    assert patient.findings("groups") == [], "nobody writes to the topic any more"


def test_a_reader_without_membership_that_commits_is_healthy(patient, cluster):
    append(cluster, b"1", b"2", b"3")
    for offset in range(3):
        commit(cluster, t0=offset)
        patient.clock.advance_ms(9 * MINUTE_MS)
        append(cluster, b"more")
        assert patient.findings("groups") == []


def test_a_rebalance_that_does_not_end(patient, cluster, member):
    other = GroupCoordinator(cluster, "g")
    other.join(["t"], client_id="d")
    for _ in range(10):
        beat(member, patient, 1)
        other.heartbeat()
    assert patient.findings("groups") == []
    beat(member, patient, 1)
    other.heartbeat()
    (found,) = patient.findings("groups")
    assert (found.problem.code, found.severity) == ("rebalance-stuck", Severity.ERROR)
    assert f"have waited for 11 min to be released by {member.member_id}" in found.message


def test_committed_offsets_outside_of_the_log(patient, cluster):
    append(cluster, b"1", b"2", b"3")
    append(cluster, b"1", partition=1)
    commit(cluster, "slow", t0=1)
    commit(cluster, "ahead", t1=5)
    Admin(patient.root).delete_records({P0: 2})
    found = {each.problem.code: each for each in patient.findings("groups")}
    assert found.keys() == {"offset-before-start", "offset-after-end"}
    before, after = found["offset-before-start"], found["offset-after-end"]
    assert (before.severity, after.severity) == (Severity.WARNING, Severity.ERROR)
    assert before.message == (
        "its committed offset in t-0 is 1, and the log starts at 2: 1 offsets were deleted before "
        "it read them, and 1 are left to read"
    )
    assert before.command == "spark-log groups reset-offsets slow --topic t:0 --to-earliest"
    assert after.subject.group == "ahead"
    assert "is 5, and the log ends at 1" in after.message


def test_a_group_before_the_start_that_does_not_read_what_is_left(patient, cluster):
    append(cluster, b"1", b"2", b"3")
    commit(cluster, t0=0)
    Admin(patient.root).delete_records({P0: 1})
    patient.clock.advance_ms(11 * MINUTE_MS)
    append(cluster, b"4")
    found = {each.problem.code: each for each in patient.findings("groups")}
    assert found.keys() == {"offset-before-start", "group-without-members"}
    assert "t-0 (3 records, the first has waited for" in found["group-without-members"].message
    Admin(patient.root).delete_records({P0: 4})
    (only,) = patient.findings("groups")
    assert only.problem.code == "offset-before-start"
    assert "4 offsets were deleted before it read them, and 0 are left to read" in only.message


def test_only_the_wanted_groups_are_looked_at(patient, cluster):
    append(cluster, b"1")
    commit(cluster, "a", t0=5)
    commit(cluster, "b", t0=5)
    found = patient.findings("groups", groups=["b"])
    assert [each.subject.group for each in found] == ["b"]
    assert patient.findings("groups", groups=["b"], topics=["t"]) == found
    doctor = patient.doctor("groups", groups=["c"])
    assert list(doctor.findings()) == []
    assert doctor.results["groups"].status is CheckStatus.SKIPPED
    assert doctor.results["groups"].reason == "there is no group 'c'"


def test_a_damaged_group_is_a_finding_and_the_others_are_looked_at(patient, cluster, member):
    append(cluster, b"1")
    commit(cluster, "ahead", t0=5)
    last = max(Path(patient.root).glob("__consumer_groups/g/*.log"))
    last.write_bytes(last.read_bytes()[:-20])
    found = {each.problem.code: each for each in patient.findings("groups")}
    assert found.keys() == {"group-damaged", "offset-after-end"}
    assert found["group-damaged"].subject.group == "g"
    assert found["group-damaged"].command == "spark-log groups repair"


def test_records_in_a_stripe_are_in_the_log_that_a_group_reads(patient):
    Admin(patient.root).create_topics([NewTopic("orders", topic_configs={"stripes": 1})])
    append(Cluster(patient.root, clock=patient.clock), "a", "b", topic="orders")
    offsets = {TopicPartition("orders", 0): OffsetAndMetadata(2)}
    Admin(patient.root).alter_group_offsets("readers", offsets)
    assert patient.codes("groups") == []
