"""Registrations of brokers: what may change, and the records of it."""

from random import Random

import pytest

from spark_log.cluster import Cluster
from spark_log.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InvalidConfigurationError,
    InvalidRootError,
)
from spark_log.log.chain import NO_LEADER
from spark_log.metadata import MetadataImage
from spark_log.metadata.brokers import (
    alter_broker_records,
    fence_broker_records,
    register_broker_records,
    unregister_broker_records,
    usable_brokers,
)
from spark_log.metadata.partitions import UsableBroker, place_replicas
from spark_log.metadata.records import PartitionRecord, TopicRecord


def register(image, broker_id, root="/b", rack=None):
    return register_broker_records(
        image, broker_id, root, cluster_root="/a", incarnation_id=f"i{broker_id}", rack=rack
    )


def replay(image, records):
    for record in records:
        image.replay(record)
    return image


@pytest.fixture
def image():
    """Return the metadata of a cluster with the brokers 0 and 3."""
    image = MetadataImage()
    return replay(image, register(image, 3, "s3://b/log", "east"))


def hold_replica(image, broker_id, **state):
    image.replay(TopicRecord(name="flights", topic_id="id"))
    image.replay(PartitionRecord(topic_id="id", partition_id=0, replicas=(0, broker_id), **state))


def partition_of(image):
    return image.topic("flights").partitions[0]


class TestRegister:
    def test_a_broker_is_active_in_its_rack_and_has_the_next_epoch(self, image):
        first = image.broker(3)
        assert (first.root, first.rack, first.incarnation_id) == ("s3://b/log", "east", "i3")
        assert not first.fenced
        replay(image, register(image, 1, "/c"))
        assert [broker.broker_epoch for broker in image.brokers()] == [-1, 1, 0]

    def test_an_id_that_is_registered_is_refused(self, image):
        with pytest.raises(DuplicateBrokerRegistrationError) as caught:
            register(image, 3)
        assert caught.value.message == (
            "broker 3 is registered with the root s3://b/log; give another id, or unregister it "
            "first; if its data was lost, fence it first"
        )

    @pytest.mark.parametrize(("root", "holder"), [("s3://b/log", 3), ("/a", 0)])
    def test_a_root_that_is_registered_is_refused(self, image, root, holder):
        with pytest.raises(DuplicateBrokerRegistrationError, match="give another root") as caught:
            register(image, 4, root)
        assert caught.value.broker_id == holder

    @pytest.mark.parametrize("broker_id", [0, -1, 2**31])
    def test_an_id_out_of_range_is_refused(self, image, broker_id):
        with pytest.raises(InvalidConfigurationError, match="give 1 to 2147483647"):
            register(image, broker_id)

    def test_an_empty_rack_is_refused(self, image):
        with pytest.raises(InvalidConfigurationError, match="the rack is empty"):
            register(image, 1, rack="")

    @pytest.mark.parametrize(
        "root",
        [
            "s3://KEY:hunter2@bucket/log",
            "abfs://me:hunter2@account.dfs.core.windows.net/log",
            "az://box/log?sig=hunter2",
        ],
    )
    def test_credentials_are_refused_and_not_shown(self, image, root):
        with pytest.raises(InvalidRootError, match="credentials as storage options") as caught:
            register(image, 1, root)
        assert "hunter2" not in f"{caught.value.message} {caught.value.path}"

    @pytest.mark.parametrize(
        "root", ["abfs://box@account.dfs.core.windows.net/log", "/data/a:b@c/what?", "s3://b/x:y"]
    )
    def test_paths_and_accounts_are_no_credentials(self, image, root):
        assert replay(image, register(image, 1, root)).broker(1).root == root

    @pytest.mark.parametrize("root", ["/q/1", "/q/2/sub", "/q", "s3://c/log/sub"])
    def test_a_root_that_shares_files_with_a_member_of_a_quorum_is_refused(self, image, root):
        with pytest.raises(InvalidRootError, match="the root of broker 0"):
            register_broker_records(
                image, 1, root, cluster_root="/q/1,/q/2,s3://c/log", incarnation_id="i1"
            )


class TestRegisterAgain:
    """A broker whose data was lost is registered with an empty root."""

    def test_a_fenced_broker_gets_a_new_root_and_epoch(self, image):
        replay(image, fence_broker_records(image, 3, fenced=True))
        broker = replay(image, register(image, 3, "s3://b/log")).broker(3)
        assert (broker.root, broker.broker_epoch, broker.fenced) == ("s3://b/log", 1, False)

    def test_its_replicas_are_no_longer_eligible(self, image):
        hold_replica(image, 3, isr=(0,), eligible_leader_replicas=(3,))
        replay(image, fence_broker_records(image, 3, fenced=True))
        replay(image, register(image, 3, "/new"))
        assert partition_of(image).eligible_leader_replicas == ()
        assert partition_of(image).isr == (0,)

    def test_its_replicas_get_directories_that_no_late_put_reaches(self, image):
        hold_replica(image, 3, isr=(0,))
        before = partition_of(image).directory_of(3)
        replay(image, fence_broker_records(image, 3, fenced=True))
        replay(image, register(image, 3, "/new"))
        after = partition_of(image)
        assert (after.directory_of(3), after.directory_of(0)) == (before + 1, 0)

    def test_the_only_replica_that_may_lead_is_not_given_up(self, image):
        hold_replica(image, 3, isr=(3,), leader=3)
        replay(image, fence_broker_records(image, 3, fenced=True))
        with pytest.raises(DuplicateBrokerRegistrationError, match=r"flights-0 has no replica"):
            register(image, 3, "/new")


