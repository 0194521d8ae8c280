"""How long it takes from an append until a tail reader in another process has the records.

    python -m benchmarks.log_tail_latency --appends 2000 --kafka

One process appends 2 KB every few milliseconds, another one follows; both look at the same clock,
before the append and when the records are handed out. Not synced, as Kafka by default. With
``--kafka`` a real broker (needs Maven, Java and confluent-kafka) takes messages of the same size
at the same pace, in turns with the log.
"""

import argparse
import multiprocessing
import random
import struct
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np
import pyarrow as pa

from benchmarks.kafka_broker import KafkaBroker, ToolMissingError
from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.log_workload import (
    SMALL_BATCH,
    VALUE_BYTES,
    local_stores,
    open_log,
    records,
)
from spark_log.log.tail_reader import TailReader
from spark_log.storage.local import LocalStore

_PROCESSES = multiprocessing.get_context("spawn")
_STAMP = struct.Struct("<q")
_WARMUPS = 100
_TOPIC = "flights"
_FETCH_BYTES = 52_428_800
_FETCH_WAIT_MS = 500

Send = Callable[[bytes], object]


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("log_tail_latency", __doc__)
    options.add_argument("--appends", type=int, default=2_000, help="measured, of each (2000)")
    options.add_argument("--every-ms", type=float, default=5, help="mean time between them (5)")
    options.add_argument("--kafka", action="store_true", help="measure a Kafka broker as well")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Measure the log, and Kafka if that is asked for."""
    with local_stores(options.directory) as new_store:
        store = new_store()
        log = open_log(store, flush_on_append=False)
        log.append(records(1))
        ours_ms = follow(_read_log, store, lambda stamp: log.append(_stamped(stamp)), options)
    figures = [
        Figure("append to seen by a tail reader, p50", percentile(ours_ms, 50), "ms", at_most=1.5),
        Figure("append to seen by a tail reader, p99", percentile(ours_ms, 99), "ms", at_most=5),
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


def follow(
    read: Callable[..., None], source: object, send: Send, options: argparse.Namespace
) -> list[float]:
    """Send stamped messages at an uneven pace, and return how long each took to be seen.

    Args:
        read: what the reading process runs: ``read(source, count, pipe)``.
        source: what it reads from.
        send: sends a message that begins with the bytes given.
        options: how many, and how often.
    """
    count = options.appends + _WARMUPS
    theirs, ours = _PROCESSES.Pipe()
    reader = _PROCESSES.Process(target=read, args=(source, count, ours), daemon=True)
    reader.start()
    theirs.recv()  # it is there and waits
    pace = random.Random(0)
    for _ in range(count):
        time.sleep(pace.uniform(0, 2 * options.every_ms) / 1000)
        send(_STAMP.pack(time.monotonic_ns()))
    seen: list[float] = theirs.recv()
    reader.join()
    return seen[_WARMUPS:]


def kafka_latencies_ms(options: argparse.Namespace) -> list[float]:
    """Return the same of a broker that is started for it.

    Raises:
        ToolMissingError: what it needs is not installed.
    """
    try:
        from confluent_kafka import Producer
    except ImportError:
        raise ToolMissingError("the client is missing: pip install confluent-kafka") from None
    with KafkaBroker(options.directory) as broker:
        broker.create_topic(_TOPIC, 1)
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "linger.ms": 0}
        )

        def send(stamp: bytes) -> None:
            producer.produce(_TOPIC, stamp.ljust(SMALL_BATCH * VALUE_BYTES, b"-"))
            producer.flush()

        return follow(_read_kafka, broker.bootstrap_servers, send, options)


_BATCH = records(SMALL_BATCH)
_VALUE_OFFSETS = pa.py_buffer(np.arange(SMALL_BATCH + 1, dtype=np.int32) * VALUE_BYTES)


def _stamped(stamp: bytes) -> pa.RecordBatch:
    data = pa.py_buffer(stamp.ljust(SMALL_BATCH * VALUE_BYTES, b"-"))
    values = pa.Array.from_buffers(pa.binary(), SMALL_BATCH, [None, _VALUE_OFFSETS, data])
    columns = [_BATCH.column(0), values, *_BATCH.columns[2:]]
    return pa.RecordBatch.from_arrays(columns, schema=_BATCH.schema)


def _read_log(store: LocalStore, count: int, pipe: Connection) -> None:
    reader = TailReader(open_log(store), 1)
    pipe.send("ready")
    took_ms: list[float] = []
    while len(took_ms) < count:
        for batch in reader.fetch(_FETCH_BYTES, _FETCH_WAIT_MS):
            took_ms.append(_age_ms(batch.records.column("value")[0].as_py()))
    pipe.send(took_ms)


def _read_kafka(bootstrap_servers: str, count: int, pipe: Connection) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "benchmark"})
    consumer.assign([TopicPartition(_TOPIC, 0, 0)])
    consumer.poll(1)
    pipe.send("ready")
    took_ms: list[float] = []
    while len(took_ms) < count:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            took_ms.append(_age_ms(message.value() or b""))
    consumer.close()
    pipe.send(took_ms)


def _age_ms(message: bytes) -> float:
    stamp_ns: int = _STAMP.unpack_from(message)[0]
    return (time.monotonic_ns() - stamp_ns) / 1e6


if __name__ == "__main__":
    main()
