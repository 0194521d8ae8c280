"""Measures the memory of a sink task that writes to hundreds of partitions, without a peer.

    python -m benchmarks.sink_memory --partitions 500 --gigabytes 2

The task runs in a new process, like a Python worker of Spark, but without Spark: it gets rows with
keys in Arrow batches of 10,000. Measured from outside is its own memory (``RssAnon``), minus that
after its imports. Pages of mapped files belong to the page cache and do not count.
"""

import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.command_line import base_parser, positive
from benchmarks.log_workload import binary_array
from benchmarks.process_memory import memory_bytes
from spark_log import Admin, NewTopic
from spark_log.datasource.options.write_options import parse_write_options
from spark_log.datasource.write.identity import WriteIdentity
from spark_log.datasource.write.record_buffers import RecordBuffers
from spark_log.datasource.write.task_writer import TaskWriter

_PROCESSES = multiprocessing.get_context("spawn")
_BATCH_RECORDS = 10_000
_EVERY_S = 0.02


def main() -> None:
    """Run the benchmark as the command line says."""
    options = base_parser("sink_memory", __doc__)
    options.add_argument("--partitions", type=positive, default=500, help="of the topic (500)")
    options.add_argument("--gigabytes", type=float, default=2.0, help="of records (2)")
    options.add_argument(
        "--value-bytes", type=positive, default=1000, help="bytes of a value (1000)"
    )
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        root = f"{directory}/root"
        config = {"flush.on.append": "false"}
        topic = NewTopic("t", num_partitions=given.partitions, topic_configs=config)
        Admin(root).create_topics([topic])
        ours, theirs = _PROCESSES.Pipe()
        count = int(given.gigabytes * 1e9 / (given.value_bytes + 8))
        process = _PROCESSES.Process(target=_write, args=(theirs, root, count, given.value_bytes))
        process.start()
        assert process.pid is not None
        before = ours.recv()
        most = before
        while not ours.poll(_EVERY_S):
            most = max(most, _own_bytes(process.pid))
        seconds, append_seconds, spilled, open_files = ours.recv()
        process.join()
    print(
        f"{given.partitions} partitions, {count:,} records of {given.value_bytes + 8} bytes: "
        f"{(most - before) / 1e6:.0f} MB above the {before / 1e6:.0f} MB of its imports; "
        f"{count / seconds:,.0f} records/s, {append_seconds:.1f} s of "
        f"{seconds:.1f} s after the last row; "
        f"{spilled / 1e6:,.0f} MB spilled; at most {open_files} files open"
    )


def _write(parent: Connection, root: str, count: int, value_bytes: int) -> None:
    parent.send(_own_bytes("self"))
    buffers, most_open = RecordBuffers(), 0
    draw = np.random.default_rng(1)
    began = time.monotonic()
    options = parse_write_options({"path": root, "topic": "t"})
    with TaskWriter(options, WriteIdentity("w", 0, 0, is_stream=False), buffers=buffers) as writer:
        for start in range(0, count, _BATCH_RECORDS):
            rows = min(_BATCH_RECORDS, count - start)
            keys = np.arange(start, start + rows).astype(">i8").tobytes()
            writer.add(
                pa.record_batch(
                    {
                        "key": binary_array(keys, rows),
                        "value": binary_array(draw.bytes(rows * value_bytes), rows),
                    }
                )
            )
            most_open = max(most_open, len(list(Path("/proc/self/fd").iterdir())))
        staged = time.monotonic()
        writer.commit()
    ended = time.monotonic()
    parent.send((ended - began, ended - staged, buffers.spilled_bytes, most_open))


def _own_bytes(pid: int | str) -> int:
    return memory_bytes(pid).get("RssAnon", 0)


if __name__ == "__main__":
    main()
