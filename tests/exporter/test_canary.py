"""A canary: records through the log and back."""

import threading

import pytest

from spark_log import Admin, TopicPartition
from spark_log.cluster import Cluster
from spark_log.errors import StorageUnavailableError
from spark_log.exporter import Canary, CanaryRecord
from spark_log.exporter.canary import CANARY_TOPIC, GROUP
from spark_log.storage.local import LocalStore

PARTITION = TopicPartition(CANARY_TOPIC, 0)


@pytest.fixture
def new_canary(root):
    opened = []

    def new(**options):
        opened.append(Canary(root, {}, lambda: Cluster(root), **options))
        return opened[-1]

    yield new
    for each in opened:
        each.close()


def values(canary):
    """Return the metrics by name and labels; of a histogram the count."""
    return {
        (family.definition.name, *labels): getattr(value, "count", value)
        for family in canary.families()
        for labels, value in family.samples
    }


def test_a_record_is_produced_read_and_committed(root, new_canary):
    canary = new_canary()
    for offset in range(3):
        record = canary.send()
        assert (record.offset, record.failed_step, record.error) == (offset, None, None)
        times = record.durations_ms
        assert 0 < times["produce"] < times["roundtrip"]
        assert times["commit"] > 0
    committed = Admin(root).list_group_offsets(GROUP)
    assert {tp: each.offset for tp, each in committed.items()} == {PARTITION: 3}
    found = values(canary)
    for step in ("produce", "roundtrip", "commit"):
        assert found[f"spark_log_canary_{step}_duration_seconds",] == 3
        assert found["spark_log_canary_failures_total", step] == 0


def test_its_topic_keeps_records_for_minutes(root, new_canary):
    new_canary().send()
    (described,) = Admin(root).describe_topics([CANARY_TOPIC])
    assert len(described.partitions) == 1
    assert described.configs["retention.ms"] == "600000"


def test_it_cleans_its_topic(root, new_canary, monkeypatch):
    cleaned: list[list[str]] = []

    class Cleaner:
        def __init__(self, cluster, topics):
            cleaned.append(topics)

        def clean(self):
            return iter(())

    monkeypatch.setattr("spark_log.exporter.canary.ClusterCleaner", Cleaner)
    canary = new_canary()
    canary.send()
    canary.send()
    assert cleaned == [[CANARY_TOPIC]], "once in five minutes"


def test_canaries_of_one_root_do_not_take_each_others_records(new_canary):
    canaries = [new_canary() for _ in range(2)]
    records: list[CanaryRecord] = []
    threads = [
        threading.Thread(target=lambda each=each: records.extend(each.send() for _ in range(3)))
        for each in canaries
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [each.error for each in records] == [None] * 6
    assert {each.offset for each in records} == set(range(6))


def test_a_step_that_fails_is_named_and_counted_and_it_goes_on(new_canary, monkeypatch):
    canary = new_canary(timeout_ms=500)
    assert canary.send().error is None

    def refuse(*args, **options):
        raise StorageUnavailableError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(LocalStore, "put_if_absent", refuse)
        record = canary.send()
    assert record.failed_step == "produce"
    assert record.error
    assert record.durations_ms == {}
    assert values(canary)["spark_log_canary_failures_total", "produce"] == 1
    assert canary.send().error is None


def test_a_record_that_no_reader_gets_fails_the_roundtrip(new_canary, monkeypatch):
    canary = new_canary(timeout_ms=300)
    canary.send()
    monkeypatch.setattr("spark_log.consumer.Consumer.poll", lambda self, timeout_ms: {})
    record = canary.send()
    assert (record.offset, record.failed_step) == (1, "roundtrip")
    assert "300 ms" in record.error
