"""A real Kafka broker for benchmarks: jars by Maven, one KRaft node, removed when it stops."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self
from xml.sax.saxutils import escape

KAFKA_VERSION = "4.1.0"
BROKER_ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",  # without a binding a broker that fails to start says nothing
)
CACHE = Path(__file__).parent / ".kafka"

# The JVM flags of Kafka's own kafka-server-start.sh and kafka-run-class.sh.
_JVM_FLAGS = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_PR_SET_PDEATHSIG = 1


class ToolMissingError(Exception):
    """A program that the benchmark needs is not installed; the message names it and the reason."""


class BrokerError(Exception):
    """Maven or Kafka failed; the message ends with the last lines of its output."""


def exit_status(run: Callable[[], object]) -> int:
    """Run a benchmark; print an error in one line, and return the exit status."""
    try:
        run()
    except ToolMissingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def confluent_kafka_required() -> Iterator[None]:
    """Raise `ToolMissingError` if an import of confluent-kafka in the block fails."""
    try:
        yield
    except ImportError:
        raise ToolMissingError(
            "the client is missing: pip install -c constraints.txt confluent-kafka"
        ) from None


class KafkaBroker:
    """A single-node Kafka cluster (KRaft, broker and controller in one process) on 127.0.0.1.

    Settings are Kafka's defaults, so nothing is synced per append, apart from the replication
    factors of the internal topics, which one node forces to 1. The heap is 1 GB.

    On entering, the jars are fetched (once; cached in ``benchmarks/.kafka/libs``), a temporary
    directory is formatted and the broker is started on two ports. On leaving, the broker is
    stopped and the directory is removed. If this process dies, Linux kills the broker (enter from
    the main thread: the kernel watches the thread that started it); the directory remains.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        loggers: Sequence[str] = (),
        start_timeout_s: float = 60,
        stop_timeout_s: float = 20,
    ) -> None:
        """Prepare a broker whose files will be in a new directory under ``directory``.

        Args:
            directory: The parent of the new directory; None for the system's temporary directory.
            port: The port that clients connect to; None for a free one.
            settings: The broker's settings, in addition to Kafka's defaults.
            loggers: The loggers of the broker that write to `log_path` at level info.
            start_timeout_s: The maximum time of the start.
            stop_timeout_s: The time after which a broker that does not stop is killed.
        """
        self._port = port
        self._settings = dict(settings or {})
        self._loggers = loggers
        self.log_path = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = directory
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._stack = ExitStack()
        self._java: list[str] = []
        self.bootstrap_servers = ""
        self.data_directory = Path()

    def __enter__(self) -> Self:
        """Start the broker and wait until it accepts connections.

        Raises:
            ToolMissingError: Maven or Java is not installed.
            BrokerError: The jars cannot be fetched, or the broker stopped or was not up in time.
        """
        libs = fetch_jars("libs", BROKER_ARTIFACTS)
        self._java = [find_java(), "-cp", str(libs / "*")]
        with ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix="kafka-", dir=self._directory)
            home = Path(stack.enter_context(temporary))
            port, controller_port = _free_ports(2)
            port = self._port or port
            properties = home / "server.properties"
            self.data_directory = home / "data"
            ports = port, controller_port
            properties.write_text(_server_properties(self.data_directory, *ports, self._settings))
            self._format(properties)
            self.log_path = home / "broker.log"
            self._start(properties, self.log_path, port, stack)
            self.bootstrap_servers = f"127.0.0.1:{port}"
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Terminate the broker (kill it if that takes too long), and remove its directory."""
        self._stack.close()

    def create_topic(self, topic: str, num_partitions: int) -> None:
        """Create ``topic`` with one replica per partition. This takes a second: it starts a JVM."""
        size = ["--partitions", str(num_partitions), "--replication-factor", "1"]
        self._topic_command("--create", "--topic", topic, *size)

    def delete_topic(self, topic: str) -> None:
        """Delete ``topic``; the broker frees its files a minute later (file.delete.delay.ms)."""
        self._topic_command("--delete", "--topic", topic)

    @property
    def pid(self) -> int:
        """The broker's process id."""
        assert self._process is not None
        return self._process.pid

    def cpu_s(self) -> float | None:
        """Return the broker's CPU time so far, in seconds; None without /proc."""
        status = Path(f"/proc/{self._process.pid}/stat") if self._process else Path()
        if not status.is_file():
            return None
        fields = status.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _topic_command(self, *arguments: str) -> None:
        command = "org.apache.kafka.tools.TopicCommand"
        _run([*self._java, command, "--bootstrap-server", self.bootstrap_servers, *arguments])

    def _format(self, properties: Path) -> None:
        tool = [*self._java, "kafka.tools.StorageTool"]
        cluster_id = _run([*tool, "random-uuid"]).split()[-1]
        _run([*tool, "format", "-t", cluster_id, "-c", str(properties), "--standalone"])

    def _start(self, properties: Path, log: Path, port: int, stack: ExitStack) -> None:
        logger = "-Dorg.slf4j.simpleLogger"
        levels = (f"{logger}.log.{each}=info" for each in self._loggers)
        flags = (*_JVM_FLAGS, f"{logger}.defaultLogLevel=warn", *levels)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self._java[0], *flags, *self._java[1:], "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours to handle, then the broker is stopped
                preexec_fn=_die_with_parent(),  # noqa: PLW1509 - it takes no lock
            )
        self._process = process
        stack.callback(self._stop, process)
        deadline = time.monotonic() + self._start_timeout_s
        while not _accepts(port):
            stopped = process.poll() is not None
            if stopped or time.monotonic() > deadline:
                what = "stopped" if stopped else f"was not up after {self._start_timeout_s:.0f} s"
                raise BrokerError(f"Kafka {what}; its last lines:\n{_tail(log.read_text())}")
            time.sleep(0.1)

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def fetch_jars(name: str, artifacts: Sequence[str], *, transitive: bool = True) -> Path:
    """Return a directory with the jars of ``artifacts``, which Maven fetches.

    An artifact is ``group:artifact:version``, or ``group:artifact:version:classifier``.

    The jars are cached in ``benchmarks/.kafka/<name>`` while the list stays the same. The list is
    written into the directory last, so that an interrupted fetch is repeated. Maven is required
    even with a cache, so that a benchmark does not depend on earlier runs.

    Args:
        name: The directory's name in the cache.
        artifacts: The artifacts to fetch.
        transitive: Whether to fetch their dependencies, too.

    Raises:
        ToolMissingError: Maven is not installed.
        BrokerError: Maven could not resolve the artifacts.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise ToolMissingError(
            "Kafka's jars are fetched with `mvn`, which is missing: install maven"
        )
    directory = CACHE / name
    complete = directory / "pom.xml"
    pom = _pom(artifacts, transitive=transitive)
    if complete.exists() and complete.read_text() == pom:
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as project:
        (Path(project) / "pom.xml").write_text(pom)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        _run([maven, "-q", "-B", *goal, f"-DoutputDirectory={directory}"], directory=Path(project))
    complete.write_text(pom)
    return directory


def find_java() -> str:
    """Return the Java that Spark uses: that of JAVA_HOME, else the first one on the path.

    Raises:
        ToolMissingError: Java is not installed.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        raise ToolMissingError("Kafka and Spark need Java, which is missing: install Java 17 or 21")
    return java


