"""`Checkup`: the doctor's checks that cost a few requests, whatever the root holds."""

from __future__ import annotations

import threading
from typing import Final

from spark_log.doctor import Doctor, Finding, Limits
from spark_log.metadata import Cluster

_CHECKS: Final = ("quorum", "brokers", "clocks", "metadata-log", "replicas", "offsets-table")
_LIMITS: Final = Limits(patience_ms=2_000, findings=10)
_SLOW_MS: Final = 1_000
_REST: Final = 20
"""A slow checkup, of a root that does not answer, is not run again for this many times as long:
each leaves a thread that waits for the answer."""


class Checkup:
    """Runs the checks. For any thread; of several, one runs them, and the others wait for it."""

    def __init__(self, cluster: Cluster) -> None:
        """Check nothing yet."""
        self._cluster = cluster
        self._lock = threading.Lock()
        self._found: tuple[Finding, ...] = ()
        self._valid_until_ms = float("-inf")

    def findings(self) -> tuple[Finding, ...]:
        """Return what is wrong, the worst first.

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
