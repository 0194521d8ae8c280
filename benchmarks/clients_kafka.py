"""Compares our Producer and Consumer with confluent-kafka and a real Kafka broker, in one run.

    python -m benchmarks.clients_kafka --records 1000000 --repeats 3

Measured: throughput of send and poll, latency of one record, and the first record of a new process.
Values of 100 bytes, no keys, 4 partitions, acks=all, idempotent. Each library has the whole machine
in its turn; Kafka's broker runs beside its client. Figures are medians of the repeats. Neither side
syncs to disk, which is Kafka's default; our synced figure is shown as well. Latency is of one
record at a time, without lingering, to one partition. Nothing is deleted before the end (see
`log_workload.local_stores`): a run takes 1 KB of disk per record and repeat.

Exit status 2 if Maven, Java or confluent-kafka is missing, 1 if Kafka fails.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from statistics import median

from rich.console import Console

from benchmarks.client_peer import FIRST_RECORD_TOPIC, PARTITIONS, VALUE_BYTES, ClientPeer
from benchmarks.command_line import positive
from benchmarks.kafka_broker import (
    KAFKA_VERSION,
    BrokerError,
    KafkaBroker,
    confluent_kafka_required,
    exit_status,
)
from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.log_workload import creation_us_of
from benchmarks.spark_log_client import SparkLogPeer
from benchmarks.timing import ages_in_another_process, stamp_now

_WARMUP_RECORDS = 200_000
_WARMUPS = 200
_PROJECT = Path(__file__).parent.parent
_console = Console(stderr=True)


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("clients_kafka", __doc__)
    options.add_argument(
        "--records", type=positive, default=1_000_000, help="of each pass (1000000)"
    )
    options.add_argument("--repeats", type=positive, default=3, help="passes of each (3)")
    options.add_argument(
        "--latencies", type=positive, default=2_000, help="records one by one (2000)"
    )
    options.add_argument("--every-ms", type=float, default=5, help="mean time between them (5)")
    options.add_argument("--starts", type=positive, default=7, help="new processes (7)")
    options.add_argument("--ours-only", action="store_true", help="leave Kafka out")
    return exit_status(lambda: run(options, measure))


def measure(options: argparse.Namespace) -> Report:
    """Measure both, one figure after the other."""
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory)
        work = Path(stack.enter_context(temporary))
        ours = SparkLogPeer(str(work / "root"))
        peers: list[ClientPeer] = [ours]
        if not options.ours_only:
            peers.append(_kafka(stack, options.directory))
        synced = SparkLogPeer(str(work / "synced"), is_synced=True)
        figures = throughput(peers, ours, synced, options)
        creation_us = median(creation_us_of(work / f"created-{number}") for number in range(50))
        figures += [
            *latency(peers, options),
            *end_to_end(peers, options),
            *first_record(peers, options.starts),
        ]
    notes: dict[str, object] = {
        "records": options.records,
        "repeats": options.repeats,
        "latencies of": options.latencies,
        # Beyond about 60 µs, ext4 is busy with recently deleted files: see `local_stores`.
        "creating a file, before latencies, µs": round(creation_us),
    }
    if not options.ours_only:
        notes["Kafka"] = f"{KAFKA_VERSION}, confluent-kafka {version('confluent-kafka')}"
    return Report("clients_kafka", figures, notes)


def throughput(
    peers: Sequence[ClientPeer],
    ours: SparkLogPeer,
    synced: SparkLogPeer,
    options: argparse.Namespace,
) -> list[Figure]:
    """Return millions of records a second, sent and polled."""
    count = options.records
    sent_s: dict[str, list[float]] = {peer.name: [] for peer in peers}
    polled_s: dict[str, list[float]] = {name: [] for peer in peers for name in peer.pollers()}
    table_s: dict[str, list[float]] = {"send": [], "poll": [], "synced": []}
    for repeat in range(-1, options.repeats):
        n = min(_WARMUP_RECORDS, count) if repeat < 0 else count
        first = repeat % len(peers)
        for peer in [*peers[first:], *peers[:first]]:
            topic = _new_topic(peer, f"pass{repeat + 1}")
            sent = peer.send_all(topic, n)
            _check(peer, topic, n)
            polled = {name: poll(topic, n) for name, poll in peer.pollers().items()}
            _print_progress(f"sent {n / sent / 1e6:.2f} M/s, polled in {polled}")
            if repeat >= 0:
                sent_s[peer.name].append(sent)
                for name, took_s in polled.items():
                    polled_s[name].append(took_s)
        topic = _new_topic(ours, f"tables{repeat + 1}")
        as_tables = {"send": ours.send_table(topic, n), "poll": ours.poll_table(topic, n)}
        _check(ours, topic, n)
        topic = _new_topic(synced, f"synced{repeat + 1}")
        as_tables["synced"] = synced.send_all(topic, n)
        _check(synced, topic, n)
        if repeat >= 0:
            for name, took_s in as_tables.items():
                table_s[name].append(took_s)
    figures = _compared(
        "send() record by record", _rates(sent_s, count), at_least=0.8, ratio_at_least=1
    )
    rate = count / median(table_s["synced"]) / 1e6
    figures.append(Figure("send() record by record, synced", rate, "M records/s"))
    rate = count / median(table_s["send"]) / 1e6
    figures.append(Figure("send_table()", rate, "M records/s", at_least=5))
    figures += _compared("poll() records", _rates(polled_s, count), at_least=1, ratio_at_least=3)
    rate = count / median(table_s["poll"]) / 1e6
    return [*figures, Figure("poll_table()", rate, "M records/s", at_least=10)]


def latency(peers: Sequence[ClientPeer], options: argparse.Namespace) -> list[Figure]:
    """Return the latency from `send` to the acknowledgement, one record at a time."""
    took_ms: dict[str, list[float]] = {peer.name: [] for peer in peers}
    each = -(-options.latencies // options.repeats)
    for repeat in range(options.repeats):
        for peer in peers:
            topic = _new_topic(peer, f"one{repeat}", 1)
            send, close = peer.open_sender(topic)
            for number in range(each + _WARMUPS):
                start = time.perf_counter()
                send(stamp_now().ljust(VALUE_BYTES, b"-"))
                if number >= _WARMUPS:
                    took_ms[peer.name].append((time.perf_counter() - start) * 1000)
            close()
            _check(peer, topic, each + _WARMUPS)
    return _percentiles("one record, send to acknowledged", took_ms, {50: 0.5, 99: 3})


def end_to_end(peers: Sequence[ClientPeer], options: argparse.Namespace) -> list[Figure]:
    """Return the latency from `send` until another process has polled the record."""
    took_ms: dict[str, list[float]] = {peer.name: [] for peer in peers}
    each = -(-options.latencies // options.repeats)
    for repeat in range(options.repeats):
        for peer in peers:
            topic = _new_topic(peer, f"follow{repeat}", 1)
            took_ms[peer.name] += _ages_ms(peer, topic, each, options.every_ms)
    return _percentiles("produce to consume, another process", took_ms, {50: 2, 99: 6})


def first_record(peers: Sequence[ClientPeer], starts: int) -> list[Figure]:
    """Return the time until a new process has imported the library and sent a record.

    The process's end is measured beside it: what was imported is taken apart there.
    """
    took_s: dict[str, list[float]] = {peer.name: [] for peer in peers}
    ended_s: dict[str, list[float]] = {peer.name: [] for peer in peers}
    # Compiled modules are kept, as an installed package's are.
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    for peer in peers:
        peer.create_topic(FIRST_RECORD_TOPIC, 1)
    for number in range(-1, starts):  # the first process warms the caches
        for peer in peers:
            start = time.perf_counter()
            program = [sys.executable, "-c", peer.first_record]
            with subprocess.Popen(
                program, cwd=_PROJECT, env=environment, stdout=subprocess.PIPE
            ) as process:
                assert process.stdout is not None
                process.stdout.readline()  # when the record is acknowledged
                acknowledged = time.perf_counter()
            if process.returncode:
                raise BrokerError(f"{peer.name}: a new process has sent no record")
            if number >= 0:
                took_s[peer.name].append(acknowledged - start)
                ended_s[peer.name].append(time.perf_counter() - start)
    for peer in peers:
        _check(peer, FIRST_RECORD_TOPIC, starts + 1)
    goals = [0.3, None]
    figures = [
        Figure(f"import and first record, new process: {name}", median(seconds), "s", at_most=goal)
        for (name, seconds), goal in zip(took_s.items(), goals, strict=False)
    ]
    return figures + [
        Figure(f"the same, until the process has ended: {name}", median(seconds), "s")
        for name, seconds in ended_s.items()
    ]


def _kafka(stack: ExitStack, directory: Path | None) -> ClientPeer:
    with confluent_kafka_required():
        from benchmarks.kafka_client import KafkaPeer
    return KafkaPeer(stack.enter_context(KafkaBroker(directory)))


def _ages_ms(peer: ClientPeer, topic: str, count: int, every_ms: float) -> list[float]:
    send, close = peer.open_sender(topic)
    ages_ms = ages_in_another_process(
        peer.read_stamps,
        (peer.address, topic),
        lambda stamp: send(stamp.ljust(VALUE_BYTES, b"-")),
        count=count,
        every_ms=every_ms,
        warmups=_WARMUPS,
    )
    close()
    return ages_ms


def _new_topic(peer: ClientPeer, topic: str, partitions: int = PARTITIONS) -> str:
    peer.create_topic(topic, partitions)
    os.sync()
    return topic


def _check(peer: ClientPeer, topic: str, count: int) -> None:
    found = peer.record_count(topic)
    if found != count:
        raise BrokerError(f"{peer.name}: {found} records in {topic}, but {count} were sent")


def _rates(seconds: dict[str, list[float]], count: int) -> dict[str, float]:
    return {name: count / median(each) / 1e6 for name, each in seconds.items()}


def _compared(
    what: str, rates: dict[str, float], *, at_least: float, ratio_at_least: float
) -> list[Figure]:
    """Return our figure with its goal, the peer's figures, and the ratios with their goal."""
    own, *others = rates.items()
    figures = [Figure(f"{what}: {own[0]}", own[1], "M records/s", at_least=at_least)]
    for name, rate in others:
        figures.append(Figure(f"{what}: {name}", rate, "M records/s"))
        ratio = own[1] / rate
        figures.append(Figure(f"{what}: ours / {name}", ratio, at_least=ratio_at_least))
    return figures


def _percentiles(
    what: str, took_ms: dict[str, list[float]], goals: dict[int, float]
) -> list[Figure]:
    own = next(iter(took_ms))
    return [
        Figure(
            f"{what}, p{percent}: {name}",
            percentile(each, percent),
            "ms",
            at_most=goal if name == own else None,
        )
        for percent, goal in goals.items()
        for name, each in took_ms.items()
    ]


def _print_progress(text: str) -> None:
    _console.print(text, style="dim", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
