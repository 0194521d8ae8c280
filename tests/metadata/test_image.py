"""The metadata image: the state after replaying records."""

import pytest

from spark_log.config import TopicConfig
from spark_log.errors import CorruptRecordError, UnknownTopicOrPartitionError
from spark_log.metadata import MetadataImage
from spark_log.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)


def config(topic, name, value, resource_type="topic"):
    return ConfigRecord(resource_type=resource_type, resource_name=topic, name=name, value=value)


def image_of(*records):
    image = MetadataImage()
    for record in records:
        image.replay(record)
    return image


FLIGHTS = (
    TopicRecord(name="flights", topic_id="id-1"),
    PartitionRecord(topic_id="id-1", partition_id=0),
    PartitionRecord(topic_id="id-1", partition_id=1, leader_epoch=4),
    config("flights", "segment.bytes", "1048576"),
)


class TestReplay:
    def test_nothing_is_no_topics(self):
        assert list(image_of().topics()) == []
        assert image_of().find("flights") is None

    def test_a_topic_has_its_partitions_and_configs(self):
        topic = image_of(*FLIGHTS).topic("flights")
        assert (topic.name, topic.topic_id, topic.num_partitions) == ("flights", "id-1", 2)
        assert topic.partitions[1].leader_epoch == 4
        assert topic.overrides == {"segment.bytes": "1048576"}
        assert topic.config() == TopicConfig.parse({"segment.bytes": 1_048_576})

    def test_topics_come_in_order_of_their_names(self):
        names = ["b", "a", "B", "a.b", "_"]
        image = image_of(*(TopicRecord(name=name, topic_id=f"id-{name}") for name in names))
        assert [topic.name for topic in image.topics()] == sorted(names)

    def test_a_later_config_goes_before_an_earlier_one_and_none_takes_it_away(self):
        later = config("flights", "segment.bytes", "2097152")
        assert image_of(*FLIGHTS, later).topic("flights").config().segment_bytes == 2_097_152
        gone = config("flights", "segment.bytes", None)
        assert image_of(*FLIGHTS, gone, gone).topic("flights").overrides == {}

    def test_quotas_are_the_clients_own_else_those_of_all(self):
        image = image_of(
            config("", "producer_byte_rate", "5", "client"),
            config("", "consumer_byte_rate", "6", "client"),
            config("loader", "producer_byte_rate", "7", "client"),
        )
        quota = image.client_quota("loader")
        assert (quota.producer_byte_rate, quota.consumer_byte_rate) == (7, 6)
        assert image.client_quota("another").producer_byte_rate == 5
        before = image.copy()
        for client_id in ("loader", ""):
            image.replay(config(client_id, "producer_byte_rate", None, "client"))
        assert image.client_overrides == {"": {"consumer_byte_rate": "6"}}
        assert image.client_quota("loader").producer_byte_rate == 2**63 - 1
        assert before.client_quota("loader").producer_byte_rate == 7

    def test_quotas_that_this_version_does_not_understand_keep_nobody_out(self):
        image = image_of(
            config("a", "request_percentage", "12.5", "client"),
            config("a", "producer_byte_rate", "half of it", "client"),
            config("a", "consumer_byte_rate", "9", "client"),
        )
        quota = image.client_quota("a")
        assert (quota.producer_byte_rate, quota.consumer_byte_rate) == (2**63 - 1, 9)

    def test_configs_of_other_resources_are_not_topics(self):
        other = config("flights", "segment.bytes", "7", resource_type="broker")
        assert image_of(*FLIGHTS, other).topic("flights").overrides["segment.bytes"] == "1048576"
        assert list(image_of(other).topics()) == []

    def test_a_removed_topic_is_gone_with_all_it_had(self):
        again = TopicRecord(name="flights", topic_id="id-2")
        image = image_of(*FLIGHTS, RemoveTopicRecord(topic_id="id-1"))
        assert list(image.topics()) == []
        image.replay(again)
        topic = image.topic("flights")
        assert (topic.topic_id, topic.num_partitions, topic.overrides) == ("id-2", 0, {})

    @pytest.mark.parametrize(
        "record",
        [
            PartitionRecord(topic_id="id-9", partition_id=0),
            RemoveTopicRecord(topic_id="id-9"),
            config("no-such-topic", "segment.bytes", "1048576"),
        ],
    )
    def test_what_speaks_of_no_topic_is_corrupt(self, record):
        with pytest.raises(CorruptRecordError, match="which no record created"):
            image_of(*FLIGHTS, record)

    def test_what_speaks_of_a_removed_topic_is_corrupt(self):
        removed = RemoveTopicRecord(topic_id="id-1")
        for record in (FLIGHTS[1], FLIGHTS[3], removed):
            with pytest.raises(CorruptRecordError):
                image_of(*FLIGHTS, removed, record)


class TestLookup:
    def test_a_topic_that_is_not_there_is_refused_with_names_that_look_like_it(self):
        names = ["flights", "flights-raw", "weather", "Flights2"]
        image = image_of(*(TopicRecord(name=name, topic_id=name) for name in names))
        with pytest.raises(UnknownTopicOrPartitionError) as caught:
            image.topic("flihgts")
        assert caught.value.topic == "flihgts"
        assert caught.value.near[0] == "flights"
        assert "weather" not in caught.value.near
        assert "did you mean flights" in caught.value.message

    def test_where_none_looks_like_it_the_message_says_what_there_is(self):
        with pytest.raises(
            UnknownTopicOrPartitionError, match="existing topics: flights"
        ) as caught:
            image_of(*FLIGHTS).topic("zzz")
        assert caught.value.near == ()

    def test_of_many_topics_the_message_names_five(self):
        image = image_of(*(TopicRecord(name=name, topic_id=f"id-{name}") for name in "gabcdef"))
        with pytest.raises(UnknownTopicOrPartitionError, match="topics: a, b, c, d, e and 2 more"):
            image.topic("zzz")

    def test_where_there_is_no_topic_the_message_says_what_to_do(self):
        with pytest.raises(UnknownTopicOrPartitionError, match="create one first"):
            MetadataImage().topic("zzz")


class TestDirectories:
    def test_a_topic_lies_under_its_name_and_id_and_a_partition_below_it(self):
        topic = image_of(*FLIGHTS).topic("flights")
        assert topic.directory == "flights.id-1"
        assert topic.partition_directory(1) == "flights.id-1/flights-1"

    @pytest.mark.parametrize("length", [1, 230, 232, 233, 248, 249])
    @pytest.mark.parametrize("partition", [0, 199_999])
    def test_every_legal_name_makes_components_that_file_systems_take(self, length, partition):
        name = "n" * length
        image = image_of(TopicRecord(name=name, topic_id="BAmGwfbUQVSsLzdzBSFxhA"))
        components = image.topic(name).partition_directory(partition).split("/")
        assert len(components) == 2
        assert all(len(component) <= 255 for component in components)
