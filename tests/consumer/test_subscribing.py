"""Subscribed topics, patterns and assigned partitions, and topics that change meanwhile."""

import gc
import multiprocessing
import shutil
import threading
import weakref
from functools import partial
from unittest.mock import create_autospec

import pytest

from spark_log import (
    Admin,
    ConcurrentModificationError,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    ConsumerRebalanceListener,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidTopicError,
    NewTopic,
    RootNotFoundError,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from spark_log.consumer.fetch import fetcher
from spark_log.consumer.fetch.fetcher import Fetcher
from spark_log.storage.directory_watch import SilentWatch
from spark_log.util.clock import ManualClock
from tests.consumer.support import (
    PATIENCE_MS,
    T0,
    THREE,
    Notes,
    append,
    log_of,
    numbered,
    poll_until,
    read_values,
    values_of,
)
from tests.waiting import wait_until


@pytest.fixture
def no_hints(monkeypatch):
    monkeypatch.setattr(fetcher, "watch_directories", lambda store: SilentWatch())


class TestSubscribe:
    def test_takes_every_partition_of_the_topics(self, open_consumer):
        consumer = open_consumer("t", "three")
        assert consumer.subscription() == {"t", "three"}
        assert consumer.assignment() == set()
        consumer.poll(timeout_ms=1)
        assert consumer.assignment() == {T0, *THREE}

    def test_replaces_what_was_there_and_keeps_the_position_of_the_rest(self, root, open_consumer):
        append(root, numbered(0, 5))
        consumer = open_consumer("t")
        read_values(consumer, 5)
        notes = Notes()
        consumer.subscribe(["t", "three"], listener=notes)
        consumer.poll(timeout_ms=1)
        assert consumer.position(T0) == 5
        consumer.subscribe(topics=["three"], listener=notes)
        consumer.poll(timeout_ms=1)
        assert consumer.assignment() == set(THREE)
        assert notes.told == [("assigned", set(THREE)), ("revoked", {T0})]

    def test_by_pattern_takes_what_matches_now_and_later(self, root, open_consumer):
        consumer = open_consumer()
        consumer.subscribe(pattern="t.*e$")
        consumer.poll(timeout_ms=1)
        assert consumer.subscription() == {"three"}
        Admin(root).create_topics([NewTopic("tree")])
        append(root, [b"new"], to=TopicPartition("tree", 0))
        assert read_values(consumer, 1, TopicPartition("tree", 0)) == [b"new"]

    def test_waits_for_a_topic_that_is_not_there_and_says_so_once(
        self, root, open_consumer, caplog
    ):
        consumer = open_consumer("thre")
        consumer.poll(timeout_ms=1)
        consumer.poll(timeout_ms=1)
        (line,) = [each.getMessage() for each in caplog.records if "no topic" in each.getMessage()]
        assert line == "there is no topic 'thre' yet, waiting for it; did you mean three?"
        Admin(root).create_topics([NewTopic("thre")])
        append(root, [b"new"], to=TopicPartition("thre", 0))
        assert read_values(consumer, 1, TopicPartition("thre", 0)) == [b"new"]

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({}, ValueError),
            ({"topics": "t"}, TypeError),
            ({"topics": [5]}, TypeError),
            ({"topics": ["a b"]}, InvalidTopicError),
            ({"topics": ["t"], "pattern": "t"}, IllegalStateError),
            ({"pattern": "("}, ValueError),
            ({"topics": ["t"], "listener": print}, TypeError),
        ],
    )
    def test_to_what_cannot_be_is_refused(self, open_consumer, arguments, error):
        consumer = open_consumer()
        with pytest.raises(error):
            consumer.subscribe(**arguments)
        assert consumer.subscription() is None

    def test_and_assign_exclude_each_other(self, open_consumer):
        consumer = open_consumer("t")
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            consumer.assign([T0])
        consumer.unsubscribe()
        assert consumer.subscription() is None
        consumer.assign([T0])
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            consumer.subscribe(["t"])

    def test_a_listener_may_seek_in_what_is_assigned(self, root, open_consumer):
        append(root, numbered(0, 10))
        consumer = open_consumer()

        class ToSeven(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned):
                for partition in assigned:
                    consumer.seek(partition, 7)

        consumer.subscribe(["t"], listener=ToSeven())
        assert read_values(consumer, 3) == numbered(7, 10)


