"""Compares Parquet segments with Arrow segments: converting, size, `poll_table`, one column.

    python -m benchmarks.parquet_segments --records 2000000 --repeats 3

One topic of flights (JSON of 19 fields) is written into 4 partitions, and merged three ways: into
Arrow files without compression (what a topic has with default settings: they are mapped, and not
decoded), into Arrow files with zstd, and into Parquet files, which always have zstd. All three are
read by `poll_table` in turn, and once by the log with the timestamps alone. pyarrow's Parquet
reader alone reads key, value and timestamp of the same files on one thread: without checksums of
batches, without the log and a consumer. Rates are by elapsed time. Ratios are by elapsed time and
by processor time of all threads (the least), which tells more if others use the machine. Converting
counts the processor time of one core.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from pyarrow import parquet
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
_ALONE = "pyarrow alone"
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
    reads = {way: partial(_poll_tables, directory / way, records) for way in _WAYS}
    reads[_ALONE] = partial(_read_alone, directory / "Parquet", records)
    yield from _compared("poll_table", reads, records, repeats)


def _poll_tables(root: Path, records: int) -> None:
    with open_consumer(str(root), _TOPIC, PARTITIONS, "read_uncommitted") as consumer:
        ends = consumer.end_offsets(list(consumer.assignment()))
        seen = read_tables(consumer, ends)
    if seen != records:
        raise SystemExit(f"{root.name}: {seen} records read, {records} were written")


def _read_alone(root: Path, records: int) -> None:
    """Read the Parquet files with nothing but pyarrow, a row group at a time."""
    seen = 0
    for path in root.rglob("*.parquet"):
        with parquet.ParquetFile(path, memory_map=True) as file:
            for row_group in range(file.num_row_groups):
                columns = ["timestamp", "key", "value"]
                seen += file.read_row_group(row_group, columns, use_threads=False).num_rows
    assert seen == records, (seen, records)


def _timestamps(directory: Path, records: int, repeats: int) -> Iterator[Figure]:
    reads = {way: partial(_read_timestamps, directory / way, records) for way in _WAYS}
    yield from _compared("timestamps alone", reads, records, repeats)


def _read_timestamps(root: Path, records: int) -> None:
    scans = [log.scan(0, columns=["timestamp"]) for log in _logs(root)]
    assert sum(each.records.num_rows for scan in scans for each in scan) == records


def _compared(
    what: str, reads: Mapping[str, Callable[[], None]], records: int, repeats: int
) -> Iterator[Figure]:
    elapsed: dict[str, list[float]] = {way: [] for way in reads}
    processor: dict[str, list[float]] = {way: [] for way in reads}
    for repeat in range(repeats + 1):
        for way in list(reads)[:: 1 if repeat % 2 else -1]:
            began, processor_began = time.perf_counter(), time.process_time()
            reads[way]()
            took_s = time.perf_counter() - began
            rate = records / took_s / 1e6
            _console.print(f"{what}, run {repeat}: {way} {rate:.2f} M/s", style="dim")
            if repeat:
                elapsed[way].append(took_s)
                processor[way].append(time.process_time() - processor_began)
    for way, found in elapsed.items():
        yield Figure(f"{what}, {way}", records / median(found) / 1e6, "M records/s")
        spent_ns = min(processor[way]) / records * 1e9
        yield Figure(f"{what}, {way}, processor time", spent_ns, "ns a record")
    for peer in [way for way in reads if way != "Parquet"]:
        goal = None if peer == _ALONE else 0.5
        ratio = median(elapsed[peer]) / median(elapsed["Parquet"])
        yield Figure(f"{what}, Parquet / {peer}", ratio, at_least=goal)
        ratio = min(processor[peer]) / min(processor["Parquet"])
        yield Figure(f"{what}, Parquet / {peer}, by processor time", ratio, at_least=goal)


def _logs(root: Path) -> Iterator[PartitionLog]:
    cluster = Cluster(root)
    image = cluster.topic(_TOPIC)
    for number in image.partitions:
        yield cluster.partition_log(image, number)


if __name__ == "__main__":
    sys.exit(main())
