"""Measures the processor time of a query's first call in each Python process that Spark starts.

    python -m benchmarks.spark_processes

Spark runs the steps of a query in processes of their own. They end after a minute without work, so
many queries find none. Measured is a new process, from the moment at which it has imported what
Spark itself needs in this step, until the step is done for a topic of ten records. Most of it is
imports. No peer, and no Java. Wall time is not shown, since other programs change it.
"""

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from benchmarks.log_report import Figure, Report, parser, percentile, run
from spark_log import Admin, NewTopic
from spark_log.datasource import SparkLogDataSource

_ARROW = ", pyarrow"
_STEPS: Mapping[str, tuple[str, str]] = {
    "read: the columns": ("create_data_source", "given.schema()"),
    "read: the plan": (f"plan_data_source_read{_ARROW}", "given[0].reader(given[1]).partitions()"),
    "read: a task": (f"plan_data_source_read{_ARROW}", "assert list(given[0].read(given[1]))"),
    "write: the writer": (f"write_into_data_source{_ARROW}", "given[0].writer(given[1], False)"),
    "write: a task": (f"write_into_data_source{_ARROW}", "given[0].write(iter(given[1]))"),
    "write: the commit": ("commit_data_source_write", "given[0].commit(given[1])"),
}
"""Step of a query → its module of `pyspark.sql.worker`, with Arrow if Spark itself imports it, and
what Spark calls."""

_PROGRAM = """
import pickle, sys, time
import pyspark.worker, pyspark.sql.worker.{module}
began = time.process_time()
given = pickle.loads(sys.stdin.buffer.read())
{call}
print(time.process_time() - began)
"""


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("spark_processes", __doc__)
    options.add_argument(
        "--rounds", type=int, default=9, help="processes of each step, the median counts (9)"
    )
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Create a topic, and run each step in new processes."""
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        given = _given(f"{directory}/root")
        cpu_ms: dict[str, list[float]] = {step: [] for step in _STEPS}
        for _ in range(options.rounds):
            for step, (module, call) in _STEPS.items():
                cpu_ms[step].append(1e3 * _cpu_s(module, call, given[step]))
    figures = [Figure(step, percentile(each, 50), "ms") for step, each in cpu_ms.items()]
    return Report("spark_processes", figures, {"rounds": options.rounds})


def _given(root: str) -> dict[str, bytes]:
    """Return what each step is called with, pickled."""
    Admin(root).create_topics([NewTopic("t", 1)])
    schema = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    source: Any = SparkLogDataSource({"path": root, "topic": "t", "idempotent": "false"})
    writer = source.writer(schema, False)
    rows = [pa.record_batch({"key": [str(row) for row in range(10)], "value": [b"value"] * 10})]
    message = writer.write(iter(rows))
    read: Any = SparkLogDataSource({"path": root, "subscribe": "t"})
    reader = read.reader(read.schema())
    given: Sequence[object] = (
        read,
        (read, read.schema()),
        (reader, reader.partitions()[0]),
        (source, schema),
        (writer, rows),
        (writer, [message]),
    )
    return dict(zip(_STEPS, map(pickle.dumps, given), strict=True))


def _cpu_s(module: str, call: str, given: bytes) -> float:
    package = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(module=module, call=call)],
        check=True,
        input=given,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path, "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER"},
    )
    return float(ran.stdout)


if __name__ == "__main__":
    main()
