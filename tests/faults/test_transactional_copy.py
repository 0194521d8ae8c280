"""Micro-batches of a transactional sink are seen once and whole, although processes are killed.

The plan gives other rows each time. SIGKILL hits the whole program, or one of its Python processes,
or executors of a standalone cluster, a random time after a random number of records was appended;
the seed is printed. ``SPARK_LOG_DRIVER_KILLS`` is the number of kills of the program (default: 3),
``SPARK_LOG_EXECUTOR_KILLS`` that of executors (default: 3); ``SPARK_LOG_SEED`` repeats a run's
random choices. A reader with ``read_committed`` reads all the time.
"""

import os
import random
import subprocess
import threading
import time
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.record import RECORD_SCHEMA
from spark_log.testing.history import Operation, Outcome, Polled, Send
from spark_log.testing.servers.standalone import StandaloneCluster
from tests.faults import transactional_copy_job as job
from tests.faults.operation_notes import (
    OperationNotes,
    check_operations,
    read_of_log,
    read_operations,
)
from tests.faults.spark_driver import START_S, executors_of, kill, kill_one, python_processes, start

pytestmark = [pytest.mark.spark, pytest.mark.long]

_DRIVER_KILLS = int(os.environ.get("SPARK_LOG_DRIVER_KILLS", "3"))
_EXECUTOR_KILLS = int(os.environ.get("SPARK_LOG_EXECUTOR_KILLS", "3"))
_PARTITIONS = 3
_RECORDS_PER_KILL = 4_000


def fill(root, count):
    Admin(root).create_topics([NewTopic("source", 2), NewTopic("copy", _PARTITIONS)])
    cluster = Cluster(root)
    image = cluster.topic("source")
    for part in (0, 1):
        rows = [
            {"key": b"%d" % each, "value": b"", "headers": None, "timestamp": 1_700_000_000_000_000}
            for each in range(part, count, 2)
        ]
        cluster.partition_log(image, part).append(pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA))


class Reader:
    """Reads committed records in a thread, and notes them as a client of a history."""

    def __init__(self, root, notes: OperationNotes):
        cluster = Cluster(root)
        image = cluster.topic("copy")
        self._logs = {
            TopicPartition("copy", part): cluster.partition_log(image, part)
            for part in range(_PARTITIONS)
        }
        self._positions = dict.fromkeys(self._logs, 0)
        self._notes = notes
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None
        self.seen: dict[TopicPartition, list[list[str]]] = {tp: [] for tp in self._logs}
        notes.assign(self._logs, 0)

    def appended(self):
        """The number of records in the log, whether committed or not."""
        return sum(log.observe().log_end_offset for log in self._logs.values())

    def committed(self):
        return sum(len(read) for reads in self.seen.values() for read in reads)

    def read(self):
        """Read on in each partition, to its last stable offset."""
        for tp, log in self._logs.items():
            batches, self._positions[tp] = log.read(
                self._positions[tp], isolation_level="read_committed"
            )
            found = [Polled(tp, *each) for batch in batches for each in texts(batch)]
            if found:
                self._notes.poll(*found)
                self.seen[tp].append([each.value for each in found])

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


def texts(batch):
    """Return the records of a batch, as pairs of the offset and ``<batch>:<number>:<key>``."""
    columns = (batch.records.column(name).to_pylist() for name in ("value", "key"))
    values = [f"{value.decode()}:{key.decode()}" for value, key in zip(*columns, strict=True)]
    return zip(batch.offsets().tolist(), values, strict=True)


def batch_of(text):
    return int(text.partition(":")[0])


def key_of(text):
    return int(text.rpartition(":")[2])


