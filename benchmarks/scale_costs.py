"""Prices a root on paper: what 100,000 partitions and 1 PB cost a month, beside Kafka and others.

    python -m benchmarks.scale_costs --partitions 100000 --petabytes 1 --retention-days 30

All prices are inputs: list prices of November 2026 in AWS's us-east-1 (`PRICES`; ``--prices`` reads
others from a JSON file with the same keys). Machines are not counted, nor what a vendor charges.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.whole_table import print_whole

PRICES = {
    "put": 0.005 / 1000,
    "get": 0.0004 / 1000,
    "object_gb_month": [[50_000, 0.023], [450_000, 0.022], [None, 0.021]],
    "disk_gb_month": 0.08,
    "cross_zone_gb": 0.02,
}
"""Dollars for a request, a GB per month in S3 Standard (in steps of GB) and in gp3, and a GB of
traffic between zones (0.01 each way)."""

_SECONDS_A_MONTH = 30 * 86_400
_PEER_OBJECT_GB = 0.008
_STRIPES = 64
_WRITERS = 8
_PUTS, _READS, _CONSUMER_READS = 6.5, 42, 17
"""Requests a second of eight writers of one stripe, and of a consumer of it: the counts of
``python -m benchmarks.striped_topics --partitions 200 --stripes 1 --writers 8``."""
_READ_GB = 1_048_576 / 1e9
"""Of larger objects a request reads about so much."""
_HOME_BATCHES = 1_062_500
"""Batches with which a writer takes a stripe home, on average: a million, and up to an eighth more.
"""
_TAIL_SEGMENTS = 128


@dataclass(frozen=True, slots=True)
class Monthly:
    """The dollars per month of one way to store the log."""

    name: str
    storage: float
    requests: float
    network: float

    @property
    def total(self) -> float:
        """The sum of all costs."""
        return self.storage + self.requests + self.network


def costs(options: argparse.Namespace, prices: dict[str, Any]) -> Iterator[Monthly]:
    """Yield the costs of each way, with one group of consumers in the zone of the data."""
    put, get, disk, network = (
        prices[key] for key in ("put", "get", "disk_gb_month", "cross_zone_gb")
    )
    retained_gb = options.petabytes * 1e6
    written_gb = retained_gb * 30 / options.retention_days
    objects = _stored(retained_gb, prices["object_gb_month"])
    # Two of three producers, and both followers, are in another zone than the leader.
    zones = written_gb * (2 / 3 + 2) * network
    yield Monthly("Kafka, three zones, 3 disks", 3 * retained_gb * disk, 0, zones)
    local_gb = 3 * written_gb / 30
    yield Monthly("Kafka, a day on 3 disks, rest in S3", local_gb * disk + objects, 0, zones)
    peer_objects = written_gb / _PEER_OBJECT_GB
    # Each object is put once, read by consumers once, and rewritten once.
    requests = peer_objects * (2 * put + 2 * get)
    yield Monthly("a leaderless peer, 8 MB an object", objects, requests, 0)
    for linger_s in (1, 10, 60, 600):
        appends = options.partitions * _SECONDS_A_MONTH / linger_s
        requests = appends * (put + 2 * get + put / _TAIL_SEGMENTS)
        yield Monthly(f"spark-log, an append each {linger_s} s", objects, requests, 0)
    seconds = _STRIPES * _SECONDS_A_MONTH
    # Each writer has a batch for each partition each second.
    home_s = min(3600, _HOME_BATCHES * _STRIPES / (_WRITERS * options.partitions))
    home = options.partitions * _SECONDS_A_MONTH / home_s
    # A consumer reads each object, and so does who takes it home.
    reads = seconds * (_READS + _CONSUMER_READS + _PUTS) + 2 * written_gb / _READ_GB
    requests = seconds * _PUTS * put + reads * get + home * put
    name = f"spark-log, {_STRIPES} stripes, {_WRITERS} writers, each second"
    yield Monthly(name, objects, requests, 0)


def _stored(size_gb: float, steps: Any) -> float:
    cost, left = 0.0, size_gb
    for step_gb, price in steps:
        part = left if step_gb is None else min(left, step_gb)
        cost, left = cost + part * price, left - part
    return cost


def measure(options: argparse.Namespace) -> Report:
    """Price each way, and print them."""
    prices = PRICES if options.prices is None else json.loads(options.prices.read_text())
    found = list(costs(options, prices))
    table = Table(title="Dollars a month", box=SIMPLE_HEAD)
    table.add_column("")
    for column in ("storage", "requests", "between zones", "all"):
        table.add_column(column, justify="right")
    for each in found:
        cells = (each.storage, each.requests, each.network, each.total)
        table.add_row(each.name, *(f"{cell:,.0f}" for cell in cells))
    print_whole(table)
    notes = {
        "partitions": f"{options.partitions:,}",
        "retained": f"{options.petabytes:g} PB, for {options.retention_days} days",
    }
    figures = [Figure(each.name, round(each.total), "dollars a month") for each in found]
    return Report("scale_costs", figures, notes)


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("scale_costs", __doc__)
    options.add_argument("--partitions", type=int, default=100_000, help="how many (100000)")
    options.add_argument("--petabytes", type=float, default=1.0, help="retained (1)")
    options.add_argument("--retention-days", type=int, default=30, help="days (30)")
    options.add_argument("--prices", type=Path, help="JSON with the keys of PRICES")
    run(options, measure)


if __name__ == "__main__":
    main()
