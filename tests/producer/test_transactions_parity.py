"""Other cases of Kafka's tests of transactions (docs/internals/transactions-parity.md has all)."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from spark_log import (
    Consumer,
    ConsumerGroupMetadata,
    ConsumerRecord,
    IllegalStateError,
    KafkaTimeoutError,
    OffsetAndMetadata,
    Producer,
    ProducerFencedError,
    StorageError,
    StorageTimeoutError,
    TopicPartition,
    TransactionAbortableError,
    UnknownOutcomeError,
)
from spark_log.cluster import Cluster
from spark_log.storage.local import LocalStore
from spark_log.transaction import TransactionCoordinator
from tests.producer.support import SteppedProducer, committed, headers, new_root, run, values
from tests.striped_topics import is_in

PATIENCE_S = 60
STATE_LOG = "__transaction_state/ids"
T0 = TopicPartition("t", 0)
LATE_CALLS: dict[str, Callable[[Producer], object]] = {
    "same partition": lambda it: it.send("t", b"late", partition=0).result(PATIENCE_S),
    "new partition": lambda it: it.send("t", b"late", partition=1).result(PATIENCE_S),
    "offsets": lambda it: it.send_offsets_to_transaction(
        {T0: OffsetAndMetadata(110)}, ConsumerGroupMetadata("g")
    ),
    "commit": lambda it: it.commit_transaction(),
}


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, ("t", 2), ("many", 10), ("other", 10))


@pytest.fixture
def make(root):
    """Makes transactional producers, which are closed at the end."""
    made = []

    def make(**settings):
        defaults: dict[str, Any] = {"transactional_id": "id", "retry_backoff_ms": 1}
        made.append(Producer(root, **defaults | settings))
        return made[-1]

    yield make
    for producer in made:
        producer.close(timeout=PATIENCE_S)


@pytest.fixture
def producer(make):
    producer = make()
    producer.init_transactions()
    return producer


@pytest.fixture
def stepped(root, clock):
    """An initialized producer without threads, on a manual clock; `run` makes it append."""
    producer = SteppedProducer(
        root, clock=clock, transactional_id="id", retry_backoff_ms=100, delivery_timeout_ms=5_000
    )
    producer.init_transactions()
    return producer


@pytest.fixture
def failures(monkeypatch):
    """Errors of the next puts: ``failures[text] = errors`` for paths that contain a text."""
    errors: dict[str, list[Exception]] = {}
    put_if_absent: Callable[..., Any] = LocalStore.put_if_absent

    def put(self, path, *given, **how):
        for text, those in errors.items():
            if those and is_in(path, text):
                raise those.pop(0)
        return put_if_absent(self, path, *given, **how)

    monkeypatch.setattr(LocalStore, "put_if_absent", put)
    return errors


def all_committed(root, topic):
    return sorted(value for found in committed(root, topic).values() for value in found)


class TestRegistration:
    """Kafka: AddPartitionsToTxn fails for a while, for good, or while a commit waits for it."""

    def test_that_fails_for_a_while_is_tried_again(self, root, producer, failures):
        failures[STATE_LOG] = [StorageTimeoutError("slow")] * 3
        with producer.transaction():
            producer.send("t", b"a", partition=0)
        assert committed(root, "t")[0] == [b"a"]

    def test_that_fails_for_good_lets_the_transaction_only_be_aborted(
        self, root, producer, failures
    ):
        failures[STATE_LOG] = [StorageError("read-only")]
        producer.begin_transaction()
        sent = producer.send("t", b"a", partition=0)
        assert sent.exception(PATIENCE_S) is not None
        for call in (producer.commit_transaction, lambda: producer.send("t", b"b")):
            with pytest.raises(TransactionAbortableError, match="read-only"):
                call()
        producer.abort_transaction()
        assert headers(root, "t") == [], "nothing was appended, and nothing needs a marker"
        with producer.transaction():
            producer.send("t", b"c", partition=0)
        assert committed(root, "t")[0] == [b"c"]

    def test_of_one_partition_fails_the_commit_that_waits_for_it(self, root, make, failures):
        producer = make(linger_ms=3_600_000, delivery_timeout_ms=3_600_000)
        producer.init_transactions()
        producer.begin_transaction()
        first = producer.send("t", b"a", partition=0)
        producer.flush()
        assert first.result(PATIENCE_S).offset == 0
        failures[STATE_LOG] = [StorageError("read-only")]
        producer.send("t", b"b", partition=1)
        with pytest.raises(TransactionAbortableError, match="read-only"):
            producer.commit_transaction()
        producer.abort_transaction()
        assert all_committed(root, "t") == []
        assert headers(root, "t", 1) == []


class TestAbortDuringARegistration:
    """Kafka: the abort begins before the registration is answered."""

    @pytest.mark.parametrize("outcome", ["stored", "lost", "refused"])
    def test_resolves_the_registration_and_nothing_is_appended(
        self, root, producer, monkeypatch, outcome
    ):
        is_reached, may_go_on = threading.Event(), threading.Event()
        put_if_absent: Callable[..., Any] = LocalStore.put_if_absent

        def hold(self, path, *given, **how):
            if STATE_LOG not in path or is_reached.is_set():
                return put_if_absent(self, path, *given, **how)
            is_reached.set()
            assert may_go_on.wait(PATIENCE_S)
            if outcome == "refused":
                raise StorageError("read-only")
            stored = put_if_absent(self, path, *given, **how)
            if outcome == "lost":
                raise UnknownOutcomeError("the answer was lost")
            return stored

        monkeypatch.setattr(LocalStore, "put_if_absent", hold)
        producer.begin_transaction()
        sent = producer.send("t", b"a", partition=0)
        assert is_reached.wait(PATIENCE_S)
        with pytest.raises(KafkaTimeoutError):
            producer.abort_transaction(timeout=0)
        may_go_on.set()
        producer.abort_transaction()
        assert sent.exception(0) is not None
        assert values(root, "t")[0] == []
        with producer.transaction():
            producer.send("t", b"b", partition=0)
        assert committed(root, "t")[0] == [b"b"]


class TestExpiredRecords:
    """Kafka: batches expire unsent, in one or two partitions, or while a commit waits for them."""

    @pytest.mark.parametrize("partitions", [1, 2])
    def test_let_the_transaction_only_be_aborted(self, root, stepped, clock, failures, partitions):
        failures["/t-"] = [StorageTimeoutError("slow")] * 1_000
        stepped.begin_transaction()
        sent = [stepped.send("t", b"a", partition=each) for each in range(partitions)]
        run(stepped, clock, until_ms=20_000)
        errors = [each.exception(0) for each in sent]
        assert any(isinstance(each, KafkaTimeoutError) for each in errors)
        assert all(
            isinstance(each, KafkaTimeoutError | TransactionAbortableError) for each in errors
        )
        with pytest.raises(TransactionAbortableError):
            stepped.commit_transaction()
        failures.clear()
        stepped.abort_transaction()
        stepped.begin_transaction()
        stepped.send("t", b"b", partition=0)
        run(stepped, clock)
        stepped.commit_transaction()
        assert all_committed(root, "t") == [b"b"]
        data = [each for each in headers(root, "t") if not each.is_control]
        assert [(each.producer_epoch, each.base_sequence) for each in data] == [(1, 0)]

    def test_fail_the_commit_that_waits_for_them(self, root, make, failures):
        producer = make(linger_ms=0, delivery_timeout_ms=200)
        producer.init_transactions()
        failures["/t-"] = [StorageTimeoutError("slow")] * 1_000_000
        producer.begin_transaction()
        sent = producer.send("t", b"a", partition=0)
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        assert isinstance(sent.exception(0), KafkaTimeoutError)
        failures.clear()
        producer.abort_transaction()
        assert committed(root, "t")[0] == []


class TestTakeoverThatFails:
    def test_fences_nobody_and_uses_one_epoch_however_often_it_is_tried(
        self, root, producer, make, failures
    ):
        """Kafka fences in memory before its log has the epoch (`hasFailedEpochFence`)."""
        with producer.transaction():
            producer.send("t", b"a", partition=0)
        second = make()
        failures[STATE_LOG] = [StorageError("read-only")] * 2
        for _ in range(2):
            with pytest.raises(StorageError, match="read-only"):
                second.init_transactions()
        assert failures[STATE_LOG] == []
        with producer.transaction():
            producer.send("t", b"b", partition=0)
        second.init_transactions()
        producer.begin_transaction()
        late = producer.send("t", b"late", partition=0)
        assert isinstance(late.exception(PATIENCE_S), ProducerFencedError)
        with second.transaction():
            second.send("t", b"c", partition=0)
        assert committed(root, "t")[0] == [b"a", b"b", b"c"]
        data = [each for each in headers(root, "t") if not each.is_control]
        assert [each.producer_epoch for each in data] == [0, 1, 3]


class TestFencedWhileItWrites:
    """Kafka: a fenced producer sends, adds a partition, sends offsets or commits."""

    @pytest.mark.parametrize("what", LATE_CALLS)
    def test_nothing_of_it_is_committed_and_the_new_owner_goes_on(self, root, producer, make, what):
        producer.begin_transaction()
        producer.send("t", b"1", partition=0).result(PATIENCE_S)
        owner = make()
        owner.init_transactions()
        owner.begin_transaction()
        owner.send("t", b"2", partition=0).result(PATIENCE_S)
        with pytest.raises((ProducerFencedError, TransactionAbortableError)):
            LATE_CALLS[what](producer)
        with pytest.raises(ProducerFencedError):
            producer.abort_transaction()
        owner.commit_transaction()
        assert all_committed(root, "t") == [b"2"]
        assert values(root, "t")[1] == []


def test_many_partitions_of_two_topics_are_aborted_and_committed(root, producer):
    """Kafka: markers for many partitions of one leader; here, each partition gets its own."""
    producer.begin_transaction()
    for number in range(200):
        producer.send("many", b"x%d" % number, partition=number % 10)
        producer.send("other", b"x%d" % number, partition=number % 10)
    producer.flush()
    producer.abort_transaction()
    expected = [b"%d" % number for number in range(100)]
    with producer.transaction():
        for number, value in enumerate(expected):
            producer.send("many", value, partition=number % 10)
    assert all_committed(root, "many") == sorted(expected)
    assert all_committed(root, "other") == []
    assert sum(map(len, values(root, "many").values())) == 300
    for partition in range(10):
        markers = [each for each in headers(root, "many", partition) if each.is_control]
        assert len(markers) == 2, "one for each transaction"


def test_a_read_of_everything_at_once_leaves_out_the_aborted_transaction_between(root, make):
    """Kafka: the fetch waits for more bytes than the log has, and knows what was aborted."""
    aborting, committing = make(), make(transactional_id="other")
    for each in (aborting, committing):
        each.init_transactions()
        each.begin_transaction()
    for owner, value in (
        (committing, b"x1"),
        (aborting, b"y1"),
        (aborting, b"y2"),
        (committing, b"x2"),
    ):
        owner.send("t", value, partition=0).result(PATIENCE_S)
    aborting.abort_transaction()
    committing.commit_transaction()
    consumer = Consumer(
        root=root,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        fetch_min_bytes=100_000,
        fetch_max_wait_ms=100,
    )
    with consumer:
        consumer.assign([T0])
        found: list[ConsumerRecord] = []
        while len(found) < 2:
            found += consumer.poll(1_000).get(T0, [])
    assert [(each.offset, each.value) for each in found] == [(0, b"x1"), (3, b"x2")]


class TestCallsInWrongStates:
    def test_change_nothing_and_the_producer_goes_on(self, root, make):
        """Kafka: an invalid transition in the caller's thread is recoverable."""
        producer = make()
        for call in ("begin_transaction", "commit_transaction", "abort_transaction"):
            with pytest.raises(IllegalStateError):
                getattr(producer, call)()
        producer.init_transactions()
        for call in ("init_transactions", "commit_transaction", "abort_transaction"):
            with pytest.raises(IllegalStateError):
                getattr(producer, call)()
        with producer.transaction():
            with pytest.raises(IllegalStateError):
                producer.begin_transaction()
            producer.send("t", b"a", partition=0)
        assert committed(root, "t")[0] == [b"a"]

    def test_an_error_when_nothing_is_open_changes_nothing(self, root, producer):
        """Kafka: an abortable error before the first registration; the abort asks nobody."""
        producer.begin_transaction()
        assert producer.send("t", b"x" * 2_000_000, partition=0).exception(PATIENCE_S)
        producer.abort_transaction()
        state = TransactionCoordinator(Cluster(root), "id").refresh()
        assert (state.state, state.transaction) == ("Empty", 0)
