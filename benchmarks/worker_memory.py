"""Memory of Spark's Python workers, read from /proc while a benchmark runs."""

import threading
from pathlib import Path
from typing import Self

from benchmarks.process_memory import memory_bytes

_POLL_S = 0.05


class WorkerMemory:
    """The largest resident memory of any Python worker while the context manager is open.

    It can be opened several times; libraries and mapped files count.

    Attributes:
        peak_bytes: the largest memory so far; 0 without /proc.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._done.wait(_POLL_S):
            for process in Path("/proc").glob("[0-9]*"):
                self.peak_bytes = max(self.peak_bytes, _worker_bytes(process))


def _worker_bytes(process: Path) -> int:
    try:
        if b"pyspark.daemon" not in (process / "cmdline").read_bytes():
            return 0
    except OSError:
        return 0  # the process has ended
    return memory_bytes(process.name).get("VmRSS", 0)
