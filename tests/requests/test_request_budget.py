"""No operation sends more requests to an S3 server than docs/internals/requests.md allows."""

import pytest

from benchmarks.latency_proxy import LatencyProxy
from benchmarks.request_operations import OPERATIONS
from benchmarks.requests import kept_budget

LATENCY_MS = 20


@pytest.fixture(scope="module")
def proxy(s3_server):
    with LatencyProxy.running(s3_server.endpoint_url, LATENCY_MS) as proxy:
        yield proxy


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if not each.waits],
    ids=lambda operation: operation.name.replace(" ", "-"),
)
def test_an_operation_keeps_its_budget(s3_server, proxy, operation):
    counted = kept_budget(operation, s3_server, proxy)
    assert counted.requests <= operation.most, counted.kinds
    assert counted.rounds <= operation.most_rounds, counted.kinds
