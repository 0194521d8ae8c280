"""The values of the public API: kafka-python's names and fields, frozen, can be pickled."""

import pickle

import pytest

import spark_log
from spark_log import types
from spark_log.types import (
    ConsumerRecord,
    NewTopic,
    OffsetAndMetadata,
    PartitionDescription,
    RecordMetadata,
    TopicDescription,
    TopicPartition,
)

VALUES = [
    TopicPartition("flights", 3),
    ConsumerRecord("flights", 3, 7, 1_700_000_000_000, 0, b"k", b"v", [("h", None)], 1),
    RecordMetadata("flights", 3, 7, 1_700_000_000_000),
    OffsetAndMetadata(7, "note", 1),
    NewTopic("flights", 4, 1, {"segment.bytes": "1048576"}),
    PartitionDescription(0, 0, (0,), (0,), 0, 7, 100, 1),
    TopicDescription("flights", "id", (), {}),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
class TestEveryValue:
    def test_a_value_pickles(self, value):
        assert pickle.loads(pickle.dumps(value)) == value

    def test_a_value_is_frozen(self, value):
        name = next(iter(type(value).__annotations__))
        with pytest.raises(AttributeError):
            setattr(value, name, "changed")


def test_every_public_value_is_the_one_of_types():
    public = set(dir(types)) & set(spark_log.__all__)
    assert {"ConsumerRecord", "NewTopic", "TopicDescription", "TransactionListing"} <= public
    for name in public:
        assert getattr(spark_log, name) is getattr(types, name)


class TestFields:
    def test_records_have_kafka_pythons_fields_in_order(self):
        assert ConsumerRecord._fields == (
            "topic",
            "partition",
            "offset",
            "timestamp",
            "timestamp_type",
            "key",
            "value",
            "headers",
            "leader_epoch",
        )

    def test_a_topic_partition_is_a_tuple_that_writes_itself_as_kafka_does(self):
        partition = TopicPartition("flights", 3)
        assert str(partition) == "flights-3"
        assert partition == ("flights", 3)
        assert sorted(
            [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)]
        ) == [
            ("a", 9),
            ("a", 10),
            ("b", 0),
        ]

    def test_defaults_are_one_partition_one_replica_no_configs(self):
        assert NewTopic("a") == NewTopic("a", 1, None, {})
        assert OffsetAndMetadata(7) == OffsetAndMetadata(7, "", -1)

    def test_two_new_topics_do_not_share_their_configs(self):
        assert NewTopic("a").topic_configs is not NewTopic("b").topic_configs


class TestPartitionDescription:
    @staticmethod
    def described(leader, replicas, isr, **fields):
        return PartitionDescription(0, leader, replicas, isr, 0, 0, 0, 0, **fields)

    def test_a_partition_under_reassignment_is_not_under_replicated_by_what_is_added(self):
        assert self.described(0, (0, 1), (0,)).is_under_replicated
        assert not self.described(0, (0, 1), (0,), adding_replicas=(1,)).is_under_replicated
        assert not self.described(0, (0, 1), (0, 1)).is_under_replicated

    def test_without_a_leader_a_partition_is_unavailable_and_below_its_minimum(self):
        leaderless = self.described(-1, (0, 1), (0,))
        assert leaderless.is_unavailable
        assert leaderless.is_under_min_isr
        assert self.described(0, (0, 1), (0,), offline_replicas=(0,)).is_unavailable
        assert not self.described(0, (0, 1), (0,), offline_replicas=(1,)).is_unavailable

    @pytest.mark.parametrize(
        ("count", "is_under", "is_at"), [(1, True, False), (2, False, True), (3, False, False)]
    )
    def test_in_sync_replicas_are_compared_with_their_minimum(self, count, is_under, is_at):
        isr = (0, 1, 2)[:count]
        found = self.described(0, (0, 1, 2), isr, min_insync_replicas=2)
        assert (found.is_under_min_isr, found.is_at_min_isr) == (is_under, is_at)
