"""`test/service.py` of kafka-python's tests, which its source distribution does not have.

It is copied to the tests, so it imports nothing of this checkout.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time


class ExternalService:
    """A broker that runs already, and is left alone."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port


class SpawnedService:
    """A broker that a fixture starts, and whose output it waits for."""

    def __init__(self, args: list[str], env: dict[str, str]) -> None:
        self._args = args
        self._env = env
        self._output: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process."""
        self._process = subprocess.Popen(
            self._args,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._output.extend(process.stdout)

    def wait_for(self, pattern: str, timeout: float) -> bool:
        """Return whether a line with the pattern is written in time."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if any(re.search(pattern, line, re.IGNORECASE) for line in [*self._output]):
                return True
            time.sleep(0.05)
        return False

    def dump_logs(self) -> None:
        """Print what the process has written."""
        sys.stdout.writelines([*self._output])

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
