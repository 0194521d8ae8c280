"""Compares `scan` with a hand-written Delta table of the same rows: for pyarrow, DuckDB and polars.

    python -m benchmarks.table_scan --records 2000000 10000000 --repeats 5

A topic of flights is written and converted to Parquet, so that all of it is in the table. delta-rs
writes the same rows as a Delta table of its own, partitioned alike, with zstd. Then each program
reads both in turn: the topic by `scan`, and its peer in the program's own way of reading a Delta
table. DuckDB reads the peer's files by name, as its extension for Delta does. The columns are those
that files store, all of them, the keys alone, and those of one day of thirty.

The table's own files are also read in the peer's way, by the name "table": what a program costs
that reads the topic's directory as a Delta table, without `scan`.

Each read begins with opening the table. The processor time of the process, all threads together,
is compared, since others may use the machine: the least of all runs. The rate is that of the
fastest run. The memory of `scan` is what its process allocates at most while it reads, without
mapped files.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, WriterProperties, write_deltalake
from rich.console import Console

from benchmarks.command_line import positive
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.made_flights import write_flights
from spark_log import Admin, ConfigResource, scan
from spark_log.cluster import Cluster, ClusterCleaner

_TOPIC = "flights"
_BEGIN = datetime(2013, 1, 1, tzinfo=UTC)
_STORED = ("offset", "timestamp", "key", "value", "headers")
_GOAL = 0.95
_MEMORY_GOAL_MB = 1_000
_console = Console(stderr=True)

Times = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class _Case:
    """A read: its columns, and the limits of its rows.

    Attributes:
        name: its name in the report.
        columns: the columns; None for all.
        rows: the number of rows that are found.
        times: the first timestamp and the one after the last; None for all times.
    """

    name: str
    columns: Sequence[str] | None
    rows: int
    times: Times | None = None

    @property
    def stored(self) -> Sequence[str]:
        """The columns of the peer."""
        return _STORED if self.columns is None else self.columns


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("table_scan", __doc__)
    options.add_argument(
        "--records",
        type=positive,
        nargs="+",
        default=[2_000_000, 10_000_000],
        help="numbers of records to read, one after the other (2000000 10000000)",
    )
    options.add_argument("--repeats", type=positive, default=5, help="measured reads (5)")
    run(options, measure)
    return 0


def measure(options: argparse.Namespace) -> Report:
    """Write a topic of each size, convert it, and read it in all ways."""
    figures: list[Figure] = []
    for records in options.records:
        figures += _measure(records, options.repeats, options.directory)
    notes = {
        "records": ", ".join(f"{each:,}" for each in options.records),
        "repeats": options.repeats,
        "ratios": "processor time of the peer / of scan",
    }
    return Report("table_scan", figures, notes)


def _measure(records: int, repeats: int, directory: str | None) -> Iterator[Figure]:
    size = f"{records / 1e6:g} M"
    with ExitStack() as stack:
        work = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=directory))
        )
        root, peer = str(work / "root"), str(work / "peer")
        files = write_table(root, records)
        table = str(Path(files[0]).parent.parent)
        _write_peer(root, peer)
        for case in _cases(records):
            for program, (ours, theirs) in _READS.items():
                reads = {
                    "scan": partial(ours, root, case),
                    "peer": partial(theirs, peer, case),
                    "table": partial(theirs, table, case),
                }
                yield from _compare(f"{size}, {program}, {case.name}", reads, case.rows, repeats)
        yield Figure(
            f"{size}, memory of scan, all columns",
            _memory_mb(root),
            "MB",
            at_most=_MEMORY_GOAL_MB,
        )


def _cases(records: int) -> Iterator[_Case]:
    yield _Case("stored columns", _STORED, records)
    yield _Case("all columns", None, records)
    yield _Case("one column", ["key"], records)
    first, behind = (records * day // 30 for day in (14, 15))  # one record a second
    times = _BEGIN + timedelta(seconds=first), _BEGIN + timedelta(seconds=behind)
    yield _Case("a day of thirty", _STORED, behind - first, times)


# --- the two tables ------------------------------------------------------------------------------


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


def _write_peer(root: str, path: str) -> None:
    write_deltalake(
        path,
        scan(root, _TOPIC, columns=[*_STORED, "partition"]),
        partition_by=["partition"],
        writer_properties=WriterProperties(compression="ZSTD", compression_level=1),
    )


# --- reads ---------------------------------------------------------------------------------------


def _scanned(root: str, case: _Case) -> pa.RecordBatchReader:
    first, behind = case.times or (None, None)
    columns = None if case.columns is None else list(case.columns)
    return scan(root, _TOPIC, columns=columns, from_time=first, to_time=behind)


def _arrow_scan(root: str, case: _Case) -> int:
    return sum(batch.num_rows for batch in _scanned(root, case))


def _arrow_table(path: str, case: _Case) -> int:
    where = None
    if case.times is not None:
        first, behind = (pa.scalar(each, pa.timestamp("us", "UTC")) for each in case.times)
        where = (pc.field("timestamp") >= first) & (pc.field("timestamp") < behind)
    scanner = DeltaTable(path).to_pyarrow_dataset().scanner(list(case.stored), filter=where)
    return sum(batch.num_rows for batch in scanner.to_reader())


def _duckdb_scan(root: str, case: _Case) -> int:
    return _duckdb("rows", case, rows=_scanned(root, case))


def _duckdb_table(path: str, case: _Case) -> int:
    files = [each.removeprefix("file://") for each in DeltaTable(path).file_uris()]
    where = ""
    if case.times is not None:
        first, behind = (f"TIMESTAMPTZ '{each.isoformat()}'" for each in case.times)
        where = f" WHERE timestamp >= {first} AND timestamp < {behind}"
    return _duckdb(f"read_parquet({files}){where}", case)


def _duckdb(source: str, case: _Case, rows: pa.RecordBatchReader | None = None) -> int:
    """Read every value of the columns, and return the number of rows."""
    uses = [
        f"sum(octet_length({name}))"
        if name in ("key", "value")
        else f"sum(len({name}))"
        if name == "headers"
        else f'max("{name}")'
        for name in case.stored
    ]
    query = f"SELECT count(*), {', '.join(uses)} FROM {source}"
    with duckdb.connect() as connection:
        if rows is not None:
            connection.register("rows", rows)
        found = connection.execute(query).fetchall()
    return int(found[0][0])


def _polars_scan(root: str, case: _Case) -> int:
    return len(pl.DataFrame(_scanned(root, case)))


def _polars_table(path: str, case: _Case) -> int:
    rows = pl.scan_delta(path)
    if case.times is not None:
        first, behind = case.times
        rows = rows.filter(pl.col("timestamp") >= first, pl.col("timestamp") < behind)
    return len(rows.select(case.stored).collect())


_Read = Callable[[str, _Case], int]

_READS: dict[str, tuple[_Read, _Read]] = {
    "pyarrow": (_arrow_scan, _arrow_table),
    "DuckDB": (_duckdb_scan, _duckdb_table),
    "polars": (_polars_scan, _polars_table),
}


# --- measuring -----------------------------------------------------------------------------------


def _compare(
    name: str, reads: Mapping[str, Callable[[], int]], rows: int, repeats: int
) -> Iterator[Figure]:
    processor: dict[str, list[float]] = {way: [] for way in reads}
    elapsed: dict[str, list[float]] = {way: [] for way in reads}
    for _ in range(repeats + 1):  # the first one warms up
        for way, read in reads.items():
            began, processor_began = time.perf_counter(), time.process_time()
            found = read()
            elapsed[way].append(time.perf_counter() - began)
            processor[way].append(time.process_time() - processor_began)
            assert found == rows, (name, way, found, rows)
    least = {way: min(took_s[1:]) for way, took_s in processor.items()}
    for way, took_s in elapsed.items():
        yield Figure(f"{name}, {way}", rows / min(took_s[1:]) / 1e6, "M records/s")
    for way in ("scan", "table"):
        ratio = least["peer"] / least[way]
        _console.print(f"{name}: peer / {way} {ratio:.2f}", style="dim")
        yield Figure(f"{name}, peer / {way}", ratio, at_least=_GOAL)


_MEASURE_MEMORY = """
import sys
from benchmarks.process_memory import memory_bytes
from spark_log import scan

reader = scan(sys.argv[1], sys.argv[2])
before = most = memory_bytes()["RssAnon"]
for batch in reader:
    most = max(most, memory_bytes()["RssAnon"])
print(most - before)
"""


def _memory_mb(root: str) -> float:
    """Return what a process of its own allocates at most while it scans a topic."""
    command = [sys.executable, "-c", _MEASURE_MEMORY, root, _TOPIC]
    return int(subprocess.run(command, check=True, capture_output=True).stdout) / 1e6


if __name__ == "__main__":
    sys.exit(main())
