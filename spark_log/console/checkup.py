"""`Checkup`: those checks of the doctor that cost only a few requests for any size of root."""

from __future__ import annotations

import threading
from typing import Final

from spark_log.cluster import Cluster
from spark_log.doctor import Doctor, Finding, Limits

_CHECKS: Final = ("quorum", "brokers", "clocks", "metadata-log", "replicas", "offsets-table")
_LIMITS: Final = Limits(patience_ms=2_000, findings=10)
_SLOW_MS: Final = 1_000
_REST: Final = 20
"""A slow checkup is not repeated for this many times its duration: if a root does not answer, each
checkup leaves a thread that waits for the answer."""


class Checkup:
    """Runs the checks. Thread-safe: one thread runs the checks, and others wait for it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._found: tuple[Finding, ...] = ()
        self._valid_until_ms = float("-inf")

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings, the worst first.

        Raises:
            SparkLogError: the metadata cannot be read.
        """
        clock = self._cluster.clock
        with self._lock:
            began_ms = clock.monotonic_ms()
            if began_ms >= self._valid_until_ms:
                doctor = Doctor(lambda: self._cluster, checks=_CHECKS, limits=_LIMITS)
                order = ("error", "warning", "info")
                found = sorted(doctor.findings(), key=lambda each: order.index(each.severity))
                ended_ms = clock.monotonic_ms()
                self._found = tuple(found)
                took_ms = ended_ms - began_ms
                if took_ms >= _SLOW_MS:
                    self._valid_until_ms = ended_ms + _REST * took_ms
            return self._found
