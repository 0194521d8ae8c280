"""Compares the speed and memory of compaction with the log cleaner of a real Kafka broker.

    python -m benchmarks.log_compaction
    python -m benchmarks.log_compaction --ours-only --records 4000000 --updates 2000000

Two compactions on the same records for both sides: first of records that all have different keys,
then of random updates of some of them, on top of what the first one left. Values are 100 random
bytes, uncompressed. Both sides use one thread, read from the page cache, and sync the new segments
before they replace the old ones. The broker has one cleaner thread and memory for all keys, and its
own log gives the times. Ours runs in a new process each time; its memory includes mapped files.
Rates are of records and bytes read.

Exit status 2 if Maven, Java or confluent-kafka is missing, 1 if Kafka fails.
"""

import argparse
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from rich.console import Console

from benchmarks.command_line import positive
from benchmarks.kafka_broker import KAFKA_VERSION, confluent_kafka_required, exit_status
from benchmarks.log_cleaning import Cleaning
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.log_workload import binary_array, local_stores, open_log
from spark_log.log import LocalLog
from spark_log.log.clean.compactor import compact
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE
from spark_log.storage.local import LocalStore
from spark_log.util.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from benchmarks.kafka_cleaner import KafkaCleaner

_BATCH_RECORDS = 16_384
_APPEND_BATCHES = 16
_MIB = 2**20
_NAMES = ("different keys", "updates of some")
_PROCESSES = multiprocessing.get_context("spawn")
_console = Console(stderr=True)


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("log_compaction", __doc__)
    options.add_argument(
        "--records", type=positive, default=10_000_000, help="different keys (10 M)"
    )
    options.add_argument(
        "--updates", type=positive, default=5_000_000, help="of some of them (5 M)"
    )
    options.add_argument("--value-bytes", type=positive, default=100, help="of each value (100)")
    options.add_argument("--memory", type=positive, default=128, help="MiB for keys, ours (128)")
    options.add_argument("--ours-only", action="store_true", help="leave Kafka out")
    return exit_status(lambda: run(options, measure))


def measure(options: argparse.Namespace) -> Report:
    """Measure both sides, one compaction after the other."""
    figures = []
    with ExitStack() as stack:
        stores = stack.enter_context(local_stores(options.directory))
        ours = Ours(stores(), options.memory)
        kafka = None if options.ours_only else _kafka(stack, options)
        for number, name in enumerate(_NAMES):
            # A new generator for each side: both get the same records.
            ours.fill(updates(options, number))
            own = ours.clean()
            _console.print(f"ours: {own}", style="dim", highlight=False)
            figures += own_figures(name, own)
            if kafka is not None:
                kafka.fill(updates(options, number), closing_record())
                theirs = kafka.clean()
                _console.print(f"Kafka: {theirs}", style="dim", highlight=False)
                figures += compared_figures(name, own, theirs)
    notes: dict[str, object] = {
        "records": options.records,
        "updates": options.updates,
        "bytes a value": options.value_bytes,
        "MiB for keys, ours": options.memory,
        "load of the machine, of cores": f"{os.getloadavg()[0]:.1f} of {os.cpu_count()}",
    }
    if kafka is not None:
        notes |= {"Kafka": KAFKA_VERSION, "MiB for keys, Kafka": kafka.dedupe_mib}
    return Report("log_compaction", figures, notes)


def own_figures(name: str, own: Cleaning) -> list[Figure]:
    """Return our figures, with their goals."""
    cpu_s, peak_mib, before_mib = own.cpu_s or 0, own.peak_mib or 0, own.before_mib or 0
    rate, size = own.records_read / 1e6, own.bytes_read / 1e6
    return [
        Figure(f"{name}: records", rate / own.took_s, "M/s", at_least=1),
        Figure(f"{name}: bytes", size / own.took_s, "MB/s", at_least=200),
        Figure(f"{name}: records, by CPU time", rate / cpu_s, "M/s", at_least=1),
        Figure(f"{name}: bytes, by CPU time", size / cpu_s, "MB/s", at_least=200),
        Figure(f"{name}: records that stay", own.records_written / own.records_read * 100, "%"),
        Figure(f"{name}: peak memory", peak_mib, "MiB", at_most=512),
        Figure(f"{name}: memory before it", before_mib, "MiB"),
    ]


