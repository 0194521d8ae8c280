"""Offsets of a group in transactions, with the real state log, group's log and offsets table."""

from contextlib import suppress
from unittest.mock import patch

import pytest

from spark_log import Admin
from spark_log.cluster import Cluster
from spark_log.coordinator import (
    TOMBSTONE,
    GroupCoordinator,
    GroupLog,
    OffsetsTable,
    Row,
    StandaloneCommits,
    TransactionalOffsets,
    transaction_cleaner,
)
from spark_log.coordinator.group.member_commits import MemberCommits
from spark_log.errors import (
    CommitFailedError,
    IllegalGenerationError,
    StorageError,
    UnknownOutcomeError,
    UnstableOffsetCommitError,
)
from spark_log.transaction import (
    TransactionCoordinator,
    TransactionOffset,
    TransactionState,
)
from spark_log.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

P0, P1, P3 = (TopicPartition("t", number) for number in (0, 1, 3))
TIMEOUT_MS = 60_000


class Producer:
    """A producer with a ``transactional.id``: one process, with its own open logs."""

    def __init__(self, cluster, name="tx"):
        self.cluster, self.name = cluster, name
        self.table = OffsetsTable(cluster)
        self.transactions = TransactionalOffsets(cluster, self.table)
        self.coordinator = TransactionCoordinator(
            cluster, name, commit_offsets=self.transactions.commit_offsets, markers_at_once=1
        )
        self.identity = self.coordinator.initialize(TIMEOUT_MS)
        self.offsets = {}

    def send(self, metadata, offsets):
        """Send offsets (partition → offset) of a group to the transaction."""
        topic_id = self.cluster.topic("t").topic_id
        self.coordinator.register(self.identity, groups=[metadata.group_id])
        self.transactions.send(self.coordinator.state, self.identity, metadata, list(offsets))
        for tp, offset in offsets.items():
            self.offsets[tp] = TransactionOffset(
                metadata.group_id, tp.topic, topic_id, tp.partition, offset
            )

    def decide(self):
        """Decide to commit, and die."""
        with patch.object(TransactionCoordinator, "_apply_decision"):
            self.commit()

    def commit(self):
        offsets, self.offsets = self.offsets.values(), {}
        self.identity = self.coordinator.commit(self.identity, offsets=tuple(offsets))

    def abort(self):
        self.offsets = {}
        self.identity = self.coordinator.abort(self.identity)


class Member:
    """A member of group ``g``, in a process of its own."""

    def __init__(self, cluster, client_id="m", instance_id=None):
        self.cluster = Cluster(cluster.root, clock=cluster.clock)
        self.table = OffsetsTable(self.cluster)
        self.transactions = TransactionalOffsets(self.cluster, self.table)
        self.coordinator = GroupCoordinator(self.cluster, "g")
        self.coordinator.join(["t"], client_id=client_id, instance_id=instance_id)
        self.commits = MemberCommits(
            self.table, "g", self.coordinator.status, self.refresh, self.transactions.settle
        )

    def refresh(self):
        self.coordinator.describe()
        return self.coordinator.status()

    def begin(self, *partitions):
        begun = self.commits.begin(partitions)
        return {tp: each and each.offset for tp, each in begun.items()}

    def commit(self, offset, *partitions):
        ids = {"t": self.cluster.topic("t").topic_id}
        self.commits.commit({each: OffsetAndMetadata(offset) for each in partitions}, ids)

    def expires(self):
        self.coordinator.remove([self.coordinator.member_id])

    @property
    def metadata(self):
        status = self.coordinator.status()
        return ConsumerGroupMetadata("g", status.generation, status.member_id)


@pytest.fixture
def producer(cluster):
    return Producer(cluster)


@pytest.fixture
def member(cluster):
    member = Member(cluster)
    member.begin(P0, P1)
    return member


def heir(cluster, member):
    """The next owner of all partitions."""
    member.expires()
    return Member(cluster, "heir")


def committed(cluster, group="g"):
    found = OffsetsTable(cluster).fetch(group)
    return {tp: each.offset for tp, each in found.items()}


def pending(cluster):
    return GroupLog.view(cluster.store, "g", cluster.clock).state.pending_offsets


