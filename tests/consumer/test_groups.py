"""Consumers of one group share partitions, and continue at committed offsets."""

import gc
import threading
import weakref

import pytest

from spark_log import (
    Admin,
    CommitFailedError,
    Consumer,
    ConsumerGroupMetadata,
    ConsumerRebalanceListener,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
    WakeupError,
)
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.coordinator.group.member import GroupMember
from spark_log.errors import StorageError
from spark_log.types import ConsumerRecord
from spark_log.util.clock import ManualClock
from tests.consumer.support import (
    PATIENCE_MS,
    T0,
    THREE,
    Notes,
    append,
    numbered,
    poll_until,
    read_values,
    settle,
)
from tests.waiting import wait_until

ALL = set(THREE)


def committed(root):
    found = OffsetsTable(Cluster(root)).fetch("g")
    return {partition: each.offset for partition, each in found.items()}


def expire(root, consumer):
    """Remove a consumer from its group, as other members expire it."""
    member_id = consumer.group_metadata().member_id
    GroupCoordinator(Cluster(root), "g").remove([member_id])


def fill(root, count=5):
    for partition in THREE:
        append(root, numbered(0, count), to=partition)


class TestSharing:
    def test_two_share_the_partitions_and_read_each_record_once(self, root, join):
        fill(root)
        a, b = join(), join()
        shares = settle({a: 2, b: 1})
        assert shares[0] | shares[1] == ALL
        for consumer, share in zip((a, b), shares, strict=True):
            consumer.seek_to_beginning()
            assert set(poll_until(consumer, 5 * len(share))) == share

    def test_three_have_one_each_and_hand_over_when_they_close(self, join):
        a, b, c = join(), join(), join()
        assert set().union(*settle({a: 1, b: 1, c: 1})) == ALL
        b.close()
        assert set().union(*settle({a: 2, c: 1})) == ALL
        a.close()
        assert settle({c: 3}) == [ALL]

    def test_a_consumer_more_than_partitions_waits_for_its_turn(self, root, join):
        append(root, numbered(0, 3))
        a = join("t")
        settle({a: 1})
        b = join("t")
        settle({a: 1, b: 0})
        a.close()
        assert read_values(b, 3) == numbered(0, 3)

    def test_one_that_waits_in_poll_is_told_of_its_turn(self, root, join):
        append(root, numbered(0, 3))
        a, b = join("t"), join("t")
        settle({a: 1, b: 0})
        found = []
        waits = threading.Thread(target=lambda: found.append(b.poll(PATIENCE_MS)), daemon=True)
        waits.start()
        a.close()
        waits.join(PATIENCE_MS / 1000)
        assert len(found[0][T0]) == 3

    def test_other_groups_and_those_without_one_have_everything(self, root, join, open_consumer):
        settle({join(): 3})
        for other in (open_consumer("three"), open_consumer("three", group_id="other")):
            other.poll()
            assert other.assignment() == ALL

    def test_partitions_that_are_assigned_by_hand_are_not_shared(self, join, open_consumer):
        settle({join(): 3})
        other = open_consumer(group_id="g")
        other.assign(THREE)
        other.poll()
        assert other.assignment() == ALL

    def test_who_unsubscribes_gives_up_its_share_and_may_come_back(self, join):
        a, b = join(), join()
        settle({a: 2, b: 1})
        a.unsubscribe()
        assert a.assignment() == set()
        settle({b: 3})
        a.subscribe(["three"])
        settle({a: 2, b: 1})

    def test_each_reads_only_topics_that_it_subscribes_to(self, join):
        a, b = join("t"), join("t", "three")
        assert settle({a: 1, b: 3}) == [{T0}, ALL]

    def test_who_subscribes_to_something_else_hands_over(self, join):
        a, b = join(), join()
        settle({a: 2, b: 1})
        a.subscribe(["t"])
        assert settle({a: 1, b: 3}) == [{T0}, ALL]

    def test_new_partitions_are_shared_too(self, root, join):
        a, b = join(), join()
        settle({a: 2, b: 1})
        Admin(root).create_partitions({"three": 6})
        shares = settle({a: 3, b: 3})
        assert set().union(*shares) == {TopicPartition("three", number) for number in range(6)}

    def test_a_pattern_takes_what_matches_now_and_later(self, root, join):
        a, b = join(pattern="th.*e"), join(pattern="th.*e")
        settle({a: 2, b: 1})
        Admin(root).create_topics([NewTopic("there", 2), NewTopic("other", 2)])
        shares = settle({a: 3, b: 2})
        assert {partition.topic for share in shares for partition in share} == {"three", "there"}

    def test_a_topic_that_is_created_again_is_read_from_its_beginning(self, root, join):
        append(root, numbered(0, 5))
        notes = Notes()
        a = join("t", listener=notes)
        read_values(a, 5)
        a.commit()
        Admin(root).delete_topics(["t"])
        Admin(root).create_topics([NewTopic("t")])
        append(root, [b"another"])
        found: list[ConsumerRecord] = []
        while not found:
            found = a.poll(PATIENCE_MS).get(T0, [])
        assert [record.value for record in found] == [b"another"]
        assert notes.told == [("assigned", {T0}), ("lost", {T0}), ("assigned", {T0})]

    def test_what_the_group_does_not_allow_is_said_by_poll(self, join, monkeypatch):
        settle({join(): 3})
        other = join(partition_assignment_strategy="sticky")
        with pytest.raises(InconsistentGroupProtocolError, match="sticky"):
            other.poll()
        with monkeypatch.context() as patch:
            patch.setattr(
                GroupMember,
                "join",
                lambda *_, **__: (_ for _ in ()).throw(
                    GroupMaxSizeReachedError("the group is full")
                ),
            )
            with pytest.raises(GroupMaxSizeReachedError):
                join().poll()


