"""The metrics of one client, in a registry or at a port."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spark_log.errors import InvalidConfigurationError
from spark_log.metrics.definitions import SUPPRESSED_ERRORS, MetricDefinition
from spark_log.metrics.family import Family
from spark_log.metrics.histogram import Histogram
from spark_log.metrics.request_times import RequestTimes
from spark_log.storage import Store
from spark_log.util import SuppressedErrors

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from spark_log.metrics.registry import FamiliesCollector
    from spark_log.metrics.server import MetricsServer

_HOST: Final = "127.0.0.1"
_MAX_READINGS: Final = 10


@dataclass(frozen=True, slots=True)
class ClientReading:
    """The metrics of a client at one moment.

    Attributes:
        metrics: the result of the client's method `metrics`.
        histograms: definition → values of the labels after ``client_id`` → durations.
        counts: definition → values of the labels after ``client_id`` → count, for counters with
            labels.
    """

    metrics: Mapping[str, Mapping[str, float]]
    histograms: Mapping[MetricDefinition, Mapping[tuple[str, ...], Histogram]]
    counts: Mapping[MetricDefinition, Mapping[tuple[str, ...], float]] = field(default_factory=dict)


class ClientMetrics:
    """Exposes the metrics of one client to Prometheus; without a port and a registry, does nothing.

    A given registry has the metrics until `close`. A port answers scrapes on 127.0.0.1; clients of
    one process with the same port share it.
    """

    def __init__(self, port: int | None, registry: CollectorRegistry | None) -> None:
        """Check the arguments; nothing is served yet.

        Args:
            port: the port to serve the metrics at; None for no port.
            registry: the registry of prometheus_client to add the metrics to; None for no registry.

        Raises:
            InvalidConfigurationError: a value is not valid, or prometheus_client is not installed.
        """
        if port is not None and (not isinstance(port, int) or not 0 < port < 65536):
            raise InvalidConfigurationError(
                f"metrics_port is {port!r}; give the number of a port, 1 to 65535",
                key="metrics.port",
            )
        self._port = port
        self._registry = registry
        self._times = RequestTimes()
        self._end: list[Callable[[], None]] = []
        if registry is not None or port is not None:
            # A late import: most clients expose nothing.
            from spark_log.metrics.registry import collector_of, new_registry

            if registry is not None:
                collector_of(registry)
            else:
                new_registry()

    def open(
        self,
        client_id: str,
        store: Store,
        suppressed: SuppressedErrors,
        definitions: Iterable[MetricDefinition],
        read: Callable[[], ClientReading],
    ) -> None:
        """Add the client to the registry, and answer scrapes at the port.

        Args:
            client_id: the value of the label ``client_id``.
            store: the store of the client's root. Its calls are measured from now on.
            suppressed: the client's suppressed errors.
            definitions: the definitions of the client's metrics.
            read: a bound method that returns the metrics. Its object is not kept alive; any thread
                may call it.

        Raises:
            InvalidConfigurationError: the port is taken.
        """
        if self._port is None and self._registry is None:
            return
        self._times.measure(store)
        times, method, table = self._times, weakref.WeakMethod(read), tuple(definitions)

        def families() -> Iterator[Family]:
            reader = method()
            if reader is not None:
                yield from _families(client_id, table, _reading(reader))
                counts = sorted(suppressed.counts().items())
                yield Family(SUPPRESSED_ERRORS, [((client_id, what), n) for what, n in counts])
                yield from times.families(client_id)

        if self._port is not None:
            collector, close = _ports.open(self._port)
            self._end += [collector.add(families), close]
        if self._registry is not None:
            from spark_log.metrics.registry import collector_of  # late, as above

            self._end.append(collector_of(self._registry).add(families))

    def close(self) -> None:
        """Remove the client. Further calls have no effect."""
        end, self._end = self._end, []
        for each in end:
            each()


def _reading(read: Callable[[], ClientReading]) -> ClientReading:
    """Return the metrics of a client; retry if it changed a dictionary during the read."""
    for _ in range(_MAX_READINGS):
        with suppress(RuntimeError):
            return read()
    return read()


def _families(
    client_id: str, definitions: Iterable[MetricDefinition], reading: ClientReading
) -> Iterator[Family]:
    for definition in definitions:
        values: Mapping[tuple[str, ...], float | Histogram]
        if definition.kafka:
            group, name = definition.kafka
            values = {(): reading.metrics[group][name]}
        elif definition.type == "histogram":
            values = reading.histograms[definition]
        else:
            values = reading.counts[definition]
        yield Family(definition, [((client_id, *rest), value) for rest, value in values.items()])


class _Ports:
    """The ports of this process that answer scrapes, each shared by clients with the same port."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start without ports, also in a forked child, which lacks the threads that answer."""
        self._lock = threading.Lock()
        self._opened: dict[int, tuple[MetricsServer, FamiliesCollector]] = {}
        self._users: dict[int, int] = {}

    def open(self, port: int) -> tuple[FamiliesCollector, Callable[[], None]]:
        """Return the collector of a port, and a function that ends this use of the port."""
        # Late imports: http.server takes long, and most clients have no port.
        from spark_log.metrics.registry import collector_of, new_registry, scrape_text
        from spark_log.metrics.server import MetricsServer

        with self._lock:
            if port not in self._opened:
                registry = new_registry()
                server = MetricsServer(_HOST, port, lambda: scrape_text(registry))
                self._opened[port] = server, collector_of(registry)
                self._users[port] = 0
            self._users[port] += 1
            return self._opened[port][1], lambda: self._close(port)

    def _close(self, port: int) -> None:
        with self._lock:
            self._users[port] -= 1
            if not self._users[port]:
                self._opened.pop(port)[0].close()


_ports: Final = _Ports()
os.register_at_fork(after_in_child=_ports.forget)
