"""The partitions of a stripe share a producer's puts, and each has its own outcome."""

import pyarrow as pa
import pytest

from spark_log import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    InvalidProducerEpochError,
    KafkaTimeoutError,
    NewTopic,
    RecordTooLargeError,
    StorageTimeoutError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import stripe
from spark_log.record import ProducerIdAndEpoch
from tests.log.support import done_but, failing
from tests.producer.support import ANY_TIME, by_hand, committed, hooked, new_root, run, values

TIMEOUT = StorageTimeoutError("slow")
LOST = UnknownOutcomeError("the answer was lost")
PARTITIONS = 8
EVEN = range(0, PARTITIONS, 2)


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, ("flights", PARTITIONS), stripes=2)


def objects(store):
    """The paths of objects that were put, each attempt once."""
    return [path for path in store.called("put_if_absent") if path.endswith(".stripe")]


def send_to(producer, partitions, value=b"x"):
    return {each: producer.send("flights", value, partition=each) for each in partitions}


def test_one_put_for_the_partitions_of_each_stripe(root, clock):
    producer = by_hand(root, clock, linger_ms=5)
    store = hooked(producer)
    sent = send_to(producer, range(PARTITIONS))
    run(producer, clock)
    assert len(objects(store)) == 2
    assert {each: sent[each].result(0).offset for each in sent} == dict.fromkeys(sent, 0)
    assert values(root, "flights") == {key: [b"x"] for key in range(PARTITIONS)}


def test_a_batch_does_not_linger_longer_than_the_put_of_its_stripe(root, clock):
    producer = by_hand(root, clock, linger_ms=1_000)
    store = hooked(producer)
    (first,) = send_to(producer, [0]).values()
    clock.advance_ms(900)
    late = send_to(producer, [2, 3])
    clock.advance_ms(100)
    assert producer.run_once()
    assert first.done()
    assert late[2].done(), "it is of the same stripe"
    assert not late[3].done()
    assert len(objects(store)) == 1


def test_tables_share_the_put_too(root, clock):
    producer = by_hand(root, clock, linger_ms=5)
    store = hooked(producer)
    table = pa.table({"value": pa.array([b"a", b"b"], pa.binary())})
    sent = [producer.send_table("flights", table, partition=each) for each in EVEN]
    sent += [producer.send("flights", b"c", partition=each) for each in EVEN]
    run(producer, clock)
    assert all(each.done() for each in sent)
    assert len(objects(store)) == 1
    found = values(root, "flights")
    assert {each: found[each] for each in EVEN} == {key: [b"a", b"b", b"c"] for key in EVEN}


@pytest.mark.parametrize("failure", [failing(TIMEOUT), failing(LOST), done_but(LOST)])
def test_a_put_that_failed_is_one_put_again(root, clock, failure):
    producer = by_hand(root, clock, linger_ms=5, retry_backoff_ms=100)
    store = hooked(producer)
    sent = send_to(producer, EVEN)
    store.once("put_if_absent", failure)
    run(producer, clock)
    assert all(each.result(0).offset == 0 for each in sent.values())
    assert len(objects(store)) <= 2
    found = values(root, "flights")
    assert {each: found[each] for each in EVEN} == {key: [b"x"] for key in EVEN}


def test_partitions_that_wait_for_their_retry_do_not_hold_up_the_others(root, clock):
    producer = by_hand(root, clock, linger_ms=0, retry_backoff_ms=100)
    store = hooked(producer)
    failed = send_to(producer, [0])
    store.once("put_if_absent", failing(TIMEOUT))
    assert producer.run_once()
    others = send_to(producer, [0, 2], b"y")
    assert producer.run_once()
    assert others[2].done()
    assert not failed[0].done()
    run(producer, clock)
    assert values(root, "flights")[0] == [b"x", b"y"]


def test_a_record_that_is_refused_fails_alone(tmp_path, clock):
    root = new_root(tmp_path, ("flights", PARTITIONS), stripes=2)
    producer = by_hand(root, clock, linger_ms=5)
    store = hooked(producer)
    sent = send_to(producer, EVEN)
    large = producer.send("flights", b"x" * 2_000, partition=2)
    sent[PARTITIONS] = producer.send("flights", b"y", partition=2)
    with Admin(root) as admin:
        topic = ConfigResource(ConfigResourceType.TOPIC, "flights", {"max.message.bytes": 1_000})
        admin.alter_configs([topic])
    producer.refresh("flights")
    run(producer, clock)
    assert isinstance(large.exception(0), RecordTooLargeError)
    assert all(each.result(0).offset >= 0 for each in sent.values())
    assert len(objects(store)) == 1
    assert values(root, "flights")[2] == [b"x", b"y"]


