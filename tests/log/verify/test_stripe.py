"""Verification of a stripe: what is damaged, missing or left over, and what is not."""

from dataclasses import replace
from pathlib import Path

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster, ClusterVerifier
from spark_log.log import BatchAppend
from spark_log.log.producers import ProducerState
from spark_log.log.stripe import StripeDirectory, StripeEntry, StripeState
from spark_log.log.stripe.home import HomeTaker
from spark_log.log.stripe.home_marker import encode_home
from spark_log.log.verify import LogFindingKind, LogSeverity
from spark_log.record import EndTransactionMarker, ProducerAppend
from spark_log.util.clock import ManualClock
from tests.coordinator.storage_dates import dated_by
from tests.record.samples import numbered

HOUR_MS = 3_600_000


@pytest.fixture
def clock(monkeypatch):
    """The clock of the processes and of the storage."""
    clock = ManualClock()
    dated_by(clock, monkeypatch)
    return clock


@pytest.fixture
def cluster(tmp_path, clock):
    """A cluster with the topic ``t``, whose partitions 0 and 2 are in stripe 0."""
    root = str(tmp_path / "root")
    settings = {"stripes": 2, "flush.on.append": False}
    Admin(root).create_topics([NewTopic("t", 4, topic_configs=settings)])
    return Cluster(root, clock=clock)


def stripe_of(cluster):
    return cluster.stripe(cluster.topic("t"), 0)


def file_of(cluster, number, *, is_home=False):
    directory = stripe_of(cluster).directory
    return Path(cluster.root) / directory.file_path(number, is_home=is_home)


def append(cluster, *entries):
    """Append as one object."""
    results = stripe_of(cluster).appends.append(entries)
    assert all(hasattr(each, "last_offset") for each in results), results


def records(partition, first=0, count=2, *, producer_id=None, transactional=False):
    producer = None
    if producer_id is not None:
        producer = ProducerAppend(producer_id, 0, first, transactional)
    return StripeEntry(partition, BatchAppend(numbered(first, count), producer))


def findings(cluster, **how):
    """Return kind, severity and file of the findings of a new process."""
    verifier = ClusterVerifier(Cluster(cluster.root, clock=cluster.clock), ["t"], **how)
    return [
        (each.kind, each.severity, each.path.rpartition("/")[2]) for each in verifier.findings()
    ]


def problems(cluster):
    """Return kind, severity and file of the findings that are no notes, and all messages."""
    found = list(ClusterVerifier(Cluster(cluster.root, clock=cluster.clock), ["t"]).findings())
    return [
        (each.kind, each.severity, each.path.rpartition("/")[2])
        for each in found
        if each.severity is not LogSeverity.NOTE
    ], " ".join(each.message for each in found)


def name(number, suffix="stripe"):
    return f"{number:020d}.{suffix}"


@pytest.fixture
def stripe(cluster):
    """A stripe of two objects at home and one behind the marker, with all kinds of entries."""
    append(cluster, records(0, producer_id=7), records(2, producer_id=8, transactional=True))
    append(cluster, records(0, 2, producer_id=7), records(2))
    stripe_of(cluster).take_home()
    append(cluster, records(0, 4, producer_id=7), StripeEntry(2, EndTransactionMarker(8, 1, True)))
    return stripe_of(cluster)


