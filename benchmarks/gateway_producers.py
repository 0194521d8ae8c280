"""Measures delivery times of many producers, at a gateway and at a Kafka broker beside it.

    python -m benchmarks.gateway_producers
    python -m benchmarks.gateway_producers --producers 50 --partitions 200 --rate 20

Each producer of librdkafka (``linger.ms=5``, ``acks=all``) sends records of 100 bytes at a steady
rate to partitions in turn. A record's time is from ``produce()`` until the client knows that it is
durable. Kafka's defaults sync nothing per append; the gateway is measured so, and with the default
of a topic, which syncs each append. The clients run in one process beside the server, so on a
machine with few cores they delay it: read the times beside each other.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.command_line import positive
from benchmarks.gateway import Client, Server, cpu_s_of, running_gateway
from benchmarks.kafka_broker import KafkaBroker, exit_status
from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.paced_producers import WARM_UP_S, paced_ms


def measure_once(server: Server, turn: int, options: argparse.Namespace) -> None:
    """Measure a server once."""
    topic = f"producers.{turn}"
    Client(server).create_topic(topic, options.partitions)
    cpu_s = server.cpu_s()
    times_ms = paced_ms(
        server.address,
        topic,
        options.partitions,
        producers=options.producers,
        rate=options.rate,
        seconds=options.seconds,
    )
    records = options.producers * options.rate * (options.seconds + WARM_UP_S)
    server.note("CPU", (server.cpu_s() - cpu_s) * 1e6 / records)
    for percent in (50, 99):
        server.note(f"p{percent}", percentile(times_ms, percent))


def measure(options: argparse.Namespace) -> Report:
    """Measure what the command line names, in turns; the median counts."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory))
        servers = []
        if options.kafka:
            broker = stack.enter_context(KafkaBroker(Path(directory)))
            servers.append(Server("Kafka", broker.bootstrap_servers, partial(cpu_s_of, broker.pid)))
        address, pid = stack.enter_context(running_gateway(f"{directory}/root"))
        unsynced = {"flush.on.append": "false"}
        servers += [
            Server(name, address, partial(cpu_s_of, pid), configs)
            for name, configs in (("gateway", unsynced), ("gateway, synced", {}))
        ]
        for turn in range(options.turns):
            for number, each in enumerate(servers):
                measure_once(each, turn + 100 * number, options)
    figures = [
        Figure(f"{each.name}: {name}", each.median(name), "µs/record" if name == "CPU" else "ms")
        for each in servers
        for name in each.samples
    ]
    load = f"{os.getloadavg()[0]:.1f} of {os.cpu_count()}"
    return Report("gateway_producers", figures, {"load of the machine, of cores": load})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser("gateway_producers", __doc__)
    options.add_argument("--producers", type=positive, default=50)
    options.add_argument("--partitions", type=positive, default=200)
    options.add_argument("--rate", type=positive, default=20, help="records/s of each producer")
    options.add_argument("--seconds", type=positive, default=10)
    options.add_argument("--turns", type=positive, default=3)
    options.add_argument("--no-kafka", dest="kafka", action="store_false")
    run(options, measure, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main))
