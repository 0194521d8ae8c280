"""The metadata image: the state after replaying records."""

import pytest

from spark_log.config import TopicConfig
from spark_log.errors import (
    BrokerIdNotRegisteredError,
    CorruptRecordError,
    UnknownTopicOrPartitionError,
)
from spark_log.metadata import MetadataImage
from spark_log.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
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
        records = [TopicRecord(name=name, topic_id=f"id-{at}") for at, name in enumerate(names)]
        image = image_of(*records)
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

    def test_a_topic_has_the_clusters_settings_of_replication_unless_it_has_its_own(self):
        two = config("", "min.insync.replicas", "2", "broker")
        image = image_of(*FLIGHTS, two, TopicRecord(name="weather", topic_id="id-2"))
        names = ("flights", "weather")
        assert [image.topic(name).config().min_insync_replicas for name in names] == [2, 2]
        copy = image.copy()
        for record in (
            config("flights", "min.insync.replicas", "3"),
            config("", "min.insync.replicas", None, "broker"),
        ):
            copy.replay(record)
        assert [copy.topic(name).config().min_insync_replicas for name in names] == [3, 1]
        assert [image.topic(name).config().min_insync_replicas for name in names] == [2, 2]
        assert copy.topic("flights").partitions.keys() == {0, 1}

    def test_other_settings_of_the_cluster_are_not_those_of_topics(self):
        image = image_of(*FLIGHTS, config("", "segment.bytes", "2097152", "broker"))
        assert image.topic("flights").inherited == {}

    @pytest.mark.parametrize(
        ("replicas", "adding", "needed"),
        [((1, 2, 3), (), 2), ((1, 2), (), 2), ((1,), (), 1), ((4, 5, 1), (4, 5), 1)],
    )
    def test_no_more_replicas_have_to_be_in_sync_than_there_are(self, replicas, adding, needed):
        partition = PartitionRecord(
            topic_id="id-1", partition_id=0, replicas=replicas, adding_replicas=adding
        )
        two = config("flights", "min.insync.replicas", "2")
        assert image_of(FLIGHTS[0], partition, two).topic("flights").min_insync_replicas(0) == (
            needed
        )

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


REPLICATED = (
    TopicRecord(name="flights", topic_id="id-1"),
    PartitionRecord(
        topic_id="id-1",
        partition_id=0,
        replicas=(1, 2, 3),
        isr=(1, 2),
        leader=1,
        leader_epoch=4,
        partition_epoch=9,
    ),
)


def change(**fields):
    return PartitionChangeRecord(topic_id="id-1", partition_id=0, **fields)


def changed_partition(*changes):
    """Return the partition of `REPLICATED` after these changes."""
    return image_of(*REPLICATED, *changes).topic("flights").partitions[0]


class TestPartitionChanges:
    @pytest.mark.parametrize(
        ("fields", "is_new_leader_epoch"),
        [
            ({"isr": (2,)}, True),
            ({"leader": 1}, True),
            ({"leader": -1}, True),
            ({"joining": (3,)}, True),
            ({"joining": ()}, True),
            ({"replicas": (2, 1)}, False),
            ({"directories": (0, 0, 1)}, False),
            ({"adding_replicas": (3,)}, False),
            ({"removing_replicas": (1,)}, False),
            ({"eligible_leader_replicas": (3,)}, False),
            ({"last_known_elr": (3,)}, False),
        ],
    )
    def test_set_one_field_and_raise_the_epochs(self, fields, is_new_leader_epoch):
        epochs = {"leader_epoch": 4 + is_new_leader_epoch, "partition_epoch": 10}
        hidden = {"hidden_from_epoch": 4 if "eligible_leader_replicas" in fields else 0}
        assert changed_partition(change(**fields)) == REPLICATED[1].model_copy(
            update=fields | epochs | hidden
        )

    def test_hide_what_is_written_while_there_are_eligible_replicas(self):
        fewer = change(isr=(1,), eligible_leader_replicas=(2,))
        assert changed_partition(fewer).hidden_from_epoch == 5
        joining = change(joining=(3,))
        assert changed_partition(fewer, joining).hidden_from_epoch == 5
        enough = change(isr=(1, 3), joining=(), eligible_leader_replicas=())
        assert changed_partition(fewer, joining, enough).hidden_from_epoch == 0

    def test_a_list_is_emptied(self):
        before = change(joining=(3,), adding_replicas=(3,), eligible_leader_replicas=(3,))
        after = changed_partition(
            before, change(joining=(), adding_replicas=(), eligible_leader_replicas=())
        )
        assert (after.joining, after.adding_replicas, after.eligible_leader_replicas) == (
            (),
            (),
            (),
        )
        assert (after.leader_epoch, after.partition_epoch) == (6, 11)

    def test_of_a_copy_do_not_change_the_image(self):
        image = image_of(*REPLICATED)
        copy = image.copy()
        copy.replay(change(isr=(2,), leader=2))
        assert copy.topic("flights").partitions[0].leader == 2
        assert image.topic("flights").partitions[0] == REPLICATED[1]

    @pytest.mark.parametrize(("topic_id", "partition"), [("id-9", 0), ("id-1", 1)])
    def test_of_a_partition_that_no_record_created_are_damage(self, topic_id, partition):
        record = PartitionChangeRecord(topic_id=topic_id, partition_id=partition, leader=2)
        with pytest.raises(CorruptRecordError, match="which no record created"):
            image_of(*REPLICATED, record)


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

    def test_a_replica_that_came_back_has_the_number_of_its_directory(self):
        topic = image_of(*REPLICATED, change(directories=(0, 12, 0))).topic("flights")
        assert topic.replica_directory(0, 1) == "flights.id-1/flights-0"
        assert topic.replica_directory(0, 2) == "flights.id-1/flights-0.12"
        with pytest.raises(ValueError, match="not in tuple"):
            topic.replica_directory(0, 4)

    @pytest.mark.parametrize("length", [240, 248, 249])
    def test_the_directory_of_a_replica_has_a_legal_name_of_its_own(self, length):
        topic_id = "BAmGwfbUQVSsLzdzBSFxhA"
        partition = PartitionRecord(
            topic_id=topic_id, partition_id=199_999, replicas=(1, 2), directories=(98_765, 0)
        )
        image = image_of(TopicRecord(name="n" * length, topic_id=topic_id), partition)
        topic = image.topic("n" * length)
        directories = [topic.replica_directory(199_999, broker) for broker in (1, 2)]
        assert len(set(directories)) == 2
        assert directories[1] == topic.partition_directory(199_999)
        for directory in directories:
            assert all(len(component) <= 255 for component in directory.split("/"))


