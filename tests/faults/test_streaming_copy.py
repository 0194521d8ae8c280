"""A streaming copy from topic to topic copies each record once, although its driver is killed.

SIGKILL hits the whole program, Java and Python, a random time after a random number of records was
copied; the seed is printed. ``SPARK_LOG_DRIVER_KILLS`` is the number of kills (default: 1);
``SPARK_LOG_SEED`` repeats a run's random choices.
"""

import os
import random
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.testing.history import Operation, Outcome, Send
from tests.faults import streaming_copy_job as job
from tests.faults.operation_notes import (
    OperationNotes,
    check_operations,
    polled,
    read_operations,
)
from tests.faults.spark_driver import START_S, fill, kill, reads_of, records, start

pytestmark = [pytest.mark.spark, pytest.mark.long]

_KILLS = int(os.environ.get("SPARK_LOG_DRIVER_KILLS", "1"))
_PARTITIONS = 3
_RECORDS = 6_000 * (_KILLS + 1)


def copied(root):
    """Return the number of copied records."""
    cluster = Cluster(root)
    image = cluster.topic("copy")
    return sum(
        cluster.partition_log(image, part).observe().log_end_offset for part in image.partitions
    )


def await_progress(running, root, least):
    """Wait until a number of records is copied, or the copy has ended."""
    deadline = time.monotonic() + START_S
    while copied(root) < least and running.poll() is None:
        assert time.monotonic() < deadline, "the copy does not get on"
        with suppress(subprocess.TimeoutExpired):
            running.wait(0.1)


def test_the_copy_equals_the_source_record_for_record(tmp_path: Path) -> None:
    seed = int(os.environ.get("SPARK_LOG_SEED", random.randrange(2**32)))
    print(f"SPARK_LOG_SEED={seed} SPARK_LOG_DRIVER_KILLS={_KILLS}")  # noqa: T201
    draw = random.Random(seed)
    root, checkpoint = str(tmp_path / "root"), str(tmp_path / "checkpoint")
    with OperationNotes(tmp_path / "filler") as notes:
        fill(root, "source", _PARTITIONS, _RECORDS, draw, notes)
    config = {"segment.bytes": 1 << 20}
    Admin(root).create_topics([NewTopic("copy", _PARTITIONS, topic_configs=config)])
    kills = again = 0
    for turn in range(_KILLS):
        before = copied(root)
        running = start(job.__file__, root, checkpoint)
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

    running = start(job.__file__, root, checkpoint)
    try:
        assert running.wait(START_S) == 0
    finally:
        kill(running)

    reads = reads_of(root, "source")
    copies = tuple(
        Send(TopicPartition("copy", tp.partition), text) for tp, _, text in polled(reads)
    )
    copying = Operation("copy", 0, copies, Outcome.COMMITTED)
    check_operations([*read_operations(tmp_path), *reads, copying, *reads_of(root, "copy")])
    for source, copy in zip(records(root, "source"), records(root, "copy"), strict=True):
        assert len(copy) == len(source)
        assert copy == source


def has_committed_all(checkpoint):
    """Whether the checkpoint has a commit for every micro-batch that was begun."""
    begun, done = (
        {path.name for path in Path(checkpoint, name).glob("[0-9]*")}
        for name in ("offsets", "commits")
    )
    return begun <= done