class TestPositions:
    def test_a_new_consumer_goes_on_from_what_was_committed(self, root, join):
        append(root, numbered(0, 10))
        a = join("t")
        a.poll(PATIENCE_MS, max_records=4)
        a.commit()
        a.poll(PATIENCE_MS, max_records=4)
        a.close()
        assert read_values(join("t"), 6) == numbered(4, 10)

    def test_what_was_consumed_is_committed_by_itself_before_it_goes_to_another(self, root, join):
        fill(root)
        a = join(enable_auto_commit=True)
        poll_until(a, 15)
        b = join(enable_auto_commit=True)
        settle({a: 2, b: 1})
        assert set(committed(root)) == ALL
        assert {b.position(partition) for partition in b.assignment()} == {5}

    def test_who_leaves_commits_by_itself(self, root, join):
        append(root, numbered(0, 5))
        with join("t", enable_auto_commit=True) as a:
            read_values(a, 5)
        assert committed(root) == {T0: 5}

    def test_commits_under_way_take_effect_before_the_partition_goes(self, root, join):
        fill(root)
        a = join()
        poll_until(a, 15)
        b = join()
        b.poll()
        futures = [a.commit_async({each: OffsetAndMetadata(3)}) for each in THREE]
        settle({a: 2, b: 1})
        assert [future.exception(timeout=0) for future in futures] == [None] * 3
        assert set(committed(root).values()) == {3}

    def test_a_commit_before_the_first_poll_fails(self, root, join):
        a = join()
        with pytest.raises(CommitFailedError, match="call poll"):
            a.commit({THREE[0]: OffsetAndMetadata(1)})
        assert committed(root) == {}

    def test_a_commit_of_what_another_has_fails(self, root, join):
        a, b = join(), join()
        share = settle({a: 2, b: 1})[1]
        with pytest.raises(CommitFailedError, match="another"):
            a.commit({tp: OffsetAndMetadata(1) for tp in share})
        assert committed(root) == {}

    def test_a_zombies_commit_fails_and_the_next_one_goes_on_at_the_right_place(self, root, join):
        append(root, numbered(0, 10))
        notes = Notes()
        a = join("t", listener=notes)
        a.poll(PATIENCE_MS, max_records=3)
        a.commit()
        a.poll(PATIENCE_MS, max_records=4)
        expire(root, a)
        b = join("t")
        assert read_values(b, 7) == numbered(3, 10)
        with pytest.raises(CommitFailedError, match="nothing was committed"):
            a.commit()
        assert committed(root) == {T0: 3}
        b.commit()
        settle({a: 1, b: 0})
        assert notes.told == [("assigned", {T0}), ("lost", {T0}), ("assigned", {T0})]
        assert a.position(T0) == 10

    def test_positions_that_cannot_be_read_just_now_are_read_later(
        self, root, join, monkeypatch, caplog
    ):
        append(root, numbered(0, 5))
        a = join("t", retry_backoff_ms=1)
        begin, failures = GroupMember.begin, [StorageError("the test says no")]

        def fails_once(member, partitions):
            if failures:
                raise failures.pop()
            return begin(member, partitions)

        monkeypatch.setattr(GroupMember, "begin", fails_once)
        assert read_values(a, 5) == numbered(0, 5)
        assert "the test says no" in caplog.text

    def test_what_is_taken_away_while_it_begins_does_not_begin_by_policy(
        self, root, join, monkeypatch
    ):
        """Its position is missing because another member has it, not because none is committed."""
        append(root, numbered(0, 5))
        a = join("t")
        a.poll(PATIENCE_MS)
        a.commit()
        taken: list[GroupMember] = []
        begin = GroupMember.begin

        def taken_meanwhile(member, partitions):
            if not taken:
                taken.append(member)
                expire(root, b)
                wait_until(member.is_changed)
            return begin(member, partitions)

        a.close()
        b = join("t", auto_offset_reset="none")
        monkeypatch.setattr(GroupMember, "begin", taken_meanwhile)
        append(root, [b"next"])
        assert read_values(b, 1) == [b"next"]
        assert taken


