"""Spark sends no more requests to an S3 server than docs/internals/requests.md allows."""

import pytest

from benchmarks.latency_proxy import LatencyProxy
from benchmarks.request_operations import spark as spark_operations
from benchmarks.requests import kept_budget
from tests.requests.test_request_budget import LATENCY_MS
from tests.requests.test_requests_page import check_named

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def proxy(s3_server):
    with LatencyProxy.running(s3_server.endpoint_url, LATENCY_MS) as proxy:
        yield proxy


@pytest.mark.parametrize(
    "operation",
    [each for each in spark_operations.OPERATIONS if not each.waits],
    ids=lambda operation: operation.name.replace(" ", "-"),
)
def test_an_operation_keeps_its_budget(spark, s3_server, proxy, operation):
    counted = kept_budget(operation, s3_server, proxy)
    assert counted.requests <= operation.most, counted.kinds
    assert counted.rounds <= operation.most_rounds, counted.kinds


def test_the_page_names_each_operation_with_its_budget():
    check_named("Spark", spark_operations.OPERATIONS)