class TestSending:
    def test_nothing_is_committed_before_the_decision(self, cluster, producer, member):
        member.commit(3, P0)
        producer.send(member.metadata, {P0: 7})
        assert committed(cluster) == {P0: 3}
        producer.commit()
        assert committed(cluster) == {P0: 7}
        row = OffsetsTable(cluster).fetch("g")[P0]
        assert (row.member_id, row.generation) == (
            member.coordinator.member_id,
            member.metadata.generation_id,
        )

    def test_an_aborted_transaction_commits_nothing(self, cluster, producer, member):
        producer.send(member.metadata, {P0: 7})
        producer.abort()
        assert committed(cluster) == {}

    def test_does_not_rebalance(self, cluster, producer, member):
        before = member.coordinator.status()
        producer.send(member.metadata, {P0: 7})
        assert member.refresh() == before
        assert pending(cluster)[0].partitions == {P0}

    def test_again_appends_nothing(self, cluster, producer, member):
        producer.send(member.metadata, {P0: 7, P1: 7})
        before = GroupLog.view(cluster.store, "g", cluster.clock).state.revision
        producer.send(member.metadata, {P0: 9})
        assert GroupLog.view(cluster.store, "g", cluster.clock).state.revision == before
        producer.commit()
        assert committed(cluster) == {P0: 9, P1: 7}

    def test_of_a_member_that_expired_is_refused(self, cluster, producer, member):
        metadata = member.metadata
        heir(cluster, member)
        with pytest.raises(CommitFailedError, match=r"not a member any more.*Abort") as caught:
            producer.send(metadata, {P0: 7})
        assert not caught.value.retriable
        assert pending(cluster) == ()

    def test_of_a_member_of_an_older_generation_is_refused(self, cluster, producer, member):
        metadata = member.metadata
        Member(cluster, "other")
        with pytest.raises(CommitFailedError, match="generation 1 has passed: 2 has started"):
            producer.send(metadata, {P0: 7})
        member.refresh()
        producer.send(member.metadata, {P0: 7})

    def test_of_what_the_member_does_not_have_is_refused(self, cluster, producer, member):
        other = Member(cluster, "other")
        status = member.refresh()
        member.coordinator.release(status.revoking)
        other.refresh()
        with pytest.raises(CommitFailedError, match="does not have t-3"):
            producer.send(member.metadata, {P0: 1, P3: 1})

    def test_of_a_replaced_static_member_is_refused(self, cluster, producer, member):
        first = Member(cluster, "s", instance_id="i")
        metadata = first.metadata._replace(group_instance_id="i")
        Member(cluster, "s", instance_id="i")
        with pytest.raises(CommitFailedError, match=r"instance\.id 'i'"):
            producer.send(metadata, {P0: 7})

    def test_waits_for_another_transaction_that_commits_the_same_partition(
        self, cluster, producer, member
    ):
        """Else that one's row would seem newer than these offsets."""
        other = Producer(cluster, "other")
        other.send(member.metadata, {P0: 7})
        producer.send(member.metadata, {P1: 1})
        with pytest.raises(UnstableOffsetCommitError, match="transaction of 'other'"):
            producer.send(member.metadata, {P0: 9})
        other.decide()
        producer.send(member.metadata, {P0: 9})
        producer.commit()
        assert committed(cluster) == {P0: 9, P1: 1}

    def test_without_membership_needs_a_group_without_members(self, cluster, producer):
        producer.send(ConsumerGroupMetadata("g"), {P0: 7})
        producer.commit()
        assert committed(cluster) == {P0: 7}
        member = Member(cluster)
        with pytest.raises(CommitFailedError, match="has members"):
            producer.send(ConsumerGroupMetadata("g"), {P0: 9})
        assert member.begin(P0) == {P0: 7}

    def test_a_record_with_pending_offsets_is_of_a_newer_version(self, cluster, producer, member):
        producer.send(member.metadata, {P0: 7})
        log = GroupLog(cluster.store, "g", cluster.clock)
        log.replay()
        assert b'"version":1' in log.state.to_record("x", (), "").to_json()
        assert (
            b'"version":0'
            in Member(cluster)
            .coordinator.describe()
            .next_generation(pending_offsets=())
            .to_record("x", (), "")
            .to_json()
        )

    def test_the_last_ones_of_a_transactional_id_are_dropped_by_the_next(
        self, cluster, producer, member
    ):
        for offset in range(5):
            producer.send(member.metadata, {P0: offset})
            producer.commit()
        assert len(pending(cluster)) == 1


