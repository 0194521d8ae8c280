"""The log lines of a stuck producer, and how often each is written."""

import logging
import re

import pytest

from spark_log import (
    Admin,
    KafkaTimeoutError,
    NewTopic,
    StorageTimeoutError,
    UnknownOutcomeError,
)
from spark_log.record import ProducerIdAndEpoch
from tests.log.support import done_but, failing
from tests.producer.support import ANY_TIME, SteppedProducer, by_hand, hooked, new_root, run

SLOW = StorageTimeoutError("slow")


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, "orders")


@pytest.fixture
def lines(caplog):
    """Returns the lines of producers since the last call, as ``LEVEL text``."""
    caplog.set_level(logging.DEBUG, "spark_log.producer")

    def take():
        taken = [
            f"{record.levelname} {record.getMessage()}"
            for record in caplog.records
            if record.name.startswith("spark_log.producer")
        ]
        caplog.clear()
        return taken

    return take


def matches(lines, *patterns):
    """Whether the lines are those of the patterns, in their order."""
    assert len(lines) == len(patterns), "\n".join(lines)
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), f"{line!r} is not {pattern!r}"
    return True


@pytest.mark.partition_logs_only("a put of a stripe has its own line")
def test_a_producer_whose_root_is_taken_away_tells_its_story(root, clock, lines):
    """The excerpt in docs/operations.md has these lines."""
    producer = by_hand(
        root, clock, client_id="orders-service", linger_ms=5, delivery_timeout_ms=1_000
    )
    producer.send("orders", b"0")
    run(producer, clock)
    assert matches(
        lines(),
        r"INFO orders-service: opened at \S+: acks=all, linger.ms=5, delivery.timeout.ms=1000, "
        r"transactional.id=None",
        r"DEBUG orders: metadata refreshed in \d+ ms: id \S+, 1 partitions",
        r"DEBUG orders-0: put in flight: 1 batches, 1 records, \d+ bytes of memory",
        r"DEBUG orders-0: opened the log orders\.\S+/orders-0",
        r"DEBUG orders-0: appended offsets 0 to 0 in \d+ ms: attempt 1, \d+ bytes, "
        r"ProducerAppend\(producer_id=\d+, producer_epoch=0, base_sequence=0, "
        r"is_transactional=False\)",
    )
    away = root.with_name("away")
    root.rename(away)
    root.mkdir()  # the empty directory of a mount
    sent = [producer.send("orders", b"%d" % number) for number in range(100)]
    run(producer, clock)
    missing = (
        r"the root \S+ cannot be found \(no meta\.properties\): mount it again, or move it back"
    )
    expired = (
        r"orders-0: a batch of \d+ records is not acknowledged after delivery\.timeout\.ms "
        rf"\(1000\); it was not appended; the last error was: {missing}"
    )
    assert matches(
        lines(),
        r"DEBUG orders-0: put in flight: 1 batches, 100 records, \d+ bytes of memory",
        rf"INFO orders-0: attempt 1 of an append failed, retry in \d+ ms: {missing}",
        rf"DEBUG orders-0: attempt 2 of an append failed, retry in \d+ ms: {missing}",
        rf"DEBUG orders-0: attempt 3 of an append failed, retry in \d+ ms: {missing}",
        rf"DEBUG orders-0: attempt 4 of an append failed, retry in \d+ ms: {missing}",
        rf"WARNING {expired}\. Further expired batches of this partition are logged at debug "
        r"level, until an append to it succeeds",
    )
    assert all(isinstance(future.exception(0), KafkaTimeoutError) for future in sent)
    producer.send("orders", b"more")
    run(producer, clock)
    assert re.fullmatch(f"DEBUG {expired}", lines()[-1])
    root.rmdir()
    away.rename(root)
    producer.close()
    assert matches(lines(), r"INFO orders-service: closed: 1 records were acknowledged, 101 failed")


def test_expired_batches_are_warned_of_again_after_a_successful_append(root, clock, lines):
    producer = by_hand(root, clock, linger_ms=0, delivery_timeout_ms=1_000)
    store = hooked(producer)

    def warnings_of_expired_batches(count):
        store.on("put_if_absent", failing(SLOW))
        for _ in range(count):
            producer.send("orders", b"x")
            run(producer, clock)
        store.hooks.clear()
        return [line for line in lines() if line.startswith("WARNING")]

    assert len(warnings_of_expired_batches(3)) == 1
    producer.send("orders", b"y").add_errback(pytest.fail)
    run(producer, clock)
    assert len(warnings_of_expired_batches(2)) == 1


def puts(store):
    return len(store.called("put_if_absent"))


def test_an_outcome_that_is_unknown_is_told(root, clock, lines):
    producer = by_hand(root, clock, linger_ms=0)
    store = hooked(producer)
    store.once("put_if_absent", done_but(UnknownOutcomeError("the answer was lost")))
    store.on("list", lambda path, call: failing(SLOW)(path, call) if puts(store) else call())
    producer.send("orders", b"x")
    producer.run_once()
    store.hooks.clear()
    run(producer, clock)
    assert any(
        "attempt 1 of an append failed, retry in" in line and "(outcome unknown)" in line
        for line in lines()
    )


def test_a_producer_that_is_fenced_says_so_once(root, clock, lines):
    newer = SteppedProducer(root, clock=clock, linger_ms=0, identity=ProducerIdAndEpoch(7, 1))
    newer.send("orders", b"x")
    run(newer, clock)
    older = SteppedProducer(root, clock=clock, linger_ms=0, identity=ProducerIdAndEpoch(7, 0))
    older.send("orders", b"y")
    run(older, clock)
    (fenced,) = [line for line in lines() if "is fenced" in line]
    assert fenced.startswith("INFO orders-0: this producer is fenced, and accepts no more records")


def test_records_of_a_deleted_topic_are_moved_to_the_new_one(root, clock, lines):
    producer = by_hand(root, clock, linger_ms=0)
    producer.send("orders", b"x")
    run(producer, clock)
    Admin(root).delete_topics(["orders"])
    Admin(root).create_topics([NewTopic("orders", 1, topic_configs=ANY_TIME)])
    sent = producer.send("orders", b"y")
    run(producer, clock)
    assert sent.result(0).offset == 0
    assert "DEBUG orders-0: the topic was deleted; a new one has 1 partitions" in lines()


def test_the_steps_of_a_transaction_are_told(root, lines):
    with SteppedProducer(root, transactional_id="id", linger_ms=0) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        sent = producer.send("orders", b"x")
        while not sent.done():
            producer.run_once()
        producer.commit_transaction()
        producer.begin_transaction()
        producer.abort_transaction()
    steps = [line for line in lines() if line.startswith("DEBUG transactional id 'id': ")]
    assert [step.removeprefix("DEBUG transactional id 'id': ") for step in steps] == [
        "UNINITIALIZED -> INITIALIZING",
        "INITIALIZING -> READY",
        "READY -> IN_TRANSACTION",
        steps[3].removeprefix("DEBUG transactional id 'id': "),
        "IN_TRANSACTION -> COMMITTING_TRANSACTION",
        "COMMITTING_TRANSACTION -> READY",
        "READY -> IN_TRANSACTION",
        "IN_TRANSACTION -> ABORTING_TRANSACTION",
        "ABORTING_TRANSACTION -> READY",
    ]
    assert "registered 1 partitions, ProducerIdAndEpoch(" in steps[3]
