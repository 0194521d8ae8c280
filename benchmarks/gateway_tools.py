"""Measures a gateway with the benchmarks that come with Kafka, beside a Kafka broker.

    python -m benchmarks.gateway_tools
    python -m benchmarks.gateway_tools --records 5000000 --turns 5

`kafka-producer-perf-test` (``acks=all``) sends records of 100 and of 1,000 bytes to a topic of one
partition, `kafka-consumer-perf-test` reads them, and `kafka-e2e-latency` sends single records and
waits until each is read. Figures are those that the tools print; the time of the consumer is that
of its fetches, without the rebalance of its new group.

The servers are measured in turns, and the median counts. Kafka's defaults sync nothing per append;
the gateway is measured so (``flush.on.append=false``), and with the default of a topic, which syncs
each append. The tool runs beside the server: on a machine with few cores both share them.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.command_line import positive
from benchmarks.gateway import Client, Server, cpu_s_of, running_gateway
from benchmarks.kafka_broker import (
    BROKER_ARTIFACTS,
    BrokerError,
    KafkaBroker,
    exit_status,
    fetch_jars,
    find_java,
)
from benchmarks.log_report import Figure, Report, parser, run

SIZES_BYTES = (100, 1000)
_TOOLS = "org.apache.kafka.tools"
_JVM_FLAGS = ("-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
_TIMEOUT_S = 600
_PRODUCED = re.compile(r"^\d+ records sent, ([\d.]+) records/sec", re.MULTILINE)
_LATENCY = re.compile(
    r"^Avg latency: ([\d.]+) ms\s+Percentiles: 50th = (\d+), 99th = (\d+)", re.MULTILINE
)
_GOALS = {"produce": 0.6, "consume": 0.8}


def run_tool(tool: str, *arguments: object) -> str:
    """Return what a tool of Kafka prints.

    Raises:
        BrokerError: It failed.
    """
    libs = fetch_jars("libs", BROKER_ARTIFACTS)
    command = [find_java(), *_JVM_FLAGS, "-cp", str(libs / "*"), f"{_TOOLS}.{tool}"]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,  # the error below has its output
    )
    if done.returncode:
        raise BrokerError(f"{tool} failed: {done.stdout}{done.stderr}"[-2000:])
    return done.stdout


def produce(server: Server, topic: str, records: int, size_bytes: int) -> float:
    """Return the records per second that `kafka-producer-perf-test` prints."""
    size = ("--num-records", records, "--record-size", size_bytes, "--throughput", -1)
    settings = ("--producer-props", f"bootstrap.servers={server.address}", "acks=all")
    printed = run_tool("ProducerPerformance", "--topic", topic, *size, *settings)
    return float(_PRODUCED.findall(printed)[-1])


def consume(server: Server, topic: str, records: int) -> float:
    """Return the records per second of fetches that `kafka-consumer-perf-test` prints."""
    what = ("--bootstrap-server", server.address, "--topic", topic, "--messages", records)
    patience = ("--timeout", 60_000)  # a busy machine may take longer than its 10 s to begin
    fields = run_tool("ConsumerPerformance", *what, *patience).splitlines()[-1].split(",")
    if int(fields[4]) < records:
        raise BrokerError(f"{server.name}: {fields[4]} of {records} records were read")
    return float(fields[-1])


def end_to_end_ms(server: Server, topic: str, records: int) -> tuple[float, float, float]:
    """Return the mean, the median and the 99th percentile that `kafka-e2e-latency` prints.

    The percentiles are whole milliseconds, rounded down.
    """
    printed = run_tool("EndToEndLatency", server.address, topic, records, "all", 100)
    (found,) = _LATENCY.findall(printed)
    mean, p50, p99 = map(float, found)
    return mean, p50, p99


def measure_once(server: Server, turn: int, options: argparse.Namespace) -> None:
    """Measure a server once."""
    for size_bytes in SIZES_BYTES:
        topic = f"tools-{size_bytes}-{turn}"
        records = options.records * 100 // size_bytes
        Client(server).create_topic(topic)
        for what, call in (
            ("produce", partial(produce, server, topic, records, size_bytes)),
            ("consume", partial(consume, server, topic, records)),
        ):
            before_s = server.cpu_s()
            server.note(f"{what} {size_bytes} B", call())
            server.note(f"{what} {size_bytes} B, CPU", (server.cpu_s() - before_s) * 1e6 / records)
    topic = f"tools-latency-{turn}"
    Client(server).create_topic(topic)
    for name, value in zip(
        ("mean", "p50", "p99"), end_to_end_ms(server, topic, options.single_records), strict=True
    ):
        server.note(f"end to end, {name}", value)


def figures_of(server: Server, kafka: Server | None) -> Iterator[Figure]:
    """Yield the figures of a server, and their ratio to Kafka's."""
    for name in server.samples:
        value = server.median(name)
        unit = "µs/record" if name.endswith("CPU") else "ms" if "end to end" in name else "/s"
        yield Figure(f"{server.name}: {name}", value, unit)
        if kafka is None or server is kafka or not kafka.median(name):
            continue
        ratio = value / kafka.median(name)
        goal = None if name.endswith("CPU") else _GOALS.get(name.split()[0])
        yield Figure(f"{server.name}: {name} / Kafka's", ratio, at_least=goal)


def measure(options: argparse.Namespace) -> Report:
    """Measure what the command line names."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory))
        servers: list[Server] = []
        kafka = None
        if options.kafka:
            broker = stack.enter_context(KafkaBroker(Path(directory)))
            kafka = Server("Kafka", broker.bootstrap_servers, partial(cpu_s_of, broker.pid))
            servers.append(kafka)
        address, pid = stack.enter_context(running_gateway(f"{directory}/root"))
        unsynced = {"flush.on.append": "false"}
        servers += [
            Server(name, address, partial(cpu_s_of, pid), configs)
            for name, configs in (("gateway", unsynced), ("gateway, synced", {}))
        ]
        for turn in range(options.turns):
            for number, each in enumerate(servers):
                measure_once(each, turn + 100 * number, options)
    figures = [figure for each in servers for figure in figures_of(each, kafka)]
    load = f"{os.getloadavg()[0]:.1f} of {os.cpu_count()}"
    return Report("gateway_tools", figures, {"load of the machine, of cores": load})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser("gateway_tools", __doc__)
    options.add_argument("--records", type=positive, default=2_000_000, help="of 100 bytes")
    options.add_argument("--single-records", type=positive, default=2000, help="for the latency")
    options.add_argument("--turns", type=positive, default=3)
    options.add_argument("--no-kafka", dest="kafka", action="store_false")
    run(options, measure, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main))
