"""Measures several processes that append small batches to one partition as fast as they can.

    python -m benchmarks.log_contention --processes 4 --seconds 10

The peer is one process that appends alone. A process that loses the race for a base offset reads
where the winner's segment ends and tries the next one. Measured: appends of all processes together,
and the share of the slowest.

Besides, one process appends by as many logs in turn, each of which finds the appends of the others:
the processor time of an append does not depend on the machine's other work as times do.
"""

import argparse
import multiprocessing
import time
from multiprocessing.synchronize import Barrier
from statistics import median

from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.log_workload import SMALL_BATCH, local_stores, open_log, records
from spark_log.storage.local import LocalStore

_PROCESSES = multiprocessing.get_context("spawn")
_ROUNDS, _APPENDS = 25, 100


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("log_contention", __doc__)
    options.add_argument("--processes", type=int, default=4, help="that append (4)")
    options.add_argument("--seconds", type=float, default=10, help="of each measurement (10)")
    options.add_argument("--sync", action="store_true", help="sync every append to disk")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Measure one process, then all of them."""
    rates: dict[int, list[float]] = {}
    latencies_ms: dict[int, list[float]] = {}
    with local_stores(options.directory) as new_store:
        for processes in (1, options.processes):
            done = contend(new_store(), processes, options.seconds, sync=options.sync)
            rates[processes] = [len(each) / options.seconds for each in done]
            latencies_ms[processes] = [value for each in done for value in each]
        in_turn_us = {logs: in_turn(new_store(), logs) for logs in (1, options.processes)}
    all_together = sum(rates[options.processes])
    share = min(rates[options.processes]) / all_together
    many = f"{options.processes} processes"
    figures = [
        Figure(f"{many}, appends in all", all_together, "/s", at_least=2_000),
        Figure(f"{many}, share of the slowest", share * 100, "%", at_least=10),
        *(
            Figure(f"{many}, one append, p{percent}", percentile(took_ms, percent), "ms")
            for took_ms in [latencies_ms[options.processes]]
            for percent in (50, 99, 100)
        ),
        Figure("one process alone, appends", sum(rates[1]), "/s"),
        Figure("all together / one alone", all_together / sum(rates[1])),
        *(
            Figure(f"{logs} logs in turn, processor time of an append", median(found_us), "µs")
            for logs, found_us in in_turn_us.items()
        ),
    ]
    notes = {"seconds": options.seconds, "synced": options.sync, "records an append": SMALL_BATCH}
    return Report("log_contention", figures, notes)


def in_turn(store: LocalStore, logs: int) -> list[float]:
    """Return the processor time of one append of each round, in microseconds; unsynced."""
    opened = [open_log(store, flush_on_append=False) for _ in range(logs)]
    batch, found_us = records(SMALL_BATCH), []
    for _ in range(_ROUNDS):
        began_s = time.process_time()
        for number in range(_APPENDS):
            opened[number % logs].append(batch)
        found_us.append((time.process_time() - began_s) * 1e6 / _APPENDS)
    return found_us


def contend(store: LocalStore, processes: int, seconds: float, *, sync: bool) -> list[list[float]]:
    """Return, for each process, the duration of each of its appends, in milliseconds."""
    start = _PROCESSES.Barrier(processes)
    pipes = [_PROCESSES.Pipe(duplex=False) for _ in range(processes)]
    workers = [
        _PROCESSES.Process(target=_append, args=(store, start, seconds, sync, ours))
        for _, ours in pipes
    ]
    for worker in workers:
        worker.start()
    done = [theirs.recv() for theirs, _ in pipes]
    for worker in workers:
        worker.join()
    return done


def _append(store: LocalStore, start: Barrier, seconds: float, sync: bool, result) -> None:  # type: ignore[no-untyped-def]
    log = open_log(store, flush_on_append=sync)
    batch = records(SMALL_BATCH)
    took_ms = []
    start.wait()
    now = time.perf_counter()
    end = now + seconds
    while now < end:
        log.append(batch)
        took_ms.append((time.perf_counter() - now) * 1000)
        now = time.perf_counter()
    result.send(took_ms)


if __name__ == "__main__":
    main()
