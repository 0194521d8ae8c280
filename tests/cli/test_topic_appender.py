"""Records on their way into a topic: which partition they go to, and when."""

import uuid
from contextlib import suppress

import pytest

from spark_log import NewTopic
from spark_log.admin import Admin
from spark_log.cli import topic_appender
from spark_log.cli.topic_appender import Appended, TopicAppender
from spark_log.clock import ManualClock
from spark_log.errors import UnknownTopicOrPartitionError
from spark_log.metadata import Cluster
from spark_log.storage import memory
from tests.log.support import values
from tests.record.samples import record_batch, row


@pytest.fixture
def cluster():
    """A cluster in memory with a topic of four partitions, on a clock that stands still."""
    name = uuid.uuid4().hex
    Admin(f"memory://{name}").create_topics([NewTopic("flights", 4)])
    yield Cluster(f"memory://{name}", clock=ManualClock())
    memory._ROOTS.pop(name)


def appender(cluster, partition=None, first_sticky=0):
    return TopicAppender(
        cluster,
        cluster.topic("flights"),
        partition=partition,
        compression="none",
        first_sticky=first_sticky,
    )


def batch(*values, key=None):
    return record_batch([row(value, key) for value in values])


def contents(cluster):
    """``{partition: [(offset, value), …]}`` of the partitions that hold something."""
    topic = cluster.topic("flights")
    logs = {number: cluster.partition_log(topic, number) for number in range(4)}
    return {number: found for number, log in logs.items() if (found := values(log))}


class TestPartition:
    def test_is_kafkas_for_a_key(self, cluster):
        # Kafka's UtilsTest.testMurmur2: -973932308, -790332482, 479470107.
        with appender(cluster) as target:
            target.add(record_batch([row(key, key) for key in (b"21", b"foobar", b"abc")]))
            target.commit()
        assert contents(cluster) == {
            0: [(0, b"21")],
            2: [(0, b"foobar")],
            3: [(0, b"abc")],
        }

    def test_is_one_for_all_without_a_key_until_so_many_bytes_went_there(
        self, cluster, monkeypatch
    ):
        monkeypatch.setattr(topic_appender, "STICKY_BYTES", 300)
        with appender(cluster, first_sticky=6) as target:
            for value in (b"one", b"two", b"x" * 300, b"three"):
                target.add(batch(value))
                target.commit()
        assert contents(cluster) == {
            2: [(0, b"one"), (1, b"two"), (2, b"x" * 300)],
            3: [(0, b"three")],
        }

    def test_can_be_given_for_all(self, cluster):
        with appender(cluster, partition=1) as target:
            target.add(batch(b"one", b"two", key=b"foo"))
            target.commit()
        assert contents(cluster) == {1: [(0, b"one"), (1, b"two")]}

    def test_must_be_there(self, cluster):
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 4"):
            appender(cluster, partition=4)

    def test_keeps_the_order_of_each_key(self, cluster):
        rows = [row(b"%d" % number, b"key %d" % (number % 7)) for number in range(100)]
        with appender(cluster) as target:
            target.add(record_batch(rows))
            target.commit()
        for found in contents(cluster).values():
            for key in range(7):
                numbers = [int(value) for _, value in found if int(value) % 7 == key]
                assert numbers == sorted(numbers)
        assert sum(map(len, contents(cluster).values())) == 100


class TestCommit:
    def test_makes_what_was_added_visible_as_one_segment(self, cluster):
        with appender(cluster, partition=0) as target:
            target.add(batch(b"one"))
            target.add(batch(b"two", b"three"))
            assert contents(cluster) == {}
            target.commit()
        log = cluster.partition_log(cluster.topic("flights"), 0)
        assert values(log) == [(0, b"one"), (1, b"two"), (2, b"three")]
        assert len(log.observe().live.segments) == 1

    def test_says_what_was_appended_and_between_which_offsets(self, cluster):
        log = cluster.partition_log(cluster.topic("flights"), 1)
        log.append(batch(b"another's"))
        with appender(cluster, partition=1) as target:
            target.add(batch(b"one", b"two"))
            target.commit()
            log.append(batch(b"another's"))
            target.add(batch(b"three"))
            target.commit()
        assert target.appended == {1: Appended(3, 1, 4)}
        assert target.records == 3

    def test_of_nothing_is_nothing(self, cluster):
        with appender(cluster) as target:
            target.add(batch())
            target.commit()
        assert (target.appended, target.records) == ({}, 0)

    def test_that_did_not_come_leaves_no_file(self, tmp_path):
        Admin(tmp_path).create_topics([NewTopic("flights", 4)])
        with suppress(KeyboardInterrupt), appender(Cluster(tmp_path)) as target:
            target.add(batch(b"one"))
            assert list(tmp_path.glob("flights.*/*/.*.tmp")) != []
            raise KeyboardInterrupt
        assert [path for path in tmp_path.glob("flights.*/*/*") if path.is_file()] == []


class TestIsDue:
    def test_after_a_second(self, cluster):
        with appender(cluster) as target:
            cluster.clock.advance_ms(5000)
            assert not target.is_due, "nothing is staged"
            target.add(batch(b"one"))
            cluster.clock.advance_ms(999)
            assert not target.is_due
            cluster.clock.advance_ms(1)
            assert target.is_due
            target.commit()
            assert not target.is_due

    def test_when_a_segment_is_large(self, cluster, monkeypatch):
        monkeypatch.setattr(topic_appender, "MAX_STAGED_BYTES", 10_000)
        with appender(cluster) as target:
            target.add(batch(b"one"))
            assert not target.is_due
            target.add(batch(b"x" * 10_000))
            assert target.is_due
