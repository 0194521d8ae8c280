"""`DaemonPool`: runs calls on a bounded number of threads that do not keep the process alive.

A storage may accept a request and never answer it. ``ThreadPoolExecutor`` waits for its threads
when the process exits, so one hung request would keep a command such as ``spark-log doctor`` from
ending.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from spark_log.errors import StorageTimeoutError
from spark_log.threads.timed_call import in_new_thread

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[_Result]):
    """The outcome of a call.

    Attributes:
        value: the result of the call; None if it raised.
        error: the error that the call raised; None if it returned. `StorageTimeoutError` if it has
            not ended.
    """

    value: _Result | None = None
    error: BaseException | None = None

    @classmethod
    def of(cls, call: Callable[[], _Result]) -> Outcome[_Result]:
        """Make a call, and return its outcome."""
        try:
            return cls(call())
        except BaseException as error:
            return cls(error=error)

    def result(self) -> _Result:
        """Return the result of the call, or raise its error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


class DaemonPool:
    """Runs calls on threads that end with the process. For one `run` at a time."""

    def __init__(self, threads: int, patience_ms: float, *, name: str) -> None:
        """Return a pool; no thread is started yet.

        Args:
            threads: the maximum number of calls at the same time.
            patience_ms: the time after which a call is abandoned, with its thread.
            name: the name of the threads.
        """
        self._name = name
        self._threads = threads
        self._patience_s = patience_ms / 1000

    def run(
        self, call: Callable[[_Item], _Result], items: Iterable[_Item]
    ) -> Iterator[tuple[_Item, Outcome[_Result]]]:
        """Call a function for each item; yield items and outcomes, in the order in which they end.

        An item is taken when a thread is free, so that few items are in memory. If all threads
        hang, the remaining items are not tried: the outcome of each is a `StorageTimeoutError`.
        """
        waiting = iter(items)
        # The queue is unbounded, so an abandoned thread never blocks on it.
        done: queue.SimpleQueue[tuple[int, Outcome[_Result]]] = queue.SimpleQueue()
        running: dict[int, tuple[_Item, float]] = {}
        hung = number = 0
        is_empty = False
        while not is_empty or running:
            while not is_empty and len(running) < self._threads - hung:
                try:
                    item = next(waiting)
                except StopIteration:
                    is_empty = True
                    break
                number += 1
                running[number] = item, time.monotonic()
                _start(call, item, number, done, self._name)
            if not running:
                if hung >= self._threads:
                    yield from ((item, self._given_up()) for item in waiting)
                return
            oldest_s = min(began_s for _, began_s in running.values())
            try:
                left_s = oldest_s + self._patience_s - time.monotonic()
                ended, outcome = done.get(timeout=max(0.0, left_s))
            except queue.Empty:
                now_s = time.monotonic()
                late = [
                    each
                    for each, (_, began_s) in running.items()
                    if now_s - began_s >= self._patience_s
                ]
                for each in late:
                    hung += 1
                    yield running.pop(each)[0], self._given_up()
                continue
            if ended in running:
                yield running.pop(ended)[0], outcome

    def _given_up(self) -> Outcome[Any]:
        return Outcome(
            error=StorageTimeoutError(f"the storage has not answered for {self._patience_s:.0f} s")
        )


def _start(
    call: Callable[[_Item], _Result],
    item: _Item,
    number: int,
    done: queue.SimpleQueue[tuple[int, Outcome[_Result]]],
    name: str,
) -> None:
    in_new_thread(lambda: done.put((number, Outcome.of(lambda: call(item)))), name=name)
