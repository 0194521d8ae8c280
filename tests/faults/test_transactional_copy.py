"""Micro-batches of a transactional sink are seen once and whole, although processes are killed.

The plan gives other rows each time. SIGKILL hits the whole program, or one of its Python processes,
a random time after a random number of records was appended; the seed is printed.
``SPARK_LOG_DRIVER_KILLS`` is the number of kills of the program (default: 3); ``SPARK_LOG_SEED``
repeats a run's random choices. A reader with ``read_committed`` reads all the time.
"""

import os
import random
import signal
import subprocess
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from spark_log import Admin, NewTopic
from spark_log.metadata import Cluster
from spark_log.record import RECORD_SCHEMA
from tests.faults import transactional_copy_job as job
from tests.faults.spark_driver import START_S, kill, python_processes, start

pytestmark = [pytest.mark.spark, pytest.mark.long]

_KILLS = int(os.environ.get("SPARK_LOG_DRIVER_KILLS", "3"))
_PARTITIONS = 3
_RECORDS = 4_000 * (_KILLS + 1)


def fill(root):
    Admin(root).create_topics([NewTopic("source", 2), NewTopic("copy", _PARTITIONS)])
    cluster = Cluster(root)
    image = cluster.topic("source")
    for part in (0, 1):
        rows = [
            {"key": b"%d" % each, "value": b"", "headers": None, "timestamp": 1_700_000_000_000_000}
            for each in range(part, _RECORDS, 2)
        ]
        cluster.partition_log(image, part).append(pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA))


class Reader:
    """Reads committed records in a thread, again and again from the start."""

    def __init__(self, root):
        cluster = Cluster(root)
        image = cluster.topic("copy")
        self._logs = [cluster.partition_log(image, part) for part in range(_PARTITIONS)]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None
        self.seen: list[set[int]] = [set() for _ in self._logs]
        self.records: list[list[tuple[bytes, bytes]]] = [[] for _ in self._logs]

    def appended(self):
        """The number of records in the log, whether committed or not."""
        return sum(log.log_end_offset() for log in self._logs)

    def read(self):
        """Read everything once, and check that it goes on from what was read before."""
        for part, log in enumerate(self._logs):
            batches = log.scan(0, columns=["key", "value"], isolation_level="read_committed")
            found = [tuple(row.values()) for each in batches for row in each.records.to_pylist()]
            known = self.records[part]
            assert found[: len(known)] == known, "what was committed has changed"
            self.records[part] = found
            self.seen[part].add(len(found))

    def _run(self):
        try:
            while not self._is_over.wait(0.05):
                self.read()
        except BaseException as error:
            self.error = error

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()


def await_progress(running, reader, least):
    """Wait until a number of records is appended, or the program has ended."""
    deadline = time.monotonic() + START_S
    while reader.appended() < least and running.poll() is None:
        assert time.monotonic() < deadline, "the copy does not get on"
        with suppress(subprocess.TimeoutExpired):
            running.wait(0.05)


def test_every_micro_batch_is_committed_once_and_seen_whole(tmp_path: Path) -> None:
    seed = int(os.environ.get("SPARK_LOG_SEED", random.randrange(2**32)))
    print(f"SPARK_LOG_SEED={seed} SPARK_LOG_DRIVER_KILLS={_KILLS}")  # noqa: T201
    draw = random.Random(seed)
    root, checkpoint = str(tmp_path / "root"), str(tmp_path / "checkpoint")
    fill(root)
    kills = 0
    with Reader(root) as reader:
        for turn in range(_KILLS):
            committed = sum(map(len, reader.records))
            share = (_RECORDS - committed) // (_KILLS - turn + 1)
            running = start(job.__file__, root, checkpoint)
            try:
                for least in sorted(draw.randrange(share) for _ in range(2)):
                    await_progress(running, reader, reader.appended() + 1 + least // 2)
                    victims = python_processes(running)
                    if victims and draw.random() < 0.5:
                        with suppress(ProcessLookupError):
                            os.kill(draw.choice(victims), signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    running.wait(draw.uniform(0, 0.4))
                kills += running.poll() is None
            finally:
                kill(running)
        running = start(job.__file__, root, checkpoint)
        try:
            assert running.wait(START_S) == 0
        finally:
            kill(running)
        reader.read()
    assert reader.error is None, reader.error
    aborted = reader.appended() - _RECORDS
    print(f"{kills} kills of a running program; {aborted} markers and aborted records")  # noqa: T201

    rows = [row for part in reader.records for row in part]
    assert sorted(int(key) for key, _ in rows) == [*range(_RECORDS)]
    for records, lengths in zip(reader.records, reader.seen, strict=True):
        batches = [int(value.partition(b":")[0]) for _, value in records]
        ends = {n for n, (one, other) in enumerate(pairwise(batches), 1) if one != other}
        assert batches == sorted(batches)
        assert lengths <= ends | {0, len(records)}, "a part of a micro-batch was seen"
    assert kills
