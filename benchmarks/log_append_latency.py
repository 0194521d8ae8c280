"""Compares the latency of an append of one small batch with a bare put of the same bytes.

    python -m benchmarks.log_append_latency --appends 2000

One process, one partition, one batch of 20 records (2 KB) per append, with and without sync. The
log's end is merged on another thread, as a producer does it, so p99 has appends beside a merge.
"""

import argparse
from functools import partial

import pyarrow as pa

from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.log_workload import DIRECTORY, SMALL_BATCH, local_stores, open_log, records
from benchmarks.timing import timed
from spark_log.log import MergeExecutor
from spark_log.storage.local import LocalStore
from spark_log.threads.merge_thread import MergeThread

GOALS_MS = {False: 0.3, True: 1.0}
GOAL_P99_MS = 2.0


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("log_append_latency", __doc__)
    options.add_argument("--appends", type=int, default=2_000, help="measured, of each (2000)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Measure appends and bare puts in turns."""
    with local_stores(options.directory) as new_store:
        took_ms = {sync: latencies_ms(new_store(), options.appends, sync=sync) for sync in GOALS_MS}
    figures = []
    for sync, (put_ms, append_ms) in took_ms.items():
        label, goal_ms = "synced" if sync else "not synced", GOALS_MS[sync]
        for percent, at_most in ((50, goal_ms), (99, GOAL_P99_MS), (99.9, None)):
            name = f"append of 2 KB, {label}, p{percent}"
            figures.append(Figure(name, percentile(append_ms, percent), "ms", at_most=at_most))
        bare_ms = percentile(put_ms, 50)
        figures += [
            Figure(f"bare put of the same file, {label}, p50", bare_ms, "ms"),
            Figure(f"append / bare put, {label}, p50", percentile(append_ms, 50) / bare_ms),
        ]
    return Report("log_append_latency", figures, {"appends of each": options.appends})


def latencies_ms(store: LocalStore, count: int, *, sync: bool) -> tuple[list[float], list[float]]:
    """Return the latencies of bare puts and of appends, in turns, after a hundred warm-ups."""
    merges = MergeThread("merges")
    merge_executor = MergeExecutor(merges.submit, merges.pause)
    log = open_log(store, merge_executor=merge_executor, flush_on_append=sync)

    def append(batch: pa.RecordBatch) -> None:
        with merges.make_way():
            log.append(batch)

    batches = [records(SMALL_BATCH, first=number * SMALL_BATCH) for number in range(64)]
    log.append(batches[0])
    file = store.open_buffer(f"{DIRECTORY}/{0:020d}.log").to_pybytes()
    put_ms, append_ms = [], []
    for number in range(-100, count):
        bare, full = f"bare/{number + 100:020d}.log", batches[number % len(batches)]
        took_put_ms = timed(partial(store.put_if_absent, bare, file, sync=sync)) * 1000
        took_append_ms = timed(partial(append, full)) * 1000
        if number >= 0:
            put_ms.append(took_put_ms)
            append_ms.append(took_append_ms)
    merges.close(60)
    return put_ms, append_ms


if __name__ == "__main__":
    main()
