"""Records that are mirrored from a real Kafka broker, and to it: each exactly once."""

import os
import shlex
import signal
import subprocess
import threading
import urllib.request

import pytest

from spark_log import Admin, NewTopic, OffsetSpec, Producer, ProducerFencedError, TopicPartition
from spark_log.errors import DataLossError, InvalidConfigurationError, RootNotFoundError
from spark_log.mirror import KafkaToLog, LogToKafka, ReplicationPolicy, Side
from tests.cli.support import COMMAND
from tests.cli.terminal.test_examples import EXAMPLES
from tests.mirror.support import (
    FAST,
    mirror,
    read_log,
    run_until_end,
    without_offsets,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.long

LONG_MS = 10**15
KILLS = int(os.environ.get("MIRROR_KILLS", "3"))


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def log(root, names):
    """The root, with the topic; Kafka keeps its records, whose timestamps are old."""
    forever = {"retention.ms": "-1"}
    Admin(root).create_topics([NewTopic(names.topic, 2, topic_configs=forever)])
    return root


def send_to_log(root, topic, count, first=0):
    with Producer(root) as producer:
        for number in range(first, first + count):
            producer.send(
                topic,
                None if number % 7 == 3 else f"value-{number}".encode(),
                key=None if number % 5 == 1 else f"key-{number % 3}".encode(),
                partition=number % 2,
                timestamp_ms=1_700_000_000_000 + number,
                headers=[("n", str(number).encode()), ("n", None)] if number % 2 else None,
            )


def command(direction, kafka, root, names, *more):
    """The command line that mirrors one test's topics."""
    return [
        *(*COMMAND, "mirror", direction, "--root", str(root)),
        *("--bootstrap-server", kafka.servers, "--topics", names.topic),
        *("--kafka-alias", names.alias, "--commit-interval-ms", "20", *more),
    ]


class TestFromKafka:
    def test_records_are_the_same_and_are_mirrored_once(self, kafka, root, names):
        kafka.create_topic(names.topic)
        kafka.send(names.topic, 500)
        metrics = run_until_end(KafkaToLog, kafka, root, names)
        assert (metrics["record-count"], metrics["records-lag"]) == (500, 0)
        assert run_until_end(KafkaToLog, kafka, root, names)["record-count"] == 0
        kafka.send(names.topic, 100, first=500)
        assert run_until_end(KafkaToLog, kafka, root, names)["record-count"] == 100
        expected = without_offsets(kafka.read(names.topic))
        assert without_offsets(read_log(root, names.topic)) == expected

    def test_new_topics_partitions_and_settings_are_noticed(self, kafka, root, names):
        kafka.create_topic(names.topic, retention_ms=LONG_MS, compression_type="gzip")
        other = f"{names.topic}.more"
        stop = threading.Event()
        opened = mirror(KafkaToLog, kafka, root, names)

        def work():
            with opened:
                opened.run(stop.is_set, **FAST)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            admin = Admin(root)
            wait_until(lambda: has_topic(admin, names.topic))
            kafka.create_topic(other, 1)
            kafka.send(other, 10, partitions=1)
            kafka.grow(names.topic, 3)
            kafka.send(names.topic, 30, partitions=3)
            kafka.cluster.alter_topic(names.topic, {"retention.ms": str(LONG_MS + 1)})

            def mirrored():
                counts = {each.name: each for each in admin.describe_topics()}
                return (
                    other in counts
                    and len(counts[names.topic].partitions) == 3
                    and counts[names.topic].configs["retention.ms"] == str(LONG_MS + 1)
                    and opened._records == 40  # noqa: SLF001 - metrics are for its thread
                )

            wait_until(mirrored)
        finally:
            stop.set()
            thread.join()
        assert admin.describe_topics([names.topic])[0].configs["compression.type"] == "zstd"
        expected = without_offsets(kafka.read(names.topic, 3))
        assert without_offsets(read_log(root, names.topic, 3)) == expected

    def test_a_run_until_the_end_waits_for_new_partitions(self, kafka, root, names):
        kafka.create_topic(names.topic)
        kafka.send(names.topic, 10)
        run_until_end(KafkaToLog, kafka, root, names)
        kafka.grow(names.topic, 4)
        kafka.send(names.topic, 12, partitions=4)
        assert run_until_end(KafkaToLog, kafka, root, names)["record-count"] == 12

    def test_aborted_records_are_not_mirrored(self, kafka, root, names):
        kafka.create_topic(names.topic, 1)
        with kafka.transaction(names.topic) as producer:
            producer.produce(names.topic, b"committed", partition=0)
        with kafka.transaction(names.topic) as producer:
            producer.produce(names.topic, b"aborted", partition=0)
            producer.flush()
            producer.abort_transaction()
            producer.begin_transaction()
            producer.produce(names.topic, b"committed, too", partition=0)
        run_until_end(KafkaToLog, kafka, root, names)
        values = [each[2] for each in read_log(root, names.topic, 1)[0]]
        assert values == [b"committed", b"committed, too"]

    def test_the_alias_of_the_source_precedes_the_name(self, kafka, root, names):
        kafka.create_topic(names.topic, 1)
        kafka.send(names.topic, 5, partitions=1)
        run_until_end(KafkaToLog, kafka, root, names, policy=ReplicationPolicy.DEFAULT)
        assert len(read_log(root, f"{names.alias}.{names.topic}", 1)[0]) == 5

    def test_a_second_mirror_fences_the_first(self, kafka, root, names):
        kafka.create_topic(names.topic)
        opened = mirror(KafkaToLog, kafka, root, names), mirror(KafkaToLog, kafka, root, names)
        with opened[0] as first, opened[1] as second:
            kafka.send(names.topic, 50)
            with pytest.raises(ProducerFencedError):
                wait_until(first.transfer)
            wait_until(second.transfer)
        assert sum(map(len, read_log(root, names.topic).values())) == 50

    def test_records_that_were_deleted_before_are_a_loss(self, kafka, root, names):
        kafka.create_topic(names.topic, 1)
        kafka.send(names.topic, 10, partitions=1)
        run_until_end(KafkaToLog, kafka, root, names)
        kafka.send(names.topic, 20, first=10, partitions=1)
        kafka.delete_records(names.topic, 15)
        with pytest.raises(DataLossError, match="--no-fail-on-data-loss"):
            run_until_end(KafkaToLog, kafka, root, names)
        run_until_end(KafkaToLog, kafka, root, names, fail_on_data_loss=False)
        values = [each[2] for each in read_log(root, names.topic, 1)[0]]
        assert values[9:11] == [b"value-9", b"value-15"]
        assert len(values) == 25

    def test_the_lag_of_what_was_not_fetched_yet_is_not_negative(self, kafka, root, names):
        kafka.create_topic(names.topic)
        kafka.send(names.topic, 10)
        run_until_end(KafkaToLog, kafka, root, names)
        with mirror(KafkaToLog, kafka, root, names) as opened:
            assert set(opened.lag().values()) == {0}
            assert opened.metrics()["records-lag"] == 0

    def test_a_topic_that_was_created_again_is_refused(self, kafka, root, names):
        kafka.create_topic(names.topic)
        kafka.send(names.topic, 10)
        run_until_end(KafkaToLog, kafka, root, names)
        run_until_end(KafkaToLog, kafka, root, names)
        kafka.admin.delete_topics([names.topic])[names.topic].result()
        wait_until(lambda: names.topic not in kafka.topics())
        kafka.create_topic(names.topic)
        kafka.send(names.topic, 40)  # more than before: every offset exists
        with pytest.raises(DataLossError, match="created again in the source"):
            run_until_end(KafkaToLog, kafka, root, names)
        assert sum(map(len, read_log(root, names.topic).values())) == 10

    def test_the_map_forgets_what_both_sides_have_deleted(self, kafka, root, names, monkeypatch):
        monkeypatch.setattr("spark_log.mirror.mirror._PRUNED_RUNS", 3)
        kafka.create_topic(names.topic, 1)
        for first in range(0, 50, 10):  # a transaction each
            kafka.send(names.topic, 10, first, partitions=1)
            run_until_end(KafkaToLog, kafka, root, names)
        Admin(root).delete_records({TopicPartition(names.topic, 0): 30})
        kafka.delete_records(names.topic, 40)
        run_until_end(KafkaToLog, kafka, root, names)
        kafka.send(names.topic, 10, 50, partitions=1)
        with mirror(KafkaToLog, kafka, root, names) as opened:
            opened.run(lambda: False, until_end=True)
            (partition,) = opened.mirrored_partitions()
            runs = opened.offset_syncs[partition]
            assert runs.translate(0, Side.KAFKA) == runs.translate(20, Side.KAFKA) > 0
            assert runs.translate(55, Side.KAFKA) == runs.translate(50, Side.KAFKA) + 5
        expected = without_offsets(kafka.read(names.topic, 1))
        mirrored = without_offsets(read_log(root, names.topic, 1))
        assert [each[1] for each in mirrored[0]][-20:] == [each[1] for each in expected[0]]

    def test_killed_mirrors_lose_and_double_nothing(self, kafka, root, names):
        kafka.create_topic(names.topic)
        Admin(root).create_topics([NewTopic(names.topic, 2)])
        argv = command("from-kafka", kafka, root, names)
        for kill in range(KILLS):
            kafka.send(names.topic, 2000, first=kill * 2000)
            before = end_of_log(root, names.topic)
            kill_when(argv, lambda before=before: end_of_log(root, names.topic) > before)
        subprocess.run([*argv, "--until-end"], check=True, capture_output=True, timeout=120)
        expected = without_offsets(kafka.read(names.topic))
        assert without_offsets(read_log(root, names.topic)) == expected
        assert len(expected[0]) == KILLS * 1000


def test_prometheus_reads_the_lag_and_what_was_copied(kafka, root, names):
    kafka.create_topic(names.topic)
    kafka.send(names.topic, 30)
    argv = command("from-kafka", kafka, root, names, "--metrics-port", "0")
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        address = process.stderr.readline().strip().removeprefix("Metrics are at ")

        def scraped():
            with urllib.request.urlopen(address) as answer:
                return answer.read().decode()

        wait_until(lambda: 'spark_log_mirror_records_total{source="kafka"} 30.0' in scraped())
        text = scraped()
    finally:
        process.terminate()
        process.communicate()
    lag = f'spark_log_mirror_lag{{partition="1",source="kafka",topic="{names.topic}"}} 0.0'
    assert lag in text.splitlines()
    assert 'spark_log_mirror_transactions_total{source="kafka"}' in text
    assert process.returncode == 128 + signal.SIGTERM


class TestToKafka:
    def test_records_are_the_same_and_are_mirrored_once(self, kafka, log, names):
        send_to_log(log, names.topic, 500)
        assert run_until_end(LogToKafka, kafka, log, names)["record-count"] == 500
        assert run_until_end(LogToKafka, kafka, log, names)["record-count"] == 0
        send_to_log(log, names.topic, 100, first=500)
        assert run_until_end(LogToKafka, kafka, log, names)["record-count"] == 100
        expected = without_offsets(read_log(log, names.topic))
        assert without_offsets(kafka.read(names.topic)) == expected

    def test_the_map_is_exact_where_another_producer_writes_in_between(self, kafka, log, names):
        kafka.create_topic(names.topic)
        stop = threading.Event()

        def disturb():
            number = 0
            while not stop.is_set():
                kafka.send(names.topic, 20, first=(number := number + 20))

        thread = threading.Thread(target=disturb)
        thread.start()
        send_to_log(log, names.topic, 4000)
        try:
            with mirror(LogToKafka, kafka, log, names) as opened:
                opened._asks_for_all = True  # noqa: SLF001 - what an interleaved record leads to
                opened.run(lambda: False, until_end=True)
        finally:
            stop.set()
            thread.join()
        check_maps(opened, kafka, log, names)

    def test_killed_mirrors_lose_and_double_nothing(self, kafka, log, names):
        kafka.create_topic(names.topic)
        argv = command("to-kafka", kafka, log, names)
        for kill in range(KILLS):
            send_to_log(log, names.topic, 2000, first=kill * 2000)
            before = kafka.end(names.topic)
            kill_when(argv, lambda before=before: kafka.end(names.topic) > before)
        subprocess.run([*argv, "--until-end"], check=True, capture_output=True, timeout=120)
        expected = without_offsets(read_log(log, names.topic))
        assert without_offsets(kafka.read(names.topic)) == expected
        assert len(expected[0]) == KILLS * 1000

    def test_batches_are_not_larger_than_the_topic_allows(self, kafka, log, names):
        kafka.create_topic(names.topic, max_message_bytes=20_000)
        with Producer(log) as producer:
            for number in range(400):
                producer.send(names.topic, os.urandom(1_000), partition=number % 2)
        assert run_until_end(LogToKafka, kafka, log, names)["record-count"] == 400
        expected = without_offsets(read_log(log, names.topic))
        assert without_offsets(kafka.read(names.topic)) == expected

    def test_a_record_that_is_too_large_is_named_and_mirrored_when_it_may_be(
        self, kafka, log, names
    ):
        kafka.create_topic(names.topic, max_message_bytes=20_000)
        with Producer(log) as producer:
            for number in range(40):
                size = 50_000 if number == 30 else 10
                producer.send(names.topic, os.urandom(size), partition=0)
        argv = [*command("to-kafka", kafka, log, names), "--until-end"]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1, done.stderr
        line = done.stderr
        assert f"{names.topic}-0: Kafka refused the record at offset 30 of the log" in line
        assert "Raise max.message.bytes" in line
        assert kafka.read(names.topic) == {0: [], 1: []}
        kafka.cluster.alter_topic(names.topic, {"max.message.bytes": "60000"})
        assert run_until_end(LogToKafka, kafka, log, names)["record-count"] == 40
        expected = without_offsets(read_log(log, names.topic))
        assert without_offsets(kafka.read(names.topic)) == expected

    def test_the_map_forgets_what_both_sides_have_deleted(self, kafka, log, names, monkeypatch):
        monkeypatch.setattr("spark_log.mirror.mirror._PRUNED_RUNS", 3)
        for first in range(0, 50, 10):
            send_to_log(log, names.topic, 10, first)
            run_until_end(LogToKafka, kafka, log, names)
        Admin(log).delete_records({TopicPartition(names.topic, 0): 20})
        kafka.delete_records(names.topic, 18)
        run_until_end(LogToKafka, kafka, log, names)
        with mirror(LogToKafka, kafka, log, names) as opened:
            first, second = (opened.offset_syncs[each] for each in opened.mirrored_partitions())
            assert first.translate(0, Side.LOG) == first.translate(5, Side.LOG) > 0
            assert second.translate(4, Side.LOG) == 4
            assert opened.is_at_end

    def test_a_topic_that_was_created_again_is_refused(self, kafka, log, names):
        send_to_log(log, names.topic, 10)
        run_until_end(LogToKafka, kafka, log, names)
        run_until_end(LogToKafka, kafka, log, names)
        Admin(log).delete_topics([names.topic])
        Admin(log).create_topics([NewTopic(names.topic, 2)])
        send_to_log(log, names.topic, 40)
        with pytest.raises(DataLossError, match="created again in the source"):
            run_until_end(LogToKafka, kafka, log, names)
        assert sum(map(len, kafka.read(names.topic).values())) == 10


class TestThereAndBack:
    def test_the_way_back_begins_behind_what_came_from_kafka(self, kafka, root, names):
        kafka.create_topic(names.topic)
        kafka.send(names.topic, 100)
        run_until_end(KafkaToLog, kafka, root, names)
        send_to_log(root, names.topic, 50, first=100)
        assert run_until_end(LogToKafka, kafka, root, names)["record-count"] == 50
        kafka.send(names.topic, 25, first=150)
        assert run_until_end(KafkaToLog, kafka, root, names)["record-count"] == 25
        expected = without_offsets(kafka.read(names.topic))
        assert without_offsets(read_log(root, names.topic)) == expected
        assert sum(map(len, expected.values())) == 175

    def test_the_map_finds_every_record_on_the_other_side(self, kafka, root, names):
        kafka.create_topic(names.topic)
        for first in (0, 100, 200):
            kafka.send(names.topic, 100, first=first)
            run_until_end(KafkaToLog, kafka, root, names)
        send_to_log(root, names.topic, 50, first=300)
        with mirror(LogToKafka, kafka, root, names) as opened:
            opened.run(lambda: False, until_end=True)
        check_maps(opened, kafka, root, names)

    def test_nothing_goes_round_in_a_circle_between_mirrors_with_other_aliases(
        self, kafka, root, names
    ):
        kafka.create_topic(names.topic)
        kafka.send(names.topic, 10)
        run_until_end(KafkaToLog, kafka, root, names)
        other = f"other-{names.alias}"
        with pytest.raises(InvalidConfigurationError, match=f"--kafka-alias {names.alias} "):
            run_until_end(LogToKafka, kafka, root, names, kafka_alias=other)
        run_until_end(LogToKafka, kafka, root, names)
        send_to_log(root, names.topic, 2, first=10)
        assert run_until_end(LogToKafka, kafka, root, names)["record-count"] == 2
        with pytest.raises(InvalidConfigurationError, match=f"--kafka-alias {names.alias} "):
            run_until_end(KafkaToLog, kafka, root, names, kafka_alias=other)
        assert sum(map(len, kafka.read(names.topic).values())) == 12
        assert sum(map(len, read_log(root, names.topic).values())) == 12

    def test_only_the_direction_that_was_started_last_goes_on(self, kafka, root, names):
        kafka.create_topic(names.topic)
        kafka.send(names.topic, 10)
        with mirror(KafkaToLog, kafka, root, names) as forward:
            wait_until(forward.transfer)
            with mirror(LogToKafka, kafka, root, names) as back:
                kafka.send(names.topic, 10, first=10)
                with pytest.raises(ProducerFencedError):
                    wait_until(forward.transfer)
                send_to_log(root, names.topic, 10, first=20)
                newest = mirror(KafkaToLog, kafka, root, names)
                with newest, pytest.raises(ProducerFencedError):
                    wait_until(back.transfer)


def check_maps(opened, kafka, root, names):
    """Every record of the log has the offset in Kafka that the map says."""
    settings = opened._settings  # noqa: SLF001
    there = kafka.read(names.topic)
    for number, found in read_log(root, names.topic).items():
        by_offset = {each[0]: each[1:] for each in there[number]}
        runs = opened.offset_syncs[settings.partition(names.topic, number, opened.source)]
        for offset, *content in found:
            kafka_offset = runs.translate(offset, LogToKafka.source)
            assert by_offset[kafka_offset] == tuple(content)
            assert runs.translate(kafka_offset, KafkaToLog.source) == offset


def has_topic(admin, topic):
    try:
        return topic in admin.list_topics()
    except RootNotFoundError:  # another thread is about to make it
        return False


def end_of_log(root, topic):
    places = {TopicPartition(topic, each): OffsetSpec.LATEST for each in (0, 1)}
    return sum(each.offset for each in Admin(root).list_offsets(places).values())


def kill_when(argv, condition, **more):
    """Run a command until something has happened, and kill it and its children then."""
    process = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, **more
    )
    try:
        wait_until(lambda: condition() or process.poll() is not None, timeout_s=600)
        ended = process.poll()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        _, said = process.communicate()
    assert ended is None, said


def test_the_examples_of_the_help_are_run(kafka, root, names, monkeypatch):
    if "shop.orders" not in kafka.topics():
        kafka.create_topic("shop.orders", 1)
    Admin(root).create_topics([NewTopic("flights")])
    Admin(f"{root}-source").create_topics([NewTopic("copied")])
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.servers)
    monkeypatch.setenv("SPARK_LOG_ROOT", str(root))
    examples = [line for name, line in EXAMPLES if " mirror" in name]
    assert len(examples) > 3
    here = {"localhost:9092": kafka.servers, "/data/log": f"{root}-source", "/backup": str(root)}
    for line in examples:
        argv = [here.get(each, each) for each in shlex.split(line)[1:]]
        argv += [] if "from-root" in argv else ["--kafka-alias", names.alias]
        if "--bootstrap-server" in argv:  # all topics of a broker that other tests use
            argv += ["--topics", "shop.*"]
        subprocess.run([*COMMAND, *argv], check=True, capture_output=True, timeout=120)
