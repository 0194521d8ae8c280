"""Committed offsets: explicit commits, automatic commits, and where a consumer continues."""

from typing import Any

import pytest

from spark_log import (
    Admin,
    CommitFailedError,
    InvalidConfigurationError,
    InvalidGroupIdError,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.util.clock import ManualClock
from tests.consumer.support import (
    PATIENCE_MS,
    T0,
    THREE,
    append,
    numbered,
    poll_until,
    read_values,
    values_of,
)
from tests.waiting import wait_until


def committed(root, group="g"):
    """Return the group's offsets, read from the table without a consumer."""
    found = OffsetsTable(Cluster(root)).fetch(group)
    return {partition: each.offset for partition, each in found.items()}


class TestByHand:
    def test_the_next_consumer_of_the_group_goes_on_there(self, root, open_consumer):
        append(root, numbered(0, 10))
        settings = {"group_id": "g", "enable_auto_commit": False}
        with open_consumer("t", **settings) as consumer:
            consumer.poll(PATIENCE_MS, max_records=4)
            consumer.commit()
            consumer.poll(PATIENCE_MS, max_records=4)
        assert committed(root) == {T0: 4}
        assert read_values(open_consumer("t", **settings), 6) == numbered(4, 10)
        assert read_values(open_consumer("t", group_id="other"), 10) == numbered(0, 10)

    def test_names_any_offsets_with_a_note(self, root, open_consumer):
        append(root, numbered(0, 10))
        consumer = open_consumer(group_id="g")
        assert consumer.committed(T0) is None
        consumer.commit({T0: OffsetAndMetadata(7, "note"), THREE[1]: OffsetAndMetadata(0)})
        assert consumer.committed(T0) == 7
        assert consumer.committed(T0, metadata=True) == OffsetAndMetadata(7, "note", -1)
        assert consumer.committed(THREE[1]) == 0
        consumer.assign([T0])
        assert consumer.position(T0) == 7

    def test_async_tells_when_it_is_done_and_keeps_the_order(self, root, open_consumer):
        consumer = open_consumer(group_id="g")
        told = []
        futures = [
            consumer.commit_async(
                {T0: OffsetAndMetadata(offset)},
                callback=lambda offsets, error: told.append((offsets, error)),
            )
            for offset in range(3)
        ]
        for future in futures:
            assert future.result(PATIENCE_MS / 1000) is None
        assert told == [({T0: OffsetAndMetadata(offset)}, None) for offset in range(3)]
        assert committed(root) == {T0: 2}

    def test_async_tells_what_went_wrong(self, root, open_consumer):
        consumer = open_consumer(group_id="g")
        consumer.assign([T0])
        consumer.position(T0)
        Admin(root).delete_topics(["t"])
        told = []
        future = consumer.commit_async(callback=lambda offsets, error: told.append(error))
        with pytest.raises(UnknownTopicOrPartitionError):
            future.result(PATIENCE_MS / 1000)
        assert isinstance(told[0], UnknownTopicOrPartitionError)

    def test_of_a_topic_that_was_created_again_is_refused(self, root, open_consumer):
        append(root, numbered(0, 5))
        consumer = open_consumer(group_id="g")
        consumer.assign([T0])
        read_values(consumer, 5)
        Admin(root).delete_topics(["t"])
        Admin(root).create_topics([NewTopic("t")])
        with pytest.raises(UnknownTopicOrPartitionError, match="created again"):
            consumer.commit()
        assert committed(root) == {}

    @pytest.mark.parametrize(
        ("offsets", "error"),
        [
            ({T0: 5}, TypeError),
            ({("t", 0): OffsetAndMetadata(5)}, TypeError),
            ({T0: OffsetAndMetadata(-1)}, ValueError),
            ({TopicPartition("t", 9): OffsetAndMetadata(5)}, UnknownTopicOrPartitionError),
            ({TopicPartition("no", 0): OffsetAndMetadata(5)}, UnknownTopicOrPartitionError),
        ],
    )
    def test_of_what_cannot_be_is_refused(self, root, open_consumer, offsets, error):
        with pytest.raises(error):
            open_consumer(group_id="g").commit(offsets)
        assert committed(root) == {}

    def test_takes_the_generation_that_the_group_has(self, root, open_consumer):
        OffsetsTable(Cluster(root)).commit("g", {T0: OffsetAndMetadata(9)}, generation=3)
        consumer = open_consumer(group_id="g")
        consumer.commit({T0: OffsetAndMetadata(2)})
        assert committed(root) == {T0: 2}

    def test_of_who_assigned_partitions_is_refused_while_others_subscribe(
        self, root, open_consumer, caplog
    ):
        append(root, numbered(0, 5))
        member = open_consumer("t", group_id="g", enable_auto_commit=False)
        read_values(member, 5)
        clock = ManualClock()
        other = open_consumer(group_id="g", clock=clock)
        other.assign([T0])
        assert read_values(other, 5) == numbered(0, 5)
        with pytest.raises(CommitFailedError, match="cannot commit in it"):
            other.commit()
        clock.advance_ms(5000)
        other.poll()
        refused = "commit of offsets failed, retrying: group 'g' has members"
        wait_until(lambda: refused in caplog.text)
        assert committed(root) == {}
        member.close()
        other.commit()
        assert committed(root) == {T0: 5}

    def test_without_a_group_says_what_is_missing(self, open_consumer):
        consumer = open_consumer("t")
        for call in (consumer.commit, consumer.commit_async, lambda: consumer.committed(T0)):
            with pytest.raises(InvalidGroupIdError, match="group_id"):
                call()

    def test_an_empty_group_is_refused(self, open_consumer):
        with pytest.raises(InvalidGroupIdError):
            open_consumer(group_id="")

    def test_a_group_id_is_unicode(self, open_consumer):
        with pytest.raises(InvalidGroupIdError, match=r"group_id is 'g\\ud800'"):
            open_consumer(group_id="g\ud800")

    @pytest.mark.parametrize("metadata", ["a\ud800", 5, b"a"])
    def test_metadata_that_cannot_be_stored_is_refused_and_nothing_is_committed(
        self, root, open_consumer, metadata
    ):
        consumer = open_consumer(group_id="g")
        offsets = {T0: OffsetAndMetadata(1), THREE[0]: OffsetAndMetadata(1, metadata)}
        for commit in (consumer.commit, consumer.commit_async):
            with pytest.raises(InvalidConfigurationError, match="metadata of an offset"):
                commit(offsets)
        with pytest.raises(InvalidConfigurationError, match="metadata of an offset"):
            Admin(root).alter_group_offsets("g", offsets)
        assert committed(root) == {}
        consumer.commit({T0: OffsetAndMetadata(1, "ü\0")})  # the refused commits left nothing
        assert consumer.committed(T0, metadata=True) == OffsetAndMetadata(1, "ü\0")

    def test_no_metadata_may_be_none_as_in_kafka_python(self, root, open_consumer):
        consumer = open_consumer(group_id="g")
        no_metadata: Any = None
        consumer.commit({T0: OffsetAndMetadata(1, no_metadata)})
        assert consumer.committed(T0, metadata=True) == OffsetAndMetadata(1)
        Admin(root).alter_group_offsets("g", {T0: OffsetAndMetadata(2, no_metadata)})
        assert committed(root) == {T0: 2}


class TestByItself:
    def test_commits_what_earlier_polls_returned_and_nothing_of_this_one(self, root, open_consumer):
        append(root, numbered(0, 10))
        clock = ManualClock()
        consumer = open_consumer(group_id="g", clock=clock, auto_commit_interval_ms=5000)
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert values_of(consumer.poll(PATIENCE_MS, max_records=4)) == numbered(0, 4)
        consumer.poll(PATIENCE_MS, max_records=1)
        assert committed(root) == {}
        clock.advance_ms(5000)
        consumer.poll(PATIENCE_MS, max_records=2)
        wait_until(lambda: committed(root) != {})
        assert committed(root) == {T0: 5}

    def test_commits_nothing_when_nothing_moved(self, root, open_consumer):
        append(root, numbered(0, 4))
        clock = ManualClock()
        consumer = open_consumer(group_id="g", clock=clock)
        consumer.assign([T0])
        read_values(consumer, 4)
        for _ in range(5):
            clock.advance_ms(5000)
            consumer.poll()
        consumer.close()
        assert OffsetsTable(Cluster(root)).history("g").num_rows == 1

    @pytest.mark.parametrize("end", ["close", "unsubscribe", "assign"])
    def test_commits_when_it_ends(self, root, open_consumer, end):
        append(root, numbered(0, 4))
        consumer = open_consumer("t", group_id="g")
        read_values(consumer, 4)
        if end == "assign":
            consumer.unsubscribe()
            consumer.assign([THREE[0]])
        else:
            getattr(consumer, end)()
        assert committed(root) == {T0: 4}

    def test_commits_nothing_after_an_exception(self, root, open_consumer):
        append(root, numbered(0, 4))
        consumer = open_consumer("t", group_id="g")

        def handle_all():
            with consumer:
                read_values(consumer, 4)
                raise RuntimeError("the record in hand was not done")

        with pytest.raises(RuntimeError):
            handle_all()
        assert committed(root) == {}

    def test_can_be_switched_off(self, root, open_consumer):
        append(root, numbered(0, 4))
        with open_consumer("t", group_id="g", enable_auto_commit=False) as consumer:
            read_values(consumer, 4)
        assert committed(root) == {}

    def test_a_failure_is_logged_and_tried_again(self, root, open_consumer, monkeypatch, caplog):
        append(root, numbered(0, 4))
        consumer = open_consumer("t", group_id="g")
        read_values(consumer, 4)

        def failing(*arguments, **options):
            raise UnknownTopicOrPartitionError("the test says no")

        with monkeypatch.context() as patch:
            patch.setattr(OffsetsTable, "commit", failing)
            consumer.unsubscribe()
            wait_until(lambda: "the test says no" in caplog.text)
        consumer.assign([T0])
        consumer.seek(T0, 4)
        consumer.close()
        assert committed(root) == {T0: 4}


class Watching:
    """An interceptor that notes the offsets of commits."""

    def __init__(self):
        self.told = []

    def on_consume(self, records):
        return records

    def on_commit(self, offsets):
        self.told.append(offsets)


class TestInterceptors:
    """`ConsumerInterceptor.on_commit` is called for every commit that succeeds (KIP-42)."""

    @pytest.fixture
    def watching(self):
        return Watching()

    def test_are_told_before_a_commit_returns(self, open_consumer, watching):
        consumer = open_consumer(group_id="g", interceptors=[watching])
        consumer.commit({T0: OffsetAndMetadata(1)})
        assert watching.told == [{T0: OffsetAndMetadata(1)}]

    def test_are_told_of_automatic_commits(self, root, open_consumer, watching):
        append(root, numbered(0, 4))
        clock = ManualClock()
        consumer = open_consumer("t", group_id="g", clock=clock, interceptors=[watching])
        poll_until(consumer, 2, max_records=2)
        clock.advance_ms(5000)
        poll_until(consumer, 2, max_records=2)
        consumer.close()
        assert watching.told == [{T0: OffsetAndMetadata(2)}, {T0: OffsetAndMetadata(4)}]

    def test_are_not_told_of_a_commit_that_failed(self, root, open_consumer, watching):
        append(root, numbered(0, 5))
        member = open_consumer("t", group_id="g", enable_auto_commit=False)
        read_values(member, 5)
        other = open_consumer(group_id="g", interceptors=[watching])
        with pytest.raises(CommitFailedError):
            other.commit({T0: OffsetAndMetadata(5)})
        assert watching.told == []


class TestDefaultOffsetCommitCallback:
    """``default_offset_commit_callback``, as in kafka-python."""

    @pytest.fixture
    def called(self):
        return []

    @pytest.fixture
    def callback(self, called):
        return lambda offsets, error: called.append((offsets, error))

    def test_is_called_for_an_automatic_commit(self, root, open_consumer, called, callback):
        append(root, numbered(0, 4))
        consumer = open_consumer("t", group_id="g", default_offset_commit_callback=callback)
        read_values(consumer, 4)
        consumer.close()
        assert called == [({T0: OffsetAndMetadata(4)}, None)]

    def test_is_given_the_error_of_an_automatic_commit(self, root, open_consumer, called, callback):
        append(root, numbered(0, 5))
        member = open_consumer("t", group_id="g", enable_auto_commit=False)
        read_values(member, 5)
        other = open_consumer(group_id="g", default_offset_commit_callback=callback)
        other.assign([T0])
        read_values(other, 5)
        other.close()
        ((offsets, error),) = called
        assert offsets == {T0: OffsetAndMetadata(5)}
        assert isinstance(error, CommitFailedError)

    def test_is_called_for_an_asynchronous_commit_without_a_callback_of_its_own(
        self, root, open_consumer, called, callback
    ):
        append(root, numbered(0, 4))
        consumer = open_consumer(
            group_id="g", enable_auto_commit=False, default_offset_commit_callback=callback
        )
        own = []
        consumer.commit({T0: OffsetAndMetadata(1)})
        consumer.commit_async({T0: OffsetAndMetadata(2)})
        consumer.commit_async({T0: OffsetAndMetadata(3)}, lambda *result: own.append(result))
        consumer.close()
        assert called == [({T0: OffsetAndMetadata(2)}, None)]
        assert own == [({T0: OffsetAndMetadata(3)}, None)]
