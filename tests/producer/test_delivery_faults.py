"""Records on their way when the storage, the topic or the root fails."""

import errno
import os
import shutil

import pytest

from spark_log import (
    Admin,
    CorruptRecordError,
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaTimeoutError,
    LogTruncatedError,
    NewTopic,
    NotFoundError,
    Producer,
    StorageError,
    StorageFullError,
    StorageTimeoutError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
)
from spark_log.cluster import Cluster
from spark_log.log.segment import SegmentWriter
from spark_log.metadata import FIRST_DERIVED_ID
from spark_log.record import ProducerAppend, ProducerIdAndEpoch
from tests.log.support import done_but, failing
from tests.metadata.support import metadata_files
from tests.producer.support import ANY_TIME, by_hand, hooked, new_root, run, values
from tests.record.samples import record_batch, row
from tests.striped_topics import is_in

TIMEOUT = StorageTimeoutError("slow")
FULL = StorageFullError("no space is left")
LOST = UnknownOutcomeError("the answer was lost")


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, ("flights", 2), "weather")


@pytest.fixture
def producer(root, clock):
    return by_hand(root, clock, linger_ms=0, retry_backoff_ms=100, retry_backoff_max_ms=1_000)


def times(count, hook, store, operation):
    """Hook the next ``count`` calls of an operation."""
    left = [count]

    def hooked_call(path, call):
        if left[0] > 0:
            left[0] -= 1
            return hook(path, call)
        return call()

    store.on(operation, hooked_call)


def producer_entries(root, topic, partition=0):
    cluster = Cluster(root)
    return dict(cluster.partition_log(cluster.topic(topic), partition).producers().entries())


class TestRetry:
    def test_its_producer_id_takes_no_change_of_the_metadata(self, root, clock, producer):
        before = metadata_files(root)
        sent = producer.send("weather", b"x")
        run(producer, clock)
        assert sent.result(0).offset == 0
        (producer_id,) = producer_entries(root, "weather")
        assert producer_id >= FIRST_DERIVED_ID
        assert metadata_files(root) == before

    @pytest.mark.parametrize("error", [TIMEOUT, FULL], ids=["slow", "full"])
    def test_what_may_pass_is_tried_again_until_it_does(self, root, clock, producer, error):
        store = hooked(producer)
        times(5, failing(error), store, "put_if_absent")
        began_ms = clock.monotonic_ms()
        sent = [producer.send("weather", b"%d" % number) for number in range(3)]
        run(producer, clock)
        assert [future.result(0).offset for future in sent] == [0, 1, 2]
        assert values(root, "weather") == {0: [b"0", b"1", b"2"]}
        # 100, 200, 400, 800 and 1000 ms, each give or take a fifth.
        assert 0.8 * 2_500 <= clock.monotonic_ms() - began_ms <= 1.2 * 2_500
        assert producer.metrics()["producer-metrics"]["record-retry-total"] == 5

    def test_order_is_kept_while_the_first_is_tried_again(self, root, clock, producer):
        store = hooked(producer)
        times(2, failing(TIMEOUT), store, "put_if_absent")
        for number in range(3):
            producer.send("weather", b"%d" % number)
            producer.run_once()
        run(producer, clock)
        assert values(root, "weather") == {0: [b"0", b"1", b"2"]}

    def test_other_partitions_go_on_meanwhile(self, clock, producer):
        store = hooked(producer)
        store.on(
            "put_if_absent",
            lambda path, call: failing(TIMEOUT)(path, call) if is_in(path, "flights-0") else call(),
        )
        stuck, free = (producer.send("flights", b"x", partition=number) for number in (0, 1))
        run(producer, clock, until_ms=1_000)
        assert free.result(0).offset == 0
        assert not stuck.done()
        store.hooks.clear()
        run(producer, clock)
        assert stuck.result(0).offset == 0

    def test_other_errors_fail_at_once_and_only_what_they_concern(self, root, clock, producer):
        store = hooked(producer)
        store.once("put_if_absent", failing(StorageError("read-only")))
        bad = producer.send("flights", b"bad", partition=0)
        producer.run_once()
        good = [producer.send("flights", b"good", partition=number) for number in (0, 1)]
        run(producer, clock)
        with pytest.raises(StorageError, match="read-only"):
            bad.result(0)
        assert [future.result(0).offset for future in good] == [0, 0]
        assert values(root, "flights") == {0: [b"good"], 1: [b"good"]}

    def test_retries_are_counted(self, root, clock):
        producer = by_hand(root, clock, retries=2)
        store = hooked(producer)
        store.on("put_if_absent", failing(TIMEOUT))
        sent = producer.send("weather", b"x")
        run(producer, clock)
        assert sent.exception(0) is TIMEOUT
        assert len(store.called("put_if_absent")) == 3

    def test_acks_0_is_not_tried_again(self, root, clock):
        producer = by_hand(root, clock, acks=0)
        store = hooked(producer)
        store.on("put_if_absent", failing(TIMEOUT))
        sent = producer.send("weather", b"x")
        run(producer, clock)
        assert sent.result(0).offset == -1
        assert len(store.called("put_if_absent")) == 1

    @pytest.mark.partition_logs_only("the others of a put may be in the stripe")
    def test_a_fault_of_the_program_leaves_no_future_waiting(
        self, root, clock, producer, caplog, monkeypatch
    ):
        def fail(writer):
            raise ZeroDivisionError("a fault")

        with monkeypatch.context() as patch:
            patch.setattr(SegmentWriter, "finish", fail)
            sent = producer.send("weather", b"x")
            run(producer, clock)
        assert isinstance(sent.exception(0), ZeroDivisionError)
        assert producer.send("weather", b"y")
        run(producer, clock)
        assert values(root, "weather") == {0: [b"y"]}


