"""Two ``jobs/clean.py`` run on one root, and one is killed: no record is lost, the log is intact.

SIGKILL hits the whole program, Java and Python, after files are rewritten, merged and compacted.
``SPARK_LOG_DRIVER_KILLS`` is the number of kills (default: 1).
"""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.cluster.verifier import ClusterVerifier
from spark_log.testing.history import ALLOWED
from tests.faults.clean_checks import REMOVED
from tests.faults.operation_notes import OperationNotes, check_operations, read_operations
from tests.faults.spark_driver import START_S, kill, reads_of, records, start
from tests.record.samples import record_batch, row

pytestmark = [pytest.mark.spark, pytest.mark.long]

JOB = Path(__file__).parents[2] / "jobs" / "clean.py"
KILLS = int(os.environ.get("SPARK_LOG_DRIVER_KILLS", "1"))
PARTITIONS, SEGMENTS, ROWS, KEYS = 4, 60, 200, 40
VALUE = b"x" * 500
WAITING = ("spent-segment", "spent-start", "unfinished-write")
"""Files that a cleaner removes after the delay."""

_SMALL = {"merge.tail.segments": "0", "file.delete.delay.ms": "2000", "flush.on.append": "false"}
TOPICS = {"t": _SMALL, "table": _SMALL | {"cleanup.policy": "compact"}}


def fill(root, first, notes):
    """Append records to all partitions, as work for the next round.

    Args:
        root: the topics' root.
        first: number of the first record of each partition.
        notes: operation notes by topic.
    """
    cluster = Cluster(root)
    now_us = time.time_ns() // 1000
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            log = cluster.partition_log(cluster.topic(topic), partition)
            for number in range(first, first + SEGMENTS * ROWS, ROWS):
                rows = [
                    row(b"%d %s" % (each, VALUE), b"%d" % (each % KEYS), timestamp=now_us)
                    for each in range(number, number + ROWS)
                ]
                numbers = map(str, range(number, number + ROWS))
                operation = notes[topic].begin(TopicPartition(topic, partition), *numbers)
                placed = log.append(record_batch(rows))
                offsets = range(placed.base_offset, placed.last_offset + 1)
                notes[topic].acknowledge(operation, offsets)


def rewritten(root):
    return set(Path(root).glob("t*/*/*-*.log"))


def clean(root, *options):
    conf = Path(root).with_name("conf")  # an empty value: no jars to resolve
    conf.mkdir(exist_ok=True)
    environment = {"SPARK_CONF_DIR": str(conf), "PYSPARK_PYTHON": sys.executable}
    return start(JOB, "t", "table", "--root", root, *options, **environment)


def wait_for_new(root, before, running):
    deadline = time.monotonic() + START_S
    while rewritten(root) <= before:
        assert time.monotonic() < deadline, "the jobs do not get on"
        with suppress(subprocess.TimeoutExpired):
            assert running.wait(0.02) == 0
            return


def test_nothing_is_lost_and_nothing_comes_twice(tmp_path):
    root = str(tmp_path / "root")
    Admin(root).create_topics(
        [NewTopic(name, PARTITIONS, topic_configs=config) for name, config in TOPICS.items()]
    )
    end, notes = 0, {topic: OperationNotes(tmp_path / f"filler.{topic}") for topic in TOPICS}
    for _ in range(KILLS):
        fill(root, end, notes)
        end += SEGMENTS * ROWS
        before = rewritten(root)
        first, second = clean(root, "--max-bytes-per-second", 4_000_000), clean(root)
        try:
            wait_for_new(root, before, second)
            assert first.poll() is None, "it ended before it was killed"
            kill(first)
            assert second.wait(START_S) == 0
        finally:
            kill(first)
            kill(second)
    last = clean(root)
    try:
        assert last.wait(START_S) == 0
    finally:
        kill(last)

    for topic, allowed in (("t", ALLOWED), ("table", ALLOWED | REMOVED)):
        operations = read_operations(tmp_path, f"filler.{topic}")
        check_operations([*operations, *reads_of(root, topic)], allowed=allowed)
    for part in records(root, "t"):
        assert [int(each["value"].split()[0]) for each in part] == list(range(end))
    for part in records(root, "table"):
        found = {each["key"]: int(each["value"].split()[0]) for each in part}
        assert found == {b"%d" % (each % KEYS): each for each in range(end - KEYS, end)}
        assert len(part) < 3 * ROWS, "all but the newest segments are compacted"
    wrong = [each for each in ClusterVerifier(Cluster(root)).findings() if each.kind not in WAITING]
    assert not wrong