def _pom(artifacts: Sequence[str], *, transitive: bool) -> str:
    anything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    exclusions = "" if transitive else f"<exclusions>{anything}</exclusions>"
    dependencies = "\n".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{_classifier(*classifier)}{exclusions}</dependency>"
        for group, artifact, version, *classifier in (escape(name).split(":") for name in artifacts)
    )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>benchmarks</groupId><artifactId>jars</artifactId><version>1</version>
<packaging>pom</packaging>
<dependencies>
{dependencies}
</dependencies>
</project>
"""


def _classifier(name: str = "") -> str:
    return name and f"<classifier>{name}</classifier>"


def _server_properties(
    data: Path, port: int, controller_port: int, settings: Mapping[str, str]
) -> str:
    more = "".join(f"{name}={value}\n" for name, value in settings.items())
    return f"""process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
{more}"""


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _die_with_parent() -> Callable[[], None] | None:
    """Return a function for the child, after which the kernel kills it when this thread ends."""
    if sys.platform != "linux":
        return None
    libc, parent = ctypes.CDLL(None), os.getpid()  # loaded here: a fork should do little

    def ask_kernel() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the call of prctl
            os._exit(1)

    return ask_kernel


def _run(command: Sequence[str], *, directory: Path | None = None, timeout_s: float = 600) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,  # the error below contains its output
        )
    except subprocess.TimeoutExpired as error:
        raise BrokerError(f"{Path(command[0]).name} took more than {timeout_s:.0f} s") from error
    if done.returncode:
        said = _tail(done.stdout + done.stderr)
        raise BrokerError(f"{Path(command[0]).name} failed with status {done.returncode}:\n{said}")
    return done.stdout


def _tail(text: str, lines: int = 20) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
