"""A consumer whose group's offsets are committed by transactions (KIP-447)."""

import threading

import pytest

from spark_log import (
    Admin,
    CommitFailedError,
    KafkaTimeoutError,
    OffsetAndMetadata,
    Producer,
    WakeupError,
)
from tests.consumer.support import PATIENCE_MS, T0, append, numbered, poll_until, values_of

SETTINGS = {"group_id": "g", "enable_auto_commit": False}
SHORT_MS = 30


@pytest.fixture
def open_producer(root):
    opened = []

    def open_producer(name="tx", **settings):
        opened.append(Producer(root, transactional_id=name, **settings))
        opened[-1].init_transactions()
        return opened[-1]

    yield open_producer
    for producer in opened:
        producer.close()


def send(producer, consumer, offset):
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(offset)}, consumer.group_metadata())


@pytest.fixture
def consumer(root, open_consumer):
    """A member that has read four records of ten."""
    append(root, numbered(0, 10))
    consumer = open_consumer("t", **SETTINGS)
    assert sum(map(len, consumer.poll(PATIENCE_MS, max_records=4).values())) == 4
    return consumer


def test_the_next_member_goes_on_behind_a_committed_transaction(
    consumer, open_consumer, open_producer
):
    producer = open_producer()
    with producer.transaction():
        send(producer, consumer, 4)
    consumer.close()
    found = poll_until(open_consumer("t", **SETTINGS), 6)
    assert values_of(found) == numbered(4, 10)


def test_the_next_member_waits_until_a_transaction_is_decided(
    consumer, open_consumer, open_producer
):
    producer = open_producer()
    producer.begin_transaction()
    send(producer, consumer, 4)
    consumer.close()
    following = open_consumer("t", **SETTINGS)
    for _ in range(5):
        assert following.poll(SHORT_MS) == {}
    assert following.assignment() == {T0}
    producer.commit_transaction()
    assert values_of(poll_until(following, 6)) == numbered(4, 10)


def test_the_next_member_aborts_a_transaction_that_has_passed_its_timeout(
    consumer, open_consumer, open_producer
):
    producer = open_producer(transaction_timeout_ms=300)
    producer.begin_transaction()
    send(producer, consumer, 4)
    consumer.close()
    following = open_consumer("t", **SETTINGS)
    assert values_of(poll_until(following, 10)) == numbered(0, 10)
    with pytest.raises(Exception, match="call abort_transaction"):
        producer.commit_transaction()
    producer.abort_transaction()


def test_a_member_that_has_lost_its_partition_cannot_send_offsets(
    root, consumer, open_consumer, open_producer
):
    producer = open_producer()
    with Admin(root) as admin:
        admin.remove_group_members("g", admin.group_members("g"))
    producer.begin_transaction()
    with pytest.raises(CommitFailedError, match="not a member any more"):
        send(producer, consumer, 4)
    producer.abort_transaction()


@pytest.mark.parametrize("call", ["committed", "position"])
def test_what_was_committed_is_told_when_the_transaction_is_decided(
    consumer, open_consumer, open_producer, call
):
    producer = open_producer()
    consumer.commit({T0: OffsetAndMetadata(2)})
    consumer.close()
    reader = open_consumer(**SETTINGS)
    reader.assign([T0])
    producer.begin_transaction()
    send(producer, reader, 4)
    with pytest.raises(KafkaTimeoutError, match="may be committed by the transaction of 'tx'"):
        getattr(reader, call)(T0, timeout_ms=SHORT_MS)
    told = []
    waiting = threading.Thread(target=lambda: told.append(getattr(reader, call)(T0)))
    waiting.start()
    producer.commit_transaction()
    waiting.join()
    assert told == [4]


def test_a_wakeup_ends_the_wait(consumer, open_consumer, open_producer):
    producer = open_producer()
    consumer.close()
    reader = open_consumer(**SETTINGS)
    reader.assign([T0])
    producer.begin_transaction()
    send(producer, reader, 4)
    reader.wakeup()
    with pytest.raises(WakeupError):
        reader.committed(T0)
    producer.abort_transaction()
    assert reader.committed(T0) is None


def test_admin_shows_what_is_committed(root, consumer, open_producer):
    """As in Kafka, where it does not wait for what is not decided."""
    admin, producer = Admin(root), open_producer()
    consumer.commit({T0: OffsetAndMetadata(2)})
    producer.begin_transaction()
    send(producer, consumer, 4)
    (lag,) = admin.group_lag("g")
    assert (lag.current_offset, lag.lag) == (2, 8)
    assert admin.describe_groups(["g"])["g"].group_state == "Stable"
    producer.commit_transaction()
    (lag,) = admin.group_lag("g")
    assert (lag.current_offset, lag.lag) == (4, 6)
