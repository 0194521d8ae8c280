"""Counters of a producer, under the names of Kafka's producer metrics."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from spark_log.errors import (
    InvalidProducerEpochError,
    ProducerFencedError,
    UnknownOutcomeError,
)
from spark_log.metrics import Histogram, MetricDefinition, definitions

WINDOW_MS: Final = 30_000
"""Time that rates and averages cover (Kafka's ``metrics.sample.window.ms``)."""

_SAMPLE_MS: Final = 1_000
"""Time within which appends are added up: a producer may make thousands in a second."""

_TIMES: Final = ("request-latency", "record-queue-time", "produce-throttle-time")
"""Durations whose average and maximum are shown."""

_SHOWN_ERRORS: Final = (InvalidProducerEpochError, ProducerFencedError, UnknownOutcomeError)
"""Errors of appends that are counted as 0 before the first one, so that an alert can be tested."""


class ProducerMetrics:
    """Counters, histograms and recent samples. Thread-safe.

    Attributes:
        histograms: durations since the producer was made.
        append_errors: attempts of appends that failed, by the name of the error's class.
    """

    def __init__(self) -> None:
        """Begin with zeros."""
        self._lock = threading.Lock()
        self._records = self._bytes = self._appends = 0
        self._errors = self._retries = 0
        self._batches = 0
        self.histograms: dict[MetricDefinition, Histogram] = {
            definitions.APPEND_DURATION: Histogram(),
            definitions.QUEUE_DURATION: Histogram(),
            definitions.THROTTLE_DURATION: Histogram(),
        }
        self.append_errors = Counter({kind.__name__: 0 for kind in _SHOWN_ERRORS})
        self._latest: deque[_Sample] = deque()

    def count_append(
        self,
        now_ms: float,
        *,
        records: int,
        size_bytes: int,
        batches: int,
        latency_ms: float,
        queued_ms: float,
        throttle_ms: float,
    ) -> None:
        """Count one acknowledged append."""
        with self._lock:
            self._records += records
            self._bytes += size_bytes
            self._appends += 1
            self._batches += batches
            self.histograms[definitions.APPEND_DURATION].record(latency_ms)
            self.histograms[definitions.QUEUE_DURATION].record(queued_ms)
            self.histograms[definitions.THROTTLE_DURATION].record(throttle_ms)
            if not self._latest or now_ms - self._latest[-1].began_ms >= _SAMPLE_MS:
                self._latest.append(_Sample(now_ms))
                self._forget(now_ms)
            self._latest[-1].add(records, size_bytes, (latency_ms, queued_ms, throttle_ms))

    def count_failed_append(self, error: Exception) -> None:
        """Count one attempt of an append that failed."""
        with self._lock:
            self.append_errors[type(error).__name__] += 1

    def count_failed_records(self, records: int) -> None:
        """Count records that failed."""
        with self._lock:
            self._errors += records

    def count_retry(self) -> None:
        """Count one retry of an append."""
        with self._lock:
            self._retries += 1

    @property
    def acknowledged_records(self) -> int:
        """Number of records that were acknowledged."""
        return self._records

    @property
    def failed_records(self) -> int:
        """Number of records that failed."""
        return self._errors

    def values(self, now_ms: float) -> dict[str, float]:
        """Return ``{metric: value}``; rates are per second over the last `WINDOW_MS`."""
        with self._lock:
            return self._values(now_ms)

    def errors_by_name(self) -> dict[str, int]:
        """Return the failed attempts of appends, by the name of the error's class."""
        with self._lock:
            return dict(self.append_errors)

    def _values(self, now_ms: float) -> dict[str, float]:
        self._forget(now_ms)
        latest = self._latest
        seconds = max((now_ms - latest[0].began_ms) / 1000, 1.0) if latest else 1.0
        appends = sum(sample.appends for sample in latest)
        count = max(appends, 1)
        records = sum(sample.records for sample in latest)
        size_bytes = sum(sample.size_bytes for sample in latest)
        times = {
            f"{name}-{kind}": value
            for index, name in enumerate(_TIMES)
            for kind, value in (
                ("avg", sum(sample.sums_ms[index] for sample in latest) / count),
                ("max", max((sample.max_ms[index] for sample in latest), default=0.0)),
            )
        }
        return {
            "record-send-total": self._records,
            "record-send-rate": records / seconds,
            "record-error-total": self._errors,
            "record-retry-total": self._retries,
            "outgoing-byte-total": self._bytes,
            "outgoing-byte-rate": size_bytes / seconds,
            "request-total": self._appends,
            "request-rate": appends / seconds,
            "request-size-avg": size_bytes / count,
            **times,
            "records-per-request-avg": records / count,
            "batch-total": self._batches,
        }

    def _forget(self, now_ms: float) -> None:
        while self._latest and self._latest[0].began_ms < now_ms - WINDOW_MS:
            self._latest.popleft()


class _Sample:
    """The appends of about a second, added up."""

    __slots__ = ("appends", "began_ms", "max_ms", "records", "size_bytes", "sums_ms")

    def __init__(self, began_ms: float) -> None:
        self.began_ms = began_ms
        self.appends = self.records = self.size_bytes = 0
        self.sums_ms = [0.0] * len(_TIMES)
        self.max_ms = [0.0] * len(_TIMES)

    def add(self, records: int, size_bytes: int, times_ms: Sequence[float]) -> None:
        """Add an append, with its durations in the order of `_TIMES`."""
        self.appends += 1
        self.records += records
        self.size_bytes += size_bytes
        sums_ms, max_ms = self.sums_ms, self.max_ms
        for index, time_ms in enumerate(times_ms):
            sums_ms[index] += time_ms
            max_ms[index] = max(max_ms[index], time_ms)
