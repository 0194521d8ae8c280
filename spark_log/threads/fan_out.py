"""Sends calls to several roots at once, and continues without a root that does not answer."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from spark_log.threads.daemon_pool import Outcome
from spark_log.threads.timed_call import in_new_thread

PATIENCE_S: Final = 1.0
"""Maximum time to wait for the other answers once a majority of the roots has answered."""

_MOST_UNANSWERED: Final = 8
"""Maximum number of unanswered calls to a root that hangs: each of them is a thread."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one root.

    Attributes:
        root: the root's name; calls with the same name are calls of the same root.
        send: function that makes the call.
    """

    root: str
    send: Callable[[], Any]


Replies = Sequence[Outcome[Any] | None]
"""The replies, in the order of the calls; None for a call without one."""


class FanOut:
    """Calls several roots at once, each on a thread of its own. Thread-safe.

    A root that has not answered within `PATIENCE_S`, while the others have, is late: later calls do
    not wait for it until it has answered all earlier ones. A root that hangs thus delays one call.
    """

    def __init__(self, name: str) -> None:
        """Start no thread yet.

        Args:
            name: the name of the threads.
        """
        self._name = name
        self._lock = threading.Lock()
        self._unanswered: Counter[str] = Counter()
        self._late: set[str] = set()

    def late(self) -> frozenset[str]:
        """Return the roots that hang."""
        with self._lock:
            return frozenset(self._late)

    def request(
        self,
        calls: Sequence[Call],
        *,
        is_done: Callable[[Replies], bool],
        suffices: Callable[[Replies], bool],
    ) -> Replies:
        """Make the calls, and return the replies that arrived.

        Args:
            calls: the calls.
            is_done: function that returns whether no more replies are needed. The other calls
                continue in the background.
            suffices: function that returns whether the replies are enough if the others are late.

        Returns:
            The replies; all of them, unless one of the two functions returned True.
        """
        arrived: queue.SimpleQueue[tuple[int, Outcome[Any]]] = queue.SimpleQueue()
        replies: list[Outcome[Any] | None] = [None] * len(calls)
        waiting = set()
        for number, call in enumerate(calls):
            if self._start(number, call, arrived):
                waiting.add(number)
        due_s = time.monotonic() + PATIENCE_S
        while waiting and not is_done(replies):
            timeout_s: float | None = None
            if suffices(replies):
                late = self.late()
                if all(calls[number].root in late for number in waiting):
                    break
                timeout_s = max(0.0, due_s - time.monotonic())
            try:
                number, reply = arrived.get(timeout=timeout_s)
            except queue.Empty:
                with self._lock:
                    self._late.update(calls[number].root for number in waiting)
                break
            replies[number] = reply
            waiting.discard(number)
        return replies

    def send(self, calls: Sequence[Call]) -> None:
        """Make the calls in the background. Their results are dropped."""
        for number, call in enumerate(calls):
            self._start(number, call, queue.SimpleQueue())

    def _start(
        self, number: int, call: Call, arrived: queue.SimpleQueue[tuple[int, Outcome[Any]]]
    ) -> bool:
        with self._lock:
            if self._unanswered[call.root] >= _MOST_UNANSWERED and call.root in self._late:
                return False
            self._unanswered[call.root] += 1

        def run() -> None:
            reply = Outcome.of(call.send)
            with self._lock:
                self._unanswered[call.root] -= 1
                if not self._unanswered[call.root]:
                    self._late.discard(call.root)
            arrived.put((number, reply))

        in_new_thread(partial(copy_context().run, run), self._name)
        return True
