"""Measures the memory of a process that appends 10 GB, and of one that fetches them.

    python -m benchmarks.log_memory --gigabytes 10
    python -m benchmarks.log_memory --partitions 1000 --minutes 15

No peer; each figure has a goal. Each process is watched from outside. Its own memory is
``RssAnon``; pages of mapped files belong to the page cache, which releases them under pressure. The
appender makes its batches on the way, in segments of about 100 MB.

With ``--partitions`` it measures a producer instead that sends single records to all partitions of
a topic in turn, and a consumer that follows them.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from rich.console import Console

from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.log_workload import (
    RECORD_BYTES,
    SMALL_BATCH,
    local_stores,
    open_log,
    records,
)
from benchmarks.partition_memory import measured_figures
from benchmarks.process_memory import memory_bytes
from spark_log.storage.local import LocalStore

_PROCESSES = multiprocessing.get_context("spawn")
_BATCH_RECORDS = 10_000
_SEGMENT_RECORDS = 1_000_000
_EVERY_S = 0.02
_MAX_MB = 200


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("log_memory", __doc__)
    options.add_argument("--gigabytes", type=float, default=10, help="of records (10)")
    options.add_argument("--partitions", type=int, help="of a topic that is written and followed")
    options.add_argument("--minutes", type=int, default=15, help="with --partitions (15)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Append, then fetch, and report the peak memory of each."""
    if options.partitions:
        return _of_partitions(options)
    segments = max(1, round(options.gigabytes * 1e9 / (_SEGMENT_RECORDS * RECORD_BYTES)))
    figures = []
    with local_stores(options.directory) as new_store:
        store = new_store()
        for name, work, goal in (
            ("one small append", _append_once, None),
            ("appending", _append, _MAX_MB),
            ("fetching", _fetch, _MAX_MB),
        ):
            peak, took_s = watched(work, store, segments)
            figures += [
                Figure(f"{name}: own memory, peak", peak.own_mb, "MB", at_most=goal),
                Figure(f"{name}: mapped files and libraries, peak", peak.mapped_mb, "MB"),
                Figure(f"{name}: resident in all, peak (VmHWM)", peak.resident_mb, "MB"),
                Figure(f"{name}: took", took_s, "s"),
            ]
    gigabytes = segments * _SEGMENT_RECORDS * RECORD_BYTES / 1e9
    return Report("log_memory", figures, {"GB of records": f"{gigabytes:.1f}"})


def _of_partitions(options: argparse.Namespace) -> Report:
    with local_stores(options.directory) as new_store:
        figures = measured_figures(
            new_store().url, options.partitions, options.minutes, Console(stderr=True)
        )
    notes = {"partitions": options.partitions, "minutes": options.minutes}
    return Report("log_memory_partitions", figures, notes)


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak memory of a process, in MB."""

    own_mb: float = 0
    mapped_mb: float = 0
    resident_mb: float = 0

    def or_more(self, other: "Peak") -> "Peak":
        """Return the larger value of each field."""
        return Peak(
            max(self.own_mb, other.own_mb),
            max(self.mapped_mb, other.mapped_mb),
            max(self.resident_mb, other.resident_mb),
        )


def watched(
    work: Callable[[LocalStore, int], None], store: LocalStore, segments: int
) -> tuple[Peak, float]:
    """Run ``work`` in a new process; return its peak memory and its duration in seconds.

    Raises:
        RuntimeError: the process failed.
    """
    process = _PROCESSES.Process(target=work, args=(store, segments))
    start = time.perf_counter()
    process.start()
    peak = Peak()
    while process.is_alive():
        peak = peak.or_more(_memory_of(process.pid))
        process.join(_EVERY_S)
    if process.exitcode:
        raise RuntimeError(f"the measured process ended with exit status {process.exitcode}")
    return peak, time.perf_counter() - start


def _memory_of(pid: int | None) -> Peak:
    sizes = memory_bytes(pid or "self")
    if "VmHWM" not in sizes:
        return Peak()  # the process has ended
    own_bytes = sizes["RssAnon"] + sizes["RssShmem"]
    return Peak(own_bytes / 1e6, sizes["RssFile"] / 1e6, sizes["VmHWM"] / 1e6)


def _append_once(store: LocalStore, segments: int) -> None:
    open_log(store).append(records(SMALL_BATCH))


def _append(store: LocalStore, segments: int) -> None:
    log = open_log(store, flush_on_append=False)
    for _ in range(segments):
        log.append(_batches())


def _fetch(store: LocalStore, segments: int) -> None:
    log = open_log(store)
    offset = 0
    while batches := log.read(offset)[0]:
        last = batches[-1]
        offset = last.base_offset + last.records.num_rows
    assert offset == segments * _SEGMENT_RECORDS + SMALL_BATCH


def _batches() -> Iterator[pa.RecordBatch]:
    for first in range(0, _SEGMENT_RECORDS, _BATCH_RECORDS):
        yield records(_BATCH_RECORDS, first=first)


if __name__ == "__main__":
    main()