class TestRollingForward:
    def test_by_the_next_owner_of_a_partition(self, cluster, producer, member):
        member.commit(3, P0, P1)
        producer.send(member.metadata, {P0: 7})
        producer.decide()
        assert committed(cluster) == {P0: 3, P1: 3}
        assert heir(cluster, member).begin(P0, P1) == {P0: 7, P1: 3}
        assert producer.coordinator.refresh().state is TransactionState.COMPLETE_COMMIT
        assert pending(cluster) == ()

    def test_by_a_cleaner(self, cluster, clock, producer, member):
        producer.send(member.metadata, {P0: 7})
        producer.decide()
        (cleaned,) = transaction_cleaner(cluster).clean()
        assert (cleaned.action, cleaned.error) == ("finish", None)
        assert committed(cluster) == {P0: 7}

    def test_by_the_next_producer_with_the_transactional_id(self, cluster, producer, member):
        producer.send(member.metadata, {P0: 7})
        producer.decide()
        Producer(cluster)
        assert committed(cluster) == {P0: 7}

    def test_is_not_refused_by_the_fence_of_other_partitions(self, cluster, producer, member):
        producer.send(member.metadata, {P0: 7})
        producer.decide()
        other = Member(cluster, "other")
        member.coordinator.release(member.refresh().revoking)
        other.refresh()
        other.begin(P3)
        other.commit(5, P3)
        producer.coordinator.complete()
        assert committed(cluster) == {P0: 7, P3: 5}
        with pytest.raises(IllegalGenerationError):  # the fence has not gone back
            OffsetsTable(cluster).fence("g", 2)

    def test_late_and_again_changes_nothing(self, cluster, producer, member):
        """A finisher stood still while the group went on."""
        producer.send(member.metadata, {P0: 7})
        producer.decide()
        late = producer.coordinator.state
        rows = OffsetsTable(cluster).history("g").num_rows
        for _ in range(3):
            producer.transactions.commit_offsets(late)
        assert OffsetsTable(cluster).history("g").num_rows == rows + 1
        member.commit(9, P0)
        producer.transactions.commit_offsets(late)
        assert committed(cluster) == {P0: 9}
        after = heir(cluster, member)
        after.begin(P0)
        after.commit(11, P0)
        producer.transactions.commit_offsets(late)
        assert committed(cluster) == {P0: 11}

    def test_of_an_earlier_transaction_changes_nothing_of_a_later_one(
        self, cluster, producer, member
    ):
        producer.send(member.metadata, {P0: 7})
        producer.decide()
        late = producer.coordinator.state
        producer.coordinator.complete()
        producer.send(member.metadata, {P0: 9})
        producer.transactions.commit_offsets(late)
        producer.commit()
        producer.transactions.commit_offsets(late)
        assert committed(cluster) == {P0: 9}

    def test_does_not_pass_over_a_commit_that_came_after_the_offsets_were_sent(
        self, cluster, producer, member
    ):
        producer.send(member.metadata, {P0: 7, P1: 7})
        member.commit(9, P0)
        producer.commit()
        assert committed(cluster) == {P0: 9, P1: 7}
        assert heir(cluster, member).begin(P0, P1) == {P0: 9, P1: 7}

    def test_what_is_sent_again_counts_from_then_on(self, cluster, producer, member):
        producer.send(member.metadata, {P0: 7, P1: 7})
        member.commit(9, P0, P1)
        producer.send(member.metadata, {P0: 11})
        producer.commit()
        assert committed(cluster) == {P0: 11, P1: 9}

    def test_by_a_process_that_stood_still_for_long_is_refused(
        self, cluster, clock, producer, member, monkeypatch
    ):
        """Deletions that came meanwhile may have been compacted away."""
        producer.send(member.metadata, {P0: 7})
        producer.decide()
        replay = GroupLog.replay

        def replay_and_stand_still(log):
            found = replay(log)
            clock.advance_ms(3_600_000)
            return found

        with monkeypatch.context() as patched:
            patched.setattr(GroupLog, "replay", replay_and_stand_still)
            with pytest.raises(CommitFailedError, match="stood still"):
                producer.transactions.commit_offsets(producer.coordinator.state)
        producer.coordinator.complete()
        assert committed(cluster) == {P0: 7}

    def test_of_participants_that_do_not_count_is_left_out(self, cluster, producer, member):
        """Two tasks of a job send offsets; the driver counts one of them."""
        owner, coordinator = producer.identity, producer.coordinator
        topic_id = cluster.topic("t").topic_id
        tasks = [coordinator.join(owner, groups=["g"]) for _ in range(2)]
        for task, tp in zip(tasks, (P0, P1), strict=True):
            producer.transactions.send(coordinator.state, task, member.metadata, [tp])
        offsets = [TransactionOffset("g", "t", topic_id, number, 5) for number in (0, 1)]
        coordinator.commit(owner, [tasks[0]], offsets)
        assert committed(cluster) == {P0: 5}

    def test_a_deletion_while_it_is_open_counts(self, cluster, producer):
        StandaloneCommits(cluster, OffsetsTable(cluster), "g").commit({P1: OffsetAndMetadata(1)})
        producer.send(ConsumerGroupMetadata("g"), {P0: 7})
        with Admin(cluster.root) as admin:
            admin.delete_groups(["g"])
        producer.commit()
        assert committed(cluster) == {}

    def test_an_expiry_that_was_decided_before_does_not_count(self, cluster, producer):
        """It had looked at the group before the offsets were sent."""
        table = OffsetsTable(cluster)
        StandaloneCommits(cluster, table, "g").commit({P0: OffsetAndMetadata(1)})
        generation = table.generation("g")
        producer.send(ConsumerGroupMetadata("g"), {P0: 7})
        table.change(
            "g", lambda found: [Row(key, TOMBSTONE) for key in found], generation=generation
        )
        assert committed(cluster) == {}
        producer.commit()
        assert committed(cluster) == {P0: 7}


