"""Measures how fast the machine is under its current load."""

import os
import threading
import time

_WORK_S = 0.005
_PAUSE_S = 0.1


class MachineSpeed:
    """Measures, as a context manager, the time of a step: a put and some milliseconds of work."""

    def __init__(self, store):
        self._store = store
        self._is_over = threading.Event()
        self._steps_s = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def step_s(self):
        """Return the mean time of a step so far."""
        return sum(self._steps_s) / len(self._steps_s) if self._steps_s else _WORK_S

    def _run(self):
        while not self._is_over.wait(_PAUSE_S):
            began_s = time.monotonic()
            until_s = time.thread_time() + _WORK_S
            while time.thread_time() < until_s:
                pass
            self._store.put("speed", os.urandom(100))
            self._steps_s.append(time.monotonic() - began_s)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()
