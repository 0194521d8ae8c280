"""`JavaProgram`: a program in Java, as a process that writes into a file."""

import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.kafka_broker import find_java

SMALL_JVM = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CICompilerCount=1")
"""Flags of the JVM with which many programs can share a machine."""

_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"


class JavaProgram:
    """A program that runs from `start` until it ends, is killed or is told to close.

    Attributes:
        log_path: The file that has what it writes. A process that is started again adds to it.
    """

    def __init__(
        self,
        log_path: Path,
        class_path: str,
        main: str,
        *arguments: object,
        flags: Sequence[str] = SMALL_JVM,
        folder: Path | None = None,
    ) -> None:
        """Prepare a program.

        Args:
            log_path: The file that has what it writes.
            class_path: The class path.
            main: The class that has its main method.
            arguments: Its arguments.
            flags: Those of the JVM.
            folder: The folder that it runs in; by default that of this process.
        """
        self.log_path = log_path
        self.log_path.touch()
        java = [find_java(), *flags, _LOG, "-cp", class_path, main]
        self._command = [*java, *map(str, arguments)]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start a process."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status of its process; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    @property
    def log_bytes(self) -> int:
        """The length of its log so far."""
        return self.log_path.stat().st_size

    def found(self, pattern: str, since: int = 0) -> list[str]:
        """Return what a regular expression finds in the lines of its log.

        Args:
            pattern: The expression.
            since: The length of the log before what is searched.
        """
        text = self.log_path.read_bytes()[since:].decode(errors="replace")
        return [each.group() for each in re.finditer(pattern, text, re.MULTILINE)]

    def kill(self) -> None:
        """End its process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self, timeout_s: float = 90) -> bool:
        """Let its process end, and wait for it; kill it, and return false, if it does not."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float) -> bool:
        """Wait until its process has ended; kill it, and return false, if it does not."""
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True
