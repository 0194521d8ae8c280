"""Scrapes of a root. Requests that arrive while a scrape runs share its answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from spark_log.admin import OffsetsSampler
from spark_log.cluster import Cluster
from spark_log.errors import SparkLogError
from spark_log.exporter.root_metrics import root_metrics
from spark_log.metrics import (
    Family,
    Histogram,
    RequestTimes,
    collector_of,
    definitions,
    new_registry,
    scrape_text,
)
from spark_log.util import SYSTEM_CLOCK, SuppressedErrors

_CLIENT_ID: Final = "exporter"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scrape:
    """The answer to a scrape.

    Attributes:
        text: the metrics in Prometheus' text format.
        error: the reason why the root could not be read; None if it was read. With an error, the
            text has ``spark_log_exporter_up 0`` and no metrics of the root.
        requests: the number of calls to the storage so far, by operation.
    """

    text: bytes
    error: SparkLogError | None
    requests: dict[str, int]


class RootExporter:
    """Reads a root for Prometheus. Thread-safe.

    Only one read of the root runs at a time. A scrape that arrives while it runs gets the same
    answer, so that many scrapers cost the storage no more than one.
    """

    def __init__(self, open_cluster: Callable[[], Cluster], cluster_name: str | None) -> None:
        """Return an exporter; nothing is opened yet.

        Args:
            open_cluster: opens the root. Each scrape calls it again until it succeeds.
            cluster_name: the label ``cluster_name`` of the lag in seconds; None for the cluster's
                id.

        Raises:
            InvalidConfigurationError: prometheus_client is not installed.
        """
        self._open_cluster = open_cluster
        self._cluster_name = cluster_name
        self._sampler: OffsetsSampler | None = None
        self._lock = threading.Lock()
        self._running: Future[Scrape] | None = None
        self._times = RequestTimes()
        self._durations = Histogram()
        self._failures = SuppressedErrors()
        self._is_up = True
        self._registry = new_registry()
        collector_of(self._registry).add(self._families)

    def scrape(self) -> Scrape:
        """Return the present metrics of the root, or the answer of a scrape that already runs.

        If the root cannot be read, the answer has the error. The first such scrape, and the first
        one that can read the root again, are logged.
        """
        with self._lock:
            running = self._running
            if running is None:
                mine = self._running = Future()
        if running is not None:
            return running.result()
        try:
            mine.set_result(self._read())
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                self._running = None
        return mine.result()

    def _read(self) -> Scrape:
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        lines: list[str] = []
        error: SparkLogError | None = None
        try:
            lines = self._read_root()
        except SparkLogError as raised:
            error = raised
        took_ms = SYSTEM_CLOCK.monotonic_ms() - began_ms
        self._durations.record(took_ms)
        _log.debug("scrape: %d lines about the root in %.0f ms", len(lines), took_ms)
        self._report(error)
        text = scrape_text(self._registry) + "".join(lines).encode("utf-8", "replace")
        return Scrape(text, error, self.requests())

    def requests(self) -> dict[str, int]:
        """Return the number of calls to the storage so far, by operation."""
        return self._times.counts()

    def _read_root(self) -> list[str]:
        if self._sampler is None:
            cluster = self._open_cluster()
            self._times.measure(cluster.store)
            self._cluster_name = self._cluster_name or cluster.cluster_id
            self._sampler = OffsetsSampler(cluster, with_details=True, failures=self._failures)
        assert self._cluster_name is not None
        return list(root_metrics(self._sampler.sample(), self._cluster_name))

    def _report(self, error: SparkLogError | None) -> None:
        was_up, self._is_up = self._is_up, error is None
        if error is not None and was_up:
            _log.warning(
                "the root cannot be read; each scrape tries again, and this is logged once: %s",
                error,
            )
        elif error is None and not was_up:
            _log.warning("the root can be read again")

    def _families(self) -> list[Family]:
        counts = sorted(self._failures.counts().items())
        return [
            Family(definitions.UP, [((), int(self._is_up))]),
            Family(definitions.SCRAPE_DURATION, [((), self._durations)]),
            Family(definitions.SUPPRESSED_ERRORS, [((_CLIENT_ID, what), n) for what, n in counts]),
            *self._times.families(_CLIENT_ID),
        ]
