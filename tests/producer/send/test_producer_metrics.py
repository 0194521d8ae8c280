"""Counters of a producer: their window is bounded in memory, however many appends it has."""

import pytest

from spark_log.producer.send.producer_metrics import WINDOW_MS, ProducerMetrics


def append(metrics, now_ms, latency_ms=1.0):
    metrics.count_append(
        now_ms,
        records=2,
        size_bytes=100,
        batches=1,
        latency_ms=latency_ms,
        queued_ms=2 * latency_ms,
        throttle_ms=0.0,
    )


class TestWindow:
    def test_holds_as_much_after_many_appends_as_after_few(self):
        metrics = ProducerMetrics()
        for number in range(100_000):
            append(metrics, float(number))
        assert len(metrics._latest) <= 1 + WINDOW_MS / 1000  # noqa: SLF001

    def test_rates_averages_and_maxima_are_of_the_latest_appends(self):
        metrics = ProducerMetrics()
        append(metrics, 0.0, latency_ms=1_000.0)
        for number in range(100):
            append(metrics, 40_000.0 + 100 * number, latency_ms=1.0 + number % 3)
        values = metrics.values(50_000.0)
        assert values["request-total"] == 101
        assert values["request-rate"] == pytest.approx(10.0)
        assert values["record-send-rate"] == pytest.approx(20.0)
        assert values["request-latency-max"] == 3.0
        assert values["request-latency-avg"] == pytest.approx(1.99)
        assert values["record-queue-time-max"] == 6.0
        assert values["request-size-avg"] == 100
        assert values["produce-throttle-time-avg"] == 0.0

    def test_without_appends_all_are_zero(self):
        metrics = ProducerMetrics()
        append(metrics, 0.0)
        values = metrics.values(WINDOW_MS + 1.0)
        assert values["request-rate"] == values["request-latency-avg"] == 0