class TestLostAnswer:
    def test_record_is_there_once_and_acknowledged(self, root, clock, producer):
        store = hooked(producer)
        times(3, done_but(LOST), store, "put_if_absent")
        sent = producer.send("weather", b"x")
        run(producer, clock)
        assert sent.result(0).offset == 0
        assert values(root, "weather") == {0: [b"x"]}

    def test_whether_the_topic_is_there_cannot_be_seen(self, root, clock, producer):
        """The append was answered, but the metadata read before the acknowledgement was not."""
        store = hooked(producer)
        producer.send("weather", b"before")
        run(producer, clock)
        calls = []

        def second_fails(path, call):
            calls.append(path)
            if len(calls) == 2:
                raise TIMEOUT
            return call()

        store.on("head", second_fails)
        image = producer.cluster.image

        def blind():
            producer.cluster.image = image
            raise TIMEOUT

        producer.cluster.image = blind
        sent = producer.send("weather", b"x")
        run(producer, clock)
        assert sent.result(0).offset == 1
        assert values(root, "weather") == {0: [b"before", b"x"]}

    @pytest.mark.parametrize("lands", [True, False])
    def test_after_its_time_is_over_the_next_leaves_no_gap(self, root, clock, producer, lands):
        """Appends after an unknown outcome have a newer epoch, which fences the old one."""
        store = hooked(producer)
        producer.send("weather", b"before")
        run(producer, clock)

        def lost(path, call):
            if lands:
                done_but(LOST)(path, call)
            raise LOST

        store.on("put_if_absent", lost)
        store.on("list", failing(TIMEOUT))
        unknown = producer.send("weather", b"unknown")
        run(producer, clock, until_ms=130_000)
        with pytest.raises(UnknownOutcomeError, match="not known"):
            unknown.result(0)
        store.hooks.clear()
        sent = producer.send("weather", b"after")
        run(producer, clock)
        sent.result(0)
        expected = [b"before", b"unknown", b"after"] if lands else [b"before", b"after"]
        assert values(root, "weather") == {0: expected}
        (entry,) = producer_entries(root, "weather").values()
        assert entry.epoch == 1


