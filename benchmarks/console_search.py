"""Search of the console: records a second by a SQL expression, and the time to the first hit.

Run: ``python -m benchmarks.console_search`` (10 M records, some minutes), or with ``--records``.
The records are like the flights of the demo: JSON of 19 fields. They are written once, to
``--folder``, and searched from the page cache, by one process.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.made_flights import PARTITIONS, write_flights
from spark_log.cluster import Cluster
from spark_log.console.budget import Budget
from spark_log.console.search import Expression, Search, SearchProgress
from spark_log.log import FetchedRecords
from spark_log.util.clock import SYSTEM_CLOCK

EXPRESSIONS = {
    "JSON, text": "json->>'$.tailnum' = 'N00017' AND json->>'$.carrier' = 'AA'",
    "JSON, number": "(json->>'$.dep_delay')::double > 898",
    "text": 'value LIKE \'%"tailnum": "N00017"%\'',
    "key and time": "key = 'HA' AND timestamp >= '2013-01-01 01:00:00' AND offset < 1000",
}


def main() -> None:
    """Write the records, and search them by each expression."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="where to write them [default: temporary]")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="console-search-"))
    try:
        cluster = write_flights(folder / "root", arguments.records)
        print(f"{arguments.records:,} records, {PARTITIONS} partitions")
        print(f"{'expression':<14} {'hits':>9} {'records/s':>12} {'first hit':>10}")
        for name, where in EXPRESSIONS.items():
            done, first_ms = _searched(cluster, where)
            rate = done.records / done.elapsed_ms * 1000
            print(f"{name:<14} {done.hits:>9,} {rate:>12,.0f} {first_ms:>7.0f} ms")
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder)


def _searched(cluster: Cluster, where: str) -> tuple[SearchProgress, float]:
    """Return the final progress of a search of all records, and the time of its first hit."""
    topic = cluster.topic("flights")
    logs = {number: cluster.partition_log(topic, number) for number in range(PARTITIONS)}
    began_ms, first_ms = SYSTEM_CLOCK.monotonic_ms(), float("nan")
    expression = Expression(where, memory_bytes=512 * 1024 * 1024)

    def on_hits(rows: FetchedRecords) -> None:
        nonlocal first_ms
        if np.isnan(first_ms) and len(rows):
            first_ms = SYSTEM_CLOCK.monotonic_ms() - began_ms

    ranges = {number: (0, log.observe().log_end_offset) for number, log in logs.items()}
    search = Search(logs, ranges, expression=expression, limit=None)
    done = search.run(Budget(SYSTEM_CLOCK, 3_600_000), SYSTEM_CLOCK, on_hits, lambda _: None)
    expression.close()
    return done, first_ms


if __name__ == "__main__":
    main()
