"""``spark-log producer-perf``: measure a producer, with the options and output of Kafka's tool."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from spark_log.cli.format import Output, print_json, print_note, print_text
from spark_log.cli.options import Root, Topic, parse_pairs, with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.config import ProducerConfig
from spark_log.errors import InvalidConfigurationError
from spark_log.producer import Producer, RecordFuture

_REPORTING_MS: Final = 5_000
_MAX_SAMPLES: Final = 500_000
_MIB: Final = 1_048_576
_MADE_PAYLOADS: Final = 1_024
"""Number of payloads for --record-size, which are made before the clock starts and used in turn."""
_MAX_MADE_BYTES: Final = 16_777_216


@with_examples("spark-log producer-perf weather --num-records 1000 --record-size 100")
@with_option_groups
def producer_perf(
    topic: Topic,
    root: Root,
    output: Output,
    num_records: Annotated[
        int, typer.Option("--num-records", min=1, help="Number of records to send.")
    ],
    throughput: Annotated[
        float,
        typer.Option(
            "--throughput",
            help="Approximate maximum number of records per second. -1: no limit.",
        ),
    ] = -1,
    record_size: Annotated[
        int | None, typer.Option("--record-size", min=1, help="Size of a record in bytes.")
    ] = None,
    payload_file: Annotated[
        Path | None,
        typer.Option(
            "--payload-file", help="Text file; values are drawn at random from its parts."
        ),
    ] = None,
    payload_monotonic: Annotated[
        bool, typer.Option("--payload-monotonic", help="Values are the numbers 0, 1, 2, …")
    ] = False,
    payload_delimiter: Annotated[
        str, typer.Option("--payload-delimiter", help="Text between the parts of the file.")
    ] = "\\n",
    producer_props: Annotated[
        list[str] | None,
        typer.Option(
            "--producer-props",
            "--command-property",
            metavar="KEY=VALUE",
            help="A producer config, such as acks=all, linger.ms=0 or partitioner=random. "
            "Repeatable.",
        ),
    ] = None,
    print_metrics: Annotated[
        bool, typer.Option("--print-metrics", help="Print the producer's metrics at the end.")
    ] = False,
) -> None:
    """Measure how fast records are sent and acknowledged.

    Give exactly one of --record-size, --payload-file and --payload-monotonic. Every five seconds a
    line reports on the records since the previous line. The latency of a record is the time from
    send to acknowledgement.
    """
    payloads = _payloads(record_size, payload_file, payload_monotonic, payload_delimiter)
    config = parse_pairs("--producer-props", producer_props or [])
    stats = PerfStats(num_records, prints=not output.is_json)
    partitioner = config.pop("partitioner", "default")
    ProducerConfig.parse(config)  # the other arguments of `Producer` are not for users of a shell
    settings: dict[str, Any] = {**config, "partitioner": partitioner}
    with Producer(root.url, **root.client_arguments, **settings) as producer:
        producer.partitions_for(topic.name)  # an unknown topic is refused before the clock starts
        stats.begin(_now_ms())
        _send(producer, topic.name, payloads, num_records, throughput, stats)
        producer.flush()
        total = stats.total(_now_ms())
        metrics = producer.metrics()["producer-metrics"]
    if output.is_json:
        print_json(
            {"topic": topic.name, **total, **({"metrics": metrics} if print_metrics else {})}
        )
        return
    print_text(stats.total_line(total))
    if print_metrics:
        width = max(map(len, metrics))
        for name, value in sorted(metrics.items()):
            print_text(f"producer-metrics:{name:{width}} : {value:.3f}")


class PerfStats:
    """Latencies and sizes of acknowledged records (``ProducerPerformance.Stats``)."""

    def __init__(self, num_records: int, *, prints: bool) -> None:
        """Expect ``num_records`` records; with ``prints`` print a line every five seconds."""
        self._sampling = max(1, num_records // min(num_records, _MAX_SAMPLES))
        self._prints = prints
        self._latencies_ms: list[float] = []
        self._began_ms = 0.0
        self._window = _Window()
        self._all = _Window()
        self._failed = 0
        self._failures: set[str] = set()

    def begin(self, now_ms: float) -> None:
        """Start the clock."""
        self._began_ms = self._window.began_ms = now_ms

    def ended(self, future: RecordFuture, *, sent_ms: float, size_bytes: int) -> None:
        """Count a record that is acknowledged or has failed."""
        now_ms = _now_ms()
        error = future.exception()
        if error is not None:
            self._failed += 1
            if str(error) not in self._failures:
                self._failures.add(str(error))
                print_note(f"a record failed: {error}")
            return
        latency_ms = now_ms - sent_ms
        if self._all.records % self._sampling == 0:
            self._latencies_ms.append(latency_ms)
        self._all.add(latency_ms, size_bytes)
        self._window.add(latency_ms, size_bytes)
        if now_ms - self._window.began_ms >= _REPORTING_MS:
            if self._prints:
                print_text(self._window.line(now_ms))
            self._window = _Window(began_ms=now_ms)

    def total(self, now_ms: float) -> dict[str, float]:
        """Return the figures of all records by name."""
        seconds = max(now_ms - self._began_ms, 1e-3) / 1000
        samples = sorted(self._latencies_ms) or [0.0]
        total = {
            "records": self._all.records,
            "failed": self._failed,
            "records_per_sec": self._all.records / seconds,
            "mb_per_sec": self._all.size_bytes / seconds / _MIB,
            "avg_latency_ms": self._all.total_ms / max(self._all.records, 1),
            "max_latency_ms": self._all.max_ms,
        }
        for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99_9", 0.999)):
            total[f"{name}_latency_ms"] = samples[int(part * len(samples))]
        return total

    @staticmethod
    def total_line(total: dict[str, float]) -> str:
        """Return Kafka's last line, with finer percentiles: Kafka shows whole milliseconds."""
        failed = f" ({total['failed']:.0f} failed)" if total["failed"] else ""
        return (
            f"{total['records']:.0f} records sent{failed}, "
            f"{total['records_per_sec']:.1f} records/sec "
            f"({total['mb_per_sec']:.2f} MB/sec), {total['avg_latency_ms']:.2f} ms avg latency, "
            f"{total['max_latency_ms']:.2f} ms max latency, {total['p50_latency_ms']:.2f} ms 50th, "
            f"{total['p95_latency_ms']:.2f} ms 95th, {total['p99_latency_ms']:.2f} ms 99th, "
            f"{total['p99_9_latency_ms']:.2f} ms 99.9th."
        )


