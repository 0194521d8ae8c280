"""Counts the requests of each operation, how many of them wait for each other, and what they cost.

    python -m benchmarks.requests --page docs/internals/requests.md

An S3 server on 127.0.0.1 (versitygw if ``make s3-server`` built it) answers behind a proxy that
delays each request by 20 ms. A *round* is a request that waits for the one before it. Prices are
inputs: those of ``--prices``, a JSON file, or list prices. ``--page`` takes Spark, whose operations
``--spark`` adds.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.latency_proxy import LatencyProxy, SlowRequest, rounds
from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.request_operations import SUBJECTS, Operation, Root
from benchmarks.request_prices import BATCH_RECORDS, Counted, read_prices
from benchmarks.requests_page import request_page, shown
from benchmarks.whole_table import print_whole
from spark_log.testing.servers.s3_server import S3Server, run_s3_server

_TRIES = 3


def count_requests(operation: Operation, root: Root, proxy: LatencyProxy) -> Counted:
    """Run an operation `Operation.repeats` times, and count its requests.

    Args:
        operation: the operation to run.
        root: a new root.
        proxy: the proxy that the requests pass.
    """
    took_ms: list[float] = []
    runs: list[list[SlowRequest]] = []
    with operation.prepare(root) as call:
        for _ in range(operation.repeats):
            proxy.begin()
            began_s = time.perf_counter()
            call()
            took_ms.append((time.perf_counter() - began_s) * 1000)
            runs.append(proxy.requests())
    each = operation.lasts_s or 1.0
    kinds = Counter(request.operation for requests in runs for request in requests)
    return Counted(
        operation,
        sum(map(len, runs)) / len(runs) / each,
        median(map(rounds, runs)) / each,
        sum(request.is_write for requests in runs for request in requests) / len(runs) / each,
        percentile(took_ms, 50),
        percentile(took_ms, 99),
        {kind: number / len(runs) / each for kind, number in sorted(kinds.items())},
    )


def kept_budget(operation: Operation, server: S3Server, proxy: LatencyProxy) -> Counted:
    """Count the requests of an operation for a test; repeat if a busy machine caused more rounds.

    Args:
        operation: the operation to run.
        server: the server of the operation's root.
        proxy: the proxy in front of the server.

    Returns:
        The first count within the budget, or the last one.
    """
    for _ in range(_TRIES):
        counted = count_requests(operation, new_root(server, proxy), proxy)
        if counted.is_kept:
            break
    return counted


def new_root(server: S3Server, proxy: LatencyProxy) -> Root:
    """Return a root that does not exist yet, in a bucket of its own."""
    direct = server.storage_options
    return Root(f"{server.new_bucket()}/root", {**direct, "endpoint_url": proxy.url}, direct)


def measure(options: argparse.Namespace) -> Report:
    """Count the requests of the operations that the command line names."""
    with (
        _subjects(with_spark=options.spark or options.page is not None) as subjects,
        run_s3_server() as server,
        LatencyProxy.running(server.endpoint_url, options.latency_ms) as proxy,
    ):
        found: dict[str, list[Counted]] = {}
        for subject, operations in subjects.items():
            for operation in operations:
                if options.only in operation.name:
                    counted = count_requests(operation, new_root(server, proxy), proxy)
                    found.setdefault(subject, []).append(counted)
                    if options.show:
                        print(json.dumps({"operation": operation.name, **counted.numbers()}))
        notes = {"server": server.name, "latency of a request": f"{options.latency_ms:g} ms"}
    every = [each for those in found.values() for each in those]
    print_whole(_table(every))
    if options.page:
        prices = read_prices(options.prices)
        text = request_page(found, prices, options.batch_records, options.latency_ms)
        options.page.write_text(text)
    return Report("requests", list(_figures(every)), notes)


@contextmanager
def _subjects(*, with_spark: bool) -> Iterator[dict[str, tuple[Operation, ...]]]:
    if not with_spark:
        yield SUBJECTS
        return
    from benchmarks.request_operations import spark
    from benchmarks.workload import session

    running = session()
    try:
        yield {**SUBJECTS, "Spark": spark.OPERATIONS}
    finally:
        running.stop()


def _table(found: list[Counted]) -> Table:
    table = Table(title="Requests", box=SIMPLE_HEAD)
    table.add_column("operation")
    for column in ("requests", "at most", "rounds", "at most", "p50 ms", "p99 ms"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("kinds")
    for each in found:
        operation = each.operation
        requests = shown(each.requests), shown(operation.most)
        waits = shown(each.rounds), shown(operation.most_rounds)
        times = f"{each.p50_ms:.0f}", f"{each.p99_ms:.0f}"
        kinds = " ".join(f"{kind}:{shown(number)}" for kind, number in each.kinds.items())
        table.add_row(operation.name, *requests, *waits, *times, kinds)
    return table


def _figures(found: list[Counted]) -> Iterator[Figure]:
    for each in found:
        name, most = each.operation.name, each.operation.most
        yield Figure(f"{name}: requests", round(each.requests, 1), at_most=most)
        most_rounds = each.operation.most_rounds
        yield Figure(f"{name}: rounds", round(each.rounds, 1), at_most=most_rounds)
        yield Figure(f"{name}: p50", round(each.p50_ms, 1), "ms")
        yield Figure(f"{name}: p99", round(each.p99_ms, 1), "ms")


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("requests", __doc__)
    options.add_argument("--latency-ms", type=float, default=20.0, help="of a request (20)")
    options.add_argument("--only", default="", help="operations whose name contains this")
    options.add_argument("--spark", action="store_true", help="also Spark's operations")
    options.add_argument("--page", type=Path, help="file to write the page to, with Spark's")
    options.add_argument("--prices", type=Path, help="JSON: store → dollars for 1,000 requests")
    options.add_argument(
        "--batch-records",
        type=int,
        nargs="+",
        default=BATCH_RECORDS,
        help="records of a batch, for the dollars of a million records (1 100 10000)",
    )
    options.add_argument("--show", action="store_true", help="print each count at once, as JSON")
    run(options, measure)


if __name__ == "__main__":
    main()
