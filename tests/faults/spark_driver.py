"""Starts and kills Spark programs (Java and Python), and makes the topic that they read."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.record.schema import RECORD_SCHEMA
from tests.faults.operation_notes import OperationNotes, read_of_log
from tests.log.support import values

START_S = 300
"""Maximum time to wait for progress of a program."""


def fill(root, topic, partitions, count, draw, notes: OperationNotes):
    """Create a topic with records of all kinds, in random segments and partitions."""
    config = {"segment.bytes": 1 << 20}
    Admin(root).create_topics([NewTopic(topic, num_partitions=partitions, topic_configs=config)])
    cluster = Cluster(root)
    number = 0
    while number < count:
        size = min(draw.randrange(1, 1500), count - number)
        rows = [
            {
                "key": b"%d" % each if each % 3 else None,
                "value": b"%d" % each + b"." * draw.randrange(2000) if each % 50 else None,
                "headers": [{"key": "n", "value": b"%d" % each}] if each % 7 == 0 else None,
                "timestamp": 1_700_000_000_000_000 + each,
            }
            for each in range(number, number + size)
        ]
        partition = draw.randrange(partitions)
        log = cluster.partition_log(cluster.topic(topic), partition)
        texts = [text_of(each["value"]) for each in rows]
        operation = notes.begin(TopicPartition(topic, partition), *texts)
        placed = log.append(pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA))
        notes.acknowledge(operation, range(placed.base_offset, placed.last_offset + 1))
        number += size


def text_of(value):
    """Return the number that a record's value (text, bytes or None) begins with."""
    text = value.decode() if isinstance(value, bytes) else value
    return "null" if text is None else text.rstrip(".").partition(" ")[0]


def reads_of(root, topic):
    """Return the reading of each partition of a topic, as operations of a history."""
    cluster = Cluster(root)
    image = cluster.topic(topic)
    return [
        read_of_log(
            TopicPartition(topic, number),
            [(at, text_of(value)) for at, value in values(cluster.partition_log(image, number))],
        )
        for number in sorted(image.partitions)
    ]


def records(root, topic):
    """Return all records of a topic, by partition, in offset order."""
    cluster = Cluster(root)
    image = cluster.topic(topic)
    return [
        [
            row
            for batch in cluster.partition_log(image, part).scan(0)
            for row in batch.records.to_pylist()
        ]
        for part in sorted(image.partitions)
    ]


def start(program, *arguments, **environment):
    """Start a Python program in its own process group."""
    return subprocess.Popen(
        [sys.executable, program, *map(str, arguments)],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"} | environment,
        start_new_session=True,
    )


def kill(running):
    """Kill a driver and its child processes, and wait for their end."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def python_processes(running):
    """Return the ids of a program's Python processes that work for Spark."""
    return _processes(b"pyspark", lambda pid: os.getpgid(pid) == running.pid and pid != running.pid)


def executors_of(workers):
    """Return the ids of the executors of these workers of a standalone cluster."""
    parents = {each.pid for each in workers}
    return _processes(b"CoarseGrainedExecutorBackend", lambda pid: _parent(pid) in parents)


def kill_one(victims, draw):
    """Kill one of these processes, drawn at random; return whether it was still running."""
    if victims:
        with suppress(ProcessLookupError):
            os.kill(draw.choice(victims), signal.SIGKILL)
            return True
    return False


def _processes(name, is_ours):
    """Return the sorted ids of our processes that have this name in their command."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pid = int(path.name)
            if name in (path / "cmdline").read_bytes() and is_ours(pid):
                found.append(pid)
    return sorted(found)


def _parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
