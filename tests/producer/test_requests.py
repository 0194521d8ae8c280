"""Requests are money: how many an append makes on an object store."""

from collections import Counter

import pytest

from spark_log import Admin, NewTopic, Producer
from spark_log.producer.send import metadata_lookup, topic_check
from spark_log.testing.servers.faulty_proxy import FaultyProxy


@pytest.fixture
def proxy(s3_server):
    with FaultyProxy(s3_server.endpoint_url) as proxy:
        yield proxy


def test_an_append_is_one_put(s3_server, proxy, monkeypatch):
    # A busy machine may need longer than the lease; tests/producer/test_lease.py ends it.
    monkeypatch.setattr(metadata_lookup, "METADATA_LEASE_MS", 3_600_000)
    monkeypatch.setattr(topic_check, "METADATA_LEASE_MS", 3_600_000)
    root = s3_server.new_bucket()
    Admin(root, storage_options=s3_server.storage_options).create_topics([NewTopic("t")])
    options = {**s3_server.storage_options, "endpoint_url": proxy.url}
    with Producer(root, storage_options=options) as producer:
        producer.send("t", b"first").result()  # finds the topic, and the end of its log
        before = len(proxy.requests)
        for number in range(20):
            producer.send("t", b"%d" % number).result()
        made = Counter(request.method for request in proxy.requests[before:])
    assert made == {"PUT": 20}


@pytest.mark.partition_logs_only("the stripe is listed, too")
def test_the_first_send_of_a_process_is_six_requests(s3_server, proxy, monkeypatch):
    """The members of a quorum, the checkpoint, the metadata log's end; then the partition's."""
    monkeypatch.setattr(metadata_lookup, "METADATA_LEASE_MS", 3_600_000)
    root = s3_server.new_bucket()
    Admin(root, storage_options=s3_server.storage_options).create_topics([NewTopic("t")])
    with Producer(root, storage_options=s3_server.storage_options) as producer:
        producer.send("t", b"first").result()
    options = {**s3_server.storage_options, "endpoint_url": proxy.url}
    with Producer(root, storage_options=options) as producer:
        producer.send("t", b"second").result()
        made = Counter(request.method for request in proxy.requests)
    assert made == {"GET": 5, "PUT": 1}, "three of the first are listings"


def test_a_transaction_over_a_stripe_is_few_requests(s3_server, proxy, monkeypatch):
    """It is registered, its records are put, it is decided, and its markers are put."""
    monkeypatch.setattr(metadata_lookup, "METADATA_LEASE_MS", 3_600_000)
    monkeypatch.setattr(topic_check, "METADATA_LEASE_MS", 3_600_000)
    root = s3_server.new_bucket()
    topic = NewTopic("t", 100, topic_configs={"stripes": 1})
    Admin(root, storage_options=s3_server.storage_options).create_topics([topic])
    options = {**s3_server.storage_options, "endpoint_url": proxy.url}
    with Producer(
        root, storage_options=options, transactional_id="t", linger_ms=60_000
    ) as producer:
        producer.init_transactions()
        for _ in range(2):  # the first finds the topic, and the end of its stripe
            before = len(proxy.requests)
            producer.begin_transaction()
            for partition in range(100):
                producer.send("t", b"x", partition=partition)
            producer.commit_transaction()
        assert [request.method for request in proxy.requests[before:]] == ["PUT"] * 4
