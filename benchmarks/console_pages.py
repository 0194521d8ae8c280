"""Measures the pages of ``spark-log console``: 1,000 topics, 100 groups, 10 M records in one topic.

    python -m benchmarks.console_pages

The console is the one of the command line: a process of its own, asked over HTTP for the HTML of
each page, twice: the first time after it has opened the root. The calls to the storage of each page
are counted in a console of this process: on an object store they are requests. No peer.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from functools import partial
from statistics import median
from urllib.parse import quote

from starlette.testclient import TestClient

from benchmarks.command_line import positive
from benchmarks.exporter import make_root
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.made_flights import write_flights
from benchmarks.timing import timed
from spark_log import Admin
from spark_log.cluster import Cluster
from spark_log.console import create_app
from spark_log.metrics import RequestTimes

_MAX_S = 1.0


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("console_pages", __doc__)
    options.add_argument("--topics", type=positive, default=1_000, help="number of topics (1000)")
    options.add_argument("--partitions", type=positive, default=10, help="of a topic (10)")
    options.add_argument("--groups", type=positive, default=100, help="number of groups (100)")
    options.add_argument(
        "--records", type=positive, default=10_000_000, help="of one topic more (10 million)"
    )
    options.add_argument("--repeats", type=positive, default=5, help="of each page (5)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Create a root, start a console, and request each page."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as directory:
        root = f"{directory}/root"
        names = [f"topic-{number:04}" for number in range(options.topics)]
        make_root(root, names, options.partitions, options.groups)
        write_flights(root, options.records)
        pages = _pages(root, names[0])
        figures = []
        console = subprocess.Popen(
            [sys.executable, "-m", "spark_log", "console", "--root", root, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            address = _address(console)
            for name, path in pages.items():
                get = partial(_get, address + path)
                first = timed(get)
                again = [timed(get) for _ in range(options.repeats)]
                figures.append(Figure(f"{name}: first", first, "s", _MAX_S))
                figures.append(Figure(f"{name}: again, median", median(again), "s", _MAX_S))
        finally:
            console.terminate()
            console.wait()
        figures += _calls(root, pages)
    notes = {
        "partitions": f"{options.topics * options.partitions:,} in {options.topics:,} topics",
        "groups": f"{options.groups}",
        "records": f"{options.records:,} in flights",
    }
    return Report("console_pages", figures, notes)


def _pages(root: str, topic: str) -> dict[str, str]:
    """Return the paths of the pages, by name."""
    ends = Cluster(root).partition_log(Cluster(root).topic("flights"), 0)
    middle = ends.observe().log_end_offset // 2
    return {
        "overview": "/",
        "topics": "/topics",
        "topics, the last 50": "/topics?start=950",
        "topics by a part of the name": "/topics?q=99",
        "topic of 10 partitions": f"/topic?topic={topic}",
        "topic of 10 M records": "/topic?topic=flights",
        "records, newest": "/records?topic=flights",
        "records by offset": f"/records?topic=flights&partition=0&offset={middle}",
        "records by time": "/records?topic=flights&time=" + quote("2013-01-20T12:00"),
        "groups": "/groups",
        "group": "/group?group=group-001",
        "history of a group": "/group/history?group=group-001",
        "transactions": "/transactions",
        "brokers": "/brokers",
        "configs": "/configs",
    }


def _address(console: "subprocess.Popen[str]") -> str:
    assert console.stdout is not None
    for line in console.stdout:
        if found := re.search(r"http://[0-9.:]+", line):
            return found[0]
    raise RuntimeError("the console has ended without its address")


def _get(url: str) -> None:
    with urllib.request.urlopen(url) as answer:
        answer.read()


def _calls(root: str, pages: dict[str, str]) -> list[Figure]:
    """Return the number of storage calls for each page, when it is requested the second time."""
    cluster, admin, times, figures = Cluster(root), Admin(root), RequestTimes(), []
    times.measure(cluster.store)
    times.measure(admin._runtime.cluster().store)
    with TestClient(create_app(cluster, admin), base_url="http://127.0.0.1:8470") as client:
        for name, path in pages.items():
            client.get(path)
            before = Counter(times.counts())
            answer = client.get(path)
            assert answer.status_code == 200, json.dumps(answer.text[:500])
            count = sum((Counter(times.counts()) - before).values())
            figures.append(Figure(f"{name}: calls to the storage", count))
    return figures


if __name__ == "__main__":
    main()