class TestFailed:
    """A future that has failed, but for `UnknownOutcomeError`, is not in the log."""

    def test_is_unknown_after_a_lost_answer_although_the_producer_was_fenced_since(
        self, root, clock, producer
    ):
        store = hooked(producer)
        producer.send("weather", b"before")
        run(producer, clock)
        store.once("put_if_absent", done_but(LOST))
        store.once("list", failing(TIMEOUT))
        unknown = producer.send("weather", b"unknown")
        producer.run_once()
        store.hooks.clear()
        (producer_id,) = producer_entries(root, "weather")
        log = Cluster(root).partition_log(Cluster(root).topic("weather"), 0)
        log.append(record_batch([row(b"newer")]), producer=ProducerAppend(producer_id, 5, 0))
        run(producer, clock)
        with pytest.raises(UnknownOutcomeError, match="newer"):
            unknown.result(0)
        assert values(root, "weather") == {0: [b"before", b"unknown", b"newer"]}

    def test_is_unknown_after_a_fault_of_the_program_behind_the_put(self, root, clock):
        producer = by_hand(root, clock, linger_ms=0, retries=0)
        store = hooked(producer)

        def put(path, call):
            call()
            raise ZeroDivisionError("a fault")

        store.once("put_if_absent", put)
        sent = producer.send("weather", b"x")
        run(producer, clock)
        with pytest.raises(UnknownOutcomeError, match="ZeroDivisionError"):
            sent.result(0)
        assert values(root, "weather") == {0: [b"x"]}

    @pytest.mark.parametrize("how", ["expires", "is closed"])
    def test_is_not_taken_by_an_append_that_begins_in_that_moment(self, root, clock, how):
        producer = by_hand(root, clock, linger_ms=0, delivery_timeout_ms=1_000)
        store = hooked(producer)
        store.on("put_if_absent", failing(TIMEOUT))
        sent = producer.send("weather", b"x")
        producer.run_once()
        store.hooks.clear()
        clock.advance_ms(1_000 if how == "expires" else 500)
        sender, completer = producer._runtime.sender, producer._runtime.completer  # noqa: SLF001
        fail_each = completer._fail_each  # noqa: SLF001 - where another thread may come between

        def append_first(failures):
            completer._fail_each = fail_each  # noqa: SLF001
            sender.send_batches(producer.queue("weather"))
            return fail_each(failures)

        completer._fail_each = append_first  # noqa: SLF001
        if how == "expires":
            completer.fail_expired()
        else:
            completer.fail_all(IllegalStateError("closed"))
        assert isinstance(sent.exception(0), KafkaTimeoutError | IllegalStateError)
        assert values(root, "weather") == {0: []}


class TestDeliveryTimeout:
    def test_expired_batch_of_an_append_that_may_be_there_stays_in_it(self, root, clock):
        """Otherwise the log would take the rest for all of it, and return wrong offsets."""
        config = {"batch_size": 50, "delivery_timeout_ms": 5_000, "retry_backoff_max_ms": 10}
        producer = by_hand(root, clock, linger_ms=1_000, **config)
        store = hooked(producer)
        store.once("put_if_absent", done_but(LOST))
        first = producer.send("weather", b"a" * 40)
        clock.advance_ms(500)
        second = producer.send("weather", b"b" * 40)
        looks = []

        def blind_after_the_first(path, call):
            looks.append(path)
            return call() if len(looks) == 1 else failing(TIMEOUT)(path, call)

        store.on("list", blind_after_the_first)
        run(producer, clock, until_ms=4_600)
        assert "not known" in str(first.exception(0))
        assert not second.done()
        store.hooks.clear()
        run(producer, clock)
        assert second.result(0).offset == 1
        assert values(root, "weather") == {0: [b"a" * 40, b"b" * 40]}

    def test_record_fails_and_was_not_appended(self, root, clock, producer):
        store = hooked(producer)
        store.on("put_if_absent", failing(FULL))
        first = producer.send("weather", b"first")
        run(producer, clock, until_ms=119_000)
        assert not first.done()
        second = producer.send("weather", b"second")
        run(producer, clock, until_ms=3_000)  # the last try may be more than 1 s ago
        with pytest.raises(KafkaTimeoutError, match=r"not appended.*no space"):
            first.result(0)
        assert not second.done()
        store.hooks.clear()
        run(producer, clock)
        assert second.result(0).offset == 0
        assert values(root, "weather") == {0: [b"second"]}
        (entry,) = producer_entries(root, "weather").values()
        assert entry.epoch == 0, "nothing was unknown"

    def test_nothing_is_added_to_a_batch_that_expired_while_it_waited(self, root, clock):
        producer = by_hand(root, clock, delivery_timeout_ms=1_000, linger_ms=1_000)
        expired = producer.send("weather", b"a")
        clock.advance_ms(1_000)
        producer.fail_expired()
        assert expired.failed()
        sent = producer.send("weather", b"b")
        run(producer, clock)
        assert sent.result(0).offset == 0
        assert values(root, "weather") == {0: [b"b"]}

    def test_expired_batch_of_an_append_is_left_out_of_the_next_try(self, root, clock):
        config = {"batch_size": 50, "delivery_timeout_ms": 5_000, "retry_backoff_max_ms": 10}
        producer = by_hand(root, clock, linger_ms=1_000, **config)
        store = hooked(producer)
        store.on("put_if_absent", failing(FULL))
        first = producer.send("weather", b"a" * 40)
        clock.advance_ms(500)
        second = producer.send("weather", b"b" * 40)
        run(producer, clock, until_ms=4_600)
        assert first.failed()
        assert not second.done()
        store.hooks.clear()
        run(producer, clock)
        assert second.result(0).offset == 0
        assert values(root, "weather") == {0: [b"b" * 40]}


