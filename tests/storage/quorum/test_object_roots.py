"""A quorum of three buckets: each of them may be lost, and a member may have options of its own."""

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer
from spark_log.errors import AlreadyExistsError
from spark_log.storage import open_quorum, open_store


@pytest.fixture
def roots(s3_server):
    return [f"{s3_server.new_bucket()}/root" for _ in range(3)]


@pytest.mark.long
def test_a_bucket_may_be_emptied(s3_server, roots):
    url, options = ",".join(roots), s3_server.storage_options
    with Admin(url, storage_options=options) as admin:
        admin.create_topics([NewTopic("flights")])
    with Producer(url, storage_options=options, linger_ms=0) as producer:
        assert producer.send("flights", b"before").result(30).offset == 0
        open_store(roots[0], options).delete_directory("")
        assert producer.send("flights", b"after").result(30).offset == 1
    consumer = Consumer(
        "flights", root=url, storage_options=options, auto_offset_reset="earliest", group_id="g"
    )
    with consumer:
        values: list[object] = []
        while len(values) < 2:
            values += [r.value for records in consumer.poll(5000).values() for r in records]
    assert values == [b"before", b"after"]


def test_a_member_has_options_of_its_own(s3_server, roots):
    wrong = {**s3_server.storage_options, "secret": "wrong"}
    own = dict.fromkeys(roots, s3_server.storage_options)
    store = open_quorum(roots, {**wrong, **own})
    store.create_root()
    store.put_if_absent("topic/0", b"first")
    with pytest.raises(AlreadyExistsError):
        open_quorum(roots[:1], {**wrong, **own}).put_if_absent("topic/0", b"second")
