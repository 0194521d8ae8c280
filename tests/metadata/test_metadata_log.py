"""The metadata log: a change is decided on the whole log before it, or decided again."""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest

from spark_log.errors import CorruptRecordError, TopicAlreadyExistsError, UnknownOutcomeError
from spark_log.log import LocalLog
from spark_log.metadata.metadata_log import METADATA_DIRECTORY, METADATA_TOPIC_ID, MetadataLog
from spark_log.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from spark_log.util.clock import SYSTEM_CLOCK
from tests.log.support import HookedStore, JumpingBackClock, done_but, failing
from tests.record.samples import record_batch, row


@pytest.fixture
def inner(memory_store):
    return memory_store


@pytest.fixture
def store(inner):
    return HookedStore(inner)


@pytest.fixture
def log(store, clock):
    return MetadataLog(store, clock)


def create(name, topic_id=None):
    """Decide to create a topic, unless one with this name exists."""

    def decide(image):
        if image.find(name) is not None:
            raise TopicAlreadyExistsError(f"{name} exists", topic=name)
        return [TopicRecord(name=name, topic_id=topic_id or f"id-{name}")]

    return decide


def plain_log(inner):
    """The metadata log as the log of a partition."""
    return LocalLog(inner, METADATA_DIRECTORY, topic_id=METADATA_TOPIC_ID, partition=0)


def names(log):
    return [topic.name for topic in log.image().topics()]


class TestCommit:
    def test_what_was_committed_is_in_every_image_from_then_on(self, inner, log, clock):
        log.commit(create("a"))
        log.commit(create("b"))
        assert names(log) == names(MetadataLog(inner, clock)) == ["a", "b"]

    def test_a_clock_that_jumps_back_before_the_append_does_not_refuse_it(self, inner):
        log = MetadataLog(inner, JumpingBackClock())
        log.commit(create("a"))
        assert names(log) == ["a"]

    def test_a_commit_is_one_append(self, store, log):
        log.commit(
            lambda image: [
                TopicRecord(name="a", topic_id="id"),
                PartitionRecord(topic_id="id", partition_id=0),
                PartitionRecord(topic_id="id", partition_id=1),
            ]
        )
        assert len(list(store.list(METADATA_DIRECTORY))) == 1
        assert log.image().topic("a").num_partitions == 2

    def test_a_decision_to_do_nothing_appends_nothing(self, store, log):
        log.commit(lambda image: [])
        assert list(store.list(METADATA_DIRECTORY)) == []

    def test_a_decision_that_refuses_appends_nothing(self, log):
        log.commit(create("a"))
        with pytest.raises(TopicAlreadyExistsError):
            log.commit(create("a", "another id"))
        assert log.image().topic("a").topic_id == "id-a"

    def test_when_another_change_comes_first_it_is_decided_again_on_the_new_state(
        self, store, inner, log, clock
    ):
        shown = []

        def decide(image):
            shown.append([topic.name for topic in image.topics()])
            return create("mine")(image)

        def come_first(path, call):
            MetadataLog(inner, clock).commit(create("theirs"))
            call()

        store.once("put_if_absent", come_first)
        log.commit(decide)
        assert shown == [[], ["theirs"]]
        assert names(log) == ["mine", "theirs"]

    def test_when_the_same_change_comes_first_it_is_refused(self, store, inner, log, clock):
        def come_first(path, call):
            MetadataLog(inner, clock).commit(create("a", "theirs"))
            call()

        store.once("put_if_absent", come_first)
        with pytest.raises(TopicAlreadyExistsError):
            log.commit(create("a", "mine"))
        assert log.image().topic("a").topic_id == "theirs"

    @pytest.mark.parametrize("lose", [done_but, failing])
    def test_a_lost_answer_makes_one_change(self, store, log, lose):
        store.once("put_if_absent", lose(UnknownOutcomeError("lost")))
        log.commit(create("a"))
        assert names(log) == ["a"]
        assert len(list(store.list(METADATA_DIRECTORY))) == 1

    def test_records_carry_the_time_of_the_clock(self, inner, log, clock):
        log.commit(create("a"))
        clock.advance_ms(1_000)
        log.commit(create("b"))
        times = [
            value.value
            for batch in plain_log(inner).scan(0)
            for value in batch.records.column("timestamp")
        ]
        assert times == [clock.time_us() - 1_000_000, clock.time_us()]

    def test_each_step_is_logged(self, store, inner, log, clock, caplog):
        def come_first(path, call):
            MetadataLog(inner, clock).commit(create("theirs"))
            call()

        caplog.set_level("DEBUG", "spark_log.metadata")
        store.once("put_if_absent", come_first)
        log.commit(create("mine"))
        lines = [each.removeprefix(f"{store.url}: ") for each in caplog.messages]
        written = "wrote the checkpoint of offset"
        assert [each.partition(", ")[0] for each in lines] == [
            "appended offsets 0 to 0: TopicRecord",
            f"{written} 1",
            "another change was first at offset 0",
            "began with the checkpoint of offset 1",
            "appended offsets 1 to 1: TopicRecord",
            f"{written} 2",
        ]

    def test_it_lies_under_krafts_topic_id(self):
        assert METADATA_TOPIC_ID == "AAAAAAAAAAAAAAAAAAAAAQ"
        assert METADATA_DIRECTORY == "__cluster_metadata-0"


