"""``console-consumer --exit-at-end``: up to where each partition ended when the command began."""

import importlib
from typing import Any

import pytest

from spark_log import Admin, Consumer, NewTopic, OffsetAndMetadata, OffsetSpec, TopicPartition
from tests.cli.support import append, environment, partition_log, spark_log_process
from tests.transactions import TransactionWriter
from tests.waiting import wait_until

F0, F1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
COMMITTED = ("--isolation-level", "read_committed")
# The package exports the command under the name of its module.
MODULE = importlib.import_module("spark_log.cli.commands.console_consumer")


@pytest.fixture(autouse=True)
def records(root):
    append(root, "flights", b"a0", b"a1", b"a2", partition=0)
    append(root, "flights", b"b0", b"b1", partition=1)
    append(root, "weather", b"rain")


@pytest.fixture
def read(shell):
    def read(*argv, status=0):
        outcome = shell("console-consumer", *argv, "--exit-at-end")
        assert outcome.status == status, outcome.err
        return sorted(outcome.lines)

    return read


@pytest.fixture
def writers_go_on(root, monkeypatch):
    """After the ends are looked up, more is appended in all partitions, before anything is read."""

    def grow():
        append(root, "flights", b"late", b"late", partition=0)
        append(root, "flights", b"late", partition=1)
        append(root, "weather", b"late")

    def then_grow(name):
        found = getattr(MODULE, name)

        def call(*args, **options):
            result = found(*args, **options)
            grow()
            return result

        monkeypatch.setattr(MODULE, name, call)

    then_grow("read_partitions")
    then_grow("SubscriptionEnds")


def committed(root, group="g"):
    offsets = Admin(root).list_group_offsets(group)
    return {tp: each.offset for tp, each in offsets.items()}


ALL = ["a0", "a1", "a2", "b0", "b1"]


class TestWithoutAGroup:
    def test_all_records_are_printed_while_writers_go_on(self, read, writers_go_on):
        assert read("flights") == ALL

    def test_it_may_start_elsewhere(self, read, writers_go_on):
        assert read("flights", "--tail", "1") == ["a2", "b1"]
        # The first reading has made two later records.
        assert read("flights", "--partition", "0", "--offset", "4") == ["late"]
        assert read("flights", "--offset", "latest") == []

    def test_an_offset_after_the_end_is_a_mistake(self, shell):
        argv = ["flights", "--partition", "0", "--offset", "4", "--exit-at-end"]
        outcome = shell("console-consumer", *argv)
        assert outcome.status == 2
        assert "offset 4 is after the end" in outcome.error
        assert "0 to 3" in outcome.error

    def test_with_a_maximum_it_ends_at_what_comes_first(self, read):
        assert read("flights", "--max-messages", "2") == ["a0", "a1"]
        assert read("flights", "--max-messages", "100") == ALL

    def test_with_a_window_of_time(self, read):
        assert read("flights", "--from-time", "1970-01-01") == ALL
        assert read("flights", "--to-time", "1970-01-01") == []

    def test_of_an_empty_topic_nothing(self, read, root):
        Admin(root).create_topics([NewTopic("empty", 3)])
        assert read("empty") == []

    def test_of_an_emptied_one_nothing(self, read, root):
        Admin(root).delete_records({F0: 3, F1: 2})
        assert read("flights") == []


@pytest.mark.parametrize("way", [["flights", "--group", "g"], ["--include", "fl.*"]])
class TestBySubscription:
    def test_all_records_are_printed_while_writers_go_on(self, read, way, writers_go_on):
        assert read(*way) == ALL

    def test_with_a_maximum_it_ends_at_what_comes_first(self, read, way, writers_go_on):
        assert len(read(*way, "--max-messages", "2")) == 2
        assert read(*way, "--max-messages", "100")

    def test_of_an_empty_topic_nothing(self, read, root, way):
        Admin(root).delete_records({F0: 3, F1: 2})
        assert read(*way) == []

    def test_of_an_empty_partition_nothing(self, read, root, way):
        Admin(root).delete_records({F1: 2})
        assert read(*way) == ["a0", "a1", "a2"]

    def test_a_topic_that_is_deleted_meanwhile_is_done(self, read, root, way, monkeypatch):
        found = MODULE.SubscriptionEnds

        def then_delete(*args):
            ends = found(*args)
            Admin(root).delete_topics(["flights"])
            return ends

        monkeypatch.setattr(MODULE, "SubscriptionEnds", then_delete)
        assert read(*way) == []


