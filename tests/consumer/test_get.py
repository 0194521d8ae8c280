"""`Consumer.get`: the newest value of a key, in any state of a compacted topic."""

import asyncio
import shutil

import pytest

from spark_log import (
    Admin,
    AIOConsumer,
    Consumer,
    ConsumerRecord,
    NewTopic,
    Producer,
    TopicPartition,
)
from spark_log.errors import (
    InvalidRecordError,
    RecordDeserializationError,
    UnknownTopicOrPartitionError,
)

COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture
def root(tmp_path):
    path = str(tmp_path / "root")
    Admin(path).create_topics([NewTopic("state", 3, topic_configs=COMPACT)])
    return path


@pytest.fixture
def producer(root):
    with Producer(root) as producer:
        yield producer


@pytest.fixture
def consumer(root):
    with Consumer(root=root) as consumer:
        yield consumer


def send(producer, *pairs, **fields):
    """Send records, and return the metadata of the last."""
    futures = [producer.send("state", value, key=key, **fields) for key, value in pairs]
    producer.flush()
    return futures[-1].result()


def value_of(consumer):
    return consumer.get("state", b"k").value


def test_the_record_has_all_fields(producer, consumer):
    sent = send(producer, (b"k", b"v"), headers=[("h", b"1")], timestamp_ms=1_700_000_000_123)
    assert consumer.get("state", b"k") == ConsumerRecord(
        "state", sent.partition, sent.offset, 1_700_000_000_123, 0, b"k", b"v", [("h", b"1")], 0
    )


def test_what_was_acknowledged_is_found_at_once(producer, consumer):
    assert consumer.get("state", b"k") is None
    for value in (b"1", b"2", b"3"):
        send(producer, (b"k", value))
        assert consumer.get("state", b"k").value == value
    send(producer, (b"k", None))
    assert consumer.get("state", b"k") is None
    send(producer, (b"k", b""))
    assert consumer.get("state", b"k").value == b""


def test_other_partitions_are_looked_up_only_if_named(producer, consumer):
    producer.send("state", b"elsewhere", key=b"k", partition=0)
    producer.send("state", b"elsewhere", key=b"k", partition=1)
    producer.flush()
    found = [consumer.get("state", b"k", partition=at) for at in range(3)]
    assert [each and each.partition for each in found] == [0, 1, None]


def test_deserializers_are_applied(root, producer):
    send(producer, (b"k", b"7"), (b"bad", b"x"))
    with Consumer(root=root, key_deserializer=bytes.decode, value_deserializer=int) as consumer:
        found = consumer.get("state", b"k")
        assert found is not None
        assert (found.key, found.value) == ("k", 7)
        with pytest.raises(RecordDeserializationError):
            consumer.get("state", b"bad")


def test_positions_do_not_change(producer, consumer):
    sent = send(producer, (b"k", b"v"))
    tp = TopicPartition("state", sent.partition)
    consumer.assign([tp])
    consumer.seek_to_beginning()
    consumer.get("state", b"k")
    assert consumer.position(tp) == 0


def test_only_committed_records_count_if_asked(root, producer):
    send(producer, (b"k", b"before"))
    with (
        Producer(root, transactional_id="t") as writer,
        Consumer(root=root, isolation_level="read_committed") as committed,
        Consumer(root=root) as uncommitted,
    ):
        writer.init_transactions()
        for is_committed, expected in ((False, b"before"), (True, b"within")):
            writer.begin_transaction()
            writer.send("state", b"within", key=b"k")
            writer.flush()
            assert value_of(committed) == b"before"
            assert value_of(uncommitted) == b"within"
            if is_committed:
                writer.commit_transaction()
            else:
                writer.abort_transaction()
            assert value_of(committed) == expected


def test_mistakes_are_told(consumer):
    with pytest.raises(InvalidRecordError, match="got str"):
        consumer.get("state", "k")
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 3"):
        consumer.get("state", b"k", partition=3)
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no topic"):
        consumer.get("stat", b"k")


def test_it_can_be_awaited(root, producer):
    send(producer, (b"k", b"v"))

    async def get():
        async with AIOConsumer(root=root) as consumer:
            return await consumer.get("state", b"k")

    assert asyncio.run(get()).value == b"v"


def test_another_replica_answers_if_one_is_gone(tmp_path):
    root = str(tmp_path / "root")
    admin = Admin(root)
    admin.register_broker(1, str(tmp_path / "broker-1"))
    admin.create_topics([NewTopic("state", 1, 2, topic_configs=COMPACT)])
    with Producer(root) as producer, Consumer(root=root) as consumer:
        for value in (b"1", b"2"):
            producer.send("state", value, key=b"k").result()
            assert value_of(consumer) == value
        shutil.move(tmp_path / "broker-1", tmp_path / "elsewhere")
        assert value_of(consumer) == b"2"
