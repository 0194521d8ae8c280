"""Counts words by Kafka Streams, at a gateway and at a Kafka broker beside it.

    python -m benchmarks.gateway_streams
    python -m benchmarks.gateway_streams --lines 200000 --turns 5

The application is StreamsApplication.java: it splits lines into words, which pass a repartition
topic, and counts them in a store with a changelog. Nothing is cached, so each word is a record of
the repartition topic, of the changelog and of the output. The lines are in the input topic before
the application starts. The rate is the number of words, divided by the time from the first count in
the output to the last one. All counts are read at the end: a word that was lost or counted twice
fails the benchmark.

Both servers are measured in turns, and the median counts. Kafka's defaults sync nothing per append;
the gateway is measured so, and with the default of a topic, which syncs each append. The
application takes a core for itself; so the CPU time of the server is shown, too.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.command_line import positive
from benchmarks.gateway import Client, Server, cpu_s_of, running_gateway
from benchmarks.kafka_broker import KafkaBroker, confluent_kafka_required, exit_status
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.streams_application import StreamsApplication

GUARANTEES = ("at_least_once", "exactly_once_v2")
PARTITIONS = 4
_WORDS_PER_LINE = 5
_VOCABULARY = 10_000
_TIMEOUT_S = 600
_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC")


class Words:
    """Lines of words, which are produced, and whose counts are checked.

    Attributes:
        lines: The lines.
        uses: The number of uses of each word.
    """

    def __init__(self, lines: int) -> None:
        chance = random.Random(lines)
        words = [
            [f"word{chance.randrange(_VOCABULARY)}" for _ in range(_WORDS_PER_LINE)]
            for _ in range(lines)
        ]
        self.lines = [" ".join(each) for each in words]
        self.uses = Counter(word for each in words for word in each)

    def produce(self, server: Server, topic: str) -> None:
        """Produce the lines to the partitions of a topic in turn."""
        with confluent_kafka_required():
            from confluent_kafka import Producer
        producer = Producer(
            {
                "bootstrap.servers": server.address,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for number, line in enumerate(self.lines):
            producer.produce(topic, line, partition=number % PARTITIONS)
            if not number % 5000:
                producer.poll(0)
        if left := producer.flush(_TIMEOUT_S):
            raise RuntimeError(f"{left} lines were not acknowledged")

    def check(self, server: Server, topic: str) -> None:
        """Read all counts of the output; each word must have been counted once for each use.

        Raises:
            RuntimeError: A word was lost, or counted twice.
        """
        with confluent_kafka_required():
            from confluent_kafka import Consumer, TopicPartition
        consumer = Consumer(
            {
                "bootstrap.servers": server.address,
                "group.id": "check",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        counts: Counter[str] = Counter()
        left = self.uses.total()
        while left > 0:
            found = consumer.consume(10_000, timeout=30)
            if not found:
                raise RuntimeError(f"{topic}: {left} counts are missing")
            for each in found:
                word, count = ((of or b"").decode() for of in (each.key(), each.value()))
                counts[word] += 1
                if count != str(counts[word]):
                    raise RuntimeError(f"{topic}: {word} has {count}, not {counts[word]}")
            left -= len(found)
        consumer.close()
        if counts != self.uses:
            raise RuntimeError(f"{topic}: words were counted too often")


def measure_once(server: Server, guarantee: str, turn: int, words: Words, directory: Path) -> None:
    """Measure a server once."""
    name = f"{guarantee}.{turn}"
    lines, counts = f"lines.{name}", f"counts.{name}"
    client = Client(server)
    client.create_topic(lines, PARTITIONS)
    client.create_topic(counts, PARTITIONS)
    words.produce(server, lines)
    application = StreamsApplication(
        directory / f"{server.name}.{name}.log",
        "word-count",
        server.address,
        [lines],
        counts,
        f"words.{name}",
        directory / f"{server.name}.{name}",
        guarantee,
        _settings(server.topic_configs),
        _FLAGS,
    )
    before_s = server.cpu_s()
    application.start()
    try:
        took_s = _seconds(server, counts, words.uses.total(), application)
        cpu_s = server.cpu_s() - before_s
        if not application.close():
            raise RuntimeError(f"the application has not closed; see {application.log_path}")
    finally:
        application.kill()
    server.note(guarantee, words.uses.total() / took_s)
    server.note(f"{guarantee}, CPU", cpu_s * 1e6 / words.uses.total())
    words.check(server, counts)


def _settings(topic_configs: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the application, whose internal topics have these configs, too."""
    return {f"topic.{name}": value for name, value in topic_configs.items()}


def _seconds(server: Server, topic: str, records: int, application: StreamsApplication) -> float:
    """Return the time from the first record of a topic until it has all of them.

    The end offsets are looked at, which count the markers of transactions, too: a few hundred.
    """
    with confluent_kafka_required():
        from confluent_kafka import Consumer, TopicPartition
    consumer: Any = Consumer({"bootstrap.servers": server.address, "group.id": "ends"})
    partitions = [TopicPartition(topic, each) for each in range(PARTITIONS)]
    began_s, first, until_s = 0.0, 0, time.monotonic() + _TIMEOUT_S
    while True:
        ends = sum(consumer.get_watermark_offsets(each, timeout=30)[1] for each in partitions)
        now_s = time.monotonic()
        if ends and not first:
            began_s, first = now_s, ends
        if ends >= records:
            consumer.close()
            return (now_s - began_s) * records / (records - first)
        if now_s > until_s or not application.is_alive:
            raise RuntimeError(f"{ends} of {records} counts; see {application.log_path}")
        time.sleep(0.05)


def figures_of(server: Server, kafka: Server | None) -> list[Figure]:
    """Return the figures of a server, beside those of Kafka."""
    found = []
    for name in server.samples:
        unit = "µs/word" if name.endswith("CPU") else "words/s"
        found.append(Figure(f"{server.name}: {name}", server.median(name), unit))
        if kafka is not None and server is not kafka and not name.endswith("CPU"):
            ratio = server.median(name) / kafka.median(name)
            found.append(Figure(f"{server.name}: {name} / Kafka's", ratio))
    return found


def measure(options: argparse.Namespace) -> Report:
    """Measure what the command line names, in turns; the median counts."""
    words = Words(options.lines)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory)))
        servers, kafka = [], None
        if options.kafka:
            broker = stack.enter_context(KafkaBroker(directory))
            kafka = Server("Kafka", broker.bootstrap_servers, partial(cpu_s_of, broker.pid))
            servers.append(kafka)
        address, pid = stack.enter_context(running_gateway(f"{directory}/root"))
        unsynced = {"flush.on.append": "false"}
        servers += [
            Server(name, address, partial(cpu_s_of, pid), configs)
            for name, configs in (("gateway", unsynced), ("gateway, synced", {}))
        ]
        for turn in range(options.turns):
            for guarantee in GUARANTEES:
                for number, each in enumerate(servers):
                    measure_once(each, guarantee, turn + 100 * number, words, directory)
    figures = [figure for each in servers for figure in figures_of(each, kafka)]
    load = f"{os.getloadavg()[0]:.1f} of {os.cpu_count()}"
    return Report("gateway_streams", figures, {"load of the machine, of cores": load})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser("gateway_streams", __doc__)
    options.add_argument("--lines", type=positive, default=100_000, help="of five words")
    options.add_argument("--turns", type=positive, default=3)
    options.add_argument("--no-kafka", dest="kafka", action="store_false")
    run(options, measure, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main))
