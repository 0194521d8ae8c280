"""Writers that are killed and stopped: what the log acknowledged is there all the same."""

import logging
import os
import random

import pytest

from spark_log.storage import open_store
from tests.faults.campaign import Campaign
from tests.faults.reckoning import reckon
from tests.log.support import DIRECTORY

DURATION_S = float(os.environ.get("FAULTS_SECONDS", "5"))
"""How long writers are beset in each of the tests. A long run, with what was done and found:

FAULTS_SECONDS=300 pytest tests/faults/test_killed_writers.py --log-cli-level=INFO
"""

SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))


_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)


@pytest.fixture(params=["local", "S3 server"])
def store(request):
    """An empty store that processes share."""
    if request.param == "local":
        return request.getfixturevalue("local_store")
    server = request.getfixturevalue("s3_server")
    store = open_store(f"{server.new_bucket()}/root", server.storage_options)
    store.create_root()
    return store


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "not idempotent"])
def test_every_acknowledged_record_is_there_although_writers_are_killed_and_stopped(
    idempotent, store, tmp_path
):
    notes = tmp_path / "notes"
    notes.mkdir()
    _LOG.info("FAULTS_SEED=%d", SEED)  # pytest shows it when the test fails
    campaign = Campaign(store, notes, SEED, idempotent)
    campaign.run(DURATION_S)
    _LOG.info("done: %s", dict(campaign.done))
    _LOG.info("found: %s", reckon(store, notes, idempotent=idempotent))
    left = len([*store.list_hidden(DIRECTORY)])
    _LOG.info("hidden files that killed writers left: %d", left)
