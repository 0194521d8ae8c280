"""A streaming copy from topic to topic whose driver is killed, time and again, copies once.

Every kill is a SIGKILL to the whole program, Java and Python, some drawn while after some drawn
number of records more has been copied; the seed is printed. ``SPARK_LOG_DRIVER_KILLS`` says how
often (once, where it is not set), ``SPARK_LOG_SEED`` repeats one run's draws.
"""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from spark_log import Admin, NewTopic
from spark_log.metadata import Cluster
from spark_log.record.schema import RECORD_SCHEMA
from tests.faults import streaming_copy_job as job

pytestmark = pytest.mark.spark

_KILLS = int(os.environ.get("SPARK_LOG_DRIVER_KILLS", "1"))
_PARTITIONS = 3
_RECORDS = 6_000 * (_KILLS + 1)
_START_S = 300


def fill(root, draw):
    """Make both topics, and records of all kinds in the source."""
    config = {"segment.bytes": 1 << 20}
    Admin(root).create_topics(
        [
            NewTopic("source", num_partitions=_PARTITIONS, topic_configs=config),
            NewTopic("copy", num_partitions=_PARTITIONS, topic_configs=config),
        ]
    )
    cluster = Cluster(root)
    number = 0
    while number < _RECORDS:
        count = min(draw.randrange(1, 1500), _RECORDS - number)
        rows = [
            {
                "key": b"%d" % each if each % 3 else None,
                "value": b"%d" % each + b"." * draw.randrange(2000) if each % 50 else None,
                "headers": [{"key": "n", "value": b"%d" % each}] if each % 7 == 0 else None,
                "timestamp": 1_700_000_000_000_000 + each,
            }
            for each in range(number, number + count)
        ]
        log = cluster.partition_log(cluster.topic("source"), draw.randrange(_PARTITIONS))
        log.append(pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA))
        number += count


def records(root, topic):
    """All records of a topic, by partition, in offset order."""
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


def copied(root):
    """How many records the copy has."""
    cluster = Cluster(root)
    image = cluster.topic("copy")
    return sum(cluster.partition_log(image, part).log_end_offset() for part in image.partitions)


def start(root, checkpoint):
    """Start the copy, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, job.__file__, root, checkpoint],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        start_new_session=True,
    )


def kill(running):
    """Kill the driver and all that it started, and wait until it is gone."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def await_progress(running, root, least):
    """Wait until so many records are copied, or the copy has ended."""
    deadline = time.monotonic() + _START_S
    while copied(root) < least and running.poll() is None:
        assert time.monotonic() < deadline, "the copy does not get on"
        with suppress(subprocess.TimeoutExpired):
            running.wait(0.1)


def test_the_copy_equals_the_source_record_for_record(tmp_path: Path) -> None:
    seed = int(os.environ.get("SPARK_LOG_SEED", random.randrange(2**32)))
    print(f"SPARK_LOG_SEED={seed} SPARK_LOG_DRIVER_KILLS={_KILLS}")  # noqa: T201
    draw = random.Random(seed)
    root, checkpoint = str(tmp_path / "root"), str(tmp_path / "checkpoint")
    fill(root, draw)
    kills = again = 0
    for turn in range(_KILLS):
        before = copied(root)
        running = start(root, checkpoint)
        try:
            share = (_RECORDS - before) // (_KILLS - turn + 1)
            await_progress(running, root, before + 1 + draw.randrange(share))
            with suppress(subprocess.TimeoutExpired):
                running.wait(draw.uniform(0, 0.4))
            kills += running.poll() is None
        finally:
            kill(running)
        again += not has_committed_all(checkpoint)
    print(f"{kills} kills, {again} of them within a micro-batch")  # noqa: T201
    assert kills == _KILLS

    running = start(root, checkpoint)
    try:
        assert running.wait(_START_S) == 0
    finally:
        kill(running)

    for source, copy in zip(records(root, "source"), records(root, "copy"), strict=True):
        assert len(copy) == len(source)
        assert copy == source


def has_committed_all(checkpoint):
    """Whether no micro-batch was begun that the checkpoint does not know to be done."""
    begun, done = (
        {path.name for path in Path(checkpoint, name).glob("[0-9]*")}
        for name in ("offsets", "commits")
    )
    return begun <= done