class TestTopics:
    def test_topic_that_is_deleted_fails_what_waits_for_it(self, root, clock, producer):
        producer.send("weather", b"before")
        run(producer, clock)
        waiting = producer.send("weather", b"waiting")
        Admin(root).delete_topics(["weather"])
        run(producer, clock)
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
            waiting.result(0)
        with pytest.raises(UnknownTopicOrPartitionError, match="no topic"):
            producer.send("weather", b"after")
        assert not list(root.glob("weather.*")), "nothing is left of it"

    def test_topic_deleted_between_an_append_and_its_answer_acknowledges_nothing(
        self, root, clock, producer
    ):
        store = hooked(producer)

        def delete_after(path, call):
            call()
            Admin(root).delete_topics(["weather"])

        store.once("put_if_absent", delete_after)
        sent = producer.send("weather", b"x")
        run(producer, clock)
        assert isinstance(sent.exception(0), UnknownTopicOrPartitionError)

    def test_topic_that_is_created_again_gets_what_waited(self, root, clock, producer):
        producer.send("flights", b"old", partition=1)
        run(producer, clock)
        sent = [producer.send("flights", b"%d" % number, partition=1) for number in range(3)]
        admin = Admin(root)
        admin.delete_topics(["flights"])
        admin.create_topics([NewTopic("flights", 2, topic_configs=ANY_TIME)])
        run(producer, clock)
        assert [future.result(0).offset for future in sent] == [0, 1, 2]
        assert values(root, "flights") == {0: [], 1: [b"0", b"1", b"2"]}

    def test_what_is_sent_after_it_was_created_again_comes_behind(self, root, clock, producer):
        producer.send("weather", b"old")
        run(producer, clock)
        producer.send("weather", b"0")
        admin = Admin(root)
        admin.delete_topics(["weather"])
        admin.create_topics([NewTopic("weather", 1, topic_configs=ANY_TIME)])
        producer.refresh("weather")
        producer.send("weather", b"1")
        run(producer, clock)
        assert values(root, "weather") == {0: [b"0", b"1"]}

    def test_topics_that_are_created_again_twice_during_an_append_keep_the_order(
        self, root, clock, producer
    ):
        """Records for the topic in between wait for the append, and move on with it."""
        store = hooked(producer)
        producer.send("weather", b"old")
        run(producer, clock)
        admin, sent = Admin(root), []

        def recreate_twice(path, call):
            for number in (1, 2):
                admin.delete_topics(["weather"])
                admin.create_topics([NewTopic("weather", 1, topic_configs=ANY_TIME)])
                producer.refresh("weather")
                sent.append(producer.send("weather", b"%d" % number))
            return call()

        store.once("put_if_absent", recreate_twice)
        sent.append(producer.send("weather", b"0"))
        run(producer, clock)
        assert all(future.succeeded() for future in sent)
        assert values(root, "weather") == {0: [b"0", b"1", b"2"]}

    def test_what_waited_for_an_append_fails_with_it_when_the_topic_is_gone_for_good(
        self, root, clock, producer
    ):
        store = hooked(producer)
        producer.send("weather", b"old")
        run(producer, clock)
        admin, sent = Admin(root), []

        def recreate_and_delete(path, call):
            admin.delete_topics(["weather"])
            admin.create_topics([NewTopic("weather", 1, topic_configs=ANY_TIME)])
            producer.refresh("weather")
            sent.append(producer.send("weather", b"1"))
            admin.delete_topics(["weather"])
            producer.refresh("weather")
            return call()

        store.once("put_if_absent", recreate_and_delete)
        sent.append(producer.send("weather", b"0"))
        run(producer, clock)
        for future in sent:
            assert isinstance(future.exception(0), UnknownTopicOrPartitionError)

    def test_an_append_that_fails_over_vanished_files_says_that_the_topic_is_gone(
        self, root, clock, producer
    ):
        store = hooked(producer)
        for error in (
            FileNotFoundError(errno.ENOENT, "gone"),
            NotFoundError("gone"),
            CorruptRecordError("a hole"),
        ):
            Admin(root).create_topics([NewTopic("brief", 1, topic_configs=ANY_TIME)])

            def delete_and_fail(path, call, error=error):
                Admin(root).delete_topics(["brief"])
                raise error

            store.once("put_if_absent", delete_and_fail)
            sent = producer.send("brief", b"x")
            run(producer, clock)
            assert isinstance(sent.exception(0), UnknownTopicOrPartitionError)

    def test_topic_that_is_created_again_long_after_is_found(self, root, clock, producer):
        """The open log remembers producer state of the old topic that the new one does not have."""
        producer.send("weather", b"old")
        run(producer, clock)
        admin = Admin(root)
        admin.delete_topics(["weather"])
        admin.create_topics([NewTopic("weather", 1, topic_configs=ANY_TIME)])
        clock.advance_ms(200_000)
        sent = producer.send("weather", b"0")
        run(producer, clock)
        assert sent.result(0).offset == 0
        assert values(root, "weather") == {0: [b"0"]}

    def test_partition_that_the_new_one_has_not_fails(self, root, clock, producer):
        producer.send("flights", b"old", partition=1)
        run(producer, clock)
        sent = producer.send("flights", b"x", partition=1)
        admin = Admin(root)
        admin.delete_topics(["flights"])
        admin.create_topics([NewTopic("flights", 1, topic_configs=ANY_TIME)])
        run(producer, clock)
        assert isinstance(sent.exception(0), UnknownTopicOrPartitionError)


