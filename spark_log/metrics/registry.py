"""Exposes families as a collector of prometheus_client, which the extra ``metrics`` installs."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from spark_log.errors import InvalidConfigurationError
from spark_log.metrics.definitions import MetricDefinition
from spark_log.metrics.family import Family
from spark_log.metrics.histogram import Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

ReadFamilies = Callable[[], Iterable[Family]]


class FamiliesCollector:
    """A collector of several sources, such as the clients of one process.

    The samples of one metric are collected together, whichever source they are from.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: dict[int, ReadFamilies] = {}
        self._next = 0

    def add(self, read: ReadFamilies) -> Callable[[], None]:
        """Add a source; return a function that removes it.

        Args:
            read: returns the families; any thread may call it. The collector keeps the function,
                so it should not keep a client alive.
        """
        with self._lock:
            number = self._next = self._next + 1
            self._sources[number] = read
        return lambda: self._remove(number)

    def _remove(self, number: int) -> None:
        with self._lock:
            self._sources.pop(number, None)

    def describe(self) -> list[Metric]:
        """Return nothing, so that a registry does not collect during the registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all sources."""
        with self._lock:
            sources = list(self._sources.values())
        merged: dict[MetricDefinition, list[Family]] = {}
        for read in sources:
            for family in read():
                merged.setdefault(family.definition, []).append(family)
        for definition, families in merged.items():
            yield _metric(definition, families)


def new_registry() -> CollectorRegistry:
    """Return an empty registry.

    Raises:
        InvalidConfigurationError: prometheus_client is not installed.
    """
    return _prometheus().CollectorRegistry()  # type: ignore[no-any-return]


def collector_of(registry: CollectorRegistry) -> FamiliesCollector:
    """Return the collector of a registry; the first call for a registry registers one.

    Raises:
        InvalidConfigurationError: prometheus_client is not installed, or the argument is not one of
            its registries.
    """
    if not callable(getattr(registry, "register", None)):
        raise InvalidConfigurationError(
            f"metrics_registry is {registry!r}; give a prometheus_client.CollectorRegistry",
            key="metrics.registry",
        )
    _prometheus()
    with _lock:
        collector = _collectors.get(registry)
        if collector is None:
            collector = _collectors[registry] = FamiliesCollector()
            registry.register(collector)
    return collector


def scrape_text(registry: CollectorRegistry) -> bytes:
    """Return all metrics of a registry in Prometheus' text format."""
    text: bytes = _prometheus().generate_latest(registry)
    return text


def samples_of(text: bytes) -> list[dict[str, object]]:
    """Return the samples of a text in Prometheus' format: name, labels and value of each."""
    _prometheus()
    from prometheus_client.parser import text_string_to_metric_families

    return [
        {"name": sample.name, "labels": dict(sample.labels), "value": sample.value}
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    ]


_lock: Final = threading.Lock()
_collectors: Final[weakref.WeakKeyDictionary[CollectorRegistry, FamiliesCollector]] = (
    weakref.WeakKeyDictionary()
)


def _metric(definition: MetricDefinition, families: Iterable[Family]) -> Metric:
    core = _prometheus().core
    labels = definition.labels
    if definition.type == "histogram":
        metric = core.HistogramMetricFamily(definition.name, definition.help, labels=labels)
    elif definition.type == "counter":
        metric = core.CounterMetricFamily(definition.name, definition.help, labels=labels)
    else:
        metric = core.GaugeMetricFamily(definition.name, definition.help, labels=labels)
    for family in families:
        for values, value in family.samples:
            if isinstance(value, Histogram):
                metric.add_metric(values, value.buckets(), value.total_ms / 1000)
            else:
                metric.add_metric(values, value)
    return metric  # type: ignore[no-any-return]


def _prometheus() -> Any:
    try:
        import prometheus_client.core
    except ImportError:
        raise InvalidConfigurationError(
            "metrics need prometheus_client: pip install 'spark-log[metrics]'"
        ) from None
    return prometheus_client
