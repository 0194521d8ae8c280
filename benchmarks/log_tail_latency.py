"""Compares the latency from an append to a consumer's fetcher in another process with Kafka's.

    python -m benchmarks.log_tail_latency --appends 2000 --kafka

One process appends 2 KB every few milliseconds, another one reads; both use the same clock, before
the append and when the records are returned. Not synced, which is Kafka's default. With
``--kafka``, a real broker (it needs Maven, Java and confluent-kafka) then gets messages of the same
size at the same pace.
"""

import argparse
from multiprocessing.connection import Connection
from typing import cast

from benchmarks.kafka_broker import KafkaBroker, confluent_kafka_required
from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.log_workload import (
    SMALL_BATCH,
    VALUE_BYTES,
    local_stores,
    open_log,
    records,
    stamped_batch,
)
from benchmarks.timing import ages_in_another_process, report_ages
from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch import Fetcher
from spark_log.log import PartitionLog
from spark_log.storage.local import LocalStore
from spark_log.types import TopicPartition
from spark_log.util.clock import SYSTEM_CLOCK

_TOPIC = "flights"
_FETCH_WAIT_MS = 500


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("log_tail_latency", __doc__)
    options.add_argument("--appends", type=int, default=2_000, help="measured, of each (2000)")
    options.add_argument("--every-ms", type=float, default=5, help="mean time between them (5)")
    options.add_argument("--kafka", action="store_true", help="measure a Kafka broker as well")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Measure the log, and Kafka with ``--kafka``."""
    with local_stores(options.directory) as new_store:
        store = new_store()
        log = open_log(store, flush_on_append=False)
        log.append(records(1))
        ours_ms = ages_in_another_process(
            _read_log,
            (store,),
            lambda stamp: log.append(stamped_batch(stamp)),
            count=options.appends,
            every_ms=options.every_ms,
        )
    figures = [
        Figure("append to fetched elsewhere, p50", percentile(ours_ms, 50), "ms", at_most=1.5),
        Figure("append to fetched elsewhere, p99", percentile(ours_ms, 99), "ms", at_most=5),
    ]
    if options.kafka:
        theirs_ms = kafka_latencies_ms(options)
        for percent in (50, 99):
            ours, theirs = percentile(ours_ms, percent), percentile(theirs_ms, percent)
            figures += [
                Figure(f"Kafka, produce to consume, p{percent}", theirs, "ms"),
                Figure(f"ours / Kafka, p{percent}", ours / theirs),
            ]
    notes = {"appends": options.appends, "mean ms between them": options.every_ms}
    return Report("log_tail_latency", figures, notes)


def kafka_latencies_ms(options: argparse.Namespace) -> list[float]:
    """Start a broker, and return the latencies of its records.

    Raises:
        ToolMissingError: Maven, Java or confluent-kafka is not installed.
    """
    with confluent_kafka_required():
        from confluent_kafka import Producer

        from benchmarks.kafka_client import read_stamps
    with KafkaBroker(options.directory) as broker:
        broker.create_topic(_TOPIC, 1)
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "linger.ms": 0}
        )

        def send(stamp: bytes) -> None:
            producer.produce(_TOPIC, stamp.ljust(SMALL_BATCH * VALUE_BYTES, b"-"))
            producer.flush()

        return ages_in_another_process(
            read_stamps,
            (broker.bootstrap_servers, _TOPIC),
            send,
            count=options.appends,
            every_ms=options.every_ms,
        )


def _read_log(store: LocalStore, count: int, pipe: Connection) -> None:
    fetcher = Fetcher(store, ConsumerConfig(), now_ms=SYSTEM_CLOCK.monotonic_ms)
    log = cast(PartitionLog, open_log(store))  # a log of one directory reads as a partition's does
    fetcher.add(TopicPartition(_TOPIC, 0), log, 1)

    def next_values() -> list[object]:
        fetch = fetcher.collect_fetch(None, _FETCH_WAIT_MS)
        return [rows.column("value")[0].as_py() for rows in fetch.rows]

    report_ages(pipe, next_values, count)


if __name__ == "__main__":
    main()
