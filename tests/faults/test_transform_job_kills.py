"""``jobs/transform.py`` is killed anywhere, and each record of its input is in its output once.

SIGKILL hits the whole program, Java and Python: after its group has pending offsets, after a
transaction is decided and before its markers, or at a random moment; in between it hits one of the
Python processes of the tasks. The next program has the same transactional id, or one of its own.
``SPARK_LOG_DRIVER_KILLS`` is the number of kills (default: 5); ``SPARK_LOG_SEED`` repeats a run's
random choices. A consumer with ``read_committed`` reads all the time, and the history checker gets
what it has polled.
"""

import os
import random
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from spark_log import Admin, Consumer, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import LazyTransactionalOffsets, OffsetsTable
from spark_log.record import RECORD_SCHEMA
from spark_log.testing.history import Operation, Outcome, Polled, Send
from spark_log.transaction import TransactionCoordinator, TransactionStateLog
from tests.faults import transform_job_driver as driver
from tests.faults.operation_notes import (
    OperationNotes,
    check_operations,
    read_of_log,
    read_operations,
)
from tests.faults.spark_driver import START_S, kill, kill_one, python_processes, start, text_of
from tests.log.support import values_of

pytestmark = [pytest.mark.spark, pytest.mark.long]

_KILLS = int(os.environ.get("SPARK_LOG_DRIVER_KILLS", "5"))
_PARTITIONS = 3
_BATCH = 600
_RECORDS = 3 * _BATCH * (_KILLS + 1)


def fill(root):
    """Make the topics, and return the sends that the job is to make, one after the other."""
    Admin(root).create_topics([NewTopic("source", _PARTITIONS), NewTopic("target", _PARTITIONS)])
    cluster = Cluster(root)
    image = cluster.topic("source")
    operations = []
    for part in range(_PARTITIONS):
        numbers = [*range(part, _RECORDS, _PARTITIONS)]
        rows = [
            {"key": b"", "value": b"%d" % n, "headers": None, "timestamp": 1_700_000_000_000_000}
            for n in numbers
        ]
        log = cluster.partition_log(image, part)
        for at in range(0, len(rows), 400):
            log.append(pa.RecordBatch.from_pylist(rows[at : at + 400], RECORD_SCHEMA))
        operations += [
            Operation(
                f"job, partition {part}",
                index,
                (Send(TopicPartition("target", part), str(number)),),
                Outcome.UNKNOWN,
            )
            for index, number in enumerate(numbers)
        ]
    return operations


class Reader(threading.Thread):
    """Polls committed records of the target until it has read all."""

    def __init__(self, root, notes):
        super().__init__()
        self.error: BaseException | None = None
        self.is_over = threading.Event()
        self._root, self._notes = root, notes

    def run(self):
        try:
            partitions = [TopicPartition("target", part) for part in range(_PARTITIONS)]
            with Consumer(
                root=self._root, isolation_level="read_committed", enable_auto_commit=False
            ) as consumer:
                consumer.assign(partitions)
                consumer.seek_to_beginning()
                self._notes.assign(partitions, 0)
                while not self.is_over.is_set():
                    for records in consumer.poll(100).values():
                        self._notes.poll(
                            *(
                                Polled(
                                    TopicPartition(each.topic, each.partition),
                                    each.offset,
                                    text_of(each.value),
                                )
                                for each in records
                            )
                        )
        except BaseException as error:
            self.error = error


def run(root, directory, *, is_stable=True, **environment):
    """Start the job on all existing records, in many small batches."""
    conf = directory / "conf"  # an empty value: no jars to resolve
    conf.mkdir(exist_ok=True)
    member = "group.instance.id=driver" if is_stable else "client.id=driver"
    return start(
        driver.__file__,
        *("source", "--root", root, "--group", "g", "--json", "--to", "target"),
        *("--transform", "transform_job_driver:copied", "--batch-records", _BATCH),
        *("--transaction-timeout", 60_000, "--consumer-props", member),
        *("--consumer-props", "session.timeout.ms=6000"),
        *("--consumer-props", "heartbeat.interval.ms=1000"),
        SPARK_CONF_DIR=str(conf),
        **environment,
    )


