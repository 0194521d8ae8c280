"""Transactions that are open for long."""

from pathlib import Path

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.record import ProducerAppend
from spark_log.transaction import TopicIdPartition, TransactionCoordinator
from tests.doctor.support import append
from tests.record.samples import record_batch, row
from tests.transactions import TransactionWriter

MINUTE_MS = 60_000


def begin(cluster, transactional_id, partition=0, timeout_ms=MINUTE_MS):
    """Begin a transaction with one record."""
    coordinator = TransactionCoordinator(cluster, transactional_id)
    producer = coordinator.initialize(timeout_ms)
    topic = cluster.topic("t")
    coordinator.register(producer, [TopicIdPartition(topic.topic_id, partition)])
    sender = ProducerAppend(producer.producer_id, producer.producer_epoch, 0, is_transactional=True)
    cluster.partition_log(topic, partition).append(record_batch([row(b"v")]), producer=sender)
    return coordinator


def test_one_that_nobody_ends(patient, cluster):
    begin(cluster, "orders")
    patient.clock.advance_ms(15 * MINUTE_MS)
    assert patient.findings("transactions") == []
    patient.clock.advance_ms(1000)
    (found,) = patient.findings("transactions")
    assert (found.problem.code, found.subject.text) == (
        "transaction-open",
        "transactional id orders",
    )
    assert "its timeout is 1 min: it blocks readers of t-0" in found.message
    assert found.command == "spark-log clean --all-topics"


def test_one_with_a_long_timeout_is_given_its_time(patient, cluster):
    begin(cluster, "orders", timeout_ms=15 * MINUTE_MS)
    patient.clock.advance_ms(15 * MINUTE_MS)
    assert patient.findings("transactions") == []


def test_one_that_was_decided_and_not_finished(patient, cluster, monkeypatch):
    coordinator = begin(cluster, "orders", partition=1)
    monkeypatch.setattr(coordinator, "complete", lambda: None)
    coordinator.expire(coordinator.state.transaction)
    assert coordinator.state.state == "PrepareAbort"
    patient.clock.advance_ms(16 * MINUTE_MS)
    (found,) = patient.findings("transactions")
    assert found.problem.code == "transaction-unfinished"
    assert found.message == (
        "its transaction was decided (PrepareAbort) 16 min ago, and markers may be missing in t-1"
    )


def test_one_of_other_topics_is_not_wanted(patient, cluster):
    Admin(patient.root).create_topics([NewTopic("u")])
    begin(cluster, "orders")
    patient.clock.advance_ms(16 * MINUTE_MS)
    assert patient.findings("transactions", topics=["u"]) == []
    assert patient.codes("transactions", topics=["t"]) == ["transaction-open"]


def test_one_that_no_transactional_id_has(patient, cluster):
    log = append(cluster, b"before")
    TransactionWriter(log, producer_id=4711).send(b"1")
    log.replica.snapshots.write()
    patient.clock.advance_ms(15 * MINUTE_MS)
    assert patient.findings("transactions") == []
    patient.clock.advance_ms(1000)
    (found,) = patient.findings("transactions")
    assert found.problem.code == "transaction-hanging"
    assert found.subject.text == f"partition {TopicPartition('t', 0).topic}-0"
    assert found.command == "spark-log transactions abort t --partition 0 --start-offset 1"


def test_one_that_ended_after_the_snapshot(patient, cluster):
    log = append(cluster, b"before")
    writer = TransactionWriter(log, producer_id=4711)
    writer.send(b"1")
    log.replica.snapshots.write()
    writer.commit()
    patient.clock.advance_ms(60 * MINUTE_MS)
    assert patient.findings("transactions") == []


def test_a_damaged_state_log_is_a_finding_and_the_others_are_looked_at(patient, cluster):
    begin(cluster, "orders")
    begin(cluster, "payments")
    last = max(Path(patient.root).glob("__transaction_state/ids/orders/*.log"))
    last.write_bytes(last.read_bytes()[:-20])
    patient.clock.advance_ms(16 * MINUTE_MS)
    found = {each.subject.text: each.problem.code for each in patient.findings("transactions")}
    assert found == {
        "transactional id orders": "transaction-damaged",
        "transactional id payments": "transaction-open",
    }