def compared_figures(name: str, own: Cleaning, theirs: Cleaning) -> list[Figure]:
    """Return Kafka's figures, and the ratios of ours to them."""
    if theirs.records_written != own.records_written:
        _console.print("the two sides kept different numbers of records", style="red")
    rate, size = theirs.records_read / 1e6, theirs.bytes_read / 1e6
    ratio = own.records_read / own.took_s / (theirs.records_read / theirs.took_s)
    by_cpu = []
    if own.cpu_s and theirs.cpu_s:  # the broker's includes JIT compilation
        by_cpu = [
            Figure(f"{name}: Kafka, records, by CPU time", rate / theirs.cpu_s, "M/s"),
            Figure(f"{name}: records, by CPU time, ours / Kafka", theirs.cpu_s / own.cpu_s),
        ]
    return [
        Figure(f"{name}: Kafka, records", rate / theirs.took_s, "M/s"),
        Figure(f"{name}: Kafka, bytes", size / theirs.took_s, "MB/s"),
        Figure(f"{name}: records, ours / Kafka", ratio),
        *by_cpu,
    ]


# --- records -------------------------------------------------------------------------------------


def updates(options: argparse.Namespace, number: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of a round: in round 0 each key once, then random keys."""
    random = np.random.default_rng(number)
    values = binary_array(random.bytes(_BATCH_RECORDS * options.value_bytes), _BATCH_RECORDS)
    count = (options.records, options.updates)[number]
    for first in range(0, count, _BATCH_RECORDS):
        rows = min(_BATCH_RECORDS, count - first)
        numbers = (
            random.integers(0, options.records, rows) if number else np.arange(first, first + rows)
        )
        yield _batch(numbers, values.slice(0, rows))


def _batch(numbers: np.ndarray, values: pa.Array) -> pa.RecordBatch:
    """Return records with keys of 16 bytes."""
    count = len(numbers)
    texts = np.char.add(b"key-", np.char.zfill(numbers.astype("S"), 12)).astype("S16")
    times = pa.array(np.full(count, SYSTEM_CLOCK.time_us()), TIMESTAMP_TYPE)
    columns = [binary_array(texts.tobytes(), count), values, pa.nulls(count, HEADERS_TYPE), times]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


# --- our side ------------------------------------------------------------------------------------


class Ours:
    """A partition of Spark Log."""

    def __init__(self, store: LocalStore, memory_mib: int) -> None:
        """Return our side; nothing is appended yet.

        Args:
            store: an empty store.
            memory_mib: the memory for keys.
        """
        self._store = store
        self._memory_bytes = memory_mib * _MIB
        self._rounds = 0

    def fill(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Append records, and one more record in a segment that stays the active one."""
        log = _open(self._store, sync=False)
        batch = pa.RecordBatch.from_pylist([], RECORD_SCHEMA)
        while True:
            writer = log.stager.segment_writer()
            for _, batch in zip(range(_APPEND_BATCHES), batches, strict=False):
                writer.write(batch)
            if not writer.record_count:
                writer.discard()
                break
            log.appender.append_segment(writer.finish())
        log.append(closing_record())
        os.sync()

    def clean(self) -> Cleaning:
        """Compact in a new process."""
        self._rounds += 1
        # This time is after any delay between two compactions.
        now_us = SYSTEM_CLOCK.time_us() + self._rounds * 10**10
        theirs, own = _PROCESSES.Pipe()
        arguments = (self._store.url, now_us, self._memory_bytes, own)
        process = _PROCESSES.Process(target=_clean, args=arguments)
        process.start()
        own.close()
        done: Cleaning = theirs.recv()
        process.join()
        return done


def _clean(root: str, now_us: int, memory_bytes: int, answer: Connection) -> None:
    log = _open(LocalStore(root), sync=True)
    before_mib, began, cpu_began = peak_mib(), time.perf_counter(), time.process_time()
    done = compact(log, now_us=now_us, memory_bytes=memory_bytes)
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    answer.send(
        Cleaning(
            done.records_read,
            done.records_written,
            done.bytes_read,
            took_s,
            cpu_s,
            peak_mib(),
            before_mib,
        )
    )


def _open(store: LocalStore, *, sync: bool) -> LocalLog:
    return open_log(
        store, flush_on_append=sync, cleanup_policy="compact", file_delete_delay_ms=1000
    )


def closing_record() -> pa.RecordBatch:
    """Return the record of the active segment, which is never compacted."""
    return _batch(np.array([0]), pa.array([b""], pa.binary()))


def peak_mib() -> float:
    """Return the peak memory of this process, MiB, including mapped files."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    # Not getrusage: it includes the memory of the process before exec.
    lines = status.read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _kafka(stack: ExitStack, options: argparse.Namespace) -> "KafkaCleaner":
    with confluent_kafka_required():
        from benchmarks.kafka_cleaner import KafkaCleaner
    return stack.enter_context(KafkaCleaner(options.directory, options.records))


if __name__ == "__main__":
    sys.exit(main())
