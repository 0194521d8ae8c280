"""Transactions of a producer: seen whole or not at all, and what each failure leaves to be done."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from spark_log import (
    Admin,
    CommitFailedError,
    ConsumerGroupMetadata,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidGroupIdError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    NewPartitions,
    OffsetAndMetadata,
    Producer,
    ProducerFencedError,
    RecordTooLargeError,
    SerializationError,
    StorageError,
    StorageTimeoutError,
    TopicPartition,
    TransactionAbortableError,
    TransactionAbortedError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
)
from spark_log.cluster import Cluster
from spark_log.log import PartitionLog
from spark_log.producer.batch.accumulator import Accumulator
from spark_log.producer.batch.producer_batch import ProducerBatch
from spark_log.producer.batch.topic_router import TopicRouter
from spark_log.producer.transaction.transactional_identity import TransactionalIdentity
from spark_log.record import ProducerAppend
from spark_log.storage.local import LocalStore
from spark_log.transaction import (
    TransactionCoordinator,
    TransactionState,
    TransactionStateLog,
    coordinator,
)
from spark_log.util.clock import SystemClock
from tests.producer.support import SteppedProducer, committed, headers, new_root, run, values
from tests.record.samples import numbered
from tests.striped_topics import is_in
from tests.waiting import wait_until

PATIENCE_S = 60
LOST = UnknownOutcomeError("the answer was lost")
NOTHING: dict[int, list[bytes]] = {0: [], 1: [], 2: []}


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, ("t", 3), ("other", 1))


@pytest.fixture
def make(root):
    """Makes transactional producers, which are closed at the end."""
    made = []

    def make(**settings):
        defaults: dict[str, Any] = {"transactional_id": "id", "retry_backoff_ms": 1}
        producer = Producer(root, **defaults | settings)
        made.append(producer)
        return producer

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
    producer = SteppedProducer(root, clock=clock, transactional_id="id", retry_backoff_ms=100)
    producer.init_transactions()
    return producer


@pytest.fixture
def puts(monkeypatch):
    """Hooks puts whose path has a text: ``puts(text, hook)``; a hook gets path and call."""
    hooks: dict[str, Callable[..., Any]] = {}
    put_if_absent = LocalStore.put_if_absent

    def put(self, path, *given, **how):
        for text, hook in list(hooks.items()):
            if is_in(path, text):
                return hook(path, lambda: put_if_absent(self, path, *given, **how))
        return put_if_absent(self, path, *given, **how)

    monkeypatch.setattr(LocalStore, "put_if_absent", put)
    return hooks


class Gate:
    """A hook that holds calls up until `open` is called."""

    def __init__(self):
        self.is_reached, self._may_go_on = threading.Event(), threading.Event()
        self._error: Exception | None = None

    def __call__(self, path, call):
        self.is_reached.set()
        assert self._may_go_on.wait(PATIENCE_S)
        if self._error is not None:
            raise self._error
        return call()

    def fail(self, error):
        """Let the calls fail."""
        self._error = error
        self.open()

    def open(self):
        self._may_go_on.set()


def changes(root, transactional_id="id"):
    """The names of the changes in a state log, in order."""
    cluster = Cluster(root)
    log = TransactionStateLog(cluster.store, transactional_id, cluster.clock)._log  # noqa: SLF001 - the records, of which it shows the last
    found = (batch.records.column("value").to_pylist() for batch in log.scan(0))
    return [json.loads(value)["data"]["change"] for values in found for value in values]


def state_of(root, transactional_id="id"):
    return TransactionCoordinator(Cluster(root), transactional_id).refresh()


def fail_once(error):
    """A hook that raises at its first call."""
    failed: list[str] = []

    def fail(path, call):
        if not failed:
            failed.append(path)
            raise error
        return call()

    return fail


def lose_once(error=LOST):
    """A hook that makes its first call, and loses the answer."""
    lost: list[str] = []

    def lose(path, call):
        call()
        if not lost:
            lost.append(path)
            raise error

    return lose


@pytest.fixture
def lost_answers(puts, monkeypatch):
    """Loses the answers of the appends to a topic, and of the looks for them; returns the paths."""
    paths = []
    list_files = LocalStore.list

    def lose(path, call):
        paths.append(path)
        call()
        raise LOST

    def list_unless_lost(self, *given, **options):
        if paths and puts.get("/t-") is lose:
            raise LOST
        return list_files(self, *given, **options)

    puts["/t-"] = lose
    monkeypatch.setattr(LocalStore, "list", list_unless_lost)
    return paths


@pytest.fixture
def lost_looks(puts, monkeypatch):
    """Loses the answer of the next change, then the storage fails, as long as it is looked up.

    ``lost_looks(error, after)``: what ``after`` does happens before the next attempt of the call.
    """
    errors: list[Exception] = []
    list_files, open_buffer = LocalStore.list, LocalStore.open_buffer

    def fail(path):
        if errors and path.startswith("__transaction_state"):
            raise errors[0]

    def list_unless_lost(self, directory, *given, **options):
        fail(directory)
        return list_files(self, directory, *given, **options)

    def open_unless_lost(self, path):
        fail(path)
        return open_buffer(self, path)

    def lose_looks(error, after=None):
        def lose(path, call):
            call()
            errors.append(error)
            raise LOST

        def sleep_ms(self, ms):
            if errors:
                errors.clear()
                puts.clear()
                after()

        puts["__transaction_state/ids"] = lose
        if after is not None:
            monkeypatch.setattr(SystemClock, "sleep_ms", sleep_ms)
        return errors

    monkeypatch.setattr(LocalStore, "list", list_unless_lost)
    monkeypatch.setattr(LocalStore, "open_buffer", open_unless_lost)
    return lose_looks


class TestSettings:
    def test_the_id_needs_idempotence(self, root):
        for contradiction in ({"enable_idempotence": False}, {"acks": "1"}, {"retries": 0}):
            with pytest.raises(InvalidConfigurationError, match=r"needs enable\.idempotence"):
                Producer(root, transactional_id="id", **contradiction)

    def test_an_empty_id_is_refused(self, root):
        with pytest.raises(InvalidConfigurationError, match="expected string not empty"):
            Producer(root, transactional_id="")

    @pytest.mark.parametrize(
        "call",
        ["init_transactions", "begin_transaction", "commit_transaction", "abort_transaction"],
    )
    def test_without_the_id_there_are_no_transactions(self, root, call):
        with (
            Producer(root) as producer,
            pytest.raises(IllegalStateError, match=f"{call}: .*give Producer a transactional_id"),
        ):
            getattr(producer, call)()

    def test_the_timeout_is_that_of_the_state_which_others_read(self, root, make):
        make(transaction_timeout_ms=1_234).init_transactions()
        assert state_of(root).timeout_ms == 1_234


class TestCommit:
    def test_makes_the_records_of_all_partitions_visible(self, root, producer):
        producer.begin_transaction()
        for number in range(30):
            producer.send("t", b"%d" % number, partition=number % 3)
        producer.flush()
        assert committed(root, "t") == NOTHING
        producer.commit_transaction()
        assert committed(root, "t") == {
            partition: [b"%d" % number for number in range(partition, 30, 3)]
            for partition in range(3)
        }

    def test_appends_what_waits_although_it_lingers(self, root, make):
        producer = make(linger_ms=3_600_000, delivery_timeout_ms=3_600_000)
        producer.init_transactions()
        producer.begin_transaction()
        sent = producer.send("t", b"a", partition=0)
        producer.commit_transaction()
        assert sent.done()
        assert committed(root, "t")[0] == [b"a"]

    def test_raises_the_epoch_and_each_begins_with_sequence_number_0(self, root, producer):
        for _ in range(3):
            with producer.transaction():
                for number in range(2):
                    producer.send("t", b"%d" % number, partition=0).result(PATIENCE_S)
        data = [each for each in headers(root, "t") if not each.is_control]
        assert all(each.is_transactional for each in data)
        assert len({each.producer_id for each in data}) == 1
        found = [(each.producer_epoch, each.base_sequence) for each in data]
        assert found == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]

    def test_gets_a_new_producer_id_however_often_that_fails_before(
        self, root, producer, puts, monkeypatch
    ):
        for module in ("state", "decisions", "coordinator"):
            monkeypatch.setattr(f"spark_log.transaction.{module}.LAST_EPOCH", 2)
        tried = []

        def fail(path, call):
            tried.append(path)
            if len(tried) < 5:  # by `commit_transaction`, and by the next record until it succeeds
                raise StorageTimeoutError("slow")
            return call()

        puts["__transaction_state/producers"] = fail
        for number in range(4):
            with producer.transaction():
                producer.send("t", b"%d" % number, partition=0)
        assert committed(root, "t")[0] == [b"0", b"1", b"2", b"3"]
        data = [each for each in headers(root, "t") if not each.is_control]
        assert [each.producer_epoch for each in data] == [0, 1, 0, 1]
        assert data[2].producer_id > data[1].producer_id

    def test_partitions_with_waiting_records_are_registered_by_one_append(
        self, root, stepped, clock
    ):
        with stepped.transaction():
            for partition in range(3):
                stepped.send("t", b"a", partition=partition)
            stepped.send("other", b"a")
            run(stepped, clock)
            assert changes(root) == ["initialize", "register"]
            stepped.send("t", b"b", partition=0)
            run(stepped, clock)
        assert changes(root) == ["initialize", "register", "commit"]
        assert len(committed(root, "t")[0]) == 2

    def test_partitions_that_threads_have_taken_are_registered_by_one_append(
        self, root, make, monkeypatch
    ):
        taken = threading.Barrier(3, timeout=PATIENCE_S)
        next_append = TransactionalIdentity.next_append

        def meet(self, queue):
            taken.wait()
            return next_append(self, queue)

        producer = make(linger_ms=0)
        producer.init_transactions()
        monkeypatch.setattr(TransactionalIdentity, "next_append", meet)
        with producer.transaction():
            for partition in range(3):
                producer.send("t", b"a", partition=partition)
        assert changes(root) == ["initialize", "register", "commit"]
        assert committed(root, "t") == {number: [b"a"] for number in range(3)}

    @pytest.mark.partition_logs_only("markers go through logs of partitions")
    @pytest.mark.parametrize("is_synced", [False, True])
    def test_markers_of_quick_partitions_are_put_by_one_thread(
        self, tmp_path, monkeypatch, is_synced
    ):
        monkeypatch.setattr(coordinator, "_QUICK_MS", -1.0)  # every decision takes long
        threads = []
        append_markers = PartitionLog.append_markers

        def note(self, markers):
            threads.append(threading.current_thread().name.rpartition("_")[0])
            return append_markers(self, markers)

        monkeypatch.setattr(PartitionLog, "append_markers", note)
        root = new_root(tmp_path, ("t", 3), **{"flush.on.append": is_synced})
        with Producer(root, transactional_id="id") as producer:
            producer.init_transactions()
            with producer.transaction():
                for partition in range(3):
                    producer.send("t", b"a", partition=partition)
        assert threads == ["spark-log-markers" if is_synced else "spark-log-commit"] * 3

    def test_one_that_appends_nothing_writes_nothing(self, root, producer):
        for _ in range(2):
            with producer.transaction():
                pass
        producer.begin_transaction()
        producer.abort_transaction()
        assert changes(root) == ["initialize"]

    def test_of_tables(self, root, producer):
        table = pa.table({"value": [b"a", b"b", b"c"], "partition": [0, 1, 2]})
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            producer.send_table("t", table)
        with producer.transaction():
            producer.send_table("t", table)
        producer.begin_transaction()
        producer.send_table("t", table).result(PATIENCE_S)
        producer.abort_transaction()
        assert committed(root, "t") == {0: [b"a"], 1: [b"b"], 2: [b"c"]}
        assert values(root, "t")[0] == [b"a", b"a"]

    def test_a_lost_answer_to_the_decision_is_looked_up(self, root, producer, puts):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        puts["__transaction_state/ids"] = lose_once()
        producer.commit_transaction()
        assert committed(root, "t")[0] == [b"a"]
        assert changes(root).count("commit") == 1
        with producer.transaction():
            producer.send("t", b"b", partition=0)
        assert committed(root, "t")[0] == [b"a", b"b"]

    def test_a_lost_answer_to_the_registration_is_looked_up(self, root, producer, puts):
        puts["__transaction_state/ids"] = lose_once()
        with producer.transaction():
            producer.send("t", b"a", partition=0)
        assert committed(root, "t")[0] == [b"a"]
        assert all(each.is_transactional for each in headers(root, "t"))

    def test_a_decision_that_cannot_be_stored_now_is_tried_again(self, root, producer, puts):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        puts["__transaction_state/ids"] = fail_once(StorageTimeoutError("slow"))
        producer.commit_transaction()
        assert committed(root, "t")[0] == [b"a"]

    def test_one_that_cannot_be_stored_at_all_can_be_aborted(self, root, producer, puts):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        puts["__transaction_state/ids"] = fail_once(StorageError("read-only"))
        with pytest.raises(StorageError, match="read-only"):
            producer.commit_transaction()
        with pytest.raises(TransactionAbortableError, match="call abort_transaction"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"b", partition=0)
        assert committed(root, "t")[0] == [b"b"]

    def test_one_that_may_be_stored_says_so_when_the_storage_fails(
        self, root, producer, make, puts, lost_looks
    ):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        failing = lost_looks(StorageError("read-only"))
        with pytest.raises(UnknownOutcomeError, match=r"may have been made.*read-only"):
            producer.commit_transaction()
        puts.clear()
        failing.clear()
        with pytest.raises(InvalidTxnStateError, match="it is committed"):
            producer.abort_transaction()
        make().init_transactions()
        assert committed(root, "t")[0] == [b"a"]

    def test_one_that_may_be_stored_says_so_when_another_producer_takes_over(
        self, root, producer, make, lost_looks
    ):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        lost_looks(StorageTimeoutError("slow"), lambda: make().init_transactions())
        with pytest.raises(ProducerFencedError) as fenced:
            producer.commit_transaction()
        assert "it may have been made" in fenced.value.__notes__[0]
        assert committed(root, "t")[0] == [b"a"]

    def test_records_keep_their_order_when_many_threads_send(self, root, producer):
        def send(name):
            for number in range(200):
                producer.send("t", b"%d.%d" % (name, number), partition=0)

        with producer.transaction():
            threads = [threading.Thread(target=send, args=[name]) for name in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        found = committed(root, "t")[0]
        assert len(found) == 800
        for name in range(4):
            mine = [each for each in found if each.startswith(b"%d." % name)]
            assert mine == [b"%d.%d" % (name, number) for number in range(200)]

    @pytest.mark.partition_logs_only("markers go through logs of partitions")
    def test_puts_markers_by_the_logs_that_the_appends_have_left(self, make, monkeypatch):
        """Those know the end of the log: a marker is then one request."""
        release, wait, idle_log = (
            ProducerBatch.release_records,
            Accumulator.wait_until_idle,
            Accumulator.idle_log,
        )
        waits, logs = threading.Event(), []

        def release_when_waited_for(batch):
            waits.wait(1)
            release(batch)

        def tell_and_wait(accumulator, places):
            waits.set()
            wait(accumulator, places)

        def note(accumulator, place):
            logs.append(idle_log(accumulator, place))
            return logs[-1]

        monkeypatch.setattr(ProducerBatch, "release_records", release_when_waited_for)
        monkeypatch.setattr(Accumulator, "wait_until_idle", tell_and_wait)
        monkeypatch.setattr(Accumulator, "idle_log", note)
        producer = make()
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"a", partition=0)
        assert logs
        assert all(log is not None for log in logs)


class TestSend:
    def test_outside_of_a_transaction_is_refused(self, root, make):
        producer = make()
        with pytest.raises(IllegalStateError, match="call init_transactions first"):
            producer.send("t", b"a")
        producer.init_transactions()
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            producer.send("t", b"a")
        with producer.transaction():
            for _ in range(3):  # leaves an open batch in the sticky partition
                producer.send("t", b"a")
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            producer.send("t", b"b")
        assert sum(map(len, committed(root, "t").values())) == 3

    def test_while_the_commit_runs_is_refused(self, root, producer, puts):
        producer.begin_transaction()
        producer.send("t", b"a")
        puts["/t-"] = gate = Gate()
        with pytest.raises(KafkaTimeoutError):
            producer.commit_transaction(timeout=0)
        with pytest.raises(IllegalStateError, match="commit_transaction has not ended"):
            producer.send("t", b"b")
        gate.open()
        producer.commit_transaction()
        assert [each for found in committed(root, "t").values() for each in found] == [b"a"]

    def test_that_began_before_the_abort_is_refused_after_it(self, root, producer, monkeypatch):
        route = TopicRouter.route
        aborts: list[str] = []

        def route_and_abort(router, topic):
            found = route(router, topic)
            if not aborts:
                aborts.append(topic)
                producer.abort_transaction()
            return found

        producer.begin_transaction()
        monkeypatch.setattr(TopicRouter, "route", route_and_abort)
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            producer.send("t", b"a", partition=0)
        assert aborts

    def test_that_waits_for_room_when_the_transaction_is_aborted_is_refused(self, root, make, puts):
        producer = make(buffer_memory=1_000, batch_size=1_000)
        producer.init_transactions()
        producer.begin_transaction()
        puts["/t-"] = gate = Gate()
        producer.send("t", b"a" * 900, partition=0)
        refused = []

        def send():
            with pytest.raises(IllegalStateError) as caught:
                producer.send("t", b"b" * 900, partition=0)
            refused.append(caught.value)

        thread = threading.Thread(target=send)
        thread.start()
        wait_until(lambda: producer.metrics()["producer-metrics"]["waiting-threads"])
        assert gate.is_reached.wait(PATIENCE_S)
        with pytest.raises(KafkaTimeoutError):
            producer.abort_transaction(timeout=0)
        gate.open()
        producer.abort_transaction()
        thread.join(PATIENCE_S)
        assert len(refused) == 1
        assert committed(root, "t") == NOTHING


class TestComplete:
    def test_is_part_of_the_next_transaction_or_of_the_close(self, root, producer):
        for _ in range(2):
            with producer.transaction():
                producer.send("t", b"a", partition=0)
        assert changes(root) == ["initialize", "register", "commit", "register", "commit"]
        producer.close()
        assert changes(root)[-2:] == ["commit", "complete"]
        assert state_of(root).state is TransactionState.COMPLETE_COMMIT


class TestAbort:
    def test_drops_what_waits_and_its_futures_say_so(self, root, make):
        producer = make(linger_ms=3_600_000, delivery_timeout_ms=3_600_000)
        producer.init_transactions()
        producer.begin_transaction()
        sent = [producer.send("t", b"a", partition=number % 3) for number in range(9)]
        producer.abort_transaction()
        for each in sent:
            assert isinstance(each.exception(0), TransactionAbortedError)
            assert "its transaction was aborted" in str(each.exception(0))
        assert values(root, "t") == NOTHING

    def test_hides_what_is_in_the_log(self, root, producer):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"b", partition=0)
        assert values(root, "t")[0] == [b"a", b"b"]
        assert committed(root, "t")[0] == [b"b"]

    def test_waits_for_what_is_on_its_way(self, root, producer, puts):
        puts["/t-"] = gate = Gate()
        producer.begin_transaction()
        sent = producer.send("t", b"a", partition=0)
        producer.send("t", b"b", partition=0)
        assert gate.is_reached.wait(PATIENCE_S)
        with pytest.raises(KafkaTimeoutError, match="abort_transaction has not ended after 0"):
            producer.abort_transaction(timeout=0)
        assert not sent.done()
        gate.open()
        producer.abort_transaction()
        assert sent.result(0).offset == 0
        assert committed(root, "t") == NOTHING

    def test_does_not_wait_for_a_retry_of_what_is_on_its_way(self, root, make, puts):
        producer = make(
            retry_backoff_ms=3_600_000,
            retry_backoff_max_ms=3_600_000,
            delivery_timeout_ms=7_200_000,
        )
        producer.init_transactions()
        producer.begin_transaction()
        puts["/t-"] = gate = Gate()
        sent = producer.send("t", b"a", partition=0)
        assert gate.is_reached.wait(PATIENCE_S)
        with pytest.raises(KafkaTimeoutError):
            producer.abort_transaction(timeout=0)
        gate.fail(StorageTimeoutError("slow"))
        producer.abort_transaction(PATIENCE_S)
        assert isinstance(sent.exception(0), StorageTimeoutError)

    def test_retries_nothing(self, root, stepped, puts, clock):
        puts["/t-"] = fail_once(StorageTimeoutError("slow"))
        stepped.begin_transaction()
        sent = stepped.send("t", b"a", partition=0)
        run(stepped, clock, until_ms=20)
        assert not sent.done()  # it is to be retried
        stepped.abort_transaction()
        assert isinstance(sent.exception(0), TransactionAbortedError)
        stepped.begin_transaction()
        again = stepped.send("t", b"b", partition=0)
        run(stepped, clock, until_ms=20)  # it does not wait for the retry of the other one
        assert again.result(0).offset == 1, "behind the marker"

    def test_of_what_is_registered_and_not_appended_puts_markers(self, root, stepped, puts, clock):
        puts["/t-"] = fail_once(StorageTimeoutError("slow"))
        stepped.begin_transaction()
        stepped.send("t", b"a", partition=0)
        run(stepped, clock, until_ms=20)
        stepped.abort_transaction()
        assert changes(root) == ["initialize", "register", "abort"]
        assert [each.is_control for each in headers(root, "t")] == [True]

    def test_that_could_not_be_stored_can_be_called_again(self, root, producer, puts):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        puts["__transaction_state/ids"] = fail_once(StorageError("read-only"))
        with pytest.raises(StorageError, match="read-only"):
            producer.abort_transaction()
        producer.abort_transaction()
        assert state_of(root).state is TransactionState.PREPARE_ABORT


class TestFailedRecords:
    def fail_one(self, producer, how):
        """Let a record fail; return its error."""
        if how == "too large":
            return producer.send("t", b"x" * 2_000_000, partition=1).exception(PATIENCE_S)
        return producer.send("t", 5, partition=1).exception(PATIENCE_S)

    @pytest.mark.parametrize(
        ("how", "error"), [("too large", RecordTooLargeError), ("serializer", SerializationError)]
    )
    def test_make_the_transaction_abortable_and_fail_what_waits(self, root, make, how, error):
        settings = {"value_serializer": bytes.strip} if how == "serializer" else {}
        producer = make(linger_ms=3_600_000, delivery_timeout_ms=3_600_000, **settings)
        producer.init_transactions()
        producer.begin_transaction()
        waiting = producer.send("t", b"a", partition=0)
        assert isinstance(self.fail_one(producer, how), error)
        assert isinstance(waiting.exception(PATIENCE_S), TransactionAbortableError)
        for call in (
            lambda: producer.send("t", b"b"),
            producer.commit_transaction,
            producer.begin_transaction,
        ):
            with pytest.raises(TransactionAbortableError, match="call abort_transaction") as caught:
                call()
            assert isinstance(caught.value.__cause__, error)
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"c", partition=0)
        assert committed(root, "t") == {0: [b"c"], 1: [], 2: []}

    def test_of_an_append_that_fails_fail_the_commit(self, root, producer, puts):
        puts["/t-1"] = fail_once(StorageError("read-only"))
        producer.begin_transaction()
        sent = [producer.send("t", b"a", partition=number) for number in range(3)]
        with pytest.raises(TransactionAbortableError, match="read-only"):
            producer.commit_transaction()
        assert str(sent[1].exception(0)) == "read-only"
        producer.abort_transaction()
        assert committed(root, "t") == NOTHING

    def test_of_an_unknown_outcome_that_expired_is_aborted_wherever_it_is(
        self, root, clock, puts, lost_answers
    ):
        stepped = SteppedProducer(
            root, clock=clock, transactional_id="id", delivery_timeout_ms=1_000
        )
        stepped.init_transactions()
        stepped.begin_transaction()

        sent = stepped.send("t", b"a", partition=0)
        run(stepped, clock, until_ms=5_000)
        assert lost_answers
        assert isinstance(sent.exception(0), UnknownOutcomeError)
        puts.clear()
        with pytest.raises(TransactionAbortableError):
            stepped.commit_transaction()
        stepped.abort_transaction()
        stepped.begin_transaction()
        stepped.send("t", b"b", partition=0)
        run(stepped, clock)
        stepped.commit_transaction()
        assert committed(root, "t")[0] == [b"b"]
        assert values(root, "t")[0] == [b"a", b"b"]

    def test_a_record_for_no_topic_is_the_callers_to_handle(self, root, producer):
        with producer.transaction():
            with pytest.raises(UnknownTopicOrPartitionError):
                producer.send("none", b"a")
            producer.send("t", b"b", partition=0)
        assert committed(root, "t")[0] == [b"b"]


class TestTimeout:
    def test_nothing_is_put_when_it_has_passed(self, root, stepped, puts, clock):
        stepped.begin_transaction()
        sent = stepped.send("t", b"a", partition=0)
        clock.advance_ms(60_000)
        run(stepped, clock)
        assert isinstance(sent.exception(0), TransactionAbortableError)
        assert "transaction.timeout.ms (60000)" in str(sent.exception(0))
        with pytest.raises(TransactionAbortableError):
            stepped.commit_transaction()
        stepped.abort_transaction()
        assert changes(root) == ["initialize"]
        assert headers(root, "t") == []

    def test_no_retry_of_an_unknown_outcome_is_put_either(self, stepped, puts, lost_answers, clock):
        stepped.begin_transaction()
        sent = stepped.send("t", b"a", partition=0)
        run(stepped, clock, until_ms=50)
        assert not sent.done()
        assert len(lost_answers) == 1
        puts["/t-"] = lambda path, call: lost_answers.append(path)
        clock.advance_ms(60_000)
        run(stepped, clock)
        assert "transaction.timeout.ms" in str(sent.exception(0))
        assert len(lost_answers) == 1

    def test_a_commit_after_it_is_refused(self, root, stepped, clock):
        stepped.begin_transaction()
        stepped.send("t", b"a", partition=0)
        run(stepped, clock)
        clock.advance_ms(60_000)
        with pytest.raises(TransactionAbortableError, match=r"transaction\.timeout\.ms"):
            stepped.commit_transaction()
        stepped.abort_transaction()
        assert committed(root, "t") == NOTHING

    def test_when_others_have_aborted_for_it_the_producer_aborts_and_goes_on(self, root, producer):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        coordinator = TransactionCoordinator(Cluster(root), "id")
        coordinator.expire(coordinator.refresh().transaction)
        coordinator.complete()
        late = producer.send("t", b"b", partition=0)
        assert isinstance(late.exception(PATIENCE_S), TransactionAbortableError)
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"c", partition=0)
        assert committed(root, "t")[0] == [b"c"]

    @pytest.mark.parametrize("finished", [True, False])
    def test_a_commit_that_others_have_aborted_is_abortable(self, root, producer, finished):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        coordinator = TransactionCoordinator(Cluster(root), "id")
        coordinator.expire(coordinator.refresh().transaction)
        if finished:
            coordinator.complete()
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"c", partition=0)
        assert committed(root, "t")[0] == [b"c"]


class TestTakeover:
    def test_aborts_what_a_killed_process_left_open(self, root, producer, make):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        after = make()
        after.init_transactions()
        with after.transaction():
            after.send("t", b"b", partition=0)
        assert committed(root, "t")[0] == [b"b"]

    def test_fences_the_producer_before_whatever_it_does_next(self, root, producer, make):
        make().init_transactions()
        producer.begin_transaction()  # reads and writes nothing, so it notices nothing
        sent = producer.send("t", b"a", partition=0)
        assert isinstance(sent.exception(PATIENCE_S), ProducerFencedError)
        for call in (
            lambda: producer.send("t", b"b"),
            producer.commit_transaction,
            producer.abort_transaction,
            producer.begin_transaction,
            producer.init_transactions,
        ):
            with pytest.raises(ProducerFencedError):
                call()
        assert values(root, "t") == NOTHING

    def test_who_sees_that_a_record_is_fenced_can_send_no_more(self, make):
        producer = make(linger_ms=3_600_000, delivery_timeout_ms=3_600_000)
        producer.init_transactions()
        make().init_transactions()
        producer.begin_transaction()
        found = []

        def send_another(sent):
            with pytest.raises(ProducerFencedError):
                producer.send("t", b"b", partition=1)
            found.append(sent.exception(0))

        producer.send("t", b"a", partition=0).add_done_callback(send_another)
        producer.flush(PATIENCE_S)
        assert [type(each) for each in found] == [ProducerFencedError]

    def test_a_commit_of_the_producer_before_is_fenced(self, root, producer, make):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        make().init_transactions()
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()
        with pytest.raises(ProducerFencedError):
            producer.abort_transaction()
        assert committed(root, "t") == NOTHING

    def test_an_append_of_the_producer_before_is_refused_and_its_abort_says_why(
        self, root, producer, make
    ):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        make().init_transactions()
        late = producer.send("t", b"b", partition=0)
        assert isinstance(late.exception(PATIENCE_S), TransactionAbortableError)
        with pytest.raises(ProducerFencedError):
            producer.abort_transaction()
        with pytest.raises(ProducerFencedError):
            producer.begin_transaction()
        assert values(root, "t")[0] == [b"a"]

    def test_a_late_record_of_the_producer_before_lets_the_transaction_only_be_aborted(
        self, root, producer, make
    ):
        """It stood still until the log had forgotten it: no epoch refuses its record."""
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        following = make()
        following.init_transactions()
        cluster = Cluster(root)
        late = ProducerAppend(state_of(root).owner.producer_id, 0, 0, is_transactional=True)
        cluster.partition_log(cluster.topic("t"), 1).append(numbered(0, 1), producer=late)
        following.begin_transaction()
        refused = following.send("t", b"b", partition=1)
        assert isinstance(refused.exception(PATIENCE_S), TransactionAbortableError)
        following.abort_transaction()
        with following.transaction():
            following.send("t", b"c", partition=1)
        assert committed(root, "t")[1] == [b"c"]

    def test_other_ids_are_left_alone(self, root, producer, make):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0)
        other = make(transactional_id="other")
        other.init_transactions()
        with other.transaction():
            other.send("t", b"b", partition=1)
        producer.commit_transaction()
        assert committed(root, "t") == {0: [b"a"], 1: [b"b"], 2: []}


class TestTimeoutsOfCalls:
    def test_the_same_call_waits_on_and_any_other_one_is_refused(self, root, make, puts):
        producer = make()
        for call, text in (
            ("init_transactions", "__transaction_state/ids"),
            ("commit_transaction", "/t-"),
            ("abort_transaction", "/t-"),
        ):
            if call != "init_transactions":
                producer.begin_transaction()
            puts[text] = gate = Gate()
            if call != "init_transactions":
                producer.send("t", b"a", partition=0)
                assert gate.is_reached.wait(PATIENCE_S)
            for _ in range(2):
                with pytest.raises(KafkaTimeoutError, match=f"{call} has not ended after 0 s"):
                    getattr(producer, call)(timeout=0)
            for other in ("begin_transaction", "commit_transaction", "abort_transaction"):
                if other != call:
                    with pytest.raises(IllegalStateError, match=f"call {call} again"):
                        getattr(producer, other)()
            gate.open()
            del puts[text]
            getattr(producer, call)()
            with pytest.raises(IllegalStateError):
                getattr(producer, call)()
        assert committed(root, "t")[0] == [b"a"]

    def test_an_outcome_that_nobody_waited_for_is_kept(self, root, producer, puts):
        puts["/t-"] = gate = Gate()
        producer.begin_transaction()
        producer.send("t", b"a", partition=0)
        with pytest.raises(KafkaTimeoutError):
            producer.commit_transaction(timeout=0)
        gate.open()
        wait_until(lambda: committed(root, "t")[0] == [b"a"])
        with pytest.raises(IllegalStateError, match="call commit_transaction again"):
            producer.begin_transaction()
        producer.commit_transaction()
        producer.begin_transaction()

    def test_init_that_failed_may_be_called_again(self, root, make, puts):
        producer = make()
        puts["__transaction_state/ids"] = fail_once(StorageError("read-only"))
        with pytest.raises(StorageError, match="read-only"):
            producer.init_transactions()
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"a", partition=0)
        assert committed(root, "t")[0] == [b"a"]


class TestContext:
    def test_aborts_when_its_body_raises(self, root, producer):
        def fail():
            with producer.transaction() as inside:
                assert inside is producer
                producer.send("t", b"a", partition=0).result(PATIENCE_S)
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        producer.begin_transaction()
        assert committed(root, "t") == NOTHING

    def test_aborts_before_it_raises_what_failed(self, root, producer):
        def fail():
            with producer.transaction():
                producer.send("t", b"a", partition=0)
                producer.send("t", b"x" * 2_000_000)

        with pytest.raises(TransactionAbortableError):
            fail()
        with producer.transaction():
            producer.send("t", b"b", partition=0)
        assert committed(root, "t")[0] == [b"b"]

    def test_notes_that_it_could_not_abort(self, producer, make):
        def fail():
            with producer.transaction():
                producer.send("t", b"a", partition=0).result(PATIENCE_S)
                make().init_transactions()
                raise KeyError

        with pytest.raises(KeyError) as caught:
            fail()
        assert "abort_transaction failed: " in caught.value.__notes__[0]

    def test_does_not_begin_in_another_transaction(self, producer):
        with (
            producer.transaction(),
            pytest.raises(IllegalStateError, match="a transaction is open"),
            producer.transaction(),
        ):
            pass


class TestClose:
    def test_aborts_an_open_transaction(self, root, producer):
        producer.begin_transaction()
        waiting = producer.send("t", b"a", partition=0)
        producer.close()
        assert waiting.done()
        assert not state_of(root).participants or state_of(root).is_aborted
        assert committed(root, "t") == NOTHING
        with pytest.raises(IllegalStateError, match="closed"):
            producer.begin_transaction()

    def test_waits_for_a_commit_that_runs(self, root, producer, puts):
        puts["/t-"] = gate = Gate()
        producer.begin_transaction()
        producer.send("t", b"a", partition=0)
        with pytest.raises(KafkaTimeoutError):
            producer.commit_transaction(timeout=0)
        closing = threading.Thread(target=producer.close)
        closing.start()
        gate.open()
        closing.join(PATIENCE_S)
        assert committed(root, "t")[0] == [b"a"]

    def test_leaves_what_cannot_be_aborted_to_others(self, root, producer, make, puts, caplog):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        puts["__transaction_state/ids"] = fail_once(StorageError("read-only"))
        producer.close()
        assert "its transaction may be open: read-only" in caplog.text
        make().init_transactions()
        assert committed(root, "t") == NOTHING

    def test_in_a_callback_a_call_that_would_wait_for_itself_is_refused(self, producer):
        caught = []

        def commit(_):
            try:
                producer.commit_transaction()
            except IllegalStateError as error:
                caught.append(error.message)

        with producer.transaction():
            sent = producer.send("t", b"a", partition=0)
            sent.add_done_callback(commit)
            producer.flush()
        assert "commit_transaction was called in a callback" in caught[0]


class TestPartitions:
    def test_that_are_added_meanwhile_are_registered_too(self, root, make):
        producer = make(metadata_max_age_ms=0)
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"a", partition=0)
            Admin(root).create_partitions({"t": NewPartitions(4)})
            producer.send("t", b"b", partition=3)
        assert committed(root, "t")[3] == [b"b"]


class TestOffsets:
    T0 = TopicPartition("t", 0)
    MEMBER = ConsumerGroupMetadata("g", 5, "m")
    STANDALONE = ConsumerGroupMetadata("g")

    def test_are_registered_and_kept_for_the_decision(self, root, producer):
        producer.begin_transaction()
        for offset in (3, 4):
            producer.send_offsets_to_transaction(
                {self.T0: OffsetAndMetadata(offset, "meta", 2)}, self.STANDALONE
            )
        (participant,) = state_of(root).participants.values()
        assert participant.groups == {"g"}
        (kept,) = producer._runtime.transactions.offsets  # noqa: SLF001
        topic_id = Cluster(root).topic("t").topic_id
        assert (kept.group_id, kept.topic, kept.topic_id) == ("g", "t", topic_id)
        assert (kept.partition, kept.offset, kept.metadata, kept.leader_epoch) == (0, 4, "meta", 2)
        producer.abort_transaction()
        assert producer._runtime.transactions.offsets == ()  # noqa: SLF001

    def test_are_committed_with_the_records(self, root, producer):
        admin = Admin(root)
        for offset in (3, 4):
            with producer.transaction():
                producer.send("t", b"a", partition=0)
                producer.send_offsets_to_transaction(
                    {self.T0: OffsetAndMetadata(offset, "meta", 2)}, self.STANDALONE
                )
                before = admin.list_group_offsets("g")
                assert [each.offset for each in before.values()] == ([3] if offset > 3 else [])
        assert admin.list_group_offsets("g") == {self.T0: OffsetAndMetadata(4, "meta", 2)}

    def test_of_no_member_let_the_transaction_only_be_aborted(self, root, producer):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0)
        with pytest.raises(CommitFailedError, match="'m' is not a member any more"):
            producer.send_offsets_to_transaction({self.T0: OffsetAndMetadata(1)}, self.MEMBER)
        with pytest.raises(TransactionAbortableError, match="'m' is not a member any more"):
            producer.commit_transaction()
        producer.abort_transaction()
        assert committed(root, "t")[0] == []

    def test_are_registered_again_after_an_error_that_may_pass(self, root, producer, puts):
        puts["__transaction_state/ids"] = fail_once(StorageTimeoutError("slow"))
        producer.begin_transaction()
        producer.send_offsets_to_transaction({self.T0: OffsetAndMetadata(3)}, self.STANDALONE)
        (participant,) = state_of(root).participants.values()
        assert participant.groups == {"g"}

    def test_that_cannot_be_registered_in_time_may_be_sent_again(self, producer, puts):
        puts["__transaction_state/ids"] = fail_once(StorageTimeoutError("slow"))
        offsets = {self.T0: OffsetAndMetadata(3)}
        producer.begin_transaction()
        with pytest.raises(KafkaTimeoutError, match="send_offsets_to_transaction did not end"):
            producer.send_offsets_to_transaction(offsets, self.STANDALONE, timeout=0)
        producer.send_offsets_to_transaction(offsets, self.STANDALONE, timeout=0)

    def test_that_cannot_be_registered_at_all_fail_the_transaction(self, root, producer, puts):
        puts["__transaction_state/ids"] = fail_once(StorageError("read-only"))
        producer.begin_transaction()
        with pytest.raises(StorageError, match="read-only"):
            producer.send_offsets_to_transaction({self.T0: OffsetAndMetadata(3)}, self.STANDALONE)
        with pytest.raises(TransactionAbortableError):
            producer.send("t", b"a")
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"b", partition=0)
        assert committed(root, "t")[0] == [b"b"]

    def test_no_offsets_change_nothing(self, root, producer):
        with producer.transaction():
            producer.send_offsets_to_transaction({}, self.MEMBER)
        assert changes(root) == ["initialize"]

    @pytest.mark.parametrize(
        ("offsets", "group", "error"),
        [
            ({T0: 5}, MEMBER, TypeError),
            ({T0: OffsetAndMetadata(1)}, "g", TypeError),
            ({T0: OffsetAndMetadata(1)}, ConsumerGroupMetadata("g", 5, ""), ValueError),
            ({T0: OffsetAndMetadata(1)}, ConsumerGroupMetadata(), InvalidGroupIdError),
            (
                {TopicPartition("none", 0): OffsetAndMetadata(1)},
                MEMBER,
                UnknownTopicOrPartitionError,
            ),
            ({TopicPartition("t", 9): OffsetAndMetadata(1)}, MEMBER, UnknownTopicOrPartitionError),
        ],
    )
    def test_wrong_arguments_are_refused_and_the_transaction_goes_on(
        self, root, producer, offsets, group, error
    ):
        with producer.transaction():
            with pytest.raises(error):
                producer.send_offsets_to_transaction(offsets, group)
            producer.send("t", b"a", partition=0)
        assert committed(root, "t")[0] == [b"a"]

    def test_outside_of_a_transaction_are_refused(self, producer):
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            producer.send_offsets_to_transaction({self.T0: OffsetAndMetadata(1)}, self.MEMBER)

    def test_of_a_fenced_producer_are_refused_for_good(self, producer, make):
        make().init_transactions()
        producer.begin_transaction()
        for _ in range(2):
            with pytest.raises(ProducerFencedError):
                producer.send_offsets_to_transaction({self.T0: OffsetAndMetadata(1)}, self.MEMBER)
