"""Consumers of a group are killed, stopped, join and leave: no record is lost or read by two."""

import logging
import os
import random

import pytest

from tests.faults.clock_shift import ClockShift, library
from tests.faults.group_campaign import GroupCampaign

pytestmark = pytest.mark.long

DURATION_S = os.environ.get("FAULTS_SECONDS")
"""Duration of the faults in each test. Ten minutes of the members' clock:

FAULTS_SECONDS=86 pytest tests/faults/test_group_chaos.py --log-cli-level=INFO
"""

SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))
WITHOUT = os.environ.get("FAULTS_WITHOUT")
"""Name in `LEAVE_OUT` of a rule that the members leave out, to see the test fail."""

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.DEBUG)


@pytest.fixture
def afflict(tmp_path):
    """Return a function that runs a group on an empty root with faults, and checks it."""

    def afflict(root, storage_options, duration_s, clocks=()):
        notes = tmp_path / "notes"
        notes.mkdir()
        campaign = GroupCampaign(root, storage_options, notes, SEED, WITHOUT, clocks)
        try:
            campaign.run(float(DURATION_S or duration_s))
            found = campaign.check_results()
        finally:  # pytest shows it if the test fails
            _LOG.debug("%s", "\n".join(campaign.report()))
        _LOG.info("FAULTS_SEED=%d done: %s", SEED, dict(campaign.done))
        _LOG.info("found: %s", found)
        _LOG.info("settled in %.2f s of %.2f s", campaign.settled_s, campaign.allowed_s)

    return afflict


def test_a_group_of_processes_loses_nothing_and_shares_nothing(afflict, tmp_path):
    afflict(str(tmp_path / "root"), None, 15)


@pytest.mark.skipif(library() is None, reason="there is no C compiler, or no Linux")
def test_a_group_whose_clocks_are_days_apart_loses_nothing(afflict, tmp_path):
    clocks = tuple(
        ClockShift(tmp_path / f"clock-{number}", days=days)
        for number, days in enumerate((0, 1.05, -2, 8))
    )
    afflict(str(tmp_path / "root"), None, 15, clocks)


def test_a_group_of_processes_on_an_object_store_does_so_too(afflict, s3_server):
    afflict(f"{s3_server.new_bucket()}/root", s3_server.storage_options, 6)
