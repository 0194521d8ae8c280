"""Metrics reporters are told of every metric, read live values, and break no client."""

import asyncio
import threading
from functools import partial
from typing import Any, ClassVar

import pytest

from spark_log import AIOProducer, Consumer, InvalidConfigurationError, Producer
from spark_log.config import ProducerConfig
from spark_log.metrics_reporters import MetricsReporters
from spark_log.suppressed import SuppressedErrors
from tests.producer.support import by_hand, new_root, run


class Reporter:
    """As a reporter for kafka-python: it keeps the metrics that it is told of, by name."""

    made: ClassVar[list[Any]] = []

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


def test_a_report_reads_the_metrics_of_the_client_once(clock):
    reads = []

    def read():
        reads.append(1)
        return {"group": {"one": len(reads), "two": 2 * len(reads)}}

    reporter = Reporter()
    reporters = MetricsReporters([reporter])
    reporters.open(read, ProducerConfig(), "p", clock, SuppressedErrors())
    reads.clear()
    assert reporter.values() == {"group": {"one": 1, "two": 2}}
    clock.advance_ms(99)
    assert reporter.values() == {"group": {"one": 1, "two": 2}}
    clock.advance_ms(1)
    assert reporter.values() == {"group": {"one": 2, "two": 4}}


def test_a_reporter_of_a_consumer_reads_while_another_thread_uses_the_consumer(root):
    with Producer(root) as producer:
        producer.send("weather", b"rain")
    reporter = Reporter()
    found = []

    class ReadsInAnotherThread:
        def on_consume(self, records):
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
        auto_offset_reset="earliest",
        metric_reporters=[reporter],
        interceptors=[ReadsInAnotherThread()],
    ) as consumer:
        assert reporter.configs["group.instance.id"] is None
        assert len(next(iter(consumer.poll(30_000).values()))) == 1
        assert found[0]["consumer-metrics"]["poll-total"] == 1
        told = {(name.group, name.name) for name in reporter.metrics}
        assert told == {
            (group, name) for group, values in consumer.metrics().items() for name in values
        }
        assert "close" not in reporter.calls
    assert reporter.calls[-1] == "close"


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
    with Consumer(root=root, metric_reporters=[sound, broken]):
        pass
    assert sound.values()["suppressed-errors"] == {"suppressed-errors-total": 1}
    assert [each.message for each in caplog.records if "reporter" in each.message] == [
        f"{broken.__name__}: metrics reporter failed and was skipped (ZeroDivisionError: of a "
        f"reporter); further errors of this kind are counted, not logged"
    ]


@pytest.mark.parametrize("given", [[5], [Reporter(), object], Reporter, "Reporter", {"a": 1}, 5])
def test_what_is_no_reporter_is_refused(root, given):
    with pytest.raises(InvalidConfigurationError, match="metric_reporters"):
        Producer(root, metric_reporters=given)
    with pytest.raises(InvalidConfigurationError, match="metric_reporters"):
        Consumer(root=root, metric_reporters=given)
