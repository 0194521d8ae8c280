"""Compares a gateway with a Kafka broker below Kafka Connect: workers copy a file through a topic.

    python -m benchmarks.gateway_connect
    python -m benchmarks.gateway_connect --no-kafka --megabytes 20

Both are measured in turns, and the median counts. Each has two distributed workers with Kafka's
connectors for files, one of them with ``exactly.once.source.support``, whose source writes a
transaction for each 2,000 lines. The first turn warms the workers up, and does not count.

- source: the file's lines until all are in the topic, which has one partition.
- sink: the topic's records until all are in another file.
- copy: both at once.

The gateway's topics sync each append, the default; Kafka's sync nothing per append.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command_line import positive
from benchmarks.gateway import Server, cpu_s_of, free_port, running_gateway
from benchmarks.kafka_broker import KafkaBroker, confluent_kafka_required, exit_status
from benchmarks.kafka_connect import DistributedWorker
from benchmarks.log_report import Figure, Report, parser, run

LINE_BYTES = 100
_TIMEOUT_S = 600.0
_FILE = "org.apache.kafka.connect.file.FileStream"
_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


@dataclass(frozen=True, slots=True)
class Workers:
    """A server, and its workers.

    Attributes:
        server: the gateway or broker.
        plain: a worker whose sources deliver at least once.
        exactly_once: one whose sources write by transactions.
    """

    server: Server
    plain: DistributedWorker
    exactly_once: DistributedWorker

    @classmethod
    def started(cls, server: Server, folder: Path, stack: ExitStack) -> "Workers":
        """Start the workers of a server, until the stack is closed."""
        folder.mkdir()

        def worker(name: str, **settings: object) -> DistributedWorker:
            names: dict[str, object] = {"group.id": name}
            names |= {
                f"{each}.storage.topic": f"{name}-{each}" for each in ("config", "offset", "status")
            }
            more = {each.replace("_", "."): value for each, value in settings.items()}
            made = DistributedWorker(
                folder, name, server.address, free_port(), names | more, options=_OPTIONS
            )
            return stack.enter_context(made)

        once = worker("exactly-once", exactly_once_source_support="enabled")
        return cls(server, worker("plain"), once)


def write_lines(path: Path, megabytes: int) -> int:
    """Write a file of lines; return their number."""
    count = megabytes * 1_000_000 // LINE_BYTES
    with path.open("w") as file:
        for number in range(count):
            file.write(f"{number:012} ".ljust(LINE_BYTES - 1, "x") + "\n")
    return count


class Copy:
    """A copy of a file by a worker, whose topic and connectors have one name."""

    def __init__(self, workers: Workers, worker: DistributedWorker, name: str, file: Path) -> None:
        """Return a copy that has not begun."""
        self._server = workers.server
        self._worker = worker
        self._name = name
        self._file = file
        self._copy = file.with_name(f"{name}.txt")

    def source(self, lines: int) -> None:
        """Send the file, and wait until its lines are in the topic."""
        with confluent_kafka_required():
            import confluent_kafka
        self.begin_source()
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._server.address, "group.id": "benchmark", "log_level": 0}
        )
        partition = confluent_kafka.TopicPartition(self._name, 0)

        def has_all() -> bool:
            try:
                return bool(consumer.get_watermark_offsets(partition, timeout=5)[1] >= lines)
            except confluent_kafka.KafkaException:  # there is no topic yet
                return False

        self._worker.wait_for(has_all, "the topic lacks lines", _TIMEOUT_S)
        consumer.close()

    def begin_source(self) -> None:
        """Begin to send the file."""
        source = {"connector.class": f"{_FILE}SourceConnector", "file": self._file}
        self._worker.put(f"{self._name}-source", {**source, "topic": self._name})

    def sink(self) -> None:
        """Write the records of the topic to a file, and wait until it is as long as the first."""
        size_bytes = self._file.stat().st_size
        sink = {"connector.class": f"{_FILE}SinkConnector", "file": self._copy}
        self._worker.put(
            f"{self._name}-sink",
            {
                **sink,
                "topics": self._name,
                "consumer.override.isolation.level": "read_committed",
                "consumer.override.metadata.max.age.ms": 200,  # the topic may not be there yet
            },
        )
        self._worker.wait_for(
            lambda: self._copy.exists() and self._copy.stat().st_size >= size_bytes,
            "the copy lacks lines",
            _TIMEOUT_S,
        )

    def end(self) -> None:
        """Delete the connectors and the copy, which has to equal the file."""
        if self._copy.read_bytes() != self._file.read_bytes():
            raise RuntimeError(f"{self._copy.name} is not {self._file.name}")
        for name in (f"{self._name}-source", f"{self._name}-sink"):
            self._worker.ask("DELETE", f"/connectors/{name}")
        self._copy.unlink()


def measure_once(workers: Workers, turn: int, file: Path, lines: int) -> None:
    """Measure a server once; turn 0 does not count."""
    server, megabytes = workers.server, file.stat().st_size / 1e6

    def timed(figure: str, action: Callable[[], None]) -> None:
        cpu_s, began_s = server.cpu_s(), time.perf_counter()
        action()
        took_s = time.perf_counter() - began_s
        if turn:
            server.note(figure, megabytes / took_s)
            server.note(f"{figure}, CPU", (server.cpu_s() - cpu_s) * 1e3 / megabytes)

    copy = Copy(workers, workers.plain, f"plain-{turn}", file)
    timed("source", lambda: copy.source(lines))
    timed("sink", copy.sink)
    copy.end()
    for kind, worker in (("copy", workers.plain), ("copy, exactly once", workers.exactly_once)):
        both = Copy(workers, worker, f"{kind.replace(', ', '-').replace(' ', '-')}-{turn}", file)

        def source_and_sink(both: Copy = both) -> None:
            both.begin_source()
            both.sink()

        timed(kind, source_and_sink)
        both.end()


def figures_of(server: Server, kafka: Server | None) -> Iterator[Figure]:
    """Yield the figures of a server, and what they are of Kafka's."""
    for name in server.samples:
        is_time = name.endswith("CPU")
        yield Figure(f"{server.name}: {name}", server.median(name), "ms/MB" if is_time else "MB/s")
        if kafka is not None and server is not kafka and not is_time:
            ratio = server.median(name) / kafka.median(name)
            yield Figure(f"{server.name}: {name} / Kafka's", ratio, at_least=0.8)


def measure(options: argparse.Namespace) -> Report:
    """Measure what the command line names."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory)))
        servers: list[Server] = []
        kafka = None
        if options.kafka:
            broker = stack.enter_context(KafkaBroker(directory))
            kafka = Server("Kafka", broker.bootstrap_servers, lambda: broker.cpu_s() or 0.0)
            servers.append(kafka)
        address, pid = stack.enter_context(running_gateway(f"{directory}/root"))
        servers.append(Server("gateway", address, lambda: cpu_s_of(pid)))
        file = directory / "in.txt"
        lines = write_lines(file, options.megabytes)
        workers = [Workers.started(each, directory / each.name, stack) for each in servers]
        for turn in range(options.turns + 1):
            for each in workers:
                measure_once(each, turn, file, lines)
        figures = [figure for each in servers for figure in figures_of(each, kafka)]
    return Report("gateway_connect", figures, {"file": f"{options.megabytes} MB in lines of 100 B"})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser("gateway_connect", __doc__)
    options.add_argument("--megabytes", type=positive, default=50, help="size of the file")
    options.add_argument("--turns", type=positive, default=3)
    options.add_argument("--no-kafka", dest="kafka", action="store_false")
    run(options, measure, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main))
