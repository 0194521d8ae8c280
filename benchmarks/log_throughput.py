"""Compares appends and fetches in bulk with plain file operations on the same bytes, on one core.

    python -m benchmarks.log_throughput --records 10000000 --repeats 5

Appends stream batches of 10,000 records of 108 bytes into segments of a million records, synced;
the peer is plain writes and one fsync of the same bytes. Fetches read a log from the page cache;
the peer reads the same files and computes their CRC-32C. The process is bound to one core; compared
operations take turns, and figures are medians.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import google_crc32c
import pyarrow as pa

from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.log_workload import (
    DIRECTORY,
    RECORD_BYTES,
    local_stores,
    open_log,
    pin_to_one_core,
    records,
)
from benchmarks.timing import timed
from spark_log.log import LocalLog
from spark_log.storage.local import LocalStore

_BATCH_RECORDS = 10_000
_SEGMENT_RECORDS = 1_000_000
_CHUNK_BYTES = 1 << 20


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("log_throughput", __doc__)
    options.add_argument("--records", type=int, default=10_000_000, help="fetched (10000000)")
    options.add_argument("--repeats", type=int, default=5, help="measured runs, after one (5)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Measure appends, then fetches of the appended records."""
    pin_to_one_core()
    with local_stores(options.directory) as new_store:
        figures = [
            *append_figures(new_store, options.repeats),
            *fetch_figures(new_store(), options.records, options.repeats),
        ]
    notes = {
        "record bytes": RECORD_BYTES,
        "records a batch, a segment": f"{_BATCH_RECORDS:,}, {_SEGMENT_RECORDS:,}",
        "repeats": options.repeats,
    }
    return Report("log_throughput", figures, notes)


def append_figures(new_store: Callable[[], LocalStore], repeats: int) -> list[Figure]:
    """Measure the append of one segment, and the plain write and fsync of its bytes.

    Each of the two writes a new file and removes it before the next turn: otherwise the page cache
    would allocate new memory, which costs more than the write.
    """
    batches = {"random": [*_batches(text=False)], "text": [*_batches(text=True)]}
    store = new_store()
    open_log(store).append(batches["random"])
    data = store.open_buffer(f"{DIRECTORY}/{0:020d}.log").to_pybytes()

    def append(values: str, compression: str) -> float:
        store = new_store()
        log = open_log(store)
        took_s = timed(lambda: log.append(batches[values], compression=compression))
        store.delete_directory("")
        return took_s

    def write_plainly() -> float:
        store = new_store()
        took_s = timed(lambda: _write(Path(store.url, "plain"), data))
        store.delete_directory("")
        return took_s

    took_s = _medians_s(
        repeats,
        {
            "plain": write_plainly,
            "none": lambda: append("random", "none"),
            "lz4": lambda: append("random", "lz4"),
            "lz4, text": lambda: append("text", "lz4"),
            "zstd, text": lambda: append("text", "zstd"),
        },
    )
    rates = {name: _SEGMENT_RECORDS / each / 1e6 for name, each in took_s.items()}
    return [
        Figure("append, synced", rates["none"], "M records/s"),
        Figure("plain write and fsync of the same bytes", rates["plain"], "M records/s"),
        Figure("append / plain write", rates["none"] / rates["plain"] * 100, "%", at_least=60),
        Figure("append, lz4, random values, synced", rates["lz4"], "M records/s", at_least=2),
        Figure("append, lz4, text, synced", rates["lz4, text"], "M records/s"),
        Figure("append, zstd, text, synced", rates["zstd, text"], "M records/s"),
    ]


def fetch_figures(store: LocalStore, n: int, repeats: int) -> list[Figure]:
    """Measure full fetches with and without CRC checks, and CRC-32C of the same files alone."""
    log = open_log(store, flush_on_append=False)
    segments = max(1, n // _SEGMENT_RECORDS)
    batches = [*_batches(text=False)]
    for _ in range(segments):
        log.append(batches)
    n = segments * _SEGMENT_RECORDS
    files = sorted(Path(store.url, DIRECTORY).glob("*.log"))
    took_s = _medians_s(
        repeats,
        {
            "read and sum": lambda: timed(lambda: _sum_read(files)),
            "map and sum": lambda: timed(lambda: _sum_mapped(files)),
            "fetch": lambda: timed(lambda: _fetch(log, n, check_crcs=True)),
            "fetch unchecked": lambda: timed(lambda: _fetch(log, n, check_crcs=False)),
        },
    )
    rates = {name: n / each / 1e6 for name, each in took_s.items()}
    bare = max(rates["read and sum"], rates["map and sum"])
    return [
        Figure("fetch, checksums checked", rates["fetch"], "M records/s"),
        Figure("read the same files, crc32c alone", rates["read and sum"], "M records/s"),
        Figure("map the same files, crc32c alone", rates["map and sum"], "M records/s"),
        Figure("fetch / the faster of these", rates["fetch"] / bare * 100, "%", at_least=50),
        Figure("fetch, unchecked", rates["fetch unchecked"], "M records/s", at_least=50),
    ]


def _batches(*, text: bool) -> Iterator[pa.RecordBatch]:
    for first in range(0, _SEGMENT_RECORDS, _BATCH_RECORDS):
        yield records(_BATCH_RECORDS, first=first, text=text)


def _write(target: Path, data: bytes) -> None:
    view = memoryview(data)
    with target.open("wb", buffering=0) as file:
        for start in range(0, len(view), _CHUNK_BYTES):
            file.write(view[start : start + _CHUNK_BYTES])
        os.fsync(file.fileno())


def _fetch(log: LocalLog, n: int, *, check_crcs: bool) -> None:
    offset = 0
    while batches := log.read(offset, check_crcs=check_crcs)[0]:
        last = batches[-1]
        offset = last.base_offset + last.records.num_rows
    assert offset == n


def _sum_read(files: list[Path]) -> None:
    chunk = pa.allocate_buffer(_CHUNK_BYTES)
    for path in files:
        crc = 0
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(chunk):
                crc = google_crc32c.extend(crc, chunk.slice(0, count))


def _sum_mapped(files: list[Path]) -> None:
    for path in files:
        with pa.memory_map(str(path)) as file:
            google_crc32c.value(file.read_buffer())


def _medians_s(repeats: int, cases: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Run the cases in turns, once to warm up; return the median seconds of each."""
    took_s: dict[str, list[float]] = {name: [] for name in cases}
    for repeat in range(repeats + 1):
        for name, case in cases.items():
            each_s = case()
            if repeat:
                took_s[name].append(each_s)
    return {name: median(each) for name, each in took_s.items()}


if __name__ == "__main__":
    main()