def registered(broker_id, epoch, **fields):
    return RegisterBrokerRecord(
        broker_id=broker_id, incarnation_id="i", broker_epoch=epoch, root="/b", **fields
    )


def changed(broker_id, epoch, **fields):
    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, **fields)


class TestBrokers:
    def test_the_root_of_the_metadata_log_is_broker_0_without_a_record(self):
        (root,) = image_of(*FLIGHTS).brokers()
        assert (root.broker_id, root.broker_epoch, root.root) == (0, -1, "")
        assert not root.fenced
        assert image_of().next_broker_epoch == 0

    def test_are_in_the_order_of_their_ids(self):
        image = image_of(registered(12, 0), registered(3, 1, rack="a"))
        assert [broker.broker_id for broker in image.brokers()] == [0, 3, 12]
        assert image.broker(3) == registered(3, 1, rack="a")

    def test_are_fenced_and_unfenced_and_nothing_else_of_them_changes(self):
        image = image_of(registered(1, 0, rack="a", fenced=False), changed(1, 0, fenced=1))
        assert image.broker(1) == registered(1, 0, rack="a", fenced=True)
        image.replay(changed(1, 0))
        assert image.broker(1).fenced
        image.replay(changed(1, 0, fenced=-1))
        assert image.broker(1) == registered(1, 0, rack="a", fenced=False)

    def test_the_root_can_be_fenced_too(self):
        image = image_of(changed(0, -1, fenced=1))
        assert image.broker(0).fenced
        assert not image_of().broker(0).fenced

    def test_the_root_is_a_broker_also_when_a_registration_of_it_ends(self):
        end = UnregisterBrokerRecord(broker_id=0, broker_epoch=5)
        image = image_of(registered(0, 5, rack="a"), end)
        assert list(image.brokers()) == list(image_of().brokers())

    def test_that_are_being_unregistered_stay_so_when_they_are_fenced(self):
        image = image_of(registered(1, 0), changed(1, 0, in_controlled_shutdown=1))
        image.replay(changed(1, 0, fenced=-1))
        assert image.broker(1).in_controlled_shutdown

    def test_an_epoch_is_never_given_again(self):
        image = image_of(
            registered(1, 0), registered(2, 1), UnregisterBrokerRecord(broker_id=2, broker_epoch=1)
        )
        assert [broker.broker_id for broker in image.brokers()] == [0, 1]
        assert image.next_broker_epoch == image.copy().next_broker_epoch == 2

    def test_a_copy_does_not_change_with_the_image(self):
        image = image_of(registered(1, 0, fenced=False))
        before = image.copy()
        image.replay(changed(1, 0, fenced=1))
        image.replay(registered(2, 1))
        assert before.broker(1) == registered(1, 0, fenced=False)
        assert [broker.broker_id for broker in before.brokers()] == [0, 1]

    def test_one_that_is_not_registered_is_told_with_those_that_are(self):
        with pytest.raises(BrokerIdNotRegisteredError) as caught:
            image_of(registered(3, 0)).broker(1)
        assert caught.value.message == "broker 1 is not registered; registered are [0, 3]"
        assert caught.value.broker_id == 1

    @pytest.mark.parametrize(
        "record",
        [
            changed(2, 4, fenced=1),
            changed(1, 3, fenced=1),
            UnregisterBrokerRecord(broker_id=2, broker_epoch=4),
            UnregisterBrokerRecord(broker_id=1, broker_epoch=3),
        ],
    )
    def test_a_change_of_what_is_not_registered_is_damage(self, record):
        image = image_of(registered(1, 4))
        with pytest.raises(CorruptRecordError, match=f"{type(record).__name__} for broker"):
            image.replay(record)