class TestPattern:
    def test_every_topic_is_read(self, read, root, writers_go_on):
        assert read("--include", "flights|weather") == [*ALL, "rain"]

    def test_a_topic_that_is_created_later_is_not(self, read, root, monkeypatch):
        found = MODULE.SubscriptionEnds

        def then_create(*args):
            ends = found(*args)
            Admin(root).create_topics([NewTopic("flights2")])
            append(root, "flights2", b"late")
            return ends

        monkeypatch.setattr(MODULE, "SubscriptionEnds", then_create)
        assert read("--include", "flights.*") == ALL

    def test_that_no_topic_matches_ends(self, read):
        assert read("--include", "nothing.*") == []


class TestGroup:
    def test_commits_what_it_has_printed_and_goes_on_there(self, read, root, writers_go_on):
        assert read("flights", "--group", "g") == ALL
        assert committed(root) == {F0: 3, F1: 2}
        assert read("flights", "--group", "g") == ["late"] * 3
        assert committed(root) == {F0: 5, F1: 3}

    def test_that_has_read_all_ends(self, read, root):
        Admin(root).alter_group_offsets("g", {F0: OffsetAndMetadata(3), F1: OffsetAndMetadata(2)})
        assert read("flights", "--group", "g") == []
        assert committed(root) == {F0: 3, F1: 2}

    def test_begins_at_the_earliest_record_without_a_committed_offset(self, read, root):
        Admin(root).alter_group_offsets("g", {F0: OffsetAndMetadata(2)})
        assert read("flights", "--group", "g") == ["a2", "b0", "b1"]

    def test_waits_until_another_member_has_committed_its_part(self, root, folder):
        settings: dict[str, Any] = {
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
        }
        argv = ["console-consumer", "flights", "--group", "g", "--exit-at-end"]
        with Consumer("flights", root=root, **settings, heartbeat_interval_ms=100) as other:
            wait_until(lambda: other.poll(100) and len(other.assignment()) == 2)
            environ = environment(SPARK_LOG_ROOT=str(root))
            with spark_log_process(*argv, cwd=folder, env=environ) as process:
                wait_until(lambda: other.poll(10) is not None and len(other.assignment()) == 1)
                (mine,) = other.assignment()
                lines = [process.stdout.readline() for _ in range(3 if mine == F1 else 2)]
                assert {line[0] for line in lines} == {"a" if mine == F1 else "b"}
                assert process.poll() is None, "the other member has not committed yet"
                end = 3 if mine == F0 else 2
                other.commit({mine: OffsetAndMetadata(end)})
                wait_until(lambda: process.poll() is not None, meanwhile=lambda: other.poll(10))
                assert process.returncode == 0
        assert committed(root) == {F0: 3, F1: 2}


@pytest.mark.parametrize("more", [[], ["--group", "g"]], ids=["alone", "group"])
class TestIsolation:
    @pytest.fixture(autouse=True)
    def writer(self, root):
        """Adds to ``weather`` an aborted record, one of an open transaction, and one after it."""
        writer = TransactionWriter(partition_log(root, "weather"))
        writer.send(b"snow")
        writer.abort()
        writer.send(b"sun")
        append(root, "weather", b"wind")
        return writer

    def test_read_committed_ends_at_the_first_open_transaction(self, read, root, writer, more):
        assert read("weather", *more, *COMMITTED) == ["rain"]
        writer.commit()
        again = read("weather", *more, *COMMITTED)
        assert again == (["sun", "wind"] if more else ["rain", "sun", "wind"])
        if more:
            (end,) = (
                Admin(root).list_offsets({TopicPartition("weather", 0): OffsetSpec.LATEST}).values()
            )
            assert committed(root) == {TopicPartition("weather", 0): end.offset}, "past the marker"

    def test_by_default_all_is_printed(self, read, more):
        assert read("weather", *more) == ["rain", "snow", "sun", "wind"]