def test_a_newer_producer_fences(root, clock):
    old = by_hand(root, clock, linger_ms=5, identity=ProducerIdAndEpoch(7, 0))
    new = by_hand(root, clock, linger_ms=5, identity=ProducerIdAndEpoch(7, 1))
    send_to(old, EVEN, b"old")
    run(old, clock)
    send_to(new, [2], b"new")
    run(new, clock)
    sent = send_to(old, [0, 2, 4], b"late")
    run(old, clock)
    assert isinstance(sent[2].exception(0), InvalidProducerEpochError)
    found = values(root, "flights")
    assert found[2] == [b"old", b"new"]
    for each in (0, 4):  # they were put, and are acknowledged before the producer is unusable
        assert sent[each].result(0).offset == 1
        assert found[each] == [b"old", b"late"]


def test_batches_that_expire_are_not_in_a_later_object(root, clock):
    producer = by_hand(root, clock, linger_ms=0, delivery_timeout_ms=1_000)
    store = hooked(producer)
    store.on("put_if_absent", failing(TIMEOUT))
    sent = send_to(producer, EVEN)
    producer.run_once()
    clock.advance_ms(1_000)
    producer.fail_expired()
    assert all(isinstance(each.exception(0), KafkaTimeoutError) for each in sent.values())
    store.hooks.clear()
    send_to(producer, [0], b"y")
    run(producer, clock)
    assert values(root, "flights") == {0: [b"y"]} | {key: [] for key in range(1, PARTITIONS)}


def test_records_of_acks_0_are_acknowledged_before_their_put(root, clock):
    producer = by_hand(root, clock, linger_ms=0, acks="0")
    store = hooked(producer)
    store.once("put_if_absent", failing(TIMEOUT))
    sent = send_to(producer, EVEN)
    producer.run_once()
    assert all(each.result(0).offset == -1 for each in sent.values())
    send_to(producer, EVEN, b"y")
    run(producer, clock)
    assert values(root, "flights")[0] == [b"y"], "the first put failed, and is not repeated"


class TestDeletedTopic:
    def test_its_records_move_to_a_new_topic_of_its_name(self, root, clock):
        producer = by_hand(root, clock, linger_ms=5)
        sent = send_to(producer, EVEN, b"old")
        with Admin(root) as admin:
            admin.delete_topics(["flights"])
            configs = {**ANY_TIME, "stripes": 2}
            admin.create_topics([NewTopic("flights", PARTITIONS, topic_configs=configs)])
        run(producer, clock)
        assert all(each.result(0).offset == 0 for each in sent.values())
        found = values(root, "flights")
        assert {each: found[each] for each in EVEN} == {key: [b"old"] for key in EVEN}

    def test_the_metadata_are_read_for_all_partitions_at_once(self, root, clock, monkeypatch):
        producer = by_hand(root, clock, linger_ms=5)
        sent = send_to(producer, EVEN)
        with Admin(root) as admin:
            admin.delete_topics(["flights"])
        refreshed = []
        its_sender = producer._runtime.sender  # noqa: SLF001 - what it calls is counted
        refresh = its_sender._refresh  # noqa: SLF001

        def counted_refresh(topic):
            refreshed.append(topic)
            return refresh(topic)

        monkeypatch.setattr(its_sender, "_refresh", counted_refresh)
        run(producer, clock)
        for each in sent.values():
            assert isinstance(each.exception(0), UnknownTopicOrPartitionError)
        assert refreshed == ["flights"]


class TestTransactions:
    def test_one_put_for_the_markers_of_a_stripe(self, root, clock):
        producer = by_hand(root, clock, linger_ms=5, transactional_id="t")
        store = hooked(producer)
        producer.init_transactions()
        producer.begin_transaction()
        sent = send_to(producer, range(PARTITIONS))
        run(producer, clock)
        assert all(each.done() for each in sent.values())
        assert len(objects(store)) == 2
        producer.commit_transaction()
        producer.close()
        assert len(objects(store)) == 4, "two of records, two of markers"
        found = committed(root, "flights")
        assert found == {key: [b"x"] for key in range(PARTITIONS)}

    def test_an_aborted_one_is_not_read(self, root, clock):
        producer = by_hand(root, clock, linger_ms=5, transactional_id="t")
        producer.init_transactions()
        for number, end in enumerate(["abort_transaction", "commit_transaction"]):
            producer.begin_transaction()
            send_to(producer, EVEN, b"%d" % number)
            run(producer, clock)
            getattr(producer, end)()
        producer.close()
        found = committed(root, "flights")
        assert {each: found[each] for each in EVEN} == {key: [b"1"] for key in EVEN}


def test_the_next_put_takes_what_one_object_cannot_hold(root, clock, monkeypatch):
    monkeypatch.setattr(stripe, "MAX_GROUP_BYTES", 2 * 16_384)
    producer = by_hand(root, clock, linger_ms=5, batch_size=16_384)
    store = hooked(producer)
    sent = send_to(producer, EVEN)
    run(producer, clock)
    assert all(each.result(0).offset == 0 for each in sent.values())
    assert len(objects(store)) == 2
