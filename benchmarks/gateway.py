"""Compares a gateway with a Kafka broker: the same client of librdkafka, on the same machine.

    python -m benchmarks.gateway
    python -m benchmarks.gateway --s3 --no-kafka

Both are measured in turns, several times, and the median counts. ``acks`` is ``all``. Kafka's
defaults sync nothing per append; the gateway is measured so (``flush.on.append=false``), and with
the default of a topic, which syncs each append. The client takes a core for itself; so the CPU time
of the server is shown, too.

``--s3`` counts the requests to a topic's objects on an S3 server whose answers take 20 ms, until
its merges are done, too. Delivery times are those of a producer that sends 100 records a second to
the partitions in turn.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.command_line import positive
from benchmarks.kafka_broker import KafkaBroker, confluent_kafka_required, exit_status
from benchmarks.latency_proxy import LatencyProxy
from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.paced_producers import paced_ms
from spark_log.testing.servers.s3_server import run_s3_server

SIZES = (100, 1024)
WARMUP_RECORDS = 20_000
SINGLE_RECORDS = 300
S3_PARTITIONS = (1, 10, 100)
PACED_S = 10
_MERGES_S = 5.0
"""Time for the merges after the last record."""
_TIMEOUT_S = 120


@dataclass(slots=True)
class Server:
    """A server of Kafka's protocol.

    Attributes:
        name: its name in the report.
        address: host and port.
        cpu_s: returns the CPU time that it has used.
        topic_configs: the configs of topics that are made on it.
        samples: by figure: the numbers that were measured.
    """

    name: str
    address: str
    cpu_s: Callable[[], float]
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)

    def note(self, figure: str, value: float) -> None:
        """Add a measured number."""
        self.samples.setdefault(figure, []).append(value)

    def median(self, figure: str) -> float:
        """Return the median of a figure's numbers."""
        return median(self.samples[figure])


