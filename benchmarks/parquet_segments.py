"""Compares Parquet segments with Arrow segments: converting, size, `poll_table`, one column.

    python -m benchmarks.parquet_segments --records 2000000 --repeats 3

One topic of flights (JSON of 19 fields) is written into 4 partitions, and merged three ways: into
Arrow files without compression, into Arrow files with zstd, and into Parquet files. All three are
read by `poll_table` in turn, and once by the log with the timestamps alone. Converting counts the
processor time of one core.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from rich.console import Console

from benchmarks.command_line import positive
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.made_flights import PARTITIONS, write_flights
from benchmarks.transactions_kafka import open_consumer, read_tables
from spark_log.cluster import Cluster
from spark_log.log import PartitionLog
from spark_log.log.rewrite import merge

_TOPIC = "flights"
_WAYS = ("Arrow", "Arrow zstd", "Parquet")
_console = Console(stderr=True)


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("parquet_segments", __doc__)
    options.add_argument("--records", type=positive, default=2_000_000, help="to read (2000000)")
    options.add_argument("--repeats", type=positive, default=3, help="measured reads (3)")
    run(options, measure)
    return 0


def measure(options: argparse.Namespace) -> Report:
    """Merge the same records three ways, and read each."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory)
        directory = Path(stack.enter_context(temporary))
        written = directory / "written"
        write_flights(written, options.records)
        sizes: dict[str, int] = {}
        for way in _WAYS:
            root = directory / way
            shutil.copytree(written, root, symlinks=True)
            rate, sizes[way] = _merge(root, way, options.records)
            goal = 1.0 if way == "Parquet" else None
            figures.append(Figure(f"merging into {way}", rate, "M records/s a core", at_least=goal))
        shutil.rmtree(written)
        figures += [Figure(f"size, {way}", size / 1e6, "MB") for way, size in sizes.items()]
        figures += _polls(directory, options.records, options.repeats)
        figures += _timestamps(directory, options.records, options.repeats)
    notes = {"records": f"{options.records:,} flights", "repeats": options.repeats}
    return Report("parquet_segments", figures, notes)


def _merge(root: Path, way: str, records: int) -> tuple[float, int]:
    """Merge each partition into one segment; return the rate, and the size of the segments."""
    began, size_bytes = time.process_time(), 0
    for log in _logs(root):
        view = log.observe()
        compression = "zstd" if way == "Arrow zstd" else "none"
        to_parquet = (lambda header, base_offset: False) if way == "Parquet" else None
        merged = merge(
            log.files,
            view,
            0,
            len(view.live.segments) - 1,
            compression=compression,
            to_parquet=to_parquet,
            sync=False,
        )
        size_bytes += merged.size_bytes
        for segment in view.live.segments:
            log.files.store.delete(segment.file.path)
    return records / (time.process_time() - began) / 1e6, size_bytes


def _polls(directory: Path, records: int, repeats: int) -> Iterator[Figure]:
    rates: dict[str, list[float]] = {way: [] for way in _WAYS}
    for repeat in range(repeats + 1):
        for way in _WAYS if repeat % 2 else _WAYS[::-1]:
            rate = _poll_tables(directory / way, records)
            _console.print(f"poll_table, run {repeat}: {way} {rate:.2f} M/s", style="dim")
            if repeat:
                rates[way].append(rate)
    yield from _compared("poll_table", rates)


def _poll_tables(root: Path, records: int) -> float:
    with open_consumer(str(root), _TOPIC, PARTITIONS, "read_uncommitted") as consumer:
        ends = consumer.end_offsets(list(consumer.assignment()))
        start = time.perf_counter()
        seen = read_tables(consumer, ends)
        took_s = time.perf_counter() - start
    if seen != records:
        raise SystemExit(f"{root.name}: {seen} records read, {records} were written")
    return records / took_s / 1e6


def _timestamps(directory: Path, records: int, repeats: int) -> Iterator[Figure]:
    rates: dict[str, list[float]] = {way: [] for way in _WAYS}
    for repeat in range(repeats + 1):
        for way in _WAYS if repeat % 2 else _WAYS[::-1]:
            start, seen = time.perf_counter(), 0
            for log in _logs(directory / way):
                seen += sum(each.records.num_rows for each in log.scan(0, columns=["timestamp"]))
            if repeat:
                rates[way].append(seen / (time.perf_counter() - start) / 1e6)
    yield from _compared("timestamps alone", rates)


def _compared(what: str, rates: dict[str, list[float]]) -> Iterator[Figure]:
    medians = {way: median(found) for way, found in rates.items()}
    for way, rate in medians.items():
        yield Figure(f"{what}, {way}", rate, "M records/s")
    for way in _WAYS[:2]:
        ratio = medians["Parquet"] / medians[way]
        yield Figure(f"{what}, Parquet / {way}", ratio, at_least=0.5)


def _logs(root: Path) -> Iterator[PartitionLog]:
    cluster = Cluster(root)
    image = cluster.topic(_TOPIC)
    for number in image.partitions:
        yield cluster.partition_log(image, number)


if __name__ == "__main__":
    sys.exit(main())
