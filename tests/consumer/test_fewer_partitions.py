"""A topic that is created again with fewer partitions, between two looks of a reader."""

import pytest

from spark_log import (
    Admin,
    ConsumerRebalanceListener,
    InvalidPartitionsError,
    NewTopic,
    NoOffsetForPartitionError,
    OffsetAndMetadata,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from tests.consumer.conftest import UNSYNCED
from tests.consumer.support import PATIENCE_MS, THREE, Notes, append, numbered, poll_until
from tests.waiting import wait_until

FIRST, _, LAST = THREE
NEW = [b"new0", b"new1"]


def fill(root):
    for partition in THREE:
        append(root, numbered(0, 5), to=partition)


def recreate(root, values=NEW):
    """Delete the topic of three partitions, and create it with one, which gets these values."""
    admin = Admin(root)
    admin.delete_topics(["three"])
    admin.create_topics([NewTopic("three", 1, topic_configs=UNSYNCED)])
    if values:
        append(root, values, to=FIRST)


def read_new(consumer, count=2):
    """Poll until so many records came; return them as (partition, offset, value)."""
    found: list[tuple[TopicPartition, int, bytes]] = []
    wait_until(
        lambda: len(found) >= count,
        meanwhile=lambda: found.extend(
            (tp, record.offset, record.value)
            for tp, records in consumer.poll(100).items()
            for record in records
        ),
        timeout_s=30,
    )
    return found


ALL_NEW = [(FIRST, 0, b"new0"), (FIRST, 1, b"new1")]


class TestSubscribed:
    def test_reads_the_new_topic_from_its_beginning_and_nothing_else(self, root, open_consumer):
        fill(root)
        notes = Notes()
        consumer = open_consumer()
        consumer.subscribe(["three"], listener=notes)
        poll_until(consumer, 15)
        recreate(root)
        assert read_new(consumer) == ALL_NEW
        assert consumer.assignment() == {FIRST}
        assert notes.told[1:] == [("lost", set(THREE)), ("assigned", {FIRST})]

    def test_also_if_it_had_not_read_all(self, root, open_consumer):
        fill(root)
        consumer = open_consumer("three", max_poll_records=2)
        consumer.poll(PATIENCE_MS)
        recreate(root)
        found = read_new(consumer, 1)
        while found[-1] != ALL_NEW[-1]:
            found += read_new(consumer, 1)
        new = [each for each in found if each[2] in NEW]
        assert new == ALL_NEW
        assert found[-2:] == ALL_NEW, "no record of the old topic comes after one of the new topic"

    def test_by_latest_what_comes_after_it_has_seen_the_new_topic(self, root, open_consumer):
        fill(root)
        consumer = open_consumer("three", auto_offset_reset="latest")
        consumer.poll()
        wait_until(lambda: consumer.poll(50) == {} and consumer.assignment() == set(THREE))
        recreate(root)
        wait_until(lambda: consumer.poll(50) == {} and consumer.assignment() == {FIRST})
        assert consumer.position(FIRST) == 2
        append(root, [b"after"], to=FIRST)
        assert read_new(consumer, 1) == [(FIRST, 2, b"after")]

    def test_by_none_it_is_told(self, root, open_consumer):
        fill(root)
        consumer = open_consumer("three", auto_offset_reset="none", group_id="g")
        Admin(root).alter_group_offsets("g", {tp: OffsetAndMetadata(5) for tp in THREE})
        consumer.poll()
        recreate(root)
        with pytest.raises(NoOffsetForPartitionError, match="three-0"):
            wait_until(lambda: consumer.poll(100), timeout_s=30)

    def test_a_partition_that_was_paused_is_not(self, root, open_consumer):
        fill(root)
        consumer = open_consumer("three")
        poll_until(consumer, 15)
        consumer.pause(*THREE)
        recreate(root)
        assert read_new(consumer) == ALL_NEW
        assert consumer.paused() == set()


class TestAssigned:
    @pytest.fixture
    def consumer(self, root, open_consumer):
        fill(root)
        consumer = open_consumer(group_id="g", enable_auto_commit=False)
        consumer.assign(THREE)
        poll_until(consumer, 15)
        recreate(root)
        return consumer

    def test_poll_tells_it_until_others_are_assigned(self, consumer):
        for _ in range(2):
            with pytest.raises(UnknownTopicOrPartitionError, match="and created again"):
                wait_until(lambda: consumer.poll(100), timeout_s=30)
        with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 1; it has 1"):
            consumer.assign(THREE)
        consumer.assign([FIRST])
        assert read_new(consumer) == ALL_NEW

    def test_nothing_can_be_committed_for_it(self, root, consumer):
        with pytest.raises(UnknownTopicOrPartitionError):
            consumer.commit()
        with pytest.raises(UnknownTopicOrPartitionError):
            consumer.commit({LAST: OffsetAndMetadata(5)})
        assert Admin(root).list_group_offsets("g") == {}

    def test_lookups_tell_what_exists(self, consumer):
        for look in (consumer.end_offsets, consumer.beginning_offsets):
            with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 2; it has 1"):
                look([LAST])
        assert consumer.end_offsets([FIRST]) == {FIRST: 2}
        assert consumer.partitions_for_topic("three") == {0}


class TestGroup:
    def test_members_share_what_is_left_and_old_offsets_do_not_count(self, root, open_consumer):
        fill(root)
        settings = {"group_id": "g", "heartbeat_interval_ms": 50, "enable_auto_commit": False}
        members = [open_consumer("three", **settings) for _ in range(2)]
        values: list[bytes] = []

        def poll():
            for member in members:
                for records in member.poll(10).values():
                    values.extend(record.value for record in records)

        def are_at(offset):
            return all(
                member.position(tp) == offset for member in members for tp in member.assignment()
            )

        def sizes():
            return sorted(len(member.assignment()) for member in members)

        wait_until(lambda: sizes() == [1, 2] and are_at(5), meanwhile=poll)
        for member in members:
            member.commit()
        admin = Admin(root)
        assert {
            tp: each.offset for tp, each in admin.list_group_offsets("g").items()
        } == dict.fromkeys(THREE, 5)
        recreate(root)
        values.clear()
        wait_until(lambda: len(values) >= 2 and sizes() == [0, 1], meanwhile=poll)
        assert values == NEW
        assert admin.list_group_offsets("g") == {}
        (reader,) = (member for member in members if member.assignment())
        assert reader.committed(LAST) is None
        reader.commit()
        assert {tp: each.offset for tp, each in admin.list_group_offsets("g").items()} == {FIRST: 2}
        assert [(each.partition, each.lag) for each in admin.group_lag("g")] == [(FIRST, 0)]

    def test_a_listener_that_commits_what_it_lost_is_refused(self, root, open_consumer):
        fill(root)
        errors: list[Exception] = []

        class Commits(ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked):
                pass

            def on_partitions_assigned(self, assigned):
                pass

            def on_partitions_lost(self, lost):
                try:
                    consumer.commit({tp: OffsetAndMetadata(5) for tp in lost})
                except UnknownTopicOrPartitionError as error:
                    errors.append(error)

        consumer = open_consumer(group_id="g", enable_auto_commit=False)
        consumer.subscribe(["three"], listener=Commits())
        poll_until(consumer, 15)
        recreate(root)
        assert read_new(consumer) == ALL_NEW
        assert len(errors) == 1
        assert Admin(root).list_group_offsets("g") == {}


class TestAdmin:
    def test_an_open_one_tells_what_exists_now(self, root):
        fill(root)
        admin = Admin(root)
        admin.alter_group_offsets("g", {tp: OffsetAndMetadata(3) for tp in THREE})
        recreate(root)
        for call in (
            lambda: admin.list_offsets({LAST: 0}),
            lambda: admin.delete_records({LAST: 1}),
            lambda: admin.alter_group_offsets("g", {LAST: OffsetAndMetadata(1)}),
        ):
            with pytest.raises(
                (UnknownTopicOrPartitionError, InvalidPartitionsError), match="it has 1"
            ):
                call()
        (topic,) = admin.describe_topics(["three"])
        assert [each.log_end_offset for each in topic.partitions] == [2]
        assert admin.list_group_offsets("g") == {}
        assert admin.group_lag("g") == []