class Copy:
    """A copy of a topic by a streaming query, which is killed, and a reader beside it."""

    def __init__(self, directory: Path, count: int, master: str = "local[2,4]"):
        self.draw = random.Random(_seed())
        self.count = count
        self._directory = directory
        self._root = str(directory / "root")
        self._master = master
        fill(self._root, count)
        notes, self._conf = directory / "notes", directory / "conf"
        notes.mkdir()
        self._conf.mkdir()  # empty: the program has no Delta
        self._notes = OperationNotes(notes / "reader")
        self.reader = Reader(self._root, self._notes)

    def start(self):
        arguments = self._root, self._directory / "checkpoint", self._master
        return start(job.__file__, *arguments, SPARK_CONF_DIR=str(self._conf))

    def await_progress(self, running, least):
        """Wait until a number of records is appended, or the program has ended."""
        deadline = time.monotonic() + START_S
        while self.reader.appended() < least and running.poll() is None:
            assert time.monotonic() < deadline, "the copy does not get on"
            with suppress(subprocess.TimeoutExpired):
                running.wait(0.05)

    def finish(self, running):
        """Wait until the query has copied everything."""
        try:
            assert running.wait(START_S) == 0
        finally:
            kill(running)
        self.reader.read()

    def check(self):
        """Check that each micro-batch is there once and whole, and was never seen in part."""
        assert self.reader.error is None, self.reader.error
        seen = self.reader.seen
        copied = sorted(key_of(text) for reads in seen.values() for read in reads for text in read)
        assert copied == [*range(self.count)]
        for reads in seen.values():
            ends = [(batch_of(one[-1]), batch_of(other[0])) for one, other in pairwise(reads)]
            assert all(one < other for one, other in ends), "a part of a micro-batch was seen"
        self._notes.close()
        check_operations([*self._history(), *read_operations(self._directory / "notes")])

    def _history(self):
        """Return the micro-batches as transactions, and the reading of each whole log."""
        cluster = Cluster(self._root)
        image = cluster.topic("copy")
        committed = defaultdict(list)
        aborted, reads = [], []
        for part in range(_PARTITIONS):
            tp, log = TopicPartition("copy", part), cluster.partition_log(image, part)
            assert log.transactions().open == (), "a transaction hangs"
            stable = [
                each
                for batch in log.scan(0, isolation_level="read_committed")
                for each in texts(batch)
            ]
            for _, text in stable:
                committed[batch_of(text)].append(Send(tp, text))
            known = {offset for offset, _ in stable}
            everything = [each for batch in log.scan(0) for each in texts(batch)]
            aborted += [Send(tp, text) for offset, text in everything if offset not in known]
            reads.append(read_of_log(tp, stable))
        print(f"{len(committed)} micro-batches; {len(aborted)} aborted records")  # noqa: T201
        transactions = [
            Operation("query", number, sends, Outcome.COMMITTED, is_transaction=True)
            for number, sends in committed.items()
        ]
        lost = Operation("lost attempts", 0, aborted, Outcome.ABORTED, is_transaction=True)
        return [*transactions, lost, *reads]


def _seed():
    seed = int(os.environ.get("SPARK_LOG_SEED", random.randrange(2**32)))
    print(f"SPARK_LOG_SEED={seed}")  # noqa: T201
    return seed


def test_every_micro_batch_is_committed_once_and_seen_whole(tmp_path: Path) -> None:
    copy = Copy(tmp_path, _RECORDS_PER_KILL * (_DRIVER_KILLS + 1))
    draw, kills, python_kills = copy.draw, 0, 0
    with copy.reader as reader:
        for turn in range(_DRIVER_KILLS):
            share = (copy.count - reader.committed()) // (_DRIVER_KILLS - turn + 1)
            running = copy.start()
            try:
                for least in sorted(draw.randrange(share) for _ in range(2)):
                    copy.await_progress(running, reader.appended() + 1 + least // 2)
                    if draw.random() < 0.5:
                        python_kills += kill_one(python_processes(running), draw)
                with suppress(subprocess.TimeoutExpired):
                    running.wait(draw.uniform(0, 0.4))
                kills += running.poll() is None
            finally:
                kill(running)
        copy.finish(copy.start())
    print(f"{kills} kills of a running driver, {python_kills} of Python processes")  # noqa: T201
    copy.check()
    assert kills


def test_every_micro_batch_is_whole_although_executors_are_lost(tmp_path: Path) -> None:
    kills = 0
    with StandaloneCluster(workers=2, memory="1g", own_hosts=True) as cluster:
        copy = Copy(tmp_path, _RECORDS_PER_KILL * (_EXECUTOR_KILLS + 1), cluster.url)
        with copy.reader as reader:
            running = copy.start()
            try:
                while kills < _EXECUTOR_KILLS and running.poll() is None:
                    least = copy.draw.randrange(_RECORDS_PER_KILL // 2)
                    copy.await_progress(running, reader.appended() + 1 + least)
                    kills += kill_one(executors_of(cluster.workers), copy.draw)
            except BaseException:
                kill(running)
                raise
            copy.finish(running)
    print(f"{kills} kills of executors")  # noqa: T201
    copy.check()
    assert kills == _EXECUTOR_KILLS