class TestBeginning:
    def test_waits_for_an_undecided_transaction(self, cluster, producer, member):
        member.commit(3, P0, P1)
        producer.send(member.metadata, {P0: 7})
        after = heir(cluster, member)
        with pytest.raises(UnstableOffsetCommitError, match="t-0 may be committed") as caught:
            after.begin(P0)
        assert caught.value.retriable
        assert (caught.value.group_id, caught.value.transactional_id) == ("g", "tx")
        assert after.begin(P1) == {P1: 3}
        producer.commit()
        assert after.begin(P0) == {P0: 7}

    def test_ignores_an_aborted_one(self, cluster, producer, member):
        member.commit(3, P0)
        producer.send(member.metadata, {P0: 7})
        producer.abort()
        assert heir(cluster, member).begin(P0) == {P0: 3}
        assert pending(cluster) == ()

    def test_aborts_one_that_it_has_seen_for_its_timeout(self, cluster, clock, producer, member):
        member.commit(3, P0)
        producer.send(member.metadata, {P0: 7})
        after = heir(cluster, member)
        clock.advance_ms(2 * TIMEOUT_MS)  # nobody has looked
        for _ in range(2):
            with pytest.raises(UnstableOffsetCommitError):
                after.begin(P0)
            clock.advance_ms(TIMEOUT_MS / 2)
        assert after.begin(P0) == {P0: 3}
        assert producer.coordinator.refresh().state is TransactionState.COMPLETE_ABORT

    def test_of_one_member_for_another_group_does_not_wait(self, cluster, producer):
        producer.send(ConsumerGroupMetadata("other"), {P0: 7})
        assert Member(cluster).begin(P0) == {P0: None}

    def test_with_a_marker_that_cannot_be_put(self, cluster, producer, member, monkeypatch):
        """The offsets count all the same, and the pending offsets stay until it is complete."""
        producer.send(member.metadata, {P0: 7})
        producer.decide()
        after = heir(cluster, member)

        def put_markers(*_args, **_settings):
            raise StorageError("no marker")

        with monkeypatch.context() as patched:
            patched.setattr("spark_log.transaction.coordinator.put_markers", put_markers)
            assert after.begin(P0) == {P0: 7}
        assert after.cluster.suppressed.counts() == {"transaction end": 1}
        assert len(pending(cluster)) == 1
        after.commit(9, P0)
        assert after.begin(P0) == {P0: 9}
        assert pending(cluster) == ()

    def test_of_a_transactional_id_that_is_forgotten(self, cluster, producer, member):
        producer.send(member.metadata, {P0: 7})
        producer.commit()
        producer.coordinator.forget(producer.coordinator.refresh().revision)
        again = Producer(cluster)
        again.send(ConsumerGroupMetadata("other"), {P0: 1})
        assert heir(cluster, member).begin(P0) == {P0: 7}


def test_a_send_whose_answer_is_lost_is_found(cluster, producer, member, monkeypatch):
    append = GroupLog._append  # noqa: SLF001 - the answer is lost behind it

    def append_and_lose(log, record):
        append(log, record)
        raise UnknownOutcomeError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(GroupLog, "_append", append_and_lose)
        with suppress(UnknownOutcomeError):
            producer.send(member.metadata, {P0: 7})
    producer.send(member.metadata, {P0: 7})
    assert [each.partitions for each in pending(cluster)] == [{P0}]
    producer.commit()
    assert committed(cluster) == {P0: 7}
