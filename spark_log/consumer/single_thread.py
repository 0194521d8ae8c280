"""A consumer is for one thread at a time: others are refused (``KafkaConsumer.acquire``)."""

from __future__ import annotations

import os
import threading
from types import TracebackType

from spark_log.errors import ConcurrentModificationError, IllegalStateError


class SingleThread:
    """``with`` it is held by one thread, which may enter again; another one is refused at once."""

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
                    "another thread is using this consumer; a consumer is for one thread at a "
                    "time, only wakeup() may be called by others"
                )
            if os.getpid() != self._process:
                self._lock.release()
                raise IllegalStateError(
                    "this consumer was made before the process forked, and its thread is not here; "
                    "make a consumer in the child"
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
