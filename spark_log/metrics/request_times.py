"""Measures the durations of a store's calls, by operation."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final

from spark_log.metrics.definitions import REQUEST_DURATION, REQUEST_ERRORS
from spark_log.metrics.family import Family
from spark_log.metrics.histogram import Histogram
from spark_log.storage import Store
from spark_log.util import SYSTEM_CLOCK

OPERATIONS: Final = (
    "put_if_absent",
    "put",
    "read",
    "read_tail",
    "read_tail_and_size",
    "open_buffer",
    "list",
    "list_directories",
    "head",
    "delete",
)
"""The methods of `Store` that are measured. On an object store each call is a request."""

_END: Final = object()


class RequestTimes:
    """Measures the calls of one store. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._durations: dict[str, Histogram] = {}
        self._errors: Counter[tuple[str, str]] = Counter()
        self._is_inside = threading.local()

    def measure(self, store: Store) -> None:
        """Measure all calls of a store from now on.

        The methods of this one object are replaced, so that it keeps its type: some code is faster
        with a local store's type.

        Args:
            store: the store of one client. It cannot be pickled any more.
        """
        for operation in OPERATIONS:
            call = getattr(store, operation)
            is_listing = operation.startswith("list")
            measured = self._measured_listing if is_listing else self._measured
            setattr(store, operation, measured(operation, call))

    def counts(self) -> dict[str, int]:
        """Return the number of calls by operation, without operations that were not called."""
        with self._lock:
            return {name: found.count for name, found in sorted(self._durations.items())}

    def families(self, client_id: str) -> Iterator[Family]:
        """Yield the values of the storage metrics."""
        with self._lock:
            durations, errors = sorted(self._durations.items()), sorted(self._errors.items())
        yield Family(REQUEST_DURATION, [((client_id, name), found) for name, found in durations])
        yield Family(REQUEST_ERRORS, [((client_id, *key), count) for key, count in errors])

    def _measured(self, operation: str, call: Callable[..., Any]) -> Callable[..., Any]:
        inside = self._is_inside

        @wraps(call)
        def measured(*args: Any, **kwargs: Any) -> Any:
            if getattr(inside, "value", False):  # a store may use one operation for another
                return call(*args, **kwargs)
            inside.value, error = True, ""
            began_ms = SYSTEM_CLOCK.monotonic_ms()
            try:
                return call(*args, **kwargs)
            except Exception as raised:
                error = type(raised).__name__
                raise
            finally:
                inside.value = False
                self._record(operation, SYSTEM_CLOCK.monotonic_ms() - began_ms, error)

        return measured

    def _measured_listing(self, operation: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Measure a generator as one call: only the time inside of it, not its caller's time."""
        inside = self._is_inside

        @wraps(call)
        def measured(*args: Any, **kwargs: Any) -> Iterator[Any]:
            if getattr(inside, "value", False):
                yield from call(*args, **kwargs)
                return
            items, duration_ms, error = call(*args, **kwargs), 0.0, ""
            try:
                while True:
                    inside.value, began_ms = True, SYSTEM_CLOCK.monotonic_ms()
                    try:
                        item = next(items, _END)
                    except Exception as raised:
                        error = type(raised).__name__
                        raise
                    finally:
                        inside.value = False
                        duration_ms += SYSTEM_CLOCK.monotonic_ms() - began_ms
                    if item is _END:
                        return
                    yield item
            finally:
                self._record(operation, duration_ms, error)

        return measured

    def _record(self, operation: str, duration_ms: float, error: str) -> None:
        with self._lock:
            self._durations.setdefault(operation, Histogram()).record(duration_ms)
            if error:
                self._errors[operation, error] += 1
