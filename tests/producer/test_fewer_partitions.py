"""A topic that is created again with fewer partitions while a producer has records for it."""

import pytest

from spark_log import Admin, InvalidPartitionsError, NewTopic, UnknownTopicOrPartitionError
from tests.producer.support import ANY_TIME, by_hand, new_root, run, values


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, ("flights", 3))


@pytest.fixture
def producer(root, clock):
    producer = by_hand(root, clock, linger_ms=0, metadata_max_age_ms=1_000)
    for partition in range(3):
        producer.send("flights", b"old", partition=partition)
    run(producer, clock)
    return producer


def recreate(root, partitions=1):
    admin = Admin(root)
    admin.delete_topics(["flights"])
    admin.create_topics([NewTopic("flights", partitions, topic_configs=ANY_TIME)])


def test_what_waits_for_a_partition_that_is_gone_fails_and_the_rest_is_appended(
    root, clock, producer
):
    kept = producer.send("flights", b"kept", partition=0)
    gone = producer.send("flights", b"gone", partition=2)
    recreate(root)
    run(producer, clock)
    assert kept.result(0).offset == 0
    assert isinstance(error := gone.exception(0), UnknownTopicOrPartitionError), error
    assert "created again with 1 partitions" in str(error)
    assert "partition 2" in str(error)
    assert values(root, "flights") == {0: [b"kept"]}


def test_records_with_a_key_and_without_one_go_to_the_partitions_that_exist(root, clock, producer):
    recreate(root)
    clock.advance_ms(1_000)
    sent = [producer.send("flights", b"k", key=b"key%d" % number) for number in range(10)]
    sent += [producer.send("flights", b"n") for _ in range(10)]
    run(producer, clock)
    assert sorted(each.result(0).offset for each in sent) == list(range(20))
    assert {each.result(0).partition for each in sent} == {0}
    assert producer.partitions_for("flights") == {0}


def test_a_partition_that_is_gone_is_refused_by_send(root, clock, producer):
    recreate(root)
    clock.advance_ms(1_000)
    with pytest.raises(InvalidPartitionsError, match=r"flights.*1"):
        producer.send("flights", b"x", partition=2)


def test_more_partitions_afterwards_are_used(root, clock, producer):
    recreate(root)
    clock.advance_ms(1_000)
    producer.send("flights", b"0", partition=0)
    run(producer, clock)
    recreate(root, partitions=4)
    clock.advance_ms(1_000)
    assert producer.partitions_for("flights") == {0, 1, 2, 3}
    assert producer.send("flights", b"3", partition=3) is not None
    run(producer, clock)
    assert values(root, "flights") == {0: [], 1: [], 2: [], 3: [b"3"]}


def test_nothing_waits_for_ever(root, clock, producer):
    """A record of a partition that is gone ends, though it was on its way when the topic went."""
    sent = [producer.send("flights", b"%d" % each, partition=each % 3) for each in range(30)]
    recreate(root)
    run(producer, clock)
    assert all(each.done() for each in sent)
    appended = [each for each in sent if each.exception(0) is None]
    assert {each.result(0).partition for each in appended} == {0}
    assert len(appended) == 10
    assert values(root, "flights") == {0: [b"%d" % each for each in range(0, 30, 3)]}
