"""Roots of a replicated topic fail and are emptied, processes are killed: all is read once."""

import logging
import os
import random
import time

import pytest

from spark_log.testing.servers.s3_server import versitygw_binary
from tests.faults.broker_roots import Directories, Mounts, S3Servers, S3ServersOnSmallDisks
from tests.faults.replica_campaign import Campaign
from tests.faults.replica_checks import check

FAULTS = os.environ.get("FAULTS_COUNT")
SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)


@pytest.fixture(params=[Directories, Mounts, S3Servers, S3ServersOnSmallDisks])
def roots(request, tmp_path):
    if issubclass(request.param, S3Servers) and not versitygw_binary().exists():
        pytest.skip("needs a server that keeps its data: make s3-server")
    roots = request.param(tmp_path)
    yield roots
    roots.close()


def _run(tmp_path, roots, faults, *, while_they_write=False, **options):
    _LOG.info("FAULTS_SEED=%d", SEED)
    campaign = Campaign(tmp_path, roots, SEED, **options)
    began_s = time.monotonic()
    campaign.run(faults, while_they_write=while_they_write)
    counts = check(campaign)
    took_s = time.monotonic() - began_s
    _LOG.info("%s in %.0f s: %s", dict(sorted(campaign.done.items())), took_s, dict(counts))
    assert counts["acknowledged"] > 100 * faults
    assert counts["read"]
    assert not counts["failed"], "a future fails while two replicas are well"
    return counts


@pytest.mark.parametrize("roots", [Directories, Mounts], indirect=True)
def test_no_future_fails_while_two_replicas_are_well(roots, tmp_path):
    _run(tmp_path, roots, 0, acks=("all", "1"), while_they_write=True)


@pytest.mark.long
def test_no_acknowledged_record_is_lost_or_doubled(roots, tmp_path):
    counts = _run(tmp_path, roots, int(FAULTS or 5))
    assert not counts["lost"]


@pytest.mark.long
def test_no_future_fails_however_often_roots_fail(roots, tmp_path):
    _run(tmp_path, roots, int(FAULTS or 20), acks=("all", "1", "all"), while_they_write=True)


@pytest.mark.long
@pytest.mark.parametrize("roots", [Directories, S3Servers], indirect=True)
def test_with_acks_1_only_what_the_leader_alone_had_is_lost(roots, tmp_path):
    _run(tmp_path, roots, int(FAULTS or 5), acks=("1", "1", "all"))