class TestListener:
    def test_is_told_what_comes_and_what_goes(self, join):
        first, second = Notes(), Notes()
        a = join(listener=first)
        settle({a: 3})
        assert first.told == [("assigned", ALL)]
        b = join(listener=second)
        mine, others = settle({a: 2, b: 1})
        assert first.told[1:] == [("revoked", others)]
        assert second.told == [("assigned", others)]
        b.close()
        assert second.told[1:] == [("revoked", others)]
        settle({a: 3})
        assert first.told[2:] == [("assigned", others)]
        a.unsubscribe()
        assert first.told[3:] == [("revoked", mine | others)]

    def test_may_commit_what_is_revoked_and_the_next_one_goes_on_there(self, root, join):
        fill(root)
        taken = []

        class Committing(ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked):
                taken.append(revoked)
                a.commit({partition: OffsetAndMetadata(4) for partition in revoked})

        a = join(listener=Committing())
        poll_until(a, 15)
        b = join()
        others = settle({a: 2, b: 1})[1]
        assert taken == [others]
        assert committed(root) == dict.fromkeys(others, 4)

    def test_that_fails_is_told_again_and_nothing_is_released_before(self, join):
        class Failing(Notes):
            def on_partitions_revoked(self, revoked):
                super().on_partitions_revoked(revoked)
                if len(self.told) == 2:
                    raise RuntimeError("not yet")

        notes = Failing()
        a = join(listener=notes)
        settle({a: 3})
        b = join()
        b.poll()

        def poll_until_told():
            while len(notes.told) < 2:
                a.poll(PATIENCE_MS)

        with pytest.raises(RuntimeError, match="not yet"):
            poll_until_told()
        b.poll()
        assert a.assignment() == ALL
        assert b.assignment() == set()
        others = settle({a: 2, b: 1})[1]
        assert notes.told == [("assigned", ALL), ("revoked", others), ("revoked", others)]

    def test_may_seek_in_what_is_assigned(self, root, join):
        append(root, numbered(0, 10))

        class ToSeven(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned):
                for partition in assigned:
                    consumer.seek(partition, 7)

        consumer = join("t", listener=ToSeven())
        assert read_values(consumer, 3) == numbered(7, 10)

    def test_of_who_was_taken_for_dead_is_told_of_a_loss_when_it_closes(self, root, join):
        notes = Notes()
        a = join(listener=notes)
        settle({a: 3})
        expire(root, a)
        wait_until(a._runtime.group.membership.is_lost)  # noqa: SLF001
        a.close()
        assert notes.told == [("assigned", ALL), ("lost", ALL)]


