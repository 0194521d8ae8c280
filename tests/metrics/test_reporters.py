"""Metrics reporters are told of every metric, read live values, and break no client."""

import asyncio
import gc
import threading
from functools import partial
from typing import ClassVar
from unittest.mock import create_autospec

import pytest

from spark_log import AIOProducer, Consumer, InvalidConfigurationError, Producer
from spark_log.producer.send.producer_metrics import ProducerMetrics
from tests.producer.support import by_hand, new_root, run
from tests.waiting import wait_until


class Reporter:
    """As a reporter for kafka-python: it keeps the metrics that it is told of, by name."""

    made: ClassVar[list["Reporter"]] = []

    def __init__(self):
        self.calls = []
        self.metrics = {}
        self.made.append(self)

    def configure(self, configs):
        self.calls.append("configure")
        self.configs = configs

    def init(self, metrics):
        self.calls.append("init")
        for metric in metrics:
            self.metric_change(metric)

    def metric_change(self, metric):
        assert metric.metric_name not in self.metrics
        self.metrics[metric.metric_name] = metric

    def metric_removal(self, metric):
        raise AssertionError

    def close(self):
        self.calls.append("close")

    def values(self):
        """Return ``{group: {name: value}}``, as a client's `metrics`."""
        values: dict[str, dict[str, float]] = {}
        for name, metric in self.metrics.items():
            values.setdefault(name.group, {})[name.name] = metric.value()
        return values


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, "weather")


def test_a_reporter_of_a_producer_reads_what_its_metrics_are(root, clock):
    reporter = Reporter()
    producer = by_hand(root, clock, metric_reporters=[reporter], client_id="p", linger_ms=7)
    assert reporter.calls == ["configure", "init"]
    assert reporter.configs["linger.ms"] == 7
    assert {name.tags["client-id"] for name in reporter.metrics} == {"p"}
    assert reporter.values()["producer-metrics"]["record-send-total"] == 0

    producer.send("weather", b"rain")
    run(producer, clock)
    clock.advance_ms(100)
    assert reporter.values() == producer.metrics()
    assert reporter.values()["producer-metrics"]["record-send-total"] == 1

    producer.close()
    producer.close()
    assert reporter.calls == ["configure", "init", "close"]


def test_a_report_reads_the_metrics_of_the_client_once(root, clock, monkeypatch):
    reporter = Reporter()
    producer = by_hand(root, clock, metric_reporters=[reporter])
    reads = create_autospec(ProducerMetrics.values, side_effect=ProducerMetrics.values)
    monkeypatch.setattr(ProducerMetrics, "values", reads)
    reporter.values()
    assert reads.call_count == 1
    clock.advance_ms(99)
    reporter.values()
    assert reads.call_count == 1
    clock.advance_ms(1)
    reporter.values()
    assert reads.call_count == 2
    producer.close()


def test_a_reporter_of_a_consumer_reads_while_another_thread_uses_the_consumer(root):
    with Producer(root) as producer:
        producer.send("weather", b"rain")
    reporter = Reporter()
    found = []

    class ReadElsewhere:
        def on_consume(self, records):  # called in `poll`
            thread = threading.Thread(target=lambda: found.append(reporter.values()))
            thread.start()
            thread.join(30)
            return records

        def on_commit(self, offsets):
            pass

    with Consumer(
        "weather",
        root=root,
        group_id="g",
        interceptors=[ReadElsewhere()],
        metric_reporters=[reporter],
        auto_offset_reset="earliest",
    ) as consumer:
        assert reporter.configs["group.instance.id"] is None
        assert len(next(iter(consumer.poll(30_000).values()))) == 1
        told = {(name.group, name.name) for name in reporter.metrics}
        assert told == {
            (group, name) for group, values in consumer.metrics().items() for name in values
        }
        assert found[0]["consumer-fetch-manager-metrics"]["records-consumed-total"] == 1
        assert "close" not in reporter.calls
    assert reporter.calls[-1] == "close"


def test_a_reporter_keeps_no_consumer_in_its_group(root):
    reporter = Reporter()
    before = set(threading.enumerate())
    consumer = Consumer("weather", root=root, group_id="g", metric_reporters=[reporter])
    wait_until(consumer.assignment, meanwhile=partial(consumer.poll, 10))
    assert any("-group-" in thread.name for thread in set(threading.enumerate()) - before)
    del consumer
    gc.collect()
    wait_until(lambda: set(threading.enumerate()) <= before, timeout_s=20)
    assert "join-total" in reporter.values()["consumer-coordinator-metrics"]


async def started_and_closed(root, factory):
    async with AIOProducer(root, metric_reporters=[factory]):
        pass


@pytest.mark.parametrize("factory", [Reporter, partial(Reporter)], ids=["class", "function"])
def test_a_class_or_function_is_called_for_each_client(root, monkeypatch, factory):
    monkeypatch.setattr(Reporter, "made", [])
    with (
        Producer(root, metric_reporters=(factory,)),
        Consumer(root=root, metric_reporters=[factory]),
    ):
        assert len(Reporter.made) == 2
    asyncio.run(started_and_closed(root, factory))
    assert [each.calls for each in Reporter.made] == [["configure", "init", "close"]] * 3


@pytest.mark.parametrize("method", ["__init__", "configure", "init", "metric_change", "close"])
def test_a_reporter_that_raises_breaks_no_client_and_is_counted(root, method, caplog):
    def fail(self, *args):
        raise ZeroDivisionError("of a reporter")

    broken = type(f"Broken{method.strip('_').title()}", (Reporter,), {method: fail})
    sound = Reporter()
    for _ in range(2):
        producer = Producer(root, metric_reporters=[broken, sound])
        producer.send("weather", b"rain")
        producer.close()
        assert producer.metrics()["suppressed-errors"]["metrics-reporter-errors-total"] == 1
        assert sound.calls == ["configure", "init", "close"]
        sound = Reporter()
    with Consumer(root=root, metric_reporters=[sound, broken]) as consumer:
        pass
    counts = consumer._cluster.suppressed.counts()  # noqa: SLF001 - metrics() ends with close()
    assert counts == {"metrics reporter": 1}
    assert [each.getMessage() for each in caplog.records if "reporter" in each.getMessage()] == [
        f"{broken.__name__}: metrics reporter failed and was skipped (ZeroDivisionError: of a "
        f"reporter); further errors of this kind are counted, not logged"
    ]


@pytest.mark.parametrize("given", [[5], [Reporter(), object], Reporter, "Reporter", {"a": 1}, 5])
def test_what_is_no_reporter_is_refused(root, given):
    with pytest.raises(InvalidConfigurationError, match="metric_reporters"):
        Producer(root, metric_reporters=given)
    with pytest.raises(InvalidConfigurationError, match="metric_reporters"):
        Consumer(root=root, metric_reporters=given)
