"""Several gateways on one machine, each a process of its own."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from spark_log.util import StopSignals

_log = logging.getLogger(__name__)

_LOOK_INTERVAL_S = 0.2
_MIN_LIFE_S = 30.0
"""A worker that ends earlier failed at its start, and is not started again at once."""
_MAX_PAUSE_S = 30.0
_MISTAKE = 2
"""Exit status of a command that was given something impossible; another try would end as this."""


def run_workers(arguments: Sequence[Sequence[str]]) -> int:
    """Run ``spark-log`` in several processes until SIGTERM or SIGINT; return the exit status.

    A process that ends is started again. At a signal all of them get SIGTERM, and the function
    waits for them.

    Args:
        arguments: the arguments of each process.
    """
    workers = [_Worker(each) for each in arguments]
    try:
        with StopSignals() as stop:
            while not stop.is_set():
                for worker in workers:
                    if worker.look() == _MISTAKE:
                        return _MISTAKE
                threading.Event().wait(_LOOK_INTERVAL_S)
            return 0
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


class _Worker:
    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = [sys.executable, "-m", "spark_log", *arguments]
        self._pause_s = 1.0
        self._due_s = 0.0
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._arguments)
        self._began_s = time.monotonic()

    def look(self) -> int | None:
        """Start the process again if it has ended; return its exit status then."""
        status = self._process.poll()
        now_s = time.monotonic()
        if status is None:
            return None
        if not self._due_s:
            lived_s = now_s - self._began_s
            self._pause_s = 1.0 if lived_s > _MIN_LIFE_S else min(2 * self._pause_s, _MAX_PAUSE_S)
            self._due_s = now_s + self._pause_s
            _log.warning(
                "a gateway ended with status %d; it is started again after %.0f s",
                status,
                self._pause_s,
            )
        elif now_s >= self._due_s:
            self._due_s = 0.0
            self._start()
        return status

    def terminate(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()

    def wait(self) -> None:
        self._process.wait()
