"""No operation sends more requests to an S3 server than docs/requests.md allows."""

import pytest

from benchmarks.request_operations import OPERATIONS, Root
from spark_log.testing.servers.faulty_proxy import FaultyProxy


@pytest.fixture
def proxy(s3_server):
    with FaultyProxy(s3_server.endpoint_url) as proxy:
        yield proxy


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if not each.waits],
    ids=lambda operation: operation.name.replace(" ", "-"),
)
def test_an_operation_keeps_its_budget(s3_server, proxy, operation):
    direct = s3_server.storage_options
    root = Root(f"{s3_server.new_bucket()}/root", {**direct, "endpoint_url": proxy.url}, direct)
    with operation.prepare(root) as call:
        before = len(proxy.requests)
        for _ in range(operation.repeats):
            call()
        sent = proxy.requests[before:]
    shown = [f"{each.method} {each.path}" for each in sent]
    assert len(sent) <= operation.most * operation.repeats, shown