def free_port() -> int:
    """Return a port of 127.0.0.1 at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def running_gateway(root: str, *options: str) -> Iterator[tuple[str, int]]:
    """Run ``spark-log gateway``; yield its address and process id."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "spark_log", "gateway", "--create", "--root", root]
    process = subprocess.Popen(
        [*command, "--listen", address, *options], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()  # it listens
    try:
        yield address, process.pid
    finally:
        process.terminate()
        process.wait(_TIMEOUT_S)


def cpu_s_of(pid: int) -> float:
    """Return the CPU time of a process, by its clock in Linux: ``/proc`` counts in ticks of 10 ms.

    See ``clock_getcpuclockid(3)``.
    """
    return time.clock_gettime((~pid << 3) | 2)


class Client:
    """A producer and a consumer of librdkafka for one server."""

    def __init__(self, server: Server) -> None:
        with confluent_kafka_required():
            import confluent_kafka
            from confluent_kafka import admin
        self._kafka = confluent_kafka
        self._admin = admin
        self._server = server
        self._servers: dict[str, Any] = {"bootstrap.servers": server.address}

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic."""
        client = self._admin.AdminClient(self._servers)
        topic = self._admin.NewTopic(name, partitions, 1, config=dict(self._server.topic_configs))
        for future in client.create_topics([topic]).values():
            future.result(_TIMEOUT_S)

    def produce(
        self, topic: str, records: int, size_bytes: int, partitions: int = 1, **settings: object
    ) -> float:
        """Produce records as fast as the client can; return the seconds until all are durable."""
        producer = self._kafka.Producer(
            {
                **self._servers,
                "acks": "all",
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
                **settings,
            }
        )
        value, failed = os.urandom(size_bytes), []

        def on_delivery(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        began_s = time.perf_counter()
        for number in range(records):
            while True:
                try:
                    producer.produce(
                        topic, value, partition=number % partitions, on_delivery=on_delivery
                    )
                    break
                except BufferError:
                    producer.poll(0.05)
            if not number % 5000:
                producer.poll(0)
        left = producer.flush(_TIMEOUT_S)
        took_s = time.perf_counter() - began_s
        if failed or left:
            raise RuntimeError(f"{len(failed) + left} records failed: {failed[:1]}")
        return took_s

    def consume(self, topic: str, records: int) -> float:
        """Read a topic of one partition from its beginning; return the seconds that it took."""
        consumer = self._kafka.Consumer(
            {
                **self._servers,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                # By default the client pauses for a second when it has 100,000 records or 64 MB.
                "queued.min.messages": 1_000_000,
                "queued.max.messages.kbytes": 1_000_000,
            }
        )
        consumer.assign([self._kafka.TopicPartition(topic, 0, 0)])
        consumer.poll(0)
        began_s, count = time.perf_counter(), 0
        while count < records:
            found = consumer.consume(min(10_000, records - count), timeout=10)
            if not found:
                raise RuntimeError(f"{count} of {records} records could be read")
            count += len(found)
        took_s = time.perf_counter() - began_s
        consumer.close()
        return took_s

    def single_records_ms(self, topic: str) -> list[float]:
        """Produce records one after the other; return the time until each is durable."""
        producer = self._kafka.Producer({**self._servers, "acks": "all", "linger.ms": 0})
        times_ms = []
        for _ in range(SINGLE_RECORDS):
            began_s = time.perf_counter()
            producer.produce(topic, b"x" * 100, partition=0)
            producer.flush(_TIMEOUT_S)
            times_ms.append((time.perf_counter() - began_s) * 1000)
        return times_ms[SINGLE_RECORDS // 10 :]


def measure_once(server: Server, number: int, records: int) -> None:
    """Measure a server once."""
    client = Client(server)
    for size_bytes in SIZES:
        topic = f"bytes{size_bytes}.{number}"
        count = records * 100 // size_bytes
        client.create_topic(topic)
        client.produce(f"{topic}", WARMUP_RECORDS, size_bytes)
        before_s = server.cpu_s()
        server.note(f"produce {size_bytes} B", count / client.produce(topic, count, size_bytes))
        server.note(f"produce {size_bytes} B, CPU", (server.cpu_s() - before_s) * 1e6 / count)
        total = count + WARMUP_RECORDS
        before_s = server.cpu_s()
        server.note(f"consume {size_bytes} B", total / client.consume(topic, total))
        server.note(f"consume {size_bytes} B, CPU", (server.cpu_s() - before_s) * 1e6 / total)
    topic = f"single.{number}"
    client.create_topic(topic)
    times_ms = client.single_records_ms(topic)
    server.note("one record, p50", percentile(times_ms, 50))
    server.note("one record, p99", percentile(times_ms, 99))


def figures_of(server: Server, kafka: Server | None) -> Iterator[Figure]:
    """Yield the figures of a server, with goals relative to Kafka's."""
    goals = {"produce 100 B": 0.6, "produce 1024 B": 0.8, "consume 100 B": 0.8}
    for name in server.samples:
        value = server.median(name)
        unit = "µs/record" if name.endswith("CPU") else "ms" if "one record" in name else "/s"
        yield Figure(f"{server.name}: {name}", value, unit)
        if kafka is None or server is kafka or name.endswith("CPU") or "p99" in name:
            continue
        ratio = value / kafka.median(name)
        if name == "one record, p50":
            yield Figure(f"{server.name}: {name} / Kafka's", ratio, at_most=2)
        else:
            goal = goals.get(name, 0.8)
            yield Figure(f"{server.name}: {name} / Kafka's", ratio, at_least=goal)


def s3_figures(latency_ms: float, records: int) -> Iterator[Figure]:
    """Yield the requests per produced MB, and the times of single records, on an S3 server."""
    with (
        run_s3_server() as s3,
        LatencyProxy.running(s3.endpoint_url, latency_ms) as proxy,
    ):
        root = f"{s3.new_bucket()}/root"
        options = [
            argument
            for name, value in {**s3.storage_options, "endpoint_url": proxy.url}.items()
            for argument in ("--storage-option", f"{name}={value}")
        ]
        with running_gateway(root, *options) as (address, pid):
            server = Server("gateway on S3", address, lambda: cpu_s_of(pid))
            client = Client(server)
            for partitions in S3_PARTITIONS:
                topic = f"s3.{partitions}"
                client.create_topic(topic, partitions)
                client.produce(topic, partitions * 10, 1024, partitions)
                proxy.begin()
                took_s = client.produce(topic, records, 1024, partitions)
                time.sleep(_MERGES_S)
                requests = [each for each in proxy.requests() if f"/{topic}." in each.path]
                kinds = Counter(each.operation for each in requests)
                megabytes = records * 1024 / 1e6
                where = f"gateway on S3, {partitions} partitions"
                yield Figure(f"{where}: produce", records / took_s, "/s")
                yield Figure(f"{where}: requests per MB", len(requests) / megabytes)
                for kind, number in sorted(kinds.items()):
                    yield Figure(f"{where}: {kind} per MB", number / megabytes)
                times_ms = paced_ms(
                    address, topic, partitions, producers=1, rate=100, seconds=PACED_S
                )
                for percent in (50, 99):
                    value = percentile(times_ms, percent)
                    yield Figure(f"{where}: delivery, p{percent}", value, "ms")
            client.create_topic("single")
            times_ms = client.single_records_ms("single")
            for percent in (50, 99):
                value = percentile(times_ms, percent)
                yield Figure(f"gateway on S3: one record, p{percent}", value, "ms")


def measure(options: argparse.Namespace) -> Report:
    """Measure what the command line names."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory))
        servers: list[Server] = []
        kafka = None
        if options.kafka:
            broker = stack.enter_context(KafkaBroker(Path(directory)))
            kafka = Server("Kafka", broker.bootstrap_servers, lambda: broker.cpu_s() or 0.0)
            servers.append(kafka)
        if options.local:
            root = f"{directory}/root"
            address, pid = stack.enter_context(running_gateway(root))
            unsynced = {"flush.on.append": "false"}
            for name, configs in (("gateway", unsynced), ("gateway, synced", {})):
                servers.append(Server(name, address, lambda: cpu_s_of(pid), configs))
        for turn in range(options.turns):
            for each in servers:
                measure_once(each, turn + 100 * servers.index(each), options.records)
        for each in servers:
            figures += figures_of(each, kafka)
    if options.s3:
        figures += s3_figures(options.latency_ms, options.s3_records)
    load = f"{os.getloadavg()[0]:.1f} of {os.cpu_count()}"
    return Report("gateway", figures, {"load of the machine, of cores": load})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser("gateway", __doc__)
    options.add_argument("--records", type=positive, default=1_000_000, help="of 100 bytes")
    options.add_argument("--turns", type=positive, default=3)
    options.add_argument("--no-kafka", dest="kafka", action="store_false")
    options.add_argument("--no-local", dest="local", action="store_false")
    options.add_argument("--s3", action="store_true", help="measure on an S3 server, too")
    options.add_argument("--s3-records", type=positive, default=100_000, help="of 1 KiB")
    options.add_argument("--latency-ms", type=float, default=20.0)
    run(options, measure, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main))