@dataclass(slots=True)
class _Window:
    began_ms: float = 0.0
    records: int = 0
    size_bytes: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0

    def add(self, latency_ms: float, size_bytes: int) -> None:
        self.records += 1
        self.size_bytes += size_bytes
        self.total_ms += latency_ms
        self.max_ms = max(self.max_ms, latency_ms)

    def line(self, now_ms: float) -> str:
        seconds = max(now_ms - self.began_ms, 1e-3) / 1000
        return (
            f"{self.records} records sent, {self.records / seconds:.1f} records/sec "
            f"({self.size_bytes / seconds / _MIB:.2f} MB/sec), "
            f"{self.total_ms / max(self.records, 1):.1f} ms avg latency, "
            f"{self.max_ms:.1f} ms max latency."
        )


def _send(
    producer: Producer,
    topic: str,
    payloads: Iterator[bytes],
    num_records: int,
    throughput: float,
    stats: PerfStats,
) -> None:
    began_ms = _now_ms()
    for number in range(num_records):
        value = next(payloads)
        sent_ms = _now_ms()
        future = producer.send(topic, value)
        future.add_done_callback(partial(stats.ended, sent_ms=sent_ms, size_bytes=len(value)))
        if throughput > 0:
            ahead_ms = (number + 1) / throughput * 1000 - (_now_ms() - began_ms)
            if ahead_ms > 1:
                time.sleep(ahead_ms / 1000)


def _payloads(
    size: int | None, file: Path | None, is_monotonic: bool, delimiter: str
) -> Iterator[bytes]:
    """Yield values without end.

    Raises:
        InvalidConfigurationError: not exactly one kind of values was chosen, or the file is empty.
    """
    if (size is not None) + (file is not None) + is_monotonic != 1:
        raise InvalidConfigurationError(
            "which records? Give exactly one of --record-size, --payload-file and "
            "--payload-monotonic"
        )
    drawn = random.Random(0)
    if is_monotonic:
        return (b"%d" % number for number in count())
    if file is not None:
        parts = _parts(file, "\n" if delimiter == "\\n" else delimiter)
        return iter(lambda: drawn.choice(parts), None)
    assert size is not None
    letters = bytes(range(65, 91))
    different = min(_MADE_PAYLOADS, _MAX_MADE_BYTES // size + 1)
    return cycle([bytes(drawn.choices(letters, k=size)) for _ in range(different)])


def _parts(file: Path, delimiter: str) -> list[bytes]:
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidConfigurationError(
            f"--payload-file {file} is not a text file in UTF-8"
        ) from error
    except OSError as error:
        raise InvalidConfigurationError(f"--payload-file {file}: {error.strerror}") from error
    parts = [part.encode() for part in text.split(delimiter) if part]
    if not parts:
        raise InvalidConfigurationError(f"--payload-file {file} has no parts to send")
    return parts


def _now_ms() -> float:
    return time.perf_counter() * 1000
