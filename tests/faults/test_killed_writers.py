"""Writers are killed and stopped: all acknowledged records are in the log."""

import logging
import os
import random

import pytest

from spark_log.storage import open_store
from tests.faults.campaign import Campaign
from tests.faults.conftest import with_and_without_stripes
from tests.faults.log_checks import check_results
from tests.log.support import DIRECTORY

DURATION_S = float(os.environ.get("FAULTS_SECONDS", "5"))
"""Duration of the faults in each test. A long run, which logs its events and results:

FAULTS_SECONDS=300 pytest tests/faults/test_killed_writers.py --log-cli-level=INFO
"""

SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))


_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)


@pytest.fixture
def store(address):
    """Return an empty store that processes share."""
    store = open_store(*address)
    store.create_root()
    return store


@pytest.mark.parametrize(
    "idempotent",
    [
        pytest.param(True, id="idempotent"),
        pytest.param(False, id="not idempotent", marks=pytest.mark.long),
    ],
)
@with_and_without_stripes(1)
def test_every_acknowledged_record_is_there_although_writers_are_killed_and_stopped(
    idempotent, stripes, store, tmp_path
):
    notes = tmp_path / "notes"
    notes.mkdir()
    _LOG.info("FAULTS_SEED=%d", SEED)  # pytest shows it if the test fails
    campaign = Campaign(store, notes, SEED, idempotent, stripes=stripes)
    campaign.run(DURATION_S)
    _LOG.info("done: %s", dict(campaign.done))
    _LOG.info("found: %s", check_results(store, notes, idempotent=idempotent, stripes=stripes))
    left = len([*store.list_hidden(DIRECTORY)])
    _LOG.info("hidden files that killed writers left: %d", left)