class TestFence:
    def test_other_replicas_lead_the_partitions_of_a_fenced_broker(self, image):
        hold_replica(image, 3, isr=(3, 0), leader=3)
        replay(image, fence_broker_records(image, 3, fenced=True))
        assert (partition_of(image).leader, partition_of(image).isr) == (0, (0,))

    def test_a_partition_without_a_leader_gets_one_when_a_broker_is_unfenced(self, image):
        hold_replica(image, 3, isr=(3,), leader=3)
        replay(image, fence_broker_records(image, 3, fenced=True))
        assert partition_of(image).leader == NO_LEADER
        replay(image, fence_broker_records(image, 3, fenced=False))
        assert partition_of(image).leader == 3

    def test_it_can_be_undone_and_repeated(self, image):
        for fenced in (True, False, True):
            assert image.broker(3).fenced != fenced
            replay(image, fence_broker_records(image, 3, fenced=fenced))
            assert image.broker(3).fenced == fenced
            assert fence_broker_records(image, 3, fenced=fenced) == []

    def test_replicas_are_not_led_by_a_fenced_broker(self, image):
        replay(image, fence_broker_records(image, 0, fenced=True))
        assert list(usable_brokers(image)) == [
            UsableBroker(0, None, fenced=True),
            UsableBroker(3, "east"),
        ]
        placed = place_replicas(
            usable_brokers(image), num_partitions=3, replication_factor=2, random=Random(1)
        )
        assert placed == [(3, 0)] * 3

    def test_a_broker_that_is_not_registered_is_refused(self, image):
        with pytest.raises(BrokerIdNotRegisteredError):
            fence_broker_records(image, 1, fenced=True)


class TestAlter:
    def test_placement_counts_the_rack_of_the_root(self, image):
        replay(image, register(image, 4, "/d", "east"))
        replay(image, alter_broker_records(image, 0, rack="west"))
        assert [each.rack for each in usable_brokers(image)] == ["west", "east", "east"]
        for seed in range(5):
            placed = place_replicas(
                usable_brokers(image), num_partitions=4, replication_factor=2, random=Random(seed)
            )
            assert all(0 in replicas for replicas in placed), "one replica in each rack"

    def test_nothing_else_of_the_broker_changes(self, image):
        replay(image, fence_broker_records(image, 3, fenced=True))
        before = image.broker(3)
        replay(image, alter_broker_records(image, 3, rack="west"))
        assert image.broker(3) == before.model_copy(update={"rack": "west"})
        assert alter_broker_records(image, 3, rack="west") == []
        replay(image, fence_broker_records(image, 3, fenced=False))
        assert image.broker(3).rack == "west"
        replay(image, alter_broker_records(image, 3, rack=None))
        assert image.broker(3).rack is None

    def test_an_empty_rack_and_a_broker_that_is_not_registered_are_refused(self, image):
        with pytest.raises(InvalidConfigurationError, match="the rack is empty"):
            alter_broker_records(image, 3, rack="")
        with pytest.raises(BrokerIdNotRegisteredError):
            alter_broker_records(image, 1, rack="west")


class TestUnregister:
    def test_a_broker_without_replicas_is_gone_at_once_and_its_id_is_free(self, image):
        hold_replica(image, 5)
        replay(image, unregister_broker_records(image, 3))
        assert [broker.broker_id for broker in image.brokers()] == [0]
        assert replay(image, register(image, 3)).broker(3).broker_epoch == 1

    def test_a_broker_with_replicas_stays_and_gets_no_more_until_they_are_moved(self, image):
        hold_replica(image, 3)
        replay(image, unregister_broker_records(image, 3))
        assert image.broker(3).in_controlled_shutdown
        assert [broker.broker_id for broker in usable_brokers(image)] == [0]
        assert unregister_broker_records(image, 3) == []
        image.replay(PartitionRecord(topic_id="id", partition_id=0))
        replay(image, unregister_broker_records(image, 3))
        assert [broker.broker_id for broker in image.brokers()] == [0]

    def test_the_root_of_the_metadata_log_is_refused(self, image):
        with pytest.raises(InvalidConfigurationError, match=r"cannot be unregistered; fence it"):
            unregister_broker_records(image, 0)

    def test_a_broker_that_is_not_registered_is_refused(self, image):
        with pytest.raises(BrokerIdNotRegisteredError, match=r"registered are \[0, 3\]"):
            unregister_broker_records(image, 1)


def test_registrations_are_read_back_from_the_metadata_log(tmp_path):
    cluster = Cluster(tmp_path / "a", create=True)
    cluster.metadata.commit(lambda image: register(image, 1, "/b", "east"))
    cluster.metadata.commit(lambda image: register(image, 2, "/c"))
    cluster.metadata.commit(lambda image: fence_broker_records(image, 1, fenced=True))
    cluster.metadata.commit(lambda image: alter_broker_records(image, 0, rack="west"))
    cluster.metadata.commit(lambda image: unregister_broker_records(image, 2))
    found = list(Cluster(tmp_path / "a").image().brokers())
    assert found == list(cluster.image().brokers())
    assert [(broker.broker_id, broker.rack, broker.fenced) for broker in found] == [
        (0, "west", False),
        (1, "east", True),
    ]
