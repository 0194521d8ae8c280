"""How fast a partition is compacted by one process, and in how much memory.

    python -m benchmarks.log_compaction --records 10000000 --keys 10000000

Updates of keys drawn at random, 100 bytes a value. Measured is a second compaction too, where what
the first one left meets as much again.
"""

import argparse
import resource
import time

import numpy as np
import pyarrow as pa

from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.log_workload import local_stores, open_log
from spark_log.clock import SYSTEM_CLOCK
from spark_log.log import PartitionLog
from spark_log.log.compactor import Compaction, compact
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE

_BATCH_RECORDS = 16_384
_APPEND_BATCHES = 16
_VALUE_BYTES = 100
_MIB = 2**20


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("log_compaction", __doc__)
    options.add_argument("--records", type=int, default=10_000_000, help="of each round (10 M)")
    options.add_argument("--keys", type=int, default=10_000_000, help="different ones (10 M)")
    options.add_argument("--memory", type=int, default=128, help="MiB for keys (128)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Measure two compactions."""
    figures = []
    with local_stores(options.directory) as new_store:
        store = new_store()
        log = open_log(
            store, flush_on_append=False, cleanup_policy="compact", file_delete_delay_ms=1000
        )
        random = np.random.default_rng(7)
        now_us = SYSTEM_CLOCK.time_us()
        for number, name in enumerate(("first", "second"), start=1):
            fill(log, random, options.records, options.keys)
            before_mib = peak_mib()
            began = time.perf_counter()
            # As if the delay between two of them had passed.
            done = compact(log, now_us=now_us + number * 10**10, memory_bytes=options.memory * _MIB)
            took_s = time.perf_counter() - began
            figures += figures_of(f"{name} compaction", done, took_s)
            figures.append(
                Figure(f"{name} compaction, peak memory", peak_mib(), "MiB", at_most=512)
            )
            figures.append(Figure(f"{name} compaction, peak before it", before_mib, "MiB"))
    settings = {"records a round": options.records, "keys": options.keys}
    return Report("log_compaction", figures, settings)


def figures_of(name: str, done: Compaction, took_s: float) -> list[Figure]:
    """Return what a compaction amounts to."""
    return [
        Figure(f"{name}, records", done.records_read / took_s / 1e6, "M/s", at_least=1),
        Figure(f"{name}, bytes", done.bytes_read / took_s / 1e6, "MB/s", at_least=200),
        Figure(f"{name}, records that stay", done.records_written / done.records_read * 100, "%"),
        Figure(f"{name}, files", done.segments_written),
    ]


def fill(log: PartitionLog, random: np.random.Generator, count: int, keys: int) -> None:
    """Append updates of random keys, and one record that stays the active segment."""
    template = batch(random, _BATCH_RECORDS, keys)
    for _ in range(0, count, _BATCH_RECORDS * _APPEND_BATCHES):
        writer = log.segment_writer()
        for _ in range(_APPEND_BATCHES):
            columns = [key_array(random, _BATCH_RECORDS, keys), *template.columns[1:]]
            writer.write(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA))
        log.append_segment(writer.finish())
    log.append(template.slice(0, 1))


def batch(random: np.random.Generator, count: int, keys: int) -> pa.RecordBatch:
    """Return random updates."""
    values = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(_VALUE_BYTES), count, [None, pa.py_buffer(random.bytes(count * _VALUE_BYTES))]
    ).cast(pa.binary())
    times = pa.array(np.full(count, SYSTEM_CLOCK.time_us()), TIMESTAMP_TYPE)
    columns = [key_array(random, count, keys), values, pa.nulls(count, HEADERS_TYPE), times]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def key_array(random: np.random.Generator, count: int, keys: int) -> pa.Array:
    """Return random keys of 16 bytes."""
    texts = np.char.add(b"key-", np.char.zfill(random.integers(0, keys, count).astype("S"), 12))
    data = pa.py_buffer(texts.astype("S16").tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, data]).cast(
        pa.binary()
    )


def peak_mib() -> float:
    """Return the most memory that this process has had, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
