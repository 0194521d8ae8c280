"""`RequestMetrics`: counts and times the requests of one gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from spark_log.metrics import Family, Histogram
from spark_log.metrics.definitions import (
    GATEWAY_REQUEST_DURATION,
    GATEWAY_REQUEST_ERRORS,
    GATEWAY_REQUESTS,
)


class RequestMetrics:
    """Counters that the event loop writes, and any thread reads."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._errors: Counter[tuple[str, str]] = Counter()
        self._durations: dict[str, Histogram] = {}

    def record(self, name: str, version: int, duration_ms: float, error: str | None) -> None:
        """Count one answer.

        Args:
            name: the API's name.
            version: the request's version.
            duration_ms: the time from the request to its answer.
            error: the name of the error for the whole request; None without one.
        """
        self._counts[name, str(version)] += 1
        if error is not None:
            self._errors[name, error] += 1
        found = self._durations.get(name)
        if found is None:
            found = self._durations[name] = Histogram()
        found.record(duration_ms)

    def families(self) -> Iterator[Family]:
        """Yield the values of the metrics."""
        yield Family(GATEWAY_REQUESTS, sorted(self._counts.copy().items()))
        yield Family(GATEWAY_REQUEST_ERRORS, sorted(self._errors.copy().items()))
        durations = [((name,), found) for name, found in sorted(self._durations.copy().items())]
        yield Family(GATEWAY_REQUEST_DURATION, durations)
