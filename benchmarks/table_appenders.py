"""Compares appends to a topic that is a table with appends to one that is none.

    python -m benchmarks.table_appenders --appends 2000 --repeats 9

Both topics have the same records, and the table has all of the older ones in Parquet files. Batches
are appended to both in turn, by one process, with the merges of the log's end that are due. The
opcodes that Python executes are counted in a run of their own: their number depends on no other
program of the machine, and hardly on the run. The processor time is the smallest of all rounds. Two
topics without a table are compared in the same way, which shows what chance does.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.command_line import positive
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.log_workload import SMALL_BATCH, records
from spark_log import Admin, ConfigResource, NewTopic
from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.log import PartitionLog

_PLAIN, _OTHER, _TABLE = "plain", "other", "table"
_CONFIGS = {"flush.on.append": False, "retention.ms": -1}

Append = Callable[[int], object]


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("table_appenders", __doc__)
    options.add_argument("--appends", type=positive, default=2000, help="in each round (2000)")
    options.add_argument("--repeats", type=positive, default=9, help="measured rounds (9)")
    run(options, measure)
    return 0


def measure(options: argparse.Namespace) -> Report:
    """Append to the topics in turns."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as work:
        logs = open_logs(str(Path(work) / "root"), options.appends)
        appends = {name: _append_to(log) for name, log in logs.items()}
        opcodes = {name: _opcodes(append, options.appends) for name, append in appends.items()}
        seconds = _processor_seconds(appends, options.appends, options.repeats)
    figures = []
    for name in (_PLAIN, _TABLE):
        us = seconds[name] / options.appends * 1e6
        figures.append(Figure(f"processor time of an append, {name}", us, "us"))
        figures.append(Figure(f"opcodes of an append, {name}", opcodes[name] / options.appends))
    for what, found in (("processor time", seconds), ("opcodes", opcodes)):
        at_most = 1.01 if what == "opcodes" else None
        ratio = found[_TABLE] / found[_PLAIN]
        figures.append(Figure(f"{what}, table / plain", ratio, at_most=at_most))
        figures.append(Figure(f"{what}, plain / another plain", found[_OTHER] / found[_PLAIN]))
    notes = {"appends": options.appends, "records in each": SMALL_BATCH, "rounds": options.repeats}
    return Report("table_appenders", figures, notes)


def open_logs(root: str, appends: int) -> dict[str, PartitionLog]:
    """Make the topics with some records each; return their logs."""
    admin = Admin(root)
    admin.create_topics([NewTopic(name, topic_configs=_CONFIGS) for name in _names()])
    cluster = Cluster(root)
    for name in _names():
        append = _append_to(cluster.partition_log(cluster.topic(name), 0))
        for number in range(appends // 4):
            append(number)
    admin.alter_configs([ConfigResource("TOPIC", _TABLE, {"table.format": "delta"})])
    for each in ClusterCleaner(Cluster(root), list(_names()), table_at_once=True).clean():
        assert each.error is None, each
    cluster = Cluster(root)
    logs = {name: cluster.partition_log(cluster.topic(name), 0) for name in _names()}
    assert any(each.name.is_parquet for each in logs[_TABLE].observe().live.segments)
    return logs


def _names() -> tuple[str, ...]:
    return _PLAIN, _OTHER, _TABLE


def _append_to(log: PartitionLog) -> Append:
    batches = [records(SMALL_BATCH, first=number * SMALL_BATCH) for number in range(64)]
    return lambda number: log.append(batches[number % len(batches)])


def _opcodes(append: Append, count: int) -> int:
    """Return the number of opcodes that appends execute on this thread."""
    total = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal total
        frame.f_trace_opcodes = True
        total += event == "opcode"
        return trace

    append(0)
    sys.settrace(trace)
    try:
        for number in range(count):
            append(number)
    finally:
        sys.settrace(None)
    return total


def _processor_seconds(appends: dict[str, Append], count: int, repeats: int) -> dict[str, float]:
    """Return the smallest processor time of some appends, by topic."""
    found: dict[str, list[float]] = {name: [] for name in appends}
    for at in range(repeats + 1):  # the first one warms up
        names = list(appends)
        for name in (names, names[::-1])[at % 2]:
            began = time.process_time()
            for number in range(count):
                appends[name](number)
            found[name].append(time.process_time() - began)
    return {name: min(each[1:]) for name, each in found.items()}


if __name__ == "__main__":
    main()
