"""Cleaners are killed beside live clients: the logs are intact and complete."""

import json
import logging
import os
import random

import pytest

from tests.faults.clean_campaign import CleanCampaign
from tests.faults.clean_checks import check_commands, check_results
from tests.faults.clean_process import run

DURATION_S = float(os.environ.get("FAULTS_SECONDS", "2"))
"""Duration of the faults in each test. A long run, which logs its events and results:

FAULTS_SECONDS=300 pytest tests/faults/test_killed_cleaners.py --log-cli-level=INFO
"""

SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))

WAITING = ("spent-segment", "spent-start")
"""Files that readers no longer use, and that are deleted after ``file.delete.delay.ms``."""

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)


@pytest.mark.parametrize(
    "address", ["S3 server", pytest.param("local", marks=pytest.mark.long)], indirect=True
)
def test_nothing_is_lost_or_comes_back_although_cleaners_and_clients_are_killed(address, tmp_path):
    url, storage_options = address
    notes = tmp_path / "notes"
    notes.mkdir()
    _LOG.info("FAULTS_SEED=%d", SEED)  # pytest shows it if the test fails
    campaign = CleanCampaign(url, storage_options, tmp_path / "root.properties", notes, SEED)
    campaign.run(DURATION_S)
    _LOG.info("done: %s", dict(campaign.done))
    _LOG.info("commands: %s", dict(check_commands(notes)))
    _LOG.info("found: %s", dict(check_results(url, storage_options, notes)))
    # The next cleaner removes the remains of killed ones, except files whose delay has not passed.
    options = ("--json", "--config", str(campaign.properties))
    status, cleaned, error = run("clean", "--all-topics", *options)
    assert status == 0, error
    _LOG.info("left of deleted topics: %s", json.loads(cleaned)["deleted_topics"])
    verified = json.loads(run("verify", *options)[1])
    wrong = [each for each in verified.pop("findings") if each["kind"] not in WAITING]
    assert not wrong, json.dumps(wrong, indent=1)
    _LOG.info("verified: %s", verified)
    check_results(url, storage_options, notes)