class TestAssign:
    def test_replaces_what_was_there_and_keeps_the_position_of_the_rest(self, root, open_consumer):
        append(root, numbered(0, 5))
        consumer = open_consumer()
        consumer.assign([T0])
        read_values(consumer, 5)
        consumer.assign([T0, THREE[1]])
        assert consumer.assignment() == {T0, THREE[1]}
        assert consumer.position(T0) == 5
        append(root, numbered(0, 2), to=THREE[0])
        append(root, numbered(0, 2), to=THREE[1])
        assert set(poll_until(consumer, 2)) == {THREE[1]}

    def test_of_nothing_is_unsubscribe(self, open_consumer):
        consumer = open_consumer("t")
        consumer.assign([])
        assert consumer.subscription() is None

    def test_of_what_is_not_there_changes_nothing(self, open_consumer):
        consumer = open_consumer()
        consumer.assign([T0])
        for wrong in (TopicPartition("t", 1), TopicPartition("gone", 0)):
            with pytest.raises(UnknownTopicOrPartitionError):
                consumer.assign([THREE[0], wrong])
        with pytest.raises(TypeError, match="TopicPartition"):
            consumer.assign([("t", 0)])
        assert consumer.assignment() == {T0}


class TestTopicsThatChange:
    def test_new_topics_are_seen_at_the_latest_when_the_metadata_is_old(
        self, root, open_consumer, no_hints
    ):
        clock = ManualClock()
        consumer = open_consumer(clock=clock, metadata_max_age_ms=1000)
        consumer.subscribe(pattern="t")
        consumer.poll()
        Admin(root).create_topics([NewTopic("t2")])
        consumer.poll()
        assert TopicPartition("t2", 0) not in consumer.assignment()
        clock.advance_ms(1000)
        consumer.poll()
        assert TopicPartition("t2", 0) in consumer.assignment()

    def test_a_subscribed_topic_that_is_deleted_leaves(self, root, open_consumer):
        append(root, numbered(0, 2))
        append(root, numbered(0, 2), to=THREE[0])
        notes = Notes()
        consumer = open_consumer()
        consumer.subscribe(["t", "three"], listener=notes)
        poll_until(consumer, 4)
        Admin(root).delete_topics(["t"])
        while T0 in consumer.assignment():
            consumer.poll(timeout_ms=50)
        assert notes.told[1:] == [("lost", {T0})]
        append(root, numbered(2, 3), to=THREE[0])
        assert read_values(consumer, 1, THREE[0]) == [b"2"]

    def test_a_subscribed_topic_that_is_created_again_is_read_from_its_beginning(
        self, root, open_consumer
    ):
        append(root, numbered(0, 5))
        consumer = open_consumer("t")
        read_values(consumer, 5)
        Admin(root).delete_topics(["t"])
        Admin(root).create_topics([NewTopic("t")])
        append(root, [b"another"])
        assert read_values(consumer, 1) == [b"another"]

    def test_an_assigned_topic_that_is_deleted_is_an_error_until_it_is_assigned_again(
        self, root, open_consumer
    ):
        append(root, numbered(0, 5))
        consumer = open_consumer()
        consumer.assign([T0])
        read_values(consumer, 5)
        Admin(root).delete_topics(["t"])
        Admin(root).create_topics([NewTopic("t")])
        for _ in range(2):
            with pytest.raises(UnknownTopicOrPartitionError, match="and created again"):
                consumer.poll(timeout_ms=PATIENCE_MS)
        append(root, [b"another"])
        consumer.assign([T0])
        assert read_values(consumer, 1) == [b"another"]

    def test_a_deleted_topic_is_an_error_also_without_hints(self, root, open_consumer, no_hints):
        clock = ManualClock()
        consumer = open_consumer(clock=clock, metadata_max_age_ms=1000)
        consumer.assign([T0])
        consumer.poll()
        Admin(root).delete_topics(["t"])
        clock.advance_ms(1000)
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
            consumer.poll()


class TestSettingsThatChange:
    """A reader may use a listing for half of ``file.delete.delay.ms``."""

    @pytest.mark.parametrize("is_assigned", [True, False])
    def test_count_from_the_next_look_at_the_metadata_on(
        self, root, open_consumer, no_hints, is_assigned, monkeypatch
    ):
        clock = ManualClock()
        consumer = open_consumer(clock=clock, metadata_max_age_ms=1000)
        updates = create_autospec(Fetcher.update_log, side_effect=Fetcher.update_log)
        monkeypatch.setattr(Fetcher, "update_log", updates)
        if is_assigned:
            consumer.assign([T0])
        else:
            consumer.subscribe(["t"])
        append(root, numbered(0, 5))
        assert read_values(consumer, 2, max_records=2) == numbered(0, 2)
        topic = ConfigResource(ConfigResourceType.TOPIC, "t", {"file.delete.delay.ms": 500})
        Admin(root).alter_configs([topic])
        append(root, numbered(5, 9))
        assert not updates.called
        assert read_as_time_passes(consumer, 7, clock) == numbered(2, 9)
        (_, _, log), _ = updates.call_args
        assert log.config.file_delete_delay_ms == 500
        append(root, numbered(9, 12))
        assert read_as_time_passes(consumer, 3, clock) == numbered(9, 12)
        assert updates.call_count == 1

    def test_what_is_just_being_read_is_neither_lost_nor_handed_out_twice(
        self, root, open_consumer
    ):
        for start in range(0, 200, 2):
            append(root, numbered(start, start + 2))
        consumer = open_consumer("t", max_partition_fetch_bytes=1, fetch_max_bytes=1)
        found: list[bytes] = []
        begun: list[int] = []
        while len(found) < 200:
            found += read_values(consumer, 1, max_records=3)
            log = log_of(root)
            log.stream = partial(noted, begun, log.stream)
            consumer._runtime.fetcher.update_log(T0, log)  # noqa: SLF001 - at any moment
        assert found == numbered(0, 200)
        assert begun[0] < 100


