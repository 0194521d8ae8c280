"""A quorum of three buckets: each of them may be lost, and a member may have options of its own."""

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer
from spark_log.cluster import Cluster
from spark_log.errors import AlreadyExistsError, InvalidConfigurationError
from spark_log.storage import Membership, QuorumStore, open_quorum, open_store
from spark_log.storage.quorum.membership import Voter


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


def test_each_bucket_alone_opens_the_quorum(s3_server, roots):
    options = s3_server.storage_options
    with Admin(",".join(roots), storage_options=options) as admin:
        admin.create_topics([NewTopic("flights")])
    open_store(roots[2], options).delete_directory("")
    for root in roots[:2]:
        cluster = Cluster(root, options)
        assert isinstance(cluster.store, QuorumStore)
        assert sorted(cluster.root.split(",")) == sorted(roots), (
            "who is given this URL has the quorum, too"
        )
        assert cluster.image().find("flights") is not None
    cluster.producer_ids.next_id()
    assert Cluster(roots[0], options).image().next_producer_id > 0


def test_a_bucket_that_is_no_member_is_a_root_of_its_own(s3_server, roots):
    cluster = Cluster(roots[0], s3_server.storage_options, create=True)
    assert cluster.root == roots[0]


def test_members_with_other_options_have_to_be_given(s3_server, roots):
    """One is on another service, whose options have other names."""
    voters = tuple(Voter(root, "0" * 32) for root in (*roots[:2], "gs://bucket/root"))
    Membership(1, voters).install(open_store(roots[0], s3_server.storage_options))
    with pytest.raises(InvalidConfigurationError, match=r"storage_options=\{URL: ") as caught:
        Cluster(roots[0], s3_server.storage_options)
    assert f"member of the quorum {roots[0]},{roots[1]},gs://bucket/root" in caught.value.message
