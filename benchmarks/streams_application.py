"""`StreamsApplication`: an instance of the application in StreamsApplication.java, as a process."""

import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from benchmarks.java_program import SMALL_JVM, JavaProgram
from benchmarks.kafka_broker import CACHE, KAFKA_VERSION, fetch_jars, find_java

STREAMS_ARTIFACTS = (
    f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
TOPOLOGIES = ("word-count", "table-join", "stream-join", "tumbling", "session")

_SOURCE = Path(__file__).with_name("StreamsApplication.java")


class StreamsApplication(JavaProgram):
    """An instance of the application."""

    def __init__(
        self,
        log_path: Path,
        topology: str,
        bootstrap_servers: str,
        inputs: Sequence[str],
        output: str,
        application_id: str,
        state_directory: Path,
        guarantee: str,
        settings: Mapping[str, object] | None = None,
        flags: Sequence[str] = SMALL_JVM,
    ) -> None:
        """Prepare an instance.

        Args:
            log_path: The file that has what it writes.
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
        arguments = (*names, state_directory, guarantee, *pairs)
        super().__init__(log_path, class_path(), "StreamsApplication", *arguments, flags=flags)
        self._begins_at = 0

    def start(self) -> None:
        """Start a process."""
        self._begins_at = self.log_bytes
        super().start()

    @property
    def is_running(self) -> bool:
        """Whether its process is in the state RUNNING: it has its partitions and stores."""
        return self.is_alive and self.states()[-1:] == ["STATE RUNNING"]

    @property
    def has_closed(self) -> bool:
        """Whether its process has closed in order."""
        return bool(self.found("^CLOSED", self._begins_at))

    def states(self) -> list[str]:
        """Return the states of its process so far."""
        return self.found("^STATE .*", self._begins_at)

    def exceptions(self) -> list[str]:
        """Return the exceptions that have ended threads of its process."""
        return self.found("^EXCEPTION .*", self._begins_at)


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
