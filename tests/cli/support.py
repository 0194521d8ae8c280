"""Helpers for tests of the command line: its outcome, its environment, and roots to run it on."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import spark_log
from spark_log.cluster import Cluster
from spark_log.metadata import METADATA_DIRECTORY
from spark_log.record import ProducerAppend
from spark_log.storage import storage_time_us
from spark_log.transaction import TopicIdPartition, TransactionCoordinator, TransactionStateLog
from spark_log.util.clock import ManualClock
from tests.record.samples import record_batch, row
from tests.waiting import wait_until

PROJECT = Path(spark_log.__file__).parent.parent
COMMAND = [sys.executable, "-m", "spark_log.cli"]


@dataclass
class Outcome:
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str

    @property
    def lines(self):
        return self.out.splitlines()

    @property
    def document(self):
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def documents(self):
        """The JSON documents on stdout, one per line."""
        return [json.loads(line) for line in self.lines]

    @property
    def error(self):
        """The message of a command that failed and printed only this line."""
        assert self.status != 0
        assert self.err.count("\n") == 1, self.err
        before, _, message = self.err.strip().partition(": error: ")
        assert message, self.err
        assert " " not in before
        return message


class SteppingClock(ManualClock):
    """A clock that a sleep advances; each sleep then calls the next of ``steps``."""

    def __init__(self, *steps):
        super().__init__()
        self.steps = list(steps)
        self.sleeps_ms = []

    def sleep_ms(self, duration_ms):
        self.sleeps_ms.append(duration_ms)
        self.advance_ms(duration_ms)
        if self.steps:
            self.steps.pop(0)()


def environment(**variables):
    """Return the environment of a process that finds this package and no setting of the user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_LOG")}
    for name in ("COLUMNS", "LINES"):  # of the terminal of the tests
        kept.pop(name, None)
    return {**kept, "PYTHONPATH": str(PROJECT), **variables}


def spark_log_process(*argv, cwd, **options):
    """Start ``spark-log`` as a process of its own, with pipes for stdin, stdout and stderr."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    options = {"env": environment(), **pipes, **options}
    return subprocess.Popen([*COMMAND, *argv], cwd=cwd, text=True, **options)


def append(root, topic, *values, partition=0, **fields):
    """Append records of these values to a topic, as one segment."""
    rows = [row(value, **fields) for value in values]
    partition_log(root, topic, partition).append(record_batch(rows))


def append_batches(root, topic, *batches, partition=0, **options):
    partition_log(root, topic, partition).append(batches, **options)


def partition_log(root, topic, partition=0):
    cluster = Cluster(root)
    return cluster.partition_log(cluster.topic(topic), partition)


def segment_files(root, topic, partition=0, suffix=".log"):
    """Paths of the files of a partition."""
    return sorted(Path(root).glob(f"{topic}.*/{topic}-{partition}/*{suffix}"))


def flip(path, position, bit=0):
    """Damage a file: flip one bit."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def begin_transaction(root, transactional_id, *partitions, timeout_ms=60_000):
    """Begin a transaction with a record in each partition; return its coordinator and producer."""
    cluster = Cluster(root)
    coordinator = TransactionCoordinator(cluster, transactional_id)
    producer = coordinator.initialize(timeout_ms)
    topics = [(cluster.topic(tp.topic), tp.partition) for tp in partitions]
    coordinator.register(producer, [TopicIdPartition(topic.topic_id, n) for topic, n in topics])
    append = ProducerAppend(producer.producer_id, producer.producer_epoch, 0, is_transactional=True)
    for topic, number in topics:
        cluster.partition_log(topic, number).append(record_batch([row(b"txn")]), producer=append)
    return coordinator, producer


def begin_dead_transaction(root, transactional_id, *partitions):
    """Begin a transaction, and wait until it has passed its timeout by the storage's time.

    Files on a disk are dated by a clock that moves only every few milliseconds: the time of the
    next file may be that of the transaction.
    """
    begun = begin_transaction(root, transactional_id, *partitions, timeout_ms=1)
    cluster = Cluster(root)
    view = TransactionStateLog.view(cluster.store, transactional_id, cluster.clock)
    dead_us = view.changed_us + view.state.timeout_ms * 1000
    wait_until(lambda: storage_time_us(cluster.store, METADATA_DIRECTORY) > dead_us)
    return begun