def read_as_time_passes(consumer, count, clock):
    """Advance the clock by a second before each poll, until ``count`` records were returned.

    Advancing it once is not enough: the fetching thread may read the log's end before an append,
    and look at the clock after it was advanced.
    """
    found = []

    def is_read():
        clock.advance_ms(1000)
        found.extend(values_of(consumer.poll()))
        return len(found) >= count

    wait_until(is_read)
    return found


def noted(begun, stream, offset, **more):
    begun.append(offset)
    return stream(offset, **more)


class TestARootThatGoesAway:
    @pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
    def test_and_comes_back_is_read_on_with_nothing_lost_and_nothing_twice(
        self, root, open_consumer, reset, tmp_path, caplog
    ):
        append(root, numbered(0, 5))
        clock = ManualClock()
        consumer = open_consumer(auto_offset_reset=reset, clock=clock)
        consumer.assign([T0])
        consumer.seek(T0, 0)
        read_values(consumer, 5)
        away = tmp_path / "away"
        shutil.move(root, away)
        consumer.seek(T0, 5)

        def was_noticed():
            words = {word for each in caplog.records for word in each.getMessage().split()[:2]}
            reads = "t-0" in words or any("/__stripes/" in word for word in words)
            return reads and "metadata" in words

        while not was_noticed():
            assert consumer.poll() == {}
            clock.advance_ms(31_000)  # the last listing is too old to be used
        append(str(away), numbered(5, 8))
        shutil.move(away, root)
        found: list[bytes] = []
        while len(found) < 3:
            found += values_of(consumer.poll())
            clock.advance_ms(31_000)
        assert found == numbered(5, 8)
        assert consumer.position(T0) == 8

    def test_does_not_look_like_one_without_records_to_who_begins(
        self, root, open_consumer, tmp_path
    ):
        append(root, numbered(0, 5))
        consumer = open_consumer(auto_offset_reset="latest")
        consumer.assign([T0])
        away = tmp_path / "away"
        shutil.move(root, away)
        assert consumer.poll(timeout_ms=5) == {}
        with pytest.raises(RootNotFoundError, match="cannot be found"):
            consumer.position(T0)
        shutil.move(away, root)
        assert consumer.position(T0) == 5


class TestLife:
    def test_a_closed_consumer_says_so(self, open_consumer):
        consumer = open_consumer("t")
        consumer.close()
        consumer.close()
        with pytest.raises(IllegalStateError, match="closed"):
            consumer.poll()

    def test_a_second_thread_is_refused_while_the_first_polls(self, root, open_consumer):
        consumer = open_consumer("t")
        consumer.poll(timeout_ms=1)
        polls = threading.Thread(target=consumer.poll, args=(PATIENCE_MS,), daemon=True)
        with pytest.raises(ConcurrentModificationError, match="another thread"):  # noqa: PT012
            polls.start()
            while polls.is_alive():
                consumer.paused()
        with pytest.raises(ConcurrentModificationError):
            consumer.close()
        append(root, [b"0"])
        polls.join(PATIENCE_MS / 1000)
        consumer.poll(timeout_ms=1)

    def test_one_that_is_dropped_leaves_no_thread(self, root):
        before = set(threading.enumerate())
        consumer = Consumer("t", root=root)
        consumer.poll(timeout_ms=1)
        (thread,) = set(threading.enumerate()) - before
        gone = weakref.ref(consumer)
        del consumer
        gc.collect()
        assert gone() is None
        thread.join(PATIENCE_MS / 1000)
        assert not thread.is_alive()

    def test_in_a_forked_process_it_says_what_to_do(self, open_consumer):
        consumer = open_consumer("t")
        consumer.poll(timeout_ms=1)
        process = multiprocessing.get_context("fork").Process(
            target=_expect_refusal, args=(consumer,)
        )
        process.start()
        process.join(PATIENCE_MS / 1000)
        assert process.exitcode == 0

    def test_unknown_settings_are_refused_with_the_nearest(self, root):
        with pytest.raises(InvalidConfigurationError, match=r"max\.poll\.records"):
            Consumer(root=root, max_poll_record=5)  # type: ignore[call-arg]

    def test_a_root_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(RootNotFoundError, match="nowhere"):
            Consumer("t", root=tmp_path / "nowhere")


def _expect_refusal(consumer):
    try:
        consumer.poll()
    except IllegalStateError as error:
        raise SystemExit(0 if "forked" in error.message else 1) from None
    raise SystemExit(2)
