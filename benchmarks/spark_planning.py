"""Measures how long the driver plans a batch read of 1,000 partitions of 100 segments.

    python -m benchmarks.spark_planning

No peer, and no Spark: measured is the work between ``load()`` and the first task, on a local root.
The segments of a partition are hard links to its first one, since planning takes the base offset
from the name alone; ``--indexes`` adds two index files to each, as segments of several batches have
them. CPU time is shown as well, for machines that are busy.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.log_report import Figure, Report, parser, percentile, run
from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.datasource.read.splits import plan_splits
from spark_log.log.files.file_names import SegmentName
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE

_RECORDS = 10
_MAX_S = 2


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("spark_planning", __doc__)
    options.add_argument("--partitions", type=int, default=1_000, help="how many (1000)")
    options.add_argument("--segments", type=int, default=100, help="of each (100)")
    options.add_argument("--indexes", action="store_true", help="with index files")
    options.add_argument(
        "--rounds", type=int, default=5, help="number of plans, the median counts (5)"
    )
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Create the topic, and plan reads of it."""
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        root = f"{directory}/root"
        _make(root, options.partitions, options.segments, with_indexes=options.indexes)
        figures = []
        for label, given in (
            ("a task for each partition", {}),
            ("four tasks for each", {"minPartitions": str(4 * options.partitions)}),
        ):
            checked = parse_read_options({"path": root, "subscribe": "t", **given}, is_stream=False)
            wall_s, cpu_s = [], []
            for _ in range(options.rounds):
                wall, cpu = time.perf_counter(), time.process_time()
                splits = plan_splits(checked)
                wall_s.append(time.perf_counter() - wall)
                cpu_s.append(time.process_time() - cpu)
            assert sum(each.end_offset - each.start_offset for each in splits) == (
                options.partitions * options.segments * _RECORDS
            )
            figures += [
                Figure(f"{label}: wall, p50", percentile(wall_s, 50), "s", at_most=_MAX_S),
                Figure(f"{label}: CPU, p50", percentile(cpu_s, 50), "s"),
            ]
    notes = {
        "partitions": f"{options.partitions:,} of {options.segments:,} segments",
        "index files": "two a segment" if options.indexes else "none",
    }
    return Report("spark_planning", figures, notes)


def _make(root: str, partitions: int, segments: int, *, with_indexes: bool) -> None:
    Admin(root).create_topics([NewTopic("t", partitions)])
    cluster = Cluster(root)
    topic = cluster.topic("t")
    times = np.arange(_RECORDS) + 1_700_000_000_000_000
    records = pa.RecordBatch.from_arrays(
        [
            pa.nulls(_RECORDS, pa.binary()),
            pa.array([b"value"] * _RECORDS, pa.binary()),
            pa.nulls(_RECORDS, HEADERS_TYPE),
            pa.array(times).cast(TIMESTAMP_TYPE),
        ],
        schema=RECORD_SCHEMA,
    )
    for number in range(partitions):
        log = cluster.partition_log(topic, number)
        log.append(records)
        directory = Path(root) / log.directory
        for base in range(0, segments * _RECORDS, _RECORDS):
            name = SegmentName(base)
            if base:
                os.link(directory / SegmentName(0).file_name, directory / name.file_name)
            if with_indexes:
                (directory / name.index).touch()
                (directory / name.time_index).touch()


if __name__ == "__main__":
    main()
