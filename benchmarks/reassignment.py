"""Measures a producer while partitions of its brokers move to another broker."""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from statistics import median
from threading import Event

import pyarrow as pa
from rich.console import Console

from benchmarks.log_report import Figure
from spark_log import Admin, NewTopic, Producer, TopicPartition
from spark_log.cluster import Cluster
from spark_log.replication import Controller

_MOVED, _LOAD = "moved", "load"
_VALUE = b"x" * 1_000
_ROWS = 1_000
"""Number of rows of a table, which has about 1 MB."""
_PARTITION_TABLES = 10
_HERE, _THERE = (1, 2), (3, 2)
_BASELINE_S = 5.0
_PROCESSES = multiprocessing.get_context("spawn")
_console = Console(stderr=True)


def measure_reassignment(root: str, partitions: int, repeats: int) -> Iterator[Figure]:
    """Move partitions of 10 MB from one broker to another while a producer works.

    The producer sends tables of 1 MB with ``acks=all``, as fast as it can, to another topic of the
    same brokers: otherwise the moving partitions would grow faster than a busy disk copies them. A
    controller in another process copies, with the default throttle. The throughput during the move
    is compared with the mean throughput before and after it.

    Args:
        root: the root of a cluster with the brokers 1, 2 and 3.
        partitions: the number of partitions that move.
        repeats: the number of moves.
    """
    table = pa.table({"value": pa.array([_VALUE] * _ROWS, pa.binary())})
    with Admin(root) as admin, Producer(root) as producer:
        assignment = {number: list(_HERE) for number in range(partitions)}
        admin.create_topics(
            [
                NewTopic(_MOVED, replica_assignment=assignment),
                NewTopic(_LOAD, replica_assignment={0: [1, 2, 3]}),
            ]
        )
        for number in range(partitions * _PARTITION_TABLES):
            producer.send_table(_MOVED, table, partition=number % partitions)
        producer.flush()

        def rate(is_over: Callable[[], bool]) -> float:
            """Return the MB per second that are acknowledged until ``is_over`` returns true."""
            began_s, tables = time.perf_counter(), 0
            while not is_over():
                for sent in [producer.send_table(_LOAD, table) for _ in range(4)]:
                    sent.result(60)
                    tables += 1
            return tables * _ROWS * len(_VALUE) / 1e6 / (time.perf_counter() - began_s)

        ratios, seconds = [], []
        before = rate(_for_seconds(_BASELINE_S))
        for repeat in range(repeats):
            target = _HERE if repeat % 2 else _THERE
            with _ControllerProcess(root) as controller:
                admin.alter_partition_reassignments(
                    {TopicPartition(_MOVED, number): target for number in range(partitions)}
                )
                began_s = time.perf_counter()
                controller.begin()
                during = rate(controller.is_done)
                seconds.append(time.perf_counter() - began_s)
            assert not admin.list_partition_reassignments()
            after = rate(_for_seconds(_BASELINE_S))
            ratios.append(during / ((before + after) / 2))
            _console.print(
                f"reassignment: {seconds[-1]:.1f} s; producer: {before:.0f}, {during:.0f}, "
                f"{after:.0f} MB/s",
                style="dim",
                highlight=False,
            )
            before = after
    what = f"reassignment of {partitions} partitions"
    yield Figure(what, median(seconds), "s")
    yield Figure(f"throughput during a {what} / without", median(ratios), at_least=0.7)


class _ControllerProcess:
    """A controller that works until nothing is left to do."""

    def __init__(self, root: str) -> None:
        """Start the process, and wait until it has opened the cluster."""
        self._pipe, end = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(target=_control, args=(root, end), daemon=True)
        self._process.start()
        self._pipe.recv()

    def __enter__(self) -> "_ControllerProcess":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.join(30)

    def begin(self) -> None:
        """Start the controller's work."""
        self._pipe.send(None)

    def is_done(self) -> bool:
        """Return whether the controller has no work left."""
        return self._pipe.poll(0)


def _control(root: str, pipe: Connection) -> None:
    cluster = Cluster(root)
    controller = Controller(cluster)
    cluster.image()
    pipe.send(None)
    pipe.recv()
    pause = Event()
    controller.run_once(lambda: pause.wait(0.1))
    pipe.send(None)


def _for_seconds(seconds: float) -> Callable[[], bool]:
    end_s = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= end_s