def appended(root):
    """The number of records and markers in the target, whether committed or not."""
    cluster = Cluster(root)
    image = cluster.topic("target")
    return sum(
        cluster.partition_log(image, part).observe().log_end_offset for part in range(_PARTITIONS)
    )


def kill_once(root, directory, draw, kind):
    """Run the job until it dies."""
    is_stable = draw.random() < 0.7
    if kind != "anywhere":
        dying = {"DIE_AT": kind, "DIE_AT_COMMIT": str(draw.randrange(1, 3))}
        running = run(root, directory, is_stable=is_stable, **dying)
        try:
            assert running.wait(START_S) == -9, "it ended before it was to die"
        finally:
            kill(running)
        return
    running = run(root, directory, is_stable=is_stable)
    try:
        enough = appended(root) + draw.randrange(1, 3 * _BATCH // 2)
        deadline = time.monotonic() + START_S
        while appended(root) < enough and running.poll() is None:
            assert time.monotonic() < deadline, "the job does not get on"
            with suppress(subprocess.TimeoutExpired):
                running.wait(0.05)
        victims = python_processes(running)
        if victims and draw.random() < 0.5:
            kill_one(victims, draw)
        with suppress(subprocess.TimeoutExpired):
            running.wait(draw.uniform(0, 0.5))
        assert running.poll() is None, "it ended before it was killed"
    finally:
        kill(running)


def end_all_transactions(root):
    """Finish what killed programs have left, which others do after the timeout."""
    cluster = Cluster(root)
    for transactional_id in TransactionStateLog.list_names(cluster.store, cluster.clock):
        TransactionCoordinator(
            cluster,
            transactional_id,
            commit_offsets=LazyTransactionalOffsets(cluster).commit_offsets,
        ).initialize(60_000)


def test_each_record_is_in_the_output_once_although_drivers_are_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("SPARK_LOG_SEED", random.randrange(2**32)))
    print(f"SPARK_LOG_SEED={seed} SPARK_LOG_DRIVER_KILLS={_KILLS}")  # noqa: T201
    draw = random.Random(seed)
    root = str(tmp_path / "root")
    operations = fill(root)
    with OperationNotes(tmp_path / "reader") as notes:
        reader = Reader(root, notes)
        reader.start()
        try:
            kinds = ["sent", "decided"] + ["anywhere"] * _KILLS
            for kind in draw.sample(kinds[:_KILLS], _KILLS):
                kill_once(root, tmp_path, draw, kind)
            running = run(root, tmp_path)
            try:
                assert running.wait(START_S) == 0
            finally:
                kill(running)
            end_all_transactions(root)
        finally:
            reader.is_over.set()
            reader.join()
    assert reader.error is None, reader.error

    cluster = Cluster(root)
    image = cluster.topic("target")
    reads, found = [], []
    for part in range(_PARTITIONS):
        log = cluster.partition_log(image, part)
        committed = values_of(log.scan(0, isolation_level="read_committed"))
        rows = [(offset, text_of(value)) for offset, value in committed]
        found += [int(value) for _, value in rows]
        reads.append(read_of_log(TopicPartition("target", part), rows))
    aborted = appended(root) - _RECORDS
    print(f"{_KILLS} kills; {len(found)} records; {aborted} markers and aborted")  # noqa: T201
    check_operations([*operations, *read_operations(tmp_path), *reads])
    assert sorted(found) == [*range(_RECORDS)]
    ends = {tp.partition: at.offset for tp, at in OffsetsTable(cluster).fetch("g").items()}
    assert ends == dict.fromkeys(range(_PARTITIONS), _RECORDS // _PARTITIONS)