class TestSound:
    def test_only_objects_that_are_at_home_are_noted(self, cluster, stripe):
        note = LogFindingKind.SPENT_OBJECT, LogSeverity.NOTE
        assert findings(cluster) == [(*note, name(0)), (*note, name(1))]

    def test_what_was_checked_is_counted(self, cluster, stripe):
        verifier = ClusterVerifier(Cluster(cluster.root, clock=cluster.clock), ["t"])
        list(verifier.findings())
        assert verifier.objects == 3
        assert verifier.records == 4 + 4 + 3  # at home of partition 0 and of 2, and behind
        done: list[int] = []
        again = ClusterVerifier(Cluster(cluster.root, clock=cluster.clock), ["t"])
        list(again.findings(done.append))
        assert sum(done) == verifier.size_bytes == verifier.total_bytes()

    def test_a_stripe_whose_objects_were_all_freed(self, cluster, stripe):
        stripe.take_home()
        for number in range(3):
            file_of(cluster, number).unlink()
        assert findings(cluster) == [
            (LogFindingKind.SPENT_OBJECT, LogSeverity.NOTE, name(2, "home"))
        ]

    def test_some_objects_below_the_marker_were_freed(self, cluster, stripe):
        file_of(cluster, 0).unlink()
        assert findings(cluster) == [(LogFindingKind.SPENT_OBJECT, LogSeverity.NOTE, name(1))]

    def test_objects_of_a_copy_that_went_on_from_a_marker(self, cluster, stripe):
        append(cluster, records(0, 6))
        stripe.take_home()
        file_of(cluster, 2, is_home=True).unlink()
        for number in (1, 2):
            file_of(cluster, number).unlink()
        assert {severity for _, severity, _ in findings(cluster)} == {LogSeverity.NOTE}

    def test_segments_at_home_whose_marker_was_not_put(self, cluster, stripe, monkeypatch):
        monkeypatch.setattr(HomeTaker, "put_marker", lambda self: None)
        stripe.take_home()
        assert {severity for _, severity, _ in findings(cluster)} == {LogSeverity.NOTE}

    def test_a_marker_may_lack_producers_that_had_expired(self, cluster, stripe, clock):
        state = stripe.directory.read_home(2)
        put_marker(cluster, StripeState(2, {0: ProducerState(4), 2: state.producers(2)}))
        assert problems(cluster)[0] == [
            (LogFindingKind.WRONG_HOME, LogSeverity.ERROR, name(2, "home"))
        ]
        clock.advance_ms(30 * 24 * HOUR_MS)
        put_marker(cluster, StripeState(2, {0: ProducerState(4), 2: state.producers(2)}))
        assert problems(cluster)[0] == []


class TestObjects:
    def test_a_damaged_record(self, cluster, stripe):
        path = file_of(cluster, 2)
        content = bytearray(path.read_bytes())
        at = content.index(b":4")
        content[at : at + 2] = b":5"
        path.write_bytes(content)
        found, message = problems(cluster)
        assert found == [(LogFindingKind.DAMAGED_OBJECT, LogSeverity.ERROR, name(2))]
        assert "checksum" in message

    def test_a_damaged_object_whose_records_are_at_home_is_a_warning(self, cluster, stripe):
        file_of(cluster, 1).write_bytes(b"x")
        found, _ = problems(cluster)
        assert found == [(LogFindingKind.DAMAGED_OBJECT, LogSeverity.WARNING, name(1))]

    def test_a_copy_of_another_object(self, cluster, stripe):
        append(cluster, records(2))
        file_of(cluster, 3).write_bytes(file_of(cluster, 2).read_bytes())
        found, message = problems(cluster)
        assert found == [(LogFindingKind.DAMAGED_OBJECT, LogSeverity.ERROR, name(3))]
        assert f"the same append as {name(2)}" in message

    def test_entries_of_another_stripe(self, cluster, stripe, monkeypatch):
        monkeypatch.setattr(StripeDirectory, "check_partition", lambda self, partition: None)
        append(cluster, records(1))
        found, message = problems(cluster)
        assert found == [(LogFindingKind.DAMAGED_OBJECT, LogSeverity.ERROR, name(3))]
        assert "has entries of partition 1, which is in stripe 1" in message

    def test_a_missing_object(self, cluster, stripe):
        append(cluster, records(0, 6))
        file_of(cluster, 2).unlink()
        found, _ = problems(cluster)
        assert found == [(LogFindingKind.MISSING_OBJECT, LogSeverity.ERROR, name(2))]

    def test_lost_last_objects_show_in_segments_at_home(self, cluster, stripe, monkeypatch):
        monkeypatch.setattr(HomeTaker, "put_marker", lambda self: None)
        stripe.take_home()
        file_of(cluster, 2).unlink()
        found, message = problems(cluster)
        assert set(found) == {(LogFindingKind.MISSING_OBJECT, LogSeverity.ERROR, "0")}
        assert "but segments at home reach offset 6" in message


