"""A thread that merges the ends of logs, concurrently with appends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Final

_log = logging.getLogger(__name__)

_STEP_S: Final = 0.0003
"""Processor time of a merge between two pauses: about two segments, to keep up with appends."""

_LONGEST_PAUSE_S: Final = 0.002
"""Maximum length of a pause. An append to an object store, or one that is synced, takes longer, but
hardly uses the interpreter."""


class MergeThread:
    """A thread for merges, one at a time. It is started by the first merge.

    Merges that wait when it is closed are not run, so that `close` need not wait for them: other
    processes make them.

    Merges pause for appends. An append releases the interpreter's lock at each of its system calls,
    about twenty times, and then waits until the merge releases it.
    """

    def __init__(self, name: str) -> None:
        """Start no thread yet."""
        self._appends = 0
        self._ended = threading.Condition()
        self._worked_from = 0.0
        self._name: Final = name
        self._waiting: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, merge: Callable[[], object]) -> bool:
        """Run a merge after all merges that were submitted before it.

        Returns:
            Whether the merge will be run. It will not be run after `close`, or if the system allows
            no more threads.
        """
        with self._lock:
            if self._is_closed:
                return False
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._thread = thread
        self._waiting.put(merge)
        return True

    @contextmanager
    def make_way(self) -> Iterator[None]:
        """Return a context for an append, during which merges pause. Any thread may use it."""
        with self._ended:
            self._appends += 1
        try:
            yield
        finally:
            with self._ended:
                self._appends -= 1
                self._ended.notify_all()

    def pause(self) -> None:
        """Pause a merge that has worked for `_STEP_S` until a running append ends. For merges."""
        if time.thread_time() - self._worked_from < _STEP_S:
            return
        with self._ended:
            if self._appends:
                self._ended.wait(_LONGEST_PAUSE_S)
        self._worked_from = time.thread_time()

    def close(self, timeout_s: float) -> None:
        """Drop the waiting merges, and wait for the running one, up to a timeout."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        self._waiting.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            merge = self._waiting.get()
            if merge is None or self._is_closed:
                return
            try:
                merge()
            except Exception:
                if self._is_closed:  # the process ends, and with it the threads that a merge needs
                    _log.debug("a merge ended with its process", exc_info=True)
                else:
                    _log.exception("a merge has failed")
