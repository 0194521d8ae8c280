"""A topic gets another number of stripes: records, offsets and producers stay."""

import threading
import time
from collections import defaultdict

import pytest

from spark_log import Admin, ConfigResource, Consumer, NewTopic, Producer, TopicPartition
from spark_log.cluster import Cluster, change_stripes, orphaned_directories, stripes_change
from spark_log.cluster.cleaner import ClusterCleaner
from spark_log.errors import (
    InvalidConfigurationError,
    StorageUnavailableError,
    StripesChangedError,
    UnknownTopicOrPartitionError,
)
from spark_log.metadata import begin_stripes_change, is_same_change
from spark_log.record import EndTransactionMarker, ProducerAppend
from tests.datasource.reading import records

PARTITIONS = 5


@pytest.fixture
def root(tmp_path):
    url = str(tmp_path / "root")
    create(url)
    return url


def create(root, stripes=0, **configs):
    configs = {"stripes": stripes, "flush.on.append": "false", "retention.ms": -1, **configs}
    Admin(root).create_topics([NewTopic("t", PARTITIONS, topic_configs=configs)])


def topic_of(root):
    return Cluster(root).topic("t")


def log_of(root, partition=0):
    return Cluster(root).partition_log(topic_of(root), partition)


def append(root, *values, partition=0, producer=None):
    return log_of(root, partition).append(records(values), producer=producer)


def numbers(root, partition=0, isolation_level="read_uncommitted"):
    return [
        (offset, int(value))
        for batch in log_of(root, partition).scan(0, isolation_level=isolation_level)
        for offset, value in zip(
            batch.offsets().tolist(), batch.records.column("value").to_pylist(), strict=True
        )
    ]


def change(root, stripes):
    return change_stripes(Cluster(root), "t", stripes)


def stop_before(monkeypatch, name):
    """Let changes end with an error before a step, as a process that is killed there."""

    def stop(*_: object, **__: object):
        raise StorageUnavailableError("killed")

    monkeypatch.setattr(stripes_change, name, stop)


class TestRecords:
    @pytest.mark.parametrize("way", [(0, 2), (2, 0), (2, 3), (3, 1, 0, 4)])
    def test_keep_their_offsets_and_go_on_behind_one_barrier_for_each_change(self, tmp_path, way):
        root = str(tmp_path / "root")
        create(root, way[0])
        expected: list[tuple[int, int]] = []
        for count in way:
            change(root, count)
            for value in range(3):
                offset = append(root, 10 * len(expected) + value).base_offset
                expected.append((offset, 10 * len(expected) + value))
        assert [offset for offset, _ in expected] == [
            3 * step + step + value for step in range(len(way)) for value in range(3)
        ]
        assert numbers(root) == expected
        assert numbers(root, partition=1) == []
        assert len(topic_of(root).stripes) == way[-1]

    def test_new_stripes_have_numbers_that_were_not_used(self, root):
        used: set[int] = set()
        for count in (2, 3, 0, 1):
            stripes = change(root, count).stripes
            assert not used.intersection(stripes)
            used.update(stripes)
            assert all(topic_of(root).stripe_of(p) % count == p % count for p in range(5) if count)

    def test_the_number_that_a_topic_has_changes_nothing(self, root):
        before = Cluster(root).image().offset
        assert change(root, 0).first_stripe == 0
        assert Cluster(root).image().offset == before

    def test_that_are_deleted_stay_deleted(self, root):
        append(root, 0, 1, 2)
        Admin(root).delete_records({TopicPartition("t", 0): 2})
        change(root, 2)
        append(root, 3)
        change(root, 0)
        assert log_of(root).observe().log_start_offset == 2
        assert [value for _, value in numbers_from(root, 2)] == [2, 3]


def numbers_from(root, offset):
    return [
        (at, int(value))
        for batch in log_of(root).scan(offset)
        for at, value in zip(
            batch.offsets().tolist(), batch.records.column("value").to_pylist(), strict=True
        )
    ]


