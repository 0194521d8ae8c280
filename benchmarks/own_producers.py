"""Measures delivery times of several producers of this package, each a process of its own.

    python -m benchmarks.own_producers
    python -m benchmarks.own_producers --producers 8 --partitions 4 --rate 100

Each producer (``linger.ms=5``) sends records of 100 bytes at a steady rate to partitions in turn,
as those of ``benchmarks.gateway_producers`` do through a gateway. Two processes that append to one
partition at the same time race for the log's end. A record's time is from ``send()`` until its
callback. Topics that sync each append, and topics that do not, are measured in turns; the median
counts.

Appends are those of all producers. Races are puts that found their name taken.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from statistics import median

from benchmarks.command_line import positive
from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.paced_producers import WARM_UP_S, send_paced
from spark_log import Admin, NewTopic, Producer
from spark_log.errors import AlreadyExistsError
from spark_log.storage.local import LocalStore

_PROCESSES = multiprocessing.get_context("spawn")
_TOPICS = {"not synced": {"flush.on.append": "false"}, "synced": {}}


@dataclass(frozen=True, slots=True)
class Measured:
    """The records of one producer.

    Attributes:
        times_ms: the delivery times.
        cpu_s: the processor time of the process.
        appends: the number of appends.
        races: the number of puts of appends that found their name taken.
        failed: the errors of records that failed.
    """

    times_ms: list[float]
    cpu_s: float
    appends: int
    races: int
    failed: list[str]


def produce(
    root: str, topic: str, number: int, options: argparse.Namespace, begin: Barrier, to: Connection
) -> None:
    """Be one producer: send at a steady rate, and send what was measured to a pipe."""
    puts = _count_puts()
    times_ms: list[float] = []
    failed: list[str] = []
    before: list[float] = []
    value = os.urandom(100)

    def on_sent(sent_s: float | None, _: object) -> None:
        if sent_s is not None:
            times_ms.append((time.perf_counter() - sent_s) * 1000)

    def on_failed(error: BaseException) -> None:
        failed.append(repr(error))

    with Producer(root, linger_ms=5) as producer:

        def send(record: int, sent_s: float | None) -> None:
            future = producer.send(topic, value, partition=(number + record) % options.partitions)
            future.add_callback(partial(on_sent, sent_s)).add_errback(on_failed)

        def on_warm() -> None:
            puts.clear()
            before.append(time.process_time())

        producer.partitions_for(topic)
        begin.wait()
        send_paced([send], options.rate, options.seconds, on_warm=on_warm)
        producer.flush()
    cpu_s = time.process_time() - before[0]
    to.send(Measured(times_ms, cpu_s, puts["put"], puts["race"], failed))


def _count_puts() -> Counter[str]:
    """Return counts of this process's puts of segments, and of those that found the name taken."""
    counts: Counter[str] = Counter()
    put = LocalStore.put_if_absent

    def counting(store: LocalStore, path: str, *args: object, **named: object) -> None:
        is_segment = path.endswith(".log") and "-" not in path.rpartition("/")[2]
        try:
            put(store, path, *args, **named)  # type: ignore[arg-type]
        except AlreadyExistsError:
            counts["race"] += is_segment
            raise
        counts["put"] += is_segment

    LocalStore.put_if_absent = counting  # type: ignore[method-assign, assignment]
    return counts


def measure_once(root: str, topic: str, options: argparse.Namespace) -> list[Measured]:
    """Measure all producers once."""
    begin = _PROCESSES.Barrier(options.producers)
    pipes = [_PROCESSES.Pipe(duplex=False) for _ in range(options.producers)]
    processes = [
        _PROCESSES.Process(target=produce, args=(root, topic, number, options, begin, ours))
        for number, (_, ours) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    for _, ours in pipes:
        ours.close()  # a process that dies ends its pipe
    measured: list[Measured] = [theirs.recv() for theirs, _ in pipes]
    for process in processes:
        process.join()
    if failed := [error for each in measured for error in each.failed]:
        raise RuntimeError(f"{len(failed)} records failed: {failed[0]}")
    return measured


def measure(options: argparse.Namespace) -> Report:
    """Measure synced topics and others, in turns."""
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in _TOPICS}
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        root = f"{directory}/root"
        for turn in range(options.turns):
            for name, configs in _TOPICS.items():
                topic = f"{name.replace(' ', '-')}.{turn}"
                new = NewTopic(topic, num_partitions=options.partitions, topic_configs=configs)
                Admin(root).create_topics([new])
                found = _figures(measure_once(root, topic, options), options)
                for figure, value in found.items():
                    samples[name].setdefault(figure, []).append(value)
    figures = [
        Figure(f"{name}: {figure}", median(values), unit)
        for name, each in samples.items()
        for (figure, unit), values in ((_split(figure), values) for figure, values in each.items())
    ]
    notes = {
        "producers": options.producers,
        "partitions": options.partitions,
        "records/s of each": options.rate,
        "load of the machine, of cores": f"{os.getloadavg()[0]:.1f} of {os.cpu_count()}",
    }
    return Report("own_producers", figures, notes)


def _figures(measured: Sequence[Measured], options: argparse.Namespace) -> dict[str, float]:
    """Return the figures of one measurement, by name and unit."""
    times_ms = [time_ms for each in measured for time_ms in each.times_ms]
    records, appends = len(times_ms), sum(each.appends for each in measured)
    return {
        "p50, ms": percentile(times_ms, 50),
        "p99, ms": percentile(times_ms, 99),
        "processor time, µs/record": sum(each.cpu_s for each in measured) * 1e6 / records,
        "appends, /s": appends / options.seconds,
        "races, /append": sum(each.races for each in measured) / appends,
    }


def _split(figure: str) -> tuple[str, str]:
    name, _, unit = figure.partition(", ")
    return name, unit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser("own_producers", f"{__doc__}\nThe first {WARM_UP_S:.0f} s do not count.\n")
    options.add_argument("--producers", type=positive, default=4)
    options.add_argument("--partitions", type=positive, default=16)
    options.add_argument("--rate", type=positive, default=200, help="records/s of each producer")
    options.add_argument("--seconds", type=positive, default=8)
    options.add_argument("--turns", type=positive, default=3)
    run(options, measure, arguments)


if __name__ == "__main__":
    main()