class TestImage:
    def test_an_image_stays_what_it_was(self, log):
        """A caller must not see the image change, nor a topic partly deleted."""
        log.commit(create("a"))
        image = log.image()
        topics = image.topics()
        log.commit(create("b"))
        log.commit(lambda image: [RemoveTopicRecord(topic_id="id-a")])
        assert [topic.name for topic in topics] == ["a"]
        assert image.find("a") is not None
        assert image.find("b") is None
        assert names(log) == ["b"]

    def test_a_topic_of_an_image_stays_what_it_was(self, log):
        log.commit(create("a"))
        topic = log.image().topic("a")
        log.commit(lambda image: [PartitionRecord(topic_id="id-a", partition_id=0)])
        assert topic.num_partitions == 0
        assert log.image().topic("a").num_partitions == 1

    def test_two_threads_that_look_do_not_wait_for_each_other(self, store, log):
        log.commit(create("a"))
        both = threading.Barrier(2)

        def meet(path, call):
            both.wait(timeout=60)
            return call()

        store.on("open_buffer", meet)
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(names, [log, log])) == [["a"], ["a"]]

    def test_many_threads_look_and_change_at_once(self, log):
        barrier = threading.Barrier(4)

        def change(mark):
            barrier.wait(timeout=60)
            for number in range(10):
                log.commit(create(f"{mark}-{number}"))
                log.commit(lambda image: [RemoveTopicRecord(topic_id=f"id-{mark}-{number}")])  # noqa: B023

        def look(mark):
            barrier.wait(timeout=60)
            for _ in range(60):
                found = names(log)
                assert found == sorted(found)

        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(job, mark) for mark, job in enumerate([change, look] * 2)]
            for future in futures:
                future.result()
        assert names(log) == []


class TestDamage:
    def append_raw(self, inner, *values):
        plain_log(inner).append(record_batch([row(value) for value in values]))

    def test_a_record_that_is_no_record_is_corrupt_again_and_again(self, inner, log):
        log.commit(create("a"))
        good = TopicRecord(name="b", topic_id="id-b").to_json()
        self.append_raw(inner, good, b"damaged")
        for _ in range(3):
            with pytest.raises(CorruptRecordError, match="not a metadata record"):
                log.image()
            with pytest.raises(CorruptRecordError, match="not a metadata record"):
                log.commit(create("c"))

    def test_records_before_a_damaged_one_are_not_applied_twice(self, inner, log):
        """The second call must raise the error of the damaged record too."""
        log.commit(create("a"))
        self.append_raw(inner, RemoveTopicRecord(topic_id="id-a").to_json(), b"damaged")
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="not a metadata record"):
                log.image()

    def test_a_record_of_a_newer_version_is_refused_before_anything_is_changed(self, inner, log):
        self.append_raw(inner, b'{"type":"BrokerRegistrationRecord","version":0,"data":{}}')
        with pytest.raises(CorruptRecordError, match="upgrade"):
            log.commit(create("a"))
        assert plain_log(inner).observe().log_end_offset == 1


class TestProcesses:
    def test_two_that_create_the_same_and_others_lose_nothing(self, local_store):
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(2)
        with ProcessPoolExecutor(2, context, meet_at, (barrier,)) as pool:
            futures = [pool.submit(create_many, local_store, mark) for mark in range(2)]
            created = [future.result(timeout=120) for future in futures]
        log = MetadataLog(local_store, SYSTEM_CLOCK)
        shared = [{name for name in part if name.startswith("same")} for part in created]
        assert shared[0] | shared[1] == {f"same-{number}" for number in range(10)}
        assert not shared[0] & shared[1], "each was created by one of them"
        assert names(log) == sorted(created[0] | created[1])
        assert len(names(log)) == 30
        for mark, part in enumerate(created):
            for name in part:
                assert log.image().topic(name).topic_id == f"{name}-by-{mark}"


process_barrier: Any = None


def meet_at(barrier):
    global process_barrier  # noqa: PLW0603 - the only way to hand a barrier to a pool's process
    process_barrier = barrier


def create_many(store, mark):
    log, created = MetadataLog(store, SYSTEM_CLOCK), set()
    process_barrier.wait(timeout=60)
    for number in range(10):
        for name in (f"same-{number}", f"only-{mark}-{number}"):
            try:
                log.commit(create(name, f"{name}-by-{mark}"))
            except TopicAlreadyExistsError:
                continue
            created.add(name)
    return created
