"""Gateways are killed, stopped and moved under several kinds of clients: nothing is lost."""

import logging
import os
import random
import shutil

import pytest

from spark_log.testing.servers.s3_server import versitygw_binary

pytest.importorskip("confluent_kafka")
pytest.importorskip("kafka")

from tests.gateway.campaign.campaign import GatewayCampaign
from tests.gateway.campaign.topics import DEALS, EVENTS, REPLICATED
from tests.gateway.campaign.workloads import WORKLOADS
from tests.gateway.connect.postgres import PROGRAMS
from tests.gateway.suites.go_tests import go

pytestmark = pytest.mark.long

DURATION_S = float(os.environ.get("FAULTS_SECONDS", "20"))
"""Duration of the faults in each test. ``python -m tests.gateway.campaign`` runs longer ones."""

SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.DEBUG)


@pytest.mark.parametrize("gateways", [2, 3])
@pytest.mark.parametrize("store", ["disk", "s3"])
def test_nothing_is_lost_or_doubled(tmp_path, store, gateways):
    if store == "s3" and not versitygw_binary().exists():
        pytest.skip("needs a server that keeps its data: make s3-server")
    _LOG.info("FAULTS_SEED=%d", SEED)  # pytest shows it if the test fails
    has_java = shutil.which("mvn") is not None and shutil.which("java") is not None
    campaign = GatewayCampaign(
        tmp_path, store, gateways, SEED, DURATION_S, with_java=has_java, progress=_LOG.debug
    )
    report = campaign.run()
    _LOG.info("%s", report)
    assert not campaign.findings
    assert all(report["records"][each] for each in (EVENTS, DEALS))


def test_applications_see_nothing_lost_or_doubled(tmp_path):
    """Kafka Streams, Debezium, franz-go and replicas, as far as what they need is installed."""
    left_out = {
        "streams": shutil.which("mvn") is None,
        "debezium": shutil.which("mvn") is None or PROGRAMS is None,
        "go": shutil.which(go()) is None,
        "replicas": False,
    }
    workloads = [name for name in WORKLOADS if not left_out[name]]
    _LOG.info("FAULTS_SEED=%d, %s", SEED, workloads)
    campaign = GatewayCampaign(
        tmp_path,
        "disk",
        2,
        SEED,
        DURATION_S,
        rate=10,
        with_java=False,
        workloads=workloads,
        progress=_LOG.debug,
    )
    report = campaign.run()
    _LOG.info("%s", report)
    assert not campaign.findings
    assert set(report["workloads"]) == set(workloads)
    assert all(report["records"][each] for each in (EVENTS, DEALS, REPLICATED))
