"""Counts the requests of each operation, how many of them wait for each other, and what they cost.

    python -m benchmarks.requests --page docs/requests.md

An S3 server on 127.0.0.1 (versitygw if ``make s3-server`` built it) answers behind a proxy that
delays each request by 20 ms. A *round* is a request that waits for the one before it. Prices are
inputs: those of ``--prices``, a JSON file, or the list prices in `PRICES`.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.box import SIMPLE_HEAD
from rich.progress import track
from rich.table import Table

from benchmarks.latency_proxy import LatencyProxy, SlowRequest, rounds
from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.request_operations import OPERATIONS, Operation, Root
from benchmarks.whole_table import print_whole
from spark_log.testing.servers.s3_server import S3Server, run_s3_server

PRICES = {
    "S3 Standard": {"write": 0.005, "read": 0.0004},
    "Google Cloud Storage Standard": {"write": 0.005, "read": 0.0004},
    "Azure Blob Hot": {"write": 0.0055, "read": 0.00044},
}
"""Dollars for 1,000 requests: puts and listings, and reads. Regions differ: give your own."""

_SECONDS_A_MONTH = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Counted:
    """What one operation sent.

    Attributes:
        operation: its name.
        requests: each time, or each second.
        rounds: of these, those that waited for each other.
        writes: of these, puts and listings.
        p50_ms: how long it took.
        p99_ms: how long the slowest took.
        most: requests that it may send.
        most_rounds: rounds that it may take.
        kinds: requests of each kind.
    """

    operation: str
    requests: float
    rounds: float
    writes: float
    p50_ms: float
    p99_ms: float
    most: float
    most_rounds: float | None
    kinds: dict[str, float]


def count_requests(operation: Operation, root: Root, proxy: LatencyProxy) -> Counted:
    """Run an operation as often as it wants, and count.

    Args:
        operation: to be run.
        root: a new one.
        proxy: that its requests pass.
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
        operation.name,
        sum(map(len, runs)) / len(runs) / each,
        median(map(rounds, runs)) / each,
        sum(request.is_write for requests in runs for request in requests) / len(runs) / each,
        percentile(took_ms, 50),
        percentile(took_ms, 99),
        operation.most,
        operation.most_rounds,
        {kind: number / len(runs) / each for kind, number in sorted(kinds.items())},
    )


def measure(options: argparse.Namespace) -> Report:
    """Count the requests of the operations that the command line names."""
    wanted = [each for each in OPERATIONS if options.only in each.name]
    found = []
    with (
        run_s3_server() as server,
        LatencyProxy.running(server.endpoint_url, options.latency_ms) as proxy,
    ):
        for operation in track(wanted, "counting", transient=True):
            found.append(count_requests(operation, _root(server, proxy), proxy))
            if options.show:
                print(json.dumps(asdict(found[-1])))
        notes = {"server": server.name, "latency of a request": f"{options.latency_ms:g} ms"}
    print_whole(_table(found))
    if options.page:
        options.page.write_text(page(found, _prices(options.prices), options.latency_ms))
    return Report("requests", list(_figures(found)), notes)


def page(found: list[Counted], prices: dict[str, dict[str, float]], latency_ms: float) -> str:
    """Return docs/requests.md."""
    lines = [
        "# Requests",
        "",
        "What each operation asks of an object store. Written by `python -m benchmarks.requests "
        "--page docs/requests.md`, with an S3 server",
        f"behind a proxy that delays each request by {latency_ms:g} ms. *Rounds* are requests that "
        "wait for each other. Tests hold the requests",
        "(`tests/stores/test_request_budget.py`).",
        "",
        "| operation | requests | at most | rounds | p50 | kinds |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for each in found:
        kinds = ", ".join(f"{_shown(number)} {kind}" for kind, number in each.kinds.items())
        lines.append(
            f"| {each.operation} | {_shown(each.requests)} | {_shown(each.most)} | "
            f"{_shown(each.rounds)} | {each.p50_ms:.0f} ms | {kinds} |"
        )
    lines += [
        "",
        "## What they cost",
        "",
        "In dollars, by list prices that are inputs (`--prices`). A row that counts a second is "
        "priced for a month of 30 days, others for a million times.",
        "Bytes and their storage come on top.",
        "",
        f"| operation | {' | '.join(prices)} |",
        f"|---|{'---:|' * len(prices)}",
    ]
    for each in found:
        costs = (_dollars(each, price) for price in prices.values())
        lines.append(f"| {each.operation} | {' | '.join(f'{cost:,.2f}' for cost in costs)} |")
    return "\n".join([*lines, ""])


def _dollars(counted: Counted, price: dict[str, float]) -> float:
    thousands = 1_000_000 / 1000
    if counted.operation.endswith("a second"):
        thousands = _SECONDS_A_MONTH / 1000
    reads = counted.requests - counted.writes - counted.kinds.get("DELETE", 0)  # deletes are free
    return thousands * (counted.writes * price["write"] + reads * price["read"])


def _prices(path: Path | None) -> dict[str, dict[str, float]]:
    return PRICES if path is None else json.loads(path.read_text())


def _root(server: S3Server, proxy: LatencyProxy) -> Root:
    direct = server.storage_options
    return Root(f"{server.new_bucket()}/root", {**direct, "endpoint_url": proxy.url}, direct)


def _table(found: list[Counted]) -> Table:
    table = Table(title="Requests", box=SIMPLE_HEAD)
    table.add_column("operation")
    for column in ("requests", "at most", "rounds", "at most", "p50 ms", "p99 ms"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("kinds")
    for each in found:
        most_rounds = "" if each.most_rounds is None else _shown(each.most_rounds)
        numbers = _shown(each.requests), _shown(each.most), _shown(each.rounds), most_rounds
        times = f"{each.p50_ms:.0f}", f"{each.p99_ms:.0f}"
        kinds = " ".join(f"{kind}:{_shown(number)}" for kind, number in each.kinds.items())
        table.add_row(each.operation, *numbers, *times, kinds)
    return table


def _figures(found: list[Counted]) -> Iterator[Figure]:
    for each in found:
        yield Figure(f"{each.operation}: requests", round(each.requests, 1), at_most=each.most)
        rounds_of = f"{each.operation}: rounds"
        yield Figure(rounds_of, round(each.rounds, 1), at_most=each.most_rounds)
        yield Figure(f"{each.operation}: p50", round(each.p50_ms, 1), "ms")
        yield Figure(f"{each.operation}: p99", round(each.p99_ms, 1), "ms")


def _shown(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("requests", __doc__)
    options.add_argument("--latency-ms", type=float, default=20.0, help="of a request (20)")
    options.add_argument("--only", default="", help="operations whose name contains this")
    options.add_argument("--page", type=Path, help="file to write the page to")
    options.add_argument("--prices", type=Path, help="JSON: store → dollars for 1,000 requests")
    options.add_argument("--show", action="store_true", help="print each count at once, as JSON")
    run(options, measure)


if __name__ == "__main__":
    main()