class TestProducers:
    @pytest.mark.parametrize("way", [(0, 2), (2, 0), (2, 3)])
    def test_a_repeat_is_recognised_after_the_change(self, tmp_path, way):
        root = str(tmp_path / "root")
        create(root, way[0])
        producer = ProducerAppend(7, 0, 0)
        first = append(root, 1, producer=producer)
        change(root, way[1])
        again = append(root, 1, producer=producer)
        assert (again.base_offset, again.is_duplicate) == (first.base_offset, True)
        assert append(root, 2, producer=ProducerAppend(7, 0, 1)).base_offset == 2
        assert [value for _, value in numbers(root)] == [1, 2]

    @pytest.mark.parametrize("way", [(0, 2), (2, 0), (2, 3)])
    @pytest.mark.parametrize("committed", [True, False])
    def test_a_transaction_goes_on_across_the_change(self, tmp_path, way, committed):
        root = str(tmp_path / "root")
        create(root, way[0])
        append(root, 1, producer=ProducerAppend(7, 0, 0, is_transactional=True))
        change(root, way[1])
        append(root, 2, producer=ProducerAppend(7, 0, 1, is_transactional=True))
        append(root, 3)
        assert numbers(root, isolation_level="read_committed") == []
        log_of(root).append_markers([EndTransactionMarker(7, 1, committed)])
        values = [value for _, value in numbers(root, isolation_level="read_committed")]
        assert values == ([1, 2, 3] if committed else [3])


class TestWriters:
    @pytest.mark.parametrize("way", [(0, 2), (2, 0), (2, 3)])
    def test_that_have_opened_the_log_before_are_refused(self, tmp_path, way):
        root = str(tmp_path / "root")
        create(root, way[0])
        log = log_of(root)
        log.append(records([0]))
        change(root, way[1])
        with pytest.raises(StripesChangedError, match="other stripes now"):
            log.append(records([1]))
        assert [value for _, value in numbers(root)] == [0]

    def test_a_consumer_takes_a_log_whose_stripes_have_changed_again(self, tmp_path):
        """It takes the next one when it has read the metadata, and reads nothing of this one."""
        root = str(tmp_path / "root")
        create(root, 2)
        cluster = Cluster(root)
        topic = cluster.topic("t")
        change(root, 3)
        assert cluster.topic("t").stripes != topic.stripes
        log = cluster.partition_log(topic, 0)
        stripe = cluster.stripe_of(topic, 0)
        assert stripe is not None
        assert log.leave_polls() is stripe.reader
        with pytest.raises(StripesChangedError):
            log.observe()

    @pytest.mark.parametrize("way", [(0, 2), (2, 0)])
    def test_wait_while_the_change_is_not_complete(self, tmp_path, monkeypatch, way):
        root = str(tmp_path / "root")
        create(root, way[0])
        append(root, 0)
        with monkeypatch.context() as patched:
            stop_before(patched, "complete_stripes_change")
            with pytest.raises(StorageUnavailableError):
                change(root, way[1])
        with pytest.raises(StripesChangedError, match="topics alter"):
            append(root, 1)
        assert numbers(root) == [(0, 0)]  # what is there can be read
        change(root, way[1])
        append(root, 1)
        assert numbers(root) == [(0, 0), (2, 1)]


class TestKilled:
    @pytest.mark.parametrize("way", [(0, 2), (2, 0), (2, 3)])
    @pytest.mark.parametrize(
        "step", ["end_stripe", "begin_stripe", "stripes_after_change", "complete_stripes_change"]
    )
    def test_at_a_step_a_cleaner_completes_it(self, tmp_path, monkeypatch, way, step):
        root = str(tmp_path / "root")
        create(root, way[0])
        append(root, 0)
        with monkeypatch.context() as patched:
            stop_before(patched, step)
            try:
                change(root, way[1])
            except StorageUnavailableError:
                assert topic_of(root).moving_to == way[1]
        assert not [each for each in ClusterCleaner(Cluster(root)).clean() if each.error]
        assert topic_of(root).moving_to is None
        assert len(topic_of(root).stripes) == way[1]
        append(root, 1)
        assert numbers(root) == [(0, 0), (2, 1)]

    def test_a_dry_run_of_a_cleaner_completes_nothing(self, root, monkeypatch):
        with monkeypatch.context() as patched:
            stop_before(patched, "complete_stripes_change")
            with pytest.raises(StorageUnavailableError):
                change(root, 2)
        list(ClusterCleaner(Cluster(root), dry_run=True).clean())
        assert topic_of(root).moving_to == 2

    def test_another_number_is_refused_until_it_is_complete(self, root, monkeypatch):
        with monkeypatch.context() as patched:
            stop_before(patched, "complete_stripes_change")
            with pytest.raises(StorageUnavailableError):
                change(root, 2)
        with pytest.raises(InvalidConfigurationError, match="--stripes 2"):
            change(root, 3)
        with pytest.raises(InvalidConfigurationError, match="add partitions afterwards"):
            Admin(root).create_partitions({"t": PARTITIONS + 1})
        change(root, 2)
        Admin(root).create_partitions({"t": PARTITIONS + 1})

    def test_one_that_others_have_completed_is_left_alone(self, root):
        cluster = Cluster(root)
        cluster.metadata.commit(lambda image: begin_stripes_change(image, "t", 2))
        stale = cluster.topic("t")
        for count in (2, 0, 3):
            change(root, count)
        before = topic_of(root)
        assert not is_same_change(before, stale)
        assert stripes_change.complete_change_of_stripes(Cluster(root), stale)
        assert topic_of(root).stripes == before.stripes


