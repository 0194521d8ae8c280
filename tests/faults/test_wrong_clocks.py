"""Wall clocks of processes are days apart and jump: no record is lost, duplicated or expired early.

On a local file system only: S3 refuses requests whose clock is 15 minutes off.
"""

import json
import logging
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from spark_log.types import ConfigResource
from tests.faults.campaign import Campaign
from tests.faults.clean_campaign import CleanCampaign
from tests.faults.clean_checks import check_commands, check_results
from tests.faults.clean_clients import TOPICS
from tests.faults.clean_process import run
from tests.faults.clock_shift import ClockShift, library
from tests.faults.log_checks import check_results as reckon_writers

DURATION_S = float(os.environ.get("FAULTS_SECONDS", "2"))
"""Duration of each campaign. A long run, which logs its events and results:

FAULTS_SECONDS=300 pytest tests/faults/test_wrong_clocks.py --log-cli-level=INFO
"""

SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)

pytestmark = pytest.mark.skipif(library() is None, reason="there is no C compiler, or no Linux")

DAY_MS = 86_400_000
TEN_DAYS = str(10 * DAY_MS)

_TELL = """
import json, threading, time
import pyarrow  # whatever else reads clocks is loaded
began, wall = time.monotonic(), time.time()
time.sleep(0.02)
threading.Event().wait(0.02)
print(json.dumps([time.monotonic() - began, time.time() - wall, wall, time.time_ns() / 1e9]))
"""


@pytest.fixture
def notes(tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    _LOG.info("FAULTS_SEED=%d", SEED)  # pytest shows it if the test fails
    return notes


@pytest.mark.parametrize("days", [0, 8, -2, 0.0001])
def test_only_the_wall_clock_of_a_process_is_shifted(tmp_path, days):
    shift = ClockShift(tmp_path / "shift", days=days)
    environment = os.environ | shift.environment()
    command = [sys.executable, "-c", _TELL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    waited, passed, wall, wall_again = json.loads(done.stdout)
    assert 0.04 <= waited < 30
    assert passed == pytest.approx(waited, abs=1)
    for each in (wall, wall_again):
        assert each == pytest.approx(time.time() + days * 86_400, abs=30)


def test_writers_whose_clocks_are_days_apart_lose_and_double_nothing(local_store, notes, tmp_path):
    clocks = tuple(
        ClockShift(tmp_path / f"clock-{number}", days=days)
        for number, days in enumerate((8, -2, 0, -8, 2))
    )
    campaign = Campaign(local_store, notes, SEED, idempotent=True, clocks=clocks)
    campaign.run(DURATION_S)
    _LOG.info("done: %s", dict(campaign.done))
    _LOG.info("found: %s", reckon_writers(local_store, notes, idempotent=True))


def test_cleaners_whose_clocks_are_wrong_refuse_and_others_clean(notes, tmp_path, monkeypatch):
    """One cleaner is eight days ahead, one is two days behind; the clients' clocks jump."""
    monkeypatch.setattr(
        "tests.faults.clean_campaign.TOPICS",
        {
            name: settings
            | {"message.timestamp.after.max.ms": str(2**62), "retention.ms": str(10 * DAY_MS)}
            for name, settings in TOPICS.items()
        },
    )
    root = str(tmp_path / "root")
    jumping = tuple(ClockShift(tmp_path / f"client-{number}") for number in range(3))
    clocks = {
        ("cleaner", 0): ClockShift(tmp_path / "ahead", days=8),
        ("cleaner", 1): ClockShift(tmp_path / "behind", days=-2),
        ("producer", 0): jumping[0],
        ("producer", 1): jumping[1],
        ("consumer", 0): jumping[2],
    }
    campaign = CleanCampaign(root, None, tmp_path / "root.properties", notes, SEED, clocks, jumping)
    campaign.run(DURATION_S)
    _LOG.info("done: %s", dict(campaign.done))
    commands = check_commands(notes, refused=(0, 1))
    _LOG.info("commands: %s", dict(commands))
    _LOG.info("found: %s", dict(check_results(root, None, notes)))
    status, _, error = run("clean", "--all-topics", "--config", str(campaign.properties))
    assert status == 0, error
    check_results(root, None, notes)


@pytest.mark.partition_logs_only("counts the segments of a partition")
@pytest.mark.parametrize("days", [8, -2])
def test_one_command_on_a_machine_with_a_wrong_clock(tmp_path, days):
    """It says why it does nothing; if the skew is allowed, it cleans."""
    root = str(tmp_path / "root")
    admin = Admin(root)
    settings = {"merge.tail.segments": "0", "retention.ms": str(7 * DAY_MS)}
    admin.create_topics([NewTopic("t", topic_configs=settings)])
    partition = TopicPartition("t", 0)
    now_ms = time.time() * 1000
    for age_days in (9, 9, 1, 1):
        with Producer(root) as producer:
            producer.send("t", b"value", timestamp_ms=int(now_ms - age_days * DAY_MS))
    with Consumer("t", root=root, group_id="g", auto_offset_reset="earliest") as consumer:
        read = 0
        while read < 4:
            read += sum(map(len, consumer.poll(100).values()))
        consumer.commit()
    before = files_of(root)

    refused = clean(root, tmp_path, days)
    assert refused.returncode == 1
    side = "ahead of" if days > 0 else "behind"
    assert f"{side} the storage's, more than max.clock.skew.ms (600000 ms)" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert "max.clock.skew.ms" in json.loads(refused.stdout)["error"]
    assert files_of(root) == before

    meant = ConfigResource("broker", "", {"max.clock.skew.ms": str(30 * DAY_MS)})
    admin.alter_configs([meant])
    done = clean(root, tmp_path, days)
    assert done.returncode == 0, done.stderr
    (cleaned,) = json.loads(done.stdout)["partitions"]
    assert (cleaned["expired_segments"], cleaned["log_start_offset"]) == (2, 2)
    with Consumer(root=root, group_id="g") as consumer:
        assert consumer.committed(partition) == 4


def clean(root, folder, days):
    environment = os.environ | ClockShift(folder / "shift", days=days).environment()
    command = [str(Path(sys.executable).parent / "spark-log"), "clean", "--all-topics", "--json"]
    command += ["--root", root]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def files_of(root):
    return sorted(str(path) for path in Path(root).rglob("*.log"))