class TestMembership:
    def test_who_is_taken_for_dead_loses_everything_and_joins_again(self, root, join):
        notes = Notes()
        a = join(listener=notes)
        settle({a: 3})
        expire(root, a)
        wait_until(lambda: a.poll() or len(notes.told) == 3)
        assert notes.told == [("assigned", ALL), ("lost", ALL), ("assigned", ALL)]

    def test_who_does_not_poll_loses_its_place(self, root, join):
        append(root, numbered(0, 5))
        clock, notes = ManualClock(), Notes()
        a = join("t", listener=notes, clock=clock, max_poll_interval_ms=60_000)
        read_values(a, 5)
        clock.advance_ms(61_000)
        wait_until(a._runtime.group.membership._member.is_changed)  # noqa: SLF001
        with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
            a.commit()
        settle({a: 1})
        assert notes.told == [("assigned", {T0}), ("lost", {T0}), ("assigned", {T0})]
        assert committed(root) == {}

    def test_who_only_waits_keeps_its_place(self, join):
        """A poll that waits, or that finds no records, keeps the member alive."""
        clock, notes = ManualClock(), Notes()
        a = join(listener=notes, clock=clock, max_poll_interval_ms=60_000)
        settle({a: 3})
        for _ in range(5):
            clock.advance_ms(40_000)
            a.poll()
        assert notes.told == [("assigned", ALL)]

    def test_a_static_member_that_comes_back_has_the_same_partitions(self, join):
        a = join(group_instance_id="i-a")
        b = join(group_instance_id="i-b")
        before = settle({a: 2, b: 1})
        a.close()
        notes = Notes()
        b.poll()
        again = join(group_instance_id="i-a", listener=notes)
        assert settle({again: 2, b: 1}) == before
        assert notes.told == [("assigned", before[0])]

    def test_a_static_member_whose_place_is_taken_is_fenced(self, root, join):
        append(root, numbered(0, 3))
        notes = Notes()
        a = join("t", group_instance_id="i", listener=notes)
        read_values(a, 3)
        other = join("t", group_instance_id="i")
        settle({other: 1})
        for _ in range(2):
            with pytest.raises(FencedInstanceIdError, match="has taken the place"):
                a.poll(PATIENCE_MS)
        with pytest.raises(CommitFailedError):
            a.commit({T0: OffsetAndMetadata(3)})
        assert notes.told == [("assigned", {T0}), ("lost", {T0})]
        assert committed(root) == {}
        settle({other: 1})

    def test_wakeup_ends_a_poll_that_waits_for_partitions(self, join):
        a, b = join("t"), join("t")
        settle({a: 1, b: 0})
        told = []

        def poll():
            try:
                b.poll(PATIENCE_MS)
            except WakeupError as error:
                told.append(error)

        waits = threading.Thread(target=poll, daemon=True)
        waits.start()
        b.wakeup()
        waits.join(PATIENCE_MS / 1000)
        assert len(told) == 1
        a.close()
        settle({b: 1})

    def test_a_storage_that_fails_while_it_joins_is_asked_again(self, join, monkeypatch, caplog):
        member_join, failures = GroupMember.join, [StorageError("the test says no")]

        def fails_once(*arguments, **options):
            if failures:
                raise failures.pop()
            return member_join(*arguments, **options)

        monkeypatch.setattr(GroupMember, "join", fails_once)
        a = join(retry_backoff_ms=1)
        settle({a: 3})
        assert "the test says no" in caplog.text

    def test_one_that_is_dropped_leaves_its_group(self, root, join):
        dropped = Consumer("three", root=root, group_id="g", client_id="z")
        settle({dropped: 3})
        gone = weakref.ref(dropped)
        b = join()
        del dropped
        gc.collect()
        assert gone() is None
        settle({b: 3})


