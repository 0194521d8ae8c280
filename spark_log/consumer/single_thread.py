"""Refuses the use of a consumer by two threads at a time (Kafka's ``KafkaConsumer.acquire``)."""

from __future__ import annotations

import os
import threading
from types import TracebackType

from spark_log.errors import ConcurrentModificationError, IllegalStateError


class SingleThread:
    """A reentrant lock for ``with``. A thread that cannot get it gets an error instead of waiting.

    Raises:
        ConcurrentModificationError: another thread holds it.
        IllegalStateError: the process was forked after the consumer was created.
    """

    __slots__ = ("_depth", "_lock", "_owner", "_process")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._depth = 0
        self._process = os.getpid()

    def __enter__(self) -> None:
        thread = threading.get_ident()
        if self._owner != thread:
            if not self._lock.acquire(blocking=False):
                raise ConcurrentModificationError(
                    "another thread is using this consumer; one thread at a time may use a "
                    "consumer, only wakeup() may be called by others"
                )
            if os.getpid() != self._process:
                self._lock.release()
                raise IllegalStateError(
                    "this consumer was created before the process forked, and its threads are in "
                    "the parent; create a consumer in the child"
                )
            self._owner = thread
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self._lock.release()
