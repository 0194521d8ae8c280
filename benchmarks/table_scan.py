"""Compares `scan` with pyarrow reading the same Parquet files: all columns, one column, a day.

    python -m benchmarks.table_scan --records 2000000 --repeats 5

A topic of flights is written and converted to Parquet, so that all of it is in the table. Then both
read it in turn. The processor time of the process, all threads together, is compared: others may
use the machine. The rate is that of the fastest run.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset

from benchmarks.command_line import positive
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.made_flights import write_flights
from spark_log import Admin, ConfigResource, scan
from spark_log.cluster import Cluster, ClusterCleaner

_TOPIC = "flights"
_BEGIN = datetime(2013, 1, 1, tzinfo=UTC)
_STORED = ["offset", "timestamp", "key", "value", "headers"]

Read = Callable[[], Iterator[pa.RecordBatch]]


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("table_scan", __doc__)
    options.add_argument("--records", type=positive, default=2_000_000, help="to read (2000000)")
    options.add_argument("--repeats", type=positive, default=5, help="measured reads (5)")
    run(options, measure)
    return 0


def measure(options: argparse.Namespace) -> Report:
    """Write a topic, convert it, and read it in both ways."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as work:
        root = str(Path(work) / "root")
        files = write_table(root, options.records)
        seconds = options.records  # one record a second
        day = (
            _BEGIN + timedelta(seconds=seconds * 14 // 30),
            _BEGIN + timedelta(seconds=seconds * 15 // 30),
        )
        in_time = (pc.field("timestamp") >= pa.scalar(day[0])) & (
            pc.field("timestamp") < pa.scalar(day[1])
        )
        plain = dataset.dataset(files, format="parquet")
        cases: dict[str, tuple[Read, Read, int]] = {
            "stored columns": (
                lambda: scan(root, _TOPIC, columns=_STORED),
                lambda: plain.scanner(columns=_STORED).to_reader(),
                options.records,
            ),
            "all columns": (
                lambda: scan(root, _TOPIC),
                lambda: plain.scanner(columns=_STORED).to_reader(),
                options.records,
            ),
            "one column": (
                lambda: scan(root, _TOPIC, columns=["key"]),
                lambda: plain.scanner(columns=["key"]).to_reader(),
                options.records,
            ),
            "a day of thirty": (
                lambda: scan(root, _TOPIC, columns=_STORED, from_time=day[0], to_time=day[1]),
                lambda: plain.scanner(columns=_STORED, filter=in_time).to_reader(),
                (day[1] - day[0]) // timedelta(seconds=1),
            ),
        }
        for name, (ours, theirs, rows) in cases.items():
            figures += _compare(name, ours, theirs, rows, options.repeats)
    notes = {"records": f"{options.records:,} flights", "repeats": options.repeats}
    return Report("table_scan", figures, notes)


def write_table(
    root: str, records: int, *, topic: str = _TOPIC, settings: Mapping[str, object] | None = None
) -> list[str]:
    """Write a topic of flights, all of it in Parquet segments; return the paths of its files."""
    write_flights(root, records, topic=topic, settings=settings)
    Admin(root).alter_configs([ConfigResource("TOPIC", topic, {"table.format": "delta"})])
    for each in ClusterCleaner(Cluster(root), table_at_once=True).clean():
        assert each.error is None, each
    cluster = Cluster(root)
    image = cluster.topic(topic)
    logs = [cluster.partition_log(image, number) for number in image.partitions]
    segments = [segment for log in logs for segment in log.observe().live.segments]
    assert all(segment.name.is_parquet for segment in segments)
    return [str(Path(root) / segment.file.path) for segment in segments]


def _compare(name: str, ours: Read, theirs: Read, rows: int, repeats: int) -> list[Figure]:
    processor: dict[Read, list[float]] = {ours: [], theirs: []}
    elapsed: dict[Read, list[float]] = {ours: [], theirs: []}
    for _ in range(repeats + 1):  # the first one warms up
        for read in (ours, theirs):
            began, processor_began = time.perf_counter(), time.process_time()
            found = sum(batch.num_rows for batch in read())
            elapsed[read].append(time.perf_counter() - began)
            processor[read].append(time.process_time() - processor_began)
            assert found == rows, (name, found, rows)
    mine, peer = (min(processor[read][1:]) for read in (ours, theirs))
    return [
        Figure(f"scan, {name}", rows / min(elapsed[ours][1:]) / 1e6, "M records/s"),
        Figure(f"pyarrow, {name}", rows / min(elapsed[theirs][1:]) / 1e6, "M records/s"),
        Figure(f"processor time of pyarrow / scan, {name}", peer / mine, at_least=0.95),
    ]


if __name__ == "__main__":
    main()
