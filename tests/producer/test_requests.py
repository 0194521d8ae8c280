"""Requests are money: how many an append makes on an object store."""

from collections import Counter

import pytest

from spark_log import Admin, NewTopic, Producer
from spark_log.testing.servers.faulty_proxy import FaultyProxy


@pytest.fixture
def proxy(s3_server):
    with FaultyProxy(s3_server.endpoint_url) as proxy:
        yield proxy


def test_an_append_is_one_put_and_one_look_at_the_metadata_log(s3_server, proxy):
    root = s3_server.new_bucket()
    Admin(root, storage_options=s3_server.storage_options).create_topics([NewTopic("t")])
    options = {**s3_server.storage_options, "endpoint_url": proxy.url}
    with Producer(root, storage_options=options) as producer:
        producer.send("t", b"first").result()  # finds the topic, and the end of its log
        before = len(proxy.requests)
        for number in range(20):
            producer.send("t", b"%d" % number).result()
        made = Counter(request.method for request in proxy.requests[before:])

    # The look: an append is acknowledged only if its topic has not been deleted meanwhile.
    assert made == {"PUT": 20, "GET": 20}
