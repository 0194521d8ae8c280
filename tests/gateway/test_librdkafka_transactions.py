"""Transactions of librdkafka, which keeps its epoch from one transaction to the next."""

import pytest

from spark_log import Admin, NewTopic, Producer, TopicPartition
from spark_log.errors import ProducerFencedError, StorageUnavailableError
from spark_log.gateway.transactions import Transactions
from tests.gateway.support import running_gateway

confluent_kafka = pytest.importorskip("confluent_kafka")

TIMEOUT_S = 60


@pytest.fixture
def root(gateway, tmp_path):
    Admin(tmp_path / "root").create_topics([NewTopic("t", 2), NewTopic("out", 1)])
    return tmp_path / "root"


def producer_of(gateway, transactional_id="x", **config):
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": gateway.address,
            "transactional.id": transactional_id,
            "linger.ms": 1,
            "retry.backoff.ms": 20,
            **config,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def send(producer, *values, topic="t", partition=0):
    """Send values in the present transaction, and return when they are acknowledged."""
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def transaction(producer, *values, commits=True, **where):
    producer.begin_transaction()
    send(producer, *values, **where)
    if commits:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.abort_transaction(TIMEOUT_S)


def committed(gateway, topic="t", partition=0, ends_at=0):
    """The values that a consumer with read_committed gets, in order, until it is at an end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": gateway.address,
            "group.id": "unused",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF"
            if message.offset() >= ends_at:
                consumer.close()
                return values
            continue
        values.append(message.value())


def test_transactions_follow_each_other_in_one_epoch(gateway, root):
    producer = producer_of(gateway)
    for number in range(4):
        transaction(producer, b"%d" % number, b"+", partition=0)
        transaction(producer, b"no", commits=False, partition=number % 2)
        transaction(producer, b"%d" % number, partition=1)
    assert committed(gateway) == [b"0", b"+", b"1", b"+", b"2", b"+", b"3", b"+"]
    assert committed(gateway, partition=1) == [b"0", b"1", b"2", b"3"]


def test_a_second_instance_fences_the_first_and_aborts_its_transaction(gateway, root):
    first = producer_of(gateway)
    transaction(first, b"a")
    first.begin_transaction()
    send(first, b"lost")
    second = producer_of(gateway)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        first.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].fatal()
    transaction(second, b"b")
    assert committed(gateway) == [b"a", b"b"]


def test_another_gateway_continues_in_the_midst_of_a_transaction(root, gateway):
    producer = producer_of(gateway)
    transaction(producer, b"a")
    with running_gateway(root) as other:
        producer.begin_transaction()
        send(producer, b"b")
        with other.client() as asking:
            (state,) = asking.ask(
                "DescribeTransactions", 0, transactional_ids=["x"]
            ).transaction_states
            assert state.transaction_state == "Ongoing"
        producer.commit_transaction(TIMEOUT_S)
        assert committed(other) == [b"a", b"b"]


def test_a_transaction_of_which_no_request_has_arrived_is_aborted(gateway, root, monkeypatch):
    producer = producer_of(
        gateway, **{"transaction.timeout.ms": 1_000, "message.timeout.ms": 1_000}
    )
    transaction(producer, b"a")

    def add(*arguments):
        raise StorageUnavailableError("the storage is down")

    with monkeypatch.context() as patch, running_gateway(root) as other:
        patch.setattr(Transactions, "add_kept", add)
        producer.begin_transaction()
        producer.produce("t", b"b", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        producer.abort_transaction(TIMEOUT_S)
        assert committed(other) == [b"a"]
    transaction(producer, b"c")
    assert committed(gateway) == [b"a", b"c"]


def test_records_and_the_offsets_of_a_group_are_committed_together(gateway, root):
    plain = producer_of(gateway, "source")
    transaction(plain, b"1", b"2", b"3", b"4")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": gateway.address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["t"])
    producer = producer_of(gateway, "copy")
    seen: list[bytes] = []
    while len(seen) < 4:
        for message in consumer.consume(2, TIMEOUT_S):
            assert message.error() is None
            seen.append(message.value())
        for commits in (False, True):
            producer.begin_transaction()
            send(producer, *seen[-2:], topic="out")
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
                TIMEOUT_S,
            )
            if commits:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
    consumer.close()
    assert committed(gateway, "out") == [b"1", b"2", b"3", b"4"]
    offsets = Admin(root).list_group_offsets("g")
    assert offsets[TopicPartition("t", 0)].offset >= 4


def test_producers_of_both_kinds_take_over_from_each_other(gateway, root):
    for number in range(2):
        theirs = producer_of(gateway)
        transaction(theirs, b"theirs")
        theirs.begin_transaction()
        send(theirs, b"lost")
        with Producer(root, transactional_id="x") as ours:
            ours.init_transactions()
            for value in (b"ours", b"and ours"):
                ours.begin_transaction()
                ours.send("t", value, partition=0)
                ours.commit_transaction()
            with pytest.raises(confluent_kafka.KafkaException):
                theirs.commit_transaction(TIMEOUT_S)
            ours.begin_transaction()
            ours.send("t", b"lost", partition=0).result(TIMEOUT_S)
            theirs = producer_of(gateway)
            with pytest.raises(ProducerFencedError):
                ours.commit_transaction()
        transaction(theirs, b"%d" % number)
    once = [b"theirs", b"ours", b"and ours"]
    assert committed(gateway) == [*once, b"0", *once, b"1"]


def test_a_transaction_that_has_passed_its_timeout_is_aborted_and_the_producer_fenced(
    gateway, root
):
    producer = producer_of(gateway, **{"transaction.timeout.ms": 1000})
    transaction(producer, b"a")
    producer.begin_transaction()
    send(producer, b"lost")
    transaction(producer_of(gateway, "y"), b"z")
    assert committed(gateway, ends_at=6) == [b"a", b"z"], "an abort after the timeout"
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(TIMEOUT_S)
    transaction(producer_of(gateway), b"b")
    assert committed(gateway) == [b"a", b"z", b"b"]
