"""Offsets of topics with stripes, as an admin asks for them: a request for each stripe."""

import gc

import pytest

from spark_log import (
    Admin,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
    Producer,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from spark_log.admin import topics
from spark_log.errors import CorruptRecordError
from spark_log.log.stripe import StripeReader
from spark_log.storage.local import LocalStore
from tests.store_calls import counted_calls

PARTITIONS, STRIPES = 40, 2
TPS = [TopicPartition("t", number) for number in range(PARTITIONS)]


@pytest.fixture
def root(tmp_path):
    """A root whose topic has two records in each partition."""
    root = str(tmp_path / "root")
    settings = {"flush.on.append": False, "stripes": STRIPES}
    Admin(root).create_topics([NewTopic("t", PARTITIONS, topic_configs=settings)])
    send(root, b"a", b"b")
    return root


def send(root, *values, **settings):
    with Producer(root, linger_ms=60_000, **settings) as producer:
        for value in values:
            for tp in TPS:
                producer.send("t", value, partition=tp.partition)


def at_stripes(calls):
    """Return the number of calls in stripes, and of those in the directories of partitions."""
    found = [
        sum(count for (_, path), count in calls.items() if part in path)
        for part in ("/__stripes/", "/t-")
    ]
    calls.clear()
    return tuple(found)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_the_ends_of_all_partitions_cost_a_request_for_each_stripe(root, level):
    admin = Admin(root)
    specs = dict.fromkeys(TPS, OffsetSpec.LATEST)
    with counted_calls() as calls:
        first = admin.list_offsets(specs, isolation_level=level)
        gc.collect()  # what was read stays known
        calls.clear()
        again = admin.list_offsets(specs, isolation_level=level)
        polls = at_stripes(calls)
    assert first == again
    assert {found.offset for found in again.values()} == {2}
    assert polls == (STRIPES, 0)


def test_an_open_transaction_hides_the_records_behind_it(root):
    producer = Producer(root, linger_ms=0, transactional_id="id")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"c", partition=7).result()
    send(root, b"d")
    admin = Admin(root)
    specs = dict.fromkeys(TPS, OffsetSpec.LATEST)
    ends = {
        level: {
            tp.partition: found.offset
            for tp, found in admin.list_offsets(specs, isolation_level=level).items()
        }
        for level in ("read_uncommitted", "read_committed")
    }
    assert ends["read_uncommitted"] == {number: 3 + (number == 7) for number in range(PARTITIONS)}
    assert ends["read_committed"] == {number: 3 - (number == 7) for number in range(PARTITIONS)}
    producer.abort_transaction()
    producer.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.list_offsets(dict.fromkeys(TPS, OffsetSpec.EARLIEST)),
        lambda admin: admin.describe_topics(["t"]),
        lambda admin: admin.group_lag("g"),
    ],
    ids=["earliest offsets", "a description", "a group's lag"],
)
def test_partitions_of_a_stripe_share_the_requests_at_its_end(root, ask):
    admin = Admin(root)
    admin.alter_group_offsets("g", dict.fromkeys(TPS, OffsetAndMetadata(1)))
    with counted_calls() as calls:
        ask(admin)
        stripes, partitions = at_stripes(calls)
    assert stripes <= 6 * STRIPES
    assert partitions == 0, "nothing is at home"


def test_the_stripes_of_all_topics_are_described_together(root, monkeypatch):
    admin = Admin(root)
    admin.create_topics([NewTopic(name, 3, topic_configs={"stripes": 3}) for name in ("a", "b")])
    together = []

    def map_requests(store, read, items):
        together.append(len(items))
        return [read(each) for each in items]

    monkeypatch.setattr(topics, "map_requests", map_requests)
    found = {each.name: each.stripes for each in admin.describe_topics()}
    assert {name: [each.stripe for each in found[name]] for name in found} == {
        "a": [0, 1, 2],
        "b": [0, 1, 2],
        "t": [0, 1],
    }
    assert [count for count in together if count != 6 + PARTITIONS] == [3 + 3 + 2]


def test_partitions_of_a_stripe_are_polled_and_taken_home_together_before_a_deletion(
    root, monkeypatch
):
    monkeypatch.setattr(LocalStore, "is_local", False)  # as on an object store
    admin = Admin(root)
    with counted_calls() as calls:
        deleted = admin.delete_records(dict.fromkeys(TPS, 1))
        stripes, _ = at_stripes(calls)
        assert stripes <= PARTITIONS + 10 * STRIPES  # each partition's new start is looked at
        assert admin.delete_records(dict.fromkeys(TPS, 1)) == deleted
        stripes, _ = at_stripes(calls)
        assert stripes == STRIPES
    assert {each.low_watermark for each in deleted.values()} == {1}


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.list_offsets(dict.fromkeys(TPS, OffsetSpec.LATEST)),
        lambda admin: admin.describe_topics(["t"]),
    ],
    ids=["ends", "a description"],
)
def test_a_topic_that_is_deleted_meanwhile_is_not_known(root, ask, monkeypatch):
    def lose_files(reader):
        Admin(root).delete_topics(["t"])
        raise CorruptRecordError(f"{reader.directory.path} has gaps")

    admin = Admin(root)
    monkeypatch.setattr(StripeReader, "poll", lose_files)
    with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
        ask(admin)


def test_a_topic_that_is_deleted_meanwhile_is_in_no_list_and_no_lag(root, monkeypatch):
    admin = Admin(root)
    admin.alter_group_offsets("g", {TPS[0]: OffsetAndMetadata(1)})
    poll = StripeReader.poll

    def lose_files(reader):
        monkeypatch.setattr(StripeReader, "poll", poll)
        Admin(root).delete_topics(["t"])
        raise CorruptRecordError(f"{reader.directory.path} has gaps")

    monkeypatch.setattr(StripeReader, "poll", lose_files)
    assert admin.group_lag("g") == []
    monkeypatch.undo()
    Admin(root).create_topics([NewTopic("t", 2, topic_configs={"stripes": 2})])
    monkeypatch.setattr(StripeReader, "poll", lose_files)
    assert [topic.name for topic in admin.describe_topics()] == []