class TestMetrics:
    def metrics(self, consumer):
        return consumer.metrics()["consumer-coordinator-metrics"]

    def test_of_who_is_in_no_group_are_all_there_and_say_nothing(self, open_consumer):
        metrics = self.metrics(open_consumer("t", group_id="g"))
        assert metrics.pop("last-rebalance-seconds-ago") == -1
        assert metrics.pop("last-heartbeat-seconds-ago") == -1
        assert set(metrics.values()) == {0}

    def test_tell_of_rebalances_joins_heartbeats_and_commits(self, root, join):
        clock = ManualClock()

        class Slow(ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked):
                clock.advance_ms(500)

        a = join(clock=clock, listener=Slow())
        settle({a: 3})
        metrics = self.metrics(a)
        assert (metrics["rebalance-total"], metrics["join-total"]) == (1, 1)
        assert (metrics["assigned-partitions"], metrics["heartbeat-total"]) == (3, 1)

        b = join()
        settle({a: 2, b: 1})
        clock.advance_ms(2000)
        a.commit({partition: OffsetAndMetadata(0) for partition in a.assignment()})
        metrics = self.metrics(a)
        assert (metrics["rebalance-total"], metrics["rebalance-latency-total"]) == (2, 500)
        assert (metrics["rebalance-latency-avg"], metrics["rebalance-latency-max"]) == (250, 500)
        assert metrics["partition-revoked-latency-max"] == 500
        assert metrics["partition-assigned-latency-max"] == 0
        assert metrics["last-rebalance-seconds-ago"] == 2
        assert (metrics["commit-total"], metrics["commit-latency-max"]) == (1, 0)
        assert metrics["failed-rebalance-total"] == 0
        assert self.metrics(b)["rebalance-total"] == 1

    def test_count_a_lost_place_as_a_rebalance_that_failed(self, root, join):
        a = join()
        settle({a: 3})
        expire(root, a)
        wait_until(lambda: a.poll() or self.metrics(a)["rebalance-total"] == 2)
        metrics = self.metrics(a)
        assert (metrics["failed-rebalance-total"], metrics["join-total"]) == (1, 2)
        assert metrics["heartbeat-total"] >= 2


class TestGroupMetadata:
    def test_of_a_consumer_without_a_group_is_empty(self, open_consumer):
        consumer = open_consumer("three")
        consumer.poll()
        assert consumer.group_metadata() == ConsumerGroupMetadata(None, -1, "", None)

    def test_has_a_member_id_once_the_consumer_joined_and_until_it_leaves(self, root, join):
        a = join()
        assert a.group_metadata() == ConsumerGroupMetadata("g")
        settle({a: 3})
        group = GroupCoordinator(Cluster(root), "g").describe()
        (member_id,) = group.members
        assert a.group_metadata() == ConsumerGroupMetadata("g", group.generation, member_id)
        a.unsubscribe()
        assert a.group_metadata() == ConsumerGroupMetadata("g")

    def test_is_of_the_generation_that_the_last_poll_applied(self, root, join):
        a = join()
        settle({a: 3})
        before = a.group_metadata()
        b = join()
        b.poll(PATIENCE_MS / 1000)
        wait_until(a._runtime.group.membership._member.is_changed)  # noqa: SLF001
        assert a.group_metadata() == before, "its commits are to be fenced as of this generation"
        settle({a: 2, b: 1})
        after = a.group_metadata()
        assert after.generation_id > before.generation_id
        assert after.generation_id == b.group_metadata().generation_id
        assert after.member_id == before.member_id != b.group_metadata().member_id

    def test_has_a_static_members_instance_id(self, join):
        a = join(group_instance_id="i")
        assert a.group_metadata() == ConsumerGroupMetadata("g", group_instance_id="i")
        settle({a: 3})
        assert a.group_metadata().group_instance_id == "i"