class TestRoot:
    def test_root_that_vanishes_and_comes_back_loses_and_doubles_nothing(
        self, root, clock, producer
    ):
        away = root.with_name("away")
        sent = [producer.send("weather", b"0")]
        run(producer, clock)
        root.rename(away)
        sent.append(producer.send("weather", b"1"))
        run(producer, clock, until_ms=30_000)
        assert not sent[1].done()
        assert not root.exists(), "nothing may be made where the root was"
        away.rename(root)
        sent.append(producer.send("weather", b"2"))
        run(producer, clock)
        assert [future.result(0).offset for future in sent] == [0, 1, 2]
        assert values(root, "weather") == {0: [b"0", b"1", b"2"]}

    def test_root_that_vanishes_under_an_append_acknowledges_nothing_there(
        self, root, clock, producer
    ):
        away = root.with_name("away")
        store = hooked(producer)
        producer.send("weather", b"0")
        run(producer, clock)

        def vanish(path, call):
            root.rename(away)
            root.mkdir()  # the empty place of a mount
            return call()

        store.once("put_if_absent", vanish)
        sent = producer.send("weather", b"1")
        producer.run_once()
        assert not sent.done()
        assert not any(root.iterdir()), "nothing may be made where the root was"
        root.rmdir()
        away.rename(root)
        run(producer, clock)
        assert sent.result(0).offset == 1
        assert values(root, "weather") == {0: [b"0", b"1"]}

    def test_read_only_root_is_told_at_once(self, clock, producer):
        store = hooked(producer)

        def refuse(path, call):
            cause = OSError(errno.EROFS, os.strerror(errno.EROFS))
            raise StorageError(f"{path}: {cause.strerror}", path=path) from cause

        store.on("put_if_absent", refuse)
        began_ms = clock.monotonic_ms()
        sent = producer.send("weather", b"x")
        run(producer, clock)
        with pytest.raises(StorageError, match="Read-only file system"):
            sent.result(0)
        assert clock.monotonic_ms() - began_ms < 10

    @pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO])
    def test_file_server_that_is_away_is_waited_for(self, root, clock, producer, number):
        store = hooked(producer)

        def away(path, call):
            raise StorageError(os.strerror(number)) from OSError(number, os.strerror(number))

        times(3, away, store, "put_if_absent")
        sent = producer.send("weather", b"x")
        run(producer, clock)
        assert sent.result(0).offset == 0


