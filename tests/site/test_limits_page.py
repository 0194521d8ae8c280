"""docs/limits.md: the requests that it counts."""

import re
import time
from collections import Counter

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer
from spark_log.metadata import METADATA_LEASE_MS
from spark_log.testing.servers.faulty_proxy import FaultyProxy
from tests.docs.blocks import PROJECT
from tests.waiting import wait_until

PARTITIONS = 4
WATCHED_S = 4.0
PAGE = (PROJECT / "docs/limits.md").read_text("utf-8")

pytestmark = pytest.mark.long


@pytest.fixture
def root(s3_server):
    root = s3_server.new_bucket()
    admin = Admin(root, storage_options=s3_server.storage_options)
    admin.create_topics([NewTopic("t", PARTITIONS)])
    return root


@pytest.fixture
def proxy(s3_server):
    with FaultyProxy(s3_server.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def options(s3_server, proxy):
    return {**s3_server.storage_options, "endpoint_url": proxy.url}


def said_per_second(client, method):
    """What the page says, such as 22 of ``22 GETs a second``."""
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| {client}"))
    found = re.search(rf"([\d.]+) {method}s", row)
    return float(found[1]) if found else 0.0


@pytest.mark.parametrize(
    ("client", "group"),
    [("a consumer without a group that waits", None), ("a member of a group that waits", "g")],
)
def test_a_consumer_that_waits(root, options, proxy, client, group):
    with Consumer("t", root=root, storage_options=options, group_id=group) as consumer:
        wait_until(lambda: consumer.poll(100) or len(consumer.assignment()) == PARTITIONS)
        consumer.poll(1000)
        consumer.poll(6000)  # from then on its partitions are at rest
        before, began = len(proxy.requests), time.monotonic()
        while time.monotonic() - began < WATCHED_S:
            consumer.poll(500)
        watched_s = time.monotonic() - began
        made = Counter(request.method for request in proxy.requests[before:])
    assert set(made) <= {"GET", "PUT"}
    # A busy machine asks less often.
    assert 0 < made["GET"] / watched_s <= 1.3 * said_per_second(client, "GET")
    assert made["PUT"] / watched_s <= 1.3 * said_per_second(client, "PUT") + 1 / WATCHED_S


def test_a_producer_that_sends_nothing(root, options, proxy):
    with Producer(root, storage_options=options) as producer:
        producer.send("t", b"first").result()
        before, began = len(proxy.requests), time.monotonic()
        while time.monotonic() - began < WATCHED_S / 4:
            producer.flush()
        assert proxy.requests[before:] == []


@pytest.mark.parametrize(
    ("client", "dollars"),
    [
        ("a consumer without a group that waits", 4),
        ("a member of a group that waits", 11),
    ],
)
def test_the_dollars_are_those_of_the_requests(client, dollars):
    month_s = 30 * 24 * 3600
    price = {"GET": 0.0004 / 1000, "PUT": 0.005 / 1000}
    computed = sum(said_per_second(client, each) * month_s * price[each] for each in price)
    assert abs(computed - dollars) < 1.5
    assert f"| {dollars} dollars |" in PAGE


def test_an_append_a_second():
    looks = 1000 / METADATA_LEASE_MS
    assert round(30 * 24 * 3600 * (0.005 + looks * 0.0004) / 1000) == 13
    row = f"| one append a second, to one partition | 1 PUT, and {looks:g} GETs | 13 dollars |"
    assert row in PAGE


def test_figures_on_other_pages_are_those_of_the_readme():
    figures = re.compile(r"^\|.*`make bench-\w+` \|$", re.MULTILINE)
    readme = figures.findall((PROJECT / "README.md").read_text("utf-8"))
    assert len(readme) > 5
    assert figures.findall((PROJECT / "docs/comparison.md").read_text("utf-8")) == readme
    first = readme[0].split("|")[2].strip()
    assert f"until acknowledged | {first} |" in PAGE
