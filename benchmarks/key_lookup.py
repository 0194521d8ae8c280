"""Looks up keys with `Consumer.get` in a compacted topic, beside scans of the same Parquet files.

    python -m benchmarks.key_lookup --records 10000000 --lookups 2000

A topic of one partition with a table (``table.format=delta``) gets records of distinct keys. It is
rewritten as Parquet twice, with and without key indexes, to show what they cost: by a compaction,
and in a second topic (``cleanup.policy=delete``) by merges. Then a tail of updates is appended to
both. Random keys are looked up in the Parquet segments, in the tail, and keys that were never
written; and in the Parquet segments without indexes. The requests of a look-up are counted for a
store that is not mapped. The peers find the same keys in the same Parquet files: pyarrow by a scan
with a filter, DuckDB if it is installed, and pyarrow by reading the one row group that has the key.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset, parquet
from rich.console import Console

from benchmarks.command_line import positive
from benchmarks.counting_store import CountingStore
from benchmarks.log_report import Figure, Report, parser, percentile, run
from spark_log import Admin, Consumer, NewTopic, Producer
from spark_log.cluster import open_cluster
from spark_log.log import LocalLog
from spark_log.log.clean.compactor import compact
from spark_log.log.key_index import KeyIndexWriter
from spark_log.log.rewrite import merge
from spark_log.storage import FileInfo, storage_time_us

_TOPIC = "state"
_VALUE_BYTES = 100
_AT_ONCE = 500_000
_CONFIG = {
    "table.format": "delta",
    "file.delete.delay.ms": "60000",
    "min.cleanable.dirty.ratio": "0",
}
_console = Console(stderr=True)


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("key_lookup", __doc__)
    options.add_argument("--records", type=positive, default=10_000_000, help="keys (10000000)")
    options.add_argument("--updates", type=positive, default=100_000, help="in the tail (100000)")
    options.add_argument("--lookups", type=positive, default=2_000, help="of each kind (2000)")
    options.add_argument("--scans", type=positive, default=5, help="of each peer (5)")
    run(options, measure)
    return 0


def measure(options: argparse.Namespace) -> Report:
    """Write, rewrite and look up."""
    figures: list[Figure] = []
    for way, policy in (("compacted", "compact"), ("merged", "delete")):
        with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as directory:
            root = Path(directory) / "root"
            _write(root, options.records, policy)
            figures += _rewrites(root, options, way)
            _append(root, 0, options.updates, step=options.records // options.updates)
            figures += _lookups(root, options, way)
            figures.append(_requests(root, options, way))
            figures += _without_index(root, options, way)
            if way == "compacted":
                figures += _peers(root, options)
    notes = {
        "records": f"{options.records:,} keys of 16 bytes, values of {_VALUE_BYTES} bytes",
        "tail": f"{options.updates:,} updates",
    }
    return Report("key_lookup", figures, notes)


def key_of(number: int) -> bytes:
    """Return the key of a record."""
    return b"account-%08d" % number


class _RangedStore(CountingStore):
    """A store that is read by requests, as an object store is."""

    is_mapped = False


def _write(root: Path, records: int, policy: str) -> None:
    config = _CONFIG | {"cleanup.policy": policy}
    Admin(str(root)).create_topics([NewTopic(_TOPIC, 1, topic_configs=config)])
    for first in range(0, records, _AT_ONCE):
        _append(root, first, min(_AT_ONCE, records - first))
        _console.print(f"written: {first + _AT_ONCE:,}", style="dim")


def _append(root: Path, first: int, count: int, step: int = 1) -> None:
    numbers = range(first, first + count * step, step)
    letters = np.random.default_rng(first).integers(97, 123, count * _VALUE_BYTES, np.uint8)
    offsets = pa.py_buffer(np.arange(0, len(letters) + 1, _VALUE_BYTES, dtype=np.int32))
    values = pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(letters)])
    keys = pa.array([key_of(number) for number in numbers], pa.binary())
    with Producer(str(root), max_request_size=2**30, batch_size=2**26) as producer:
        producer.send_table(_TOPIC, pa.table({"key": keys, "value": values})).result()


def _rewrites(root: Path, options: argparse.Namespace, what: str) -> Iterator[Figure]:
    """Rewrite all records without key indexes, and with them; yield the rates and sizes."""
    log = _log_of(root)
    for way in ("without", "with"):
        began_s = time.process_time()
        with patch.object(KeyIndexWriter, "add", _nothing if way == "without" else _ADD):
            if what == "compacted":
                now_us = storage_time_us(log.files.store, log.files.path)
                compact(log, now_us=now_us + 10**12, even_if_clean=True)
            else:
                last = len(log.observe().live.segments) - 1
                merge(log.files, log.observe(), 0, last, to_parquet=lambda *_: False)
        took_s = time.process_time() - began_s
        yield Figure(f"{what} {way} a key index", options.records / took_s / 1e6, "M records/s")
        _console.print(f"{what} {way} an index in {took_s:.1f} s", style="dim")
    live = log.observe().live.segments
    segments = sum(each.file.size_bytes for each in live)
    indexes = sum(file.size_bytes for file in _indexes(log))
    yield Figure(f"{what}, size of the Parquet segments", segments / 1e6, "MB")
    yield Figure(f"{what}, size of their key indexes", indexes / 1e6, "MB")
    yield Figure(f"{what}, index for a record", indexes / options.records, "bytes")


def _indexes(log: LocalLog) -> list[FileInfo]:
    names = {each.name.key_index for each in log.observe().live.segments}
    return [file for file in log.files.store.list(log.files.path) if file.name in names]


def _log_of(root: Path) -> LocalLog:
    cluster = open_cluster(str(root))
    return cluster.partition_log(cluster.topic(_TOPIC), 0).replica


_ADD = KeyIndexWriter.add


def _nothing(*_: object) -> None:
    """Add nothing: a segment without rows gets no index."""


def _lookups(root: Path, options: argparse.Namespace, way: str) -> Iterator[Figure]:
    step = options.records // options.updates
    numbers = [random.randrange(options.records) for _ in range(4 * options.lookups)]
    rewritten = [key_of(each) for each in numbers if each % step][: options.lookups]
    tail = [key_of(each - each % step) for each in numbers][: options.lookups]
    unknown = [b"nobody-%08d" % each for each in numbers][: options.lookups]
    with Consumer(root=str(root)) as consumer:
        began_s = time.perf_counter()
        consumer.get(_TOPIC, rewritten[0])
        yield Figure(f"{way}, first look-up", (time.perf_counter() - began_s) * 1000, "ms")
        for what, keys in (("a hit", rewritten), ("tail", tail), ("unknown", unknown)):
            began_s = time.process_time()
            took_ms = _timed(keys, lambda key: consumer.get(_TOPIC, key))
            cpu_ms = (time.process_time() - began_s) * 1000 / len(keys)
            yield Figure(f"{way}, {what}, p50", percentile(took_ms, 50), "ms", at_most=3.0)
            yield Figure(f"{way}, {what}, p99", percentile(took_ms, 99), "ms")
            yield Figure(f"{way}, {what}, processor time", cpu_ms, "ms")


def _requests(root: Path, options: argparse.Namespace, way: str) -> Figure:
    """Count the requests of a look-up in a store that is not mapped."""
    log = _log_of(root)
    store = _RangedStore(log.files.store.url)
    opened = LocalLog(
        store, log.files.path, topic_id=log.files.topic_id, partition=0, config=log.config
    )
    opened.find_key(key_of(1))
    store.reads = store.listings = 0
    count = min(100, options.lookups)
    for _ in range(count):
        opened.find_key(key_of(1 + random.randrange(options.records - 2)))
    return Figure(f"{way}, requests", (store.reads + store.listings) / count, "", at_most=4.0)


def _without_index(root: Path, options: argparse.Namespace, way: str) -> Iterator[Figure]:
    """Look up after the indexes were lost."""
    log = _log_of(root)
    for file in _indexes(log):
        log.files.store.delete(file.path)
    with Consumer(root=str(root)) as consumer:
        began_s = time.perf_counter()
        consumer.get(_TOPIC, key_of(1))
        took_ms = (time.perf_counter() - began_s) * 1000
        yield Figure(f"{way}, first look-up without an index", took_ms, "ms")
        keys = [key_of(random.randrange(options.records)) for _ in range(options.lookups)]
        took = _timed(keys, lambda key: consumer.get(_TOPIC, key))
        yield Figure(f"{way}, later ones without an index, p50", percentile(took, 50), "ms")


def _peers(root: Path, options: argparse.Namespace) -> Iterator[Figure]:
    log = _log_of(root)
    names = [each.name for each in log.observe().live.segments if each.name.is_parquet]
    folder = Path(str(root)) / log.files.path
    paths = [str(folder / name.file_name) for name in names]
    keys = [key_of(random.randrange(options.records)) for _ in range(options.scans)]

    def by_row_group(_: bytes) -> None:
        file = files[random.randrange(len(files))]
        file.read_row_group(random.randrange(file.num_row_groups), ["key", "value"])

    def by_scan(key: bytes) -> None:
        rows = dataset.dataset(paths).to_table(["value"], pc.field("key") == key)
        assert rows.num_rows == 1

    files = [parquet.ParquetFile(path, memory_map=True) for path in paths]
    groups = sum(file.num_row_groups for file in files)
    yield Figure("row groups", groups, "")
    took_ms = _timed([b""] * min(100, options.lookups), by_row_group)
    yield Figure("pyarrow, one row group, p50", percentile(took_ms, 50), "ms")
    yield Figure("pyarrow, scan, median", statistics.median(_timed(keys, by_scan)), "ms")
    if find_spec("duckdb") is not None:
        import duckdb

        query = f"SELECT value FROM read_parquet({paths}) WHERE key = ?"
        took_ms = _timed(keys, lambda key: duckdb.execute(query, [key]).fetchall())
        yield Figure("DuckDB, median", statistics.median(took_ms), "ms")


def _timed(keys: Sequence[bytes], call: Callable[[bytes], object]) -> list[float]:
    took_ms = []
    for key in keys:
        began_s = time.perf_counter()
        call(key)
        took_ms.append((time.perf_counter() - began_s) * 1000)
    return took_ms


if __name__ == "__main__":
    sys.exit(main())