class TestRefusals:
    def test_of_the_setting_alone_name_the_command(self, root):
        with pytest.raises(InvalidConfigurationError, match="topics alter t --stripes 2"):
            Admin(root).alter_configs([ConfigResource("topic", "t", {"stripes": 2})])

    def test_of_a_topic_that_does_not_exist(self, root):
        with pytest.raises(UnknownTopicOrPartitionError):
            Admin(root).alter_stripes({"u": 2})

    def test_of_a_topic_without_a_delay(self, tmp_path):
        root = str(tmp_path / "root")
        create(root, **{"file.delete.delay.ms": 0})
        with pytest.raises(InvalidConfigurationError, match=r"file\.delete\.delay\.ms"):
            Admin(root).alter_stripes({"t": 2})
        assert topic_of(root).moving_to is None

    def test_of_a_number_below_zero(self, root):
        with pytest.raises(InvalidConfigurationError, match="stripes"):
            Admin(root).alter_stripes({"t": -1})

    def test_validate_only_changes_nothing(self, root):
        assert Admin(root).alter_stripes({"t": 2}, validate_only=True) == {"t": 2}
        assert topic_of(root).moving_to is None


class TestFiles:
    def test_of_ended_stripes_are_not_orphaned(self, tmp_path):
        root = str(tmp_path / "root")
        create(root, 2)
        append(root, 0)
        change(root, 0)
        assert list(orphaned_directories(Cluster(root), 0)) == []


class TestRunningClients:
    def test_go_on_after_a_number_has_changed_and_changed_back(self, tmp_path):
        """Its settings are the same then, and the stripes are not."""
        root = str(tmp_path / "root")
        create(root, 2)
        with (
            Producer(root, delivery_timeout_ms=20_000) as producer,
            Consumer(root=root, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([TopicPartition("t", each) for each in range(PARTITIONS)])
            for number in range(3):
                for partition in range(PARTITIONS):
                    producer.send("t", b"%d" % number, partition=partition)
                producer.flush()
                got: dict[int, list[object]] = defaultdict(list)
                until_s = time.monotonic() + 30
                while sum(map(len, got.values())) < PARTITIONS and time.monotonic() < until_s:
                    for tp, found in consumer.poll(100).items():
                        got[tp.partition] += [each.value for each in found]
                assert got == {each: [b"%d" % number] for each in range(PARTITIONS)}
                for count in (3, 2):
                    Admin(root).alter_stripes({"t": count})

    def test_producers_and_consumers_go_on(self, tmp_path):
        """Two producers and a consumer, while the topic gets stripes, others, and none."""
        root = str(tmp_path / "root")
        create(root)
        sent: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        got: dict[int, list[tuple[int, object]]] = defaultdict(list)
        is_over, phase = threading.Event(), threading.Semaphore(0)

        def produce(name):
            with Producer(root=root, linger_ms=1) as producer:
                number = 0
                while not is_over.is_set():
                    futures = []
                    for partition in range(PARTITIONS):
                        value = f"{name}-{number}".encode()
                        futures.append((value, producer.send("t", value, partition=partition)))
                        number += 1
                    producer.flush()
                    for value, future in futures:
                        info = future.result()
                        sent[info.partition].append((info.offset, value))
                    phase.release()

        def consume():
            with Consumer(root=root, auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition("t", each) for each in range(PARTITIONS)])
                while not (
                    is_over.is_set()
                    and not any(t.is_alive() for t in producers)
                    and all(len(got[p]) == len(sent[p]) for p in range(PARTITIONS))
                ):
                    for tp, found in consumer.poll(100).items():
                        got[tp.partition] += [(each.offset, each.value) for each in found]

        producers = [threading.Thread(target=produce, args=(name,)) for name in "ab"]
        reader = threading.Thread(target=consume)
        for thread in (*producers, reader):
            thread.start()
        try:
            for count in (2, 3, 0, 1):
                for _ in range(10):
                    phase.acquire()
                Admin(root).alter_stripes({"t": count})
            for _ in range(10):
                phase.acquire()
        finally:
            is_over.set()
            for thread in (*producers, reader):
                thread.join(60)
        assert not reader.is_alive()
        for partition in range(PARTITIONS):
            assert got[partition] == sorted(sent[partition])
