"""Metrics reporters (kafka-python's ``AbstractMetricsReporter``), which receive every metric.

A reporter written for kafka-python works here. It keeps the metrics that it receives, and reads
their values when it reports, in its own thread and at its own interval.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from spark_log.config import ConfigModel
from spark_log.errors import InvalidConfigurationError
from spark_log.util import Clock, SuppressedErrors

_METHODS: Final = ("configure", "init", "metric_change", "metric_removal", "close")

_MAX_AGE_MS: Final = 100.0


class MetricsReporter(Protocol):
    """Receives the metrics of a client, as kafka-python's ``AbstractMetricsReporter`` does.

    An error of a reporter is counted as a suppressed error of the client, and each cause is logged
    once. The client continues.
    """

    def configure(self, configs: dict[str, object], /) -> None:
        """Receive the client's settings, by their dotted names; called first."""

    def init(self, metrics: list[Metric], /) -> None:
        """Begin with these metrics. The list is empty, as in kafka-python."""

    def metric_change(self, metric: Metric, /) -> None:
        """Receive a metric; called once for each metric when the client opens."""

    def metric_removal(self, metric: Metric, /) -> None:
        """Forget a metric. It is not called: a client's metrics stay until `close`."""

    def close(self) -> None:
        """Release resources; called when the client is closed."""


ReporterOrFactory = MetricsReporter | Callable[[], MetricsReporter]
"""A reporter, or a class or function that returns one."""


@dataclass(frozen=True, slots=True)
class MetricName:
    """The name of a metric, with kafka-python's attributes.

    Attributes:
        name: the name in the client's `metrics`, such as ``record-send-total``.
        group: the group in the client's `metrics`, such as ``producer-metrics``.
        description: always empty.
        tags: the tags, ``{"client-id": …}``.
    """

    name: str
    group: str
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)


class Metric:
    """One metric of a client (kafka-python's ``KafkaMetric``). Any thread may read its value.

    Attributes:
        metric_name: its name, group and tags.
    """

    __slots__ = ("_readings", "metric_name")

    def __init__(self, metric_name: MetricName, readings: _Readings) -> None:
        self.metric_name = metric_name
        self._readings = readings

    def value(self, time_ms: float | None = None) -> float:
        """Return the value, at most 100 ms old; the last value of a client that no longer exists.

        Args:
            time_ms: ignored; kafka-python's argument.
        """
        return self._readings.value(self.metric_name)

    def __repr__(self) -> str:
        return f"<Metric {self.metric_name.group}/{self.metric_name.name}>"


class MetricsReporters:
    """The reporters of one client."""

    def __init__(self, given: Sequence[ReporterOrFactory]) -> None:
        """Check the reporters; none is called yet.

        Args:
            given: the reporters, or classes and functions that return one.

        Raises:
            InvalidConfigurationError: one of them lacks a method of a reporter.
        """
        if not isinstance(given, Sequence):
            raise InvalidConfigurationError(
                f"metric_reporters is {given!r}; give a list of classes or objects",
                key="metric.reporters",
            )
        for each in given:
            lacks = _lacking(each)
            if lacks and (isinstance(each, type) or not callable(each)):
                raise InvalidConfigurationError(
                    f"{each!r} in metric_reporters has no method {', '.join(lacks)}; a reporter "
                    f"has those of kafka-python's AbstractMetricsReporter: {', '.join(_METHODS)}",
                    key="metric.reporters",
                )
        self._given = tuple(given)
        self._reporters: list[MetricsReporter] = []
        self._suppressed: SuppressedErrors | None = None

    def open(
        self,
        read: Callable[[], Mapping[str, Mapping[str, float]]],
        config: ConfigModel,
        client_id: str,
        clock: Clock,
        suppressed: SuppressedErrors,
    ) -> None:
        """Make the reporters, and pass every metric to them.

        Args:
            read: a bound method that returns the client's metrics by group and name; any thread may
                call it. Its client is not kept alive: even if a reporter keeps the metrics, a
                client that is garbage-collected without `close` ends its threads and leaves its
                group.
            config: the client's settings.
            client_id: the tag of the metrics.
            clock: the clock that measures the age of a reading.
            suppressed: the counts of errors that reporters raise.
        """
        if not self._given:
            return
        self._suppressed = suppressed
        readings = _Readings(read, clock)
        tags = {"client-id": client_id}
        metrics = [
            Metric(MetricName(name, group, tags=tags), readings)
            for group, values in readings.last.items()
            for name in values
        ]
        for each in self._given:
            with suppressed.suppress("metrics reporter", _name(each), Exception):
                is_factory = isinstance(each, type) or _lacking(each)
                reporter: MetricsReporter = each() if is_factory else each  # type: ignore[operator, assignment]
                self._reporters.append(reporter)
                reporter.configure({**config.dotted(), "client.id": client_id})
                reporter.init([])
                for metric in metrics:
                    reporter.metric_change(metric)

    def close(self) -> None:
        """Close the reporters. Further calls have no effect."""
        reporters, self._reporters = self._reporters, []
        for each in reporters:
            assert self._suppressed is not None
            with self._suppressed.suppress("metrics reporter", _name(each), Exception):
                each.close()


class _Readings:
    """The last read metrics of a client, kept so that one report reads them once."""

    def __init__(self, read: Callable[[], Mapping[str, Mapping[str, float]]], clock: Clock) -> None:
        self._read = weakref.WeakMethod(read)
        self._clock = clock
        self._lock = threading.Lock()
        self.last = read()
        self._read_ms = float("-inf")

    def value(self, name: MetricName) -> float:
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._read_ms >= _MAX_AGE_MS and (read := self._read()) is not None:
                self.last, self._read_ms = read(), now_ms
            return self.last[name.group][name.name]


def _lacking(reporter: object) -> list[str]:
    """Return the names of the methods of a reporter that an object does not have."""
    return [name for name in _METHODS if not callable(getattr(reporter, name, None))]


def _name(reporter: object) -> str:
    return getattr(reporter, "__name__", type(reporter).__name__)