class TestHome:
    def test_a_missing_segment(self, cluster, stripe):
        home = cluster.replica_log(cluster.topic("t"), 0, 0)
        for file in list(home.files.store.list(home.directory)):
            home.files.store.delete(file.path)
        found, message = problems(cluster)
        assert (LogFindingKind.MISSING_SEGMENT, LogSeverity.ERROR, "t-0") in found
        assert "home marker 2 of stripe 0 says that they reach 4" in message

    def test_a_damaged_marker(self, cluster, stripe):
        path = file_of(cluster, 2, is_home=True)
        path.write_bytes(path.read_bytes()[:-20])
        found, _ = problems(cluster)
        assert found == [(LogFindingKind.DAMAGED_HOME, LogSeverity.ERROR, name(2, "home"))]

    def test_a_marker_with_another_end(self, cluster, stripe):
        state = stripe.directory.read_home(2)
        state.producers(0).offset = 3
        put_marker(cluster, state)
        found, message = problems(cluster)
        assert (LogFindingKind.WRONG_HOME, LogSeverity.ERROR, name(2, "home")) in found
        assert "says that partition 0 ends at offset 3, but with the objects before it" in message

    def test_a_marker_with_another_producer(self, cluster, stripe):
        state = stripe.directory.read_home(2)
        ((_, entry),) = state.producers(0).entries()
        other = ProducerState(4, [(7, replace(entry, epoch=3))])
        put_marker(cluster, StripeState(2, {0: other, 2: state.producers(2)}))
        found, message = problems(cluster)
        assert found == [(LogFindingKind.WRONG_HOME, LogSeverity.ERROR, name(2, "home"))]
        assert "has another state of producer 7 in partition 0" in message

    def test_a_marker_without_an_open_transaction(self, cluster, stripe):
        state = stripe.directory.read_home(2)
        entries = state.producers(2).entries()
        closed = [(key, replace(entry, first_transaction_offset=None)) for key, entry in entries]
        put_marker(cluster, StripeState(2, {0: state.producers(0), 2: ProducerState(4, closed)}))
        found, message = problems(cluster)
        assert found == [(LogFindingKind.WRONG_HOME, LogSeverity.ERROR, name(2, "home"))]
        assert "has other open transactions in partition 2" in message


def put_marker(cluster, state):
    """Put another home marker in the place of number 2."""
    topic_id = cluster.topic("t").topic_id
    data = encode_home(state, topic_id=topic_id, stripe=0, now_us=0, expiration_ms=1 << 40)
    directory = stripe_of(cluster).directory
    directory.store.put(directory.file_path(2, is_home=True), data)


class TestLeftovers:
    def test_an_unknown_file(self, cluster, stripe):
        file_of(cluster, 0).with_name("notes.txt").write_text("x")
        found, _ = problems(cluster)
        assert found == [(LogFindingKind.UNKNOWN_FILE, LogSeverity.WARNING, "notes.txt")]

    def test_a_repair_removes_what_is_below_an_old_marker(self, cluster, stripe, clock):
        clock.advance_ms(HOUR_MS)
        before = cluster.partition_log(cluster.topic("t"), 0).observe().log_end_offset
        assert findings(cluster, repair=True) == [
            (LogFindingKind.SPENT_OBJECT, LogSeverity.WARNING, name(0)),
            (LogFindingKind.SPENT_OBJECT, LogSeverity.WARNING, name(1)),
        ]
        assert not file_of(cluster, 0).exists()
        assert findings(cluster) == []
        after = Cluster(cluster.root)
        assert after.partition_log(after.topic("t"), 0).observe().log_end_offset == before

    def test_a_repair_leaves_what_readers_may_still_use(self, cluster, stripe):
        findings(cluster, repair=True)
        assert file_of(cluster, 0).exists()
