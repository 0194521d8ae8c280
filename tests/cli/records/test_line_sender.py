"""Records of lines on their way into a topic: when they are sent, and what was appended."""

import uuid

import pytest

from spark_log import Admin, NewTopic, Producer
from spark_log.cli.records import line_sender
from spark_log.cli.records.line_sender import AppendedRecords, LineSender
from spark_log.cluster import Cluster
from spark_log.errors import InvalidRecordError
from spark_log.storage import open_store
from spark_log.types import ConfigResource
from spark_log.util.clock import ManualClock
from tests.log.support import values
from tests.record.samples import record_batch, row
from tests.storage.emptying import delete_everything


@pytest.fixture
def root():
    """A root in memory with the topic ``flights`` of four partitions."""
    name = uuid.uuid4().hex
    Admin(f"memory://{name}").create_topics([NewTopic("flights", 4)])
    yield f"memory://{name}"
    delete_everything(open_store(f"memory://{name}"))


@pytest.fixture
def producer(root):
    with Producer(root, linger_ms=0) as producer:
        yield producer


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def sender(producer, clock):
    return LineSender(producer, "flights", 1, clock)


def batch(*values, key=None):
    return record_batch([row(value, key) for value in values])


def contents(root, partition=1):
    cluster = Cluster(root)
    return values(cluster.partition_log(cluster.topic("flights"), partition))


class TestSending:
    def test_waits_for_more_lines_and_a_flush_does_not(self, root, producer, sender):
        sender.add(batch(b"one"))
        sender.add(batch(b"two", b"three"))
        producer.flush()
        assert contents(root) == []
        sender.flush()
        assert contents(root) == [(0, b"one"), (1, b"two"), (2, b"three")]

    def test_happens_when_gathered_records_are_a_second_old(self, root, producer, sender, clock):
        sender.add(batch(b"one"))
        clock.advance_ms(999)
        sender.add(batch(b"two"))
        producer.flush()
        assert contents(root) == []
        clock.advance_ms(1)
        sender.add(batch(b"three"))
        producer.flush()
        assert contents(root) == [(0, b"one"), (1, b"two"), (2, b"three")]

    def test_keeps_a_bounded_number_of_bytes_in_memory(self, sender, producer, monkeypatch):
        monkeypatch.setattr(line_sender, "TABLE_BYTES", 10_000)
        for _ in range(50):
            sender.add(batch(b"x" * 5_000))
            metrics = producer.metrics()["producer-metrics"]
            assert metrics["records-in-flight"] <= 2 * (line_sender.MAX_TABLES + 1)
        sender.flush()
        assert sender.records == 50

    def test_without_a_partition_goes_where_the_key_belongs(self, root, producer, clock):
        # Kafka's UtilsTest.testMurmur2: -973932308, -790332482, 479470107.
        sender = LineSender(producer, "flights", None, clock)
        sender.add(record_batch([row(key, key) for key in (b"21", b"foobar", b"abc")]))
        sender.flush()
        found = {number: contents(root, number) for number in range(4)}
        assert found == {0: [(0, b"21")], 1: [], 2: [(0, b"foobar")], 3: [(0, b"abc")]}


class TestAppended:
    def test_says_between_which_offsets_records_are(self, root, producer, sender):
        producer.send("flights", b"another's", partition=1).result(60)
        sender.add(batch(b"one", b"two"))
        sender.flush()
        producer.send("flights", b"another's", partition=1).result(60)
        sender.add(batch(b"three"))
        sender.flush()
        assert sender.appended == {1: AppendedRecords(3, 1, 4)}
        assert sender.records == 3

    def test_of_nothing_is_nothing(self, sender):
        sender.add(batch())
        sender.flush()
        assert (sender.appended, sender.records) == ({}, 0)

    def test_counts_what_was_acknowledged_behind_an_error(self, root, producer, clock):
        compacted = ConfigResource("topic", "flights", {"cleanup.policy": "compact"})
        Admin(root).alter_configs([compacted])
        sender = LineSender(producer, "flights", 1, clock)
        sender.add(batch(b"no key"))
        clock.advance_ms(line_sender.MAX_LINGER_MS)

        def send_both():  # either call may raise the error of the first record
            sender.add(batch(b"one", key=b"a"))
            sender.flush()

        with pytest.raises(InvalidRecordError, match="no key"):
            send_both()
        producer.flush()
        sender.count_late()
        assert sender.appended == {1: AppendedRecords(1, 0, 0)}
