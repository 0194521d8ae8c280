"""``jobs/consume.py`` is killed between writing and commit, and at random times.

SIGKILL hits the whole program, Java and Python: after a batch is written and before its offsets are
committed, or at a random moment of a batch. Parquet files then have every record at least once, a
Delta table exactly once. ``SPARK_LOG_DRIVER_KILLS`` is the number of kills (default: 1);
``SPARK_LOG_SEED`` repeats a run's random choices.
"""

import os
import random
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from spark_log import TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from tests.faults import consume_job_driver as driver
from tests.faults.operation_notes import (
    OperationNotes,
    check_operations,
    read_of_log,
    read_operations,
)
from tests.faults.spark_driver import START_S, fill, kill, records, start, text_of

pytestmark = [pytest.mark.spark, pytest.mark.long]

_KILLS = int(os.environ.get("SPARK_LOG_DRIVER_KILLS", "1"))
_PARTITIONS = 4
_BATCH = 1_500
_RECORDS = 3 * _BATCH * (_KILLS + 1)


class Destination:
    """A table or a directory that the job appends to."""

    def __init__(self, kind, path):
        self.kind, self.path = kind, path

    def rows(self):
        if not self.path.exists():
            return []
        if self.kind == "delta":
            return DeltaTable(str(self.path)).to_pyarrow_table().to_pylist()
        return ds.dataset(self.path, format="parquet").to_table().to_pylist()

    def size(self):
        """Return a number that grows with every batch."""
        return len(list(self.path.glob("*.parquet")))


def run(root, destination, *, is_static=True, **environment):
    """Start the job on all existing records, in many small batches."""
    member = "group.instance.id=driver" if is_static else "client.id=driver"
    conf = destination.path.with_name("conf")  # an empty value: no jars to resolve
    conf.mkdir(exist_ok=True)
    return start(
        driver.__file__,
        *("t", "--root", root, "--group", "g", "--json"),
        *("--to", destination.kind, "--path", destination.path, "--batch-records", _BATCH),
        *("--consumer-props", member, "--consumer-props", "session.timeout.ms=6000"),
        *("--consumer-props", "heartbeat.interval.ms=1000"),
        SPARK_CONF_DIR=str(conf),
        **environment,
    )


def kill_once(root, destination, draw, environment):
    """Run the job until it dies; return whether that was just before a commit."""
    is_static = _KILLS == 1 or draw.random() < 0.7
    if _KILLS == 1 or draw.random() < 0.5:
        dying = environment | {"DIE_AT_COMMIT": str(draw.randrange(1, 3))}
        running = run(root, destination, is_static=is_static, **dying)
        try:
            assert running.wait(START_S) == -9, "it ended before it was to die"
        finally:
            kill(running)
        return True
    running = run(root, destination, is_static=is_static, **environment)
    try:
        enough = destination.size() + draw.randrange(1, 4)
        deadline = time.monotonic() + START_S
        while destination.size() < enough and running.poll() is None:
            assert time.monotonic() < deadline, "the job does not get on"
            with suppress(subprocess.TimeoutExpired):
                running.wait(0.05)
        with suppress(subprocess.TimeoutExpired):
            running.wait(draw.uniform(0, 0.4))
        assert running.poll() is None, "it ended before it was killed"
    finally:
        kill(running)
    return False


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_every_record_comes_through_although_drivers_are_killed(kind: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("SPARK_LOG_SEED", random.randrange(2**32)))
    print(f"SPARK_LOG_SEED={seed} SPARK_LOG_DRIVER_KILLS={_KILLS}")  # noqa: T201
    draw = random.Random(seed)
    root, destination = str(tmp_path / "root"), Destination(kind, tmp_path / "out")
    with OperationNotes(tmp_path / "filler") as notes:
        fill(root, "t", _PARTITIONS, _RECORDS, draw, notes)
    # To see the test fail: SPARK_LOG_WITHOUT_POSITIONS=1.
    rule = {"WITHOUT_POSITIONS": "1"} if os.environ.get("SPARK_LOG_WITHOUT_POSITIONS") else {}

    at_commit = sum(kill_once(root, destination, draw, rule) for _ in range(_KILLS))
    running = run(root, destination, **rule)
    try:
        assert running.wait(START_S) == 0
    finally:
        kill(running)

    expected = {
        (number, offset): row["value"] and row["value"].decode()
        for number, part in enumerate(records(root, "t"))
        for offset, row in enumerate(part)
    }
    found = destination.rows()
    times = Counter((row["partition"], row["offset"]) for row in found)
    print(  # noqa: T201
        f"{_KILLS} kills, {at_commit} of them between work and commit: "
        f"{len(expected)} records, {len(found) - len(times)} written again"
    )
    reads = [(row["partition"], row["offset"], text_of(row["value"])) for row in found]
    once = sorted(reads if kind == "delta" else set(reads))
    taken = [
        read_of_log(TopicPartition("t", number), [each[1:] for each in once if each[0] == number])
        for number in range(_PARTITIONS)
    ]
    check_operations([*read_operations(tmp_path), *taken])
    assert times.keys() == expected.keys()
    assert all(row["value"] == expected[row["partition"], row["offset"]] for row in found)
    if kind == "delta":
        assert len(found) == len(expected), "each of them once"
    else:
        assert at_commit == 0 or len(found) > len(expected), "the kills were where they should be"
    committed = OffsetsTable(Cluster(root)).fetch("g")
    assert {named: position.offset for named, position in committed.items()} == {
        TopicPartition("t", number): sum(1 for part, _ in expected if part == number)
        for number in range(_PARTITIONS)
    }
