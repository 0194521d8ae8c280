"""`StreamsApplication`: an instance of the application in StreamsApplication.java, as a process."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.kafka_broker import CACHE, KAFKA_VERSION, fetch_jars, find_java

STREAMS_ARTIFACTS = (
    f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
TOPOLOGIES = ("word-count", "table-join", "stream-join", "tumbling", "session")

_SOURCE = Path(__file__).with_name("StreamsApplication.java")
_FLAGS = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CICompilerCount=1")
_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"


def command(
    topology: str,
    bootstrap_servers: str,
    inputs: Sequence[str],
    output: str,
    application_id: str,
    state_directory: Path,
    guarantee: str,
    settings: Mapping[str, object] | None = None,
    flags: Sequence[str] = _FLAGS,
) -> list[str]:
    """Return the command that runs an instance.

    Args:
        topology: One of `TOPOLOGIES`.
        bootstrap_servers: The addresses of brokers or gateways.
        inputs: The topics that it reads, which must exist.
        output: The topic that it writes, which must exist.
        application_id: The name of its group, and the prefix of its internal topics.
        state_directory: The directory of its state stores; each instance has its own.
        guarantee: ``exactly_once_v2`` or ``at_least_once``.
        settings: More settings of Kafka Streams.
        flags: Those of the JVM.
    """
    pairs = (f"{name}={value}" for name, value in (settings or {}).items())
    names = (topology, bootstrap_servers, ",".join(inputs), output, application_id)
    where = str(state_directory)
    java = [find_java(), *flags, _LOG, "-cp", class_path(), "StreamsApplication"]
    return [*java, *names, where, guarantee, *pairs]


@cache
def class_path() -> str:
    """Return the class path of the application, which is compiled if its source is newer."""
    jars = f"{fetch_jars('streams', STREAMS_ARTIFACTS)}/*"
    compiled = CACHE / "streams-application"
    program = compiled / "StreamsApplication.class"
    if not program.exists() or program.stat().st_mtime < _SOURCE.stat().st_mtime:
        javac = str(Path(find_java()).with_name("javac"))
        subprocess.run([javac, "-cp", jars, "-d", compiled, _SOURCE], check=True)
    return f"{compiled}:{jars}"


class StreamsApplication:
    """An instance of the application. It runs from `start` until it is killed or told to end.

    Attributes:
        log_path: The file that has what it writes, with the log of Kafka Streams.
    """

    def __init__(self, log_path: Path, *arguments: Any, **options: Any) -> None:
        """Prepare an instance.

        Args:
            log_path: The file that has what it writes; each process of this instance adds to it.
            arguments: Those of `command`.
            options: Those of `command`.
        """
        self.log_path = log_path
        self._command = command(*arguments, **options)
        self._process: subprocess.Popen[bytes] | None = None
        self._begins_at = 0

    def start(self) -> None:
        """Start a process."""
        with self.log_path.open("ab") as log:
            self._begins_at = log.tell()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_running(self) -> bool:
        """Whether its process is in the state RUNNING: it has its partitions and stores."""
        return self.is_alive and self.states()[-1:] == ["RUNNING"]

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    def states(self) -> list[str]:
        """Return the states of its last process so far."""
        return self._said("STATE ")

    def exceptions(self) -> list[str]:
        """Return the exceptions that have ended threads of its last process."""
        return self._said("EXCEPTION ")

    def kill(self) -> None:
        """End its process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self, timeout_s: float = 90) -> bool:
        """Let its process close, and wait for it; return whether it has closed in order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        return bool(self._said("CLOSED"))

    def _said(self, prefix: str) -> list[str]:
        text = self.log_path.read_bytes()[self._begins_at :].decode(errors="replace")
        lines = text.splitlines()
        return [each.removeprefix(prefix) for each in lines if each.startswith(prefix)]