class TestFencing:
    def test_older_producer_of_the_same_identity_is_fenced(self, root, clock):
        older = by_hand(root, clock, identity=ProducerIdAndEpoch(7, 0))
        newer = by_hand(root, clock, identity=ProducerIdAndEpoch(7, 1))
        for producer, value in ((older, b"old"), (newer, b"new")):
            producer.send("weather", value)
            run(producer, clock)
        waiting = older.send("flights", b"x", partition=0)
        late = older.send("weather", b"late")
        with pytest.raises(InvalidProducerEpochError, match="newer"):
            _run_and_get(older, clock, late)
        assert waiting.done()
        with pytest.raises(InvalidProducerEpochError):
            older.send("weather", b"again")
        newer.send("weather", b"new too")
        run(newer, clock)
        assert values(root, "weather") == {0: [b"old", b"new", b"new too"]}

    @pytest.mark.partition_logs_only("sets the files of a partition back")
    def test_log_that_forgot_what_came_before_is_gone_on_with(self, root, clock, producer):
        """A gap that this producer did not cause, as after a restore from a copy."""
        producer.send("weather", b"0")
        run(producer, clock)
        topic = producer.cluster.topic("weather")
        shutil.copytree(root / topic.partition_directory(0), root / "copy")
        producer.send("weather", b"1")
        run(producer, clock)
        shutil.rmtree(root / topic.partition_directory(0))
        (root / "copy").rename(root / topic.partition_directory(0))
        producer.forget_log("weather")
        with Producer(root) as other:
            other.send("weather", b"another's").result(60)
        sent = producer.send("weather", b"2")
        run(producer, clock)
        assert sent.result(0).offset == 2
        assert values(root, "weather") == {0: [b"0", b"another's", b"2"]}

    @pytest.mark.partition_logs_only("sets the files of a partition back")
    def test_log_that_ends_before_what_it_acknowledged_is_not_gone_on_with(
        self, root, clock, producer
    ):
        producer.send("weather", b"0")
        run(producer, clock)
        topic = producer.cluster.topic("weather")
        shutil.copytree(root / topic.partition_directory(0), root / "copy")
        producer.send("weather", b"1")
        run(producer, clock)
        shutil.rmtree(root / topic.partition_directory(0))
        (root / "copy").rename(root / topic.partition_directory(0))
        for _ in range(2):
            sent = producer.send("weather", b"2")
            run(producer, clock)
            assert isinstance(sent.exception(0), LogTruncatedError)
        assert values(root, "weather") == {0: [b"0"]}

    def test_epochs_that_are_used_up_are_followed_by_another_producer_id(
        self, root, clock, producer
    ):
        producer.send("weather", b"0")
        run(producer, clock)
        producer.queue("weather").epoch = 2**15
        producer.send("weather", b"1")
        run(producer, clock)
        assert len(producer_entries(root, "weather")) == 2
        assert values(root, "weather") == {0: [b"0", b"1"]}


class TestClosing:
    def test_what_cannot_be_sent_fails_at_close(self, clock, producer):
        store = hooked(producer)
        store.on("put_if_absent", failing(TIMEOUT))
        sent = producer.send("weather", b"x")
        producer.close(0)
        assert isinstance(sent.exception(0), IllegalStateError)


def _run_and_get(producer, clock, future):
    run(producer, clock)
    return future.result(0)
