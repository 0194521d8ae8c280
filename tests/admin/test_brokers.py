"""`Admin` on the cluster and its brokers."""

import pytest

from spark_log import Admin, BrokerDescription, Consumer, NewTopic, Producer, TopicPartition
from spark_log.cluster import Cluster
from spark_log.errors import (
    BrokerIdNotRegisteredError,
    InvalidConfigurationError,
    RootNotFoundError,
)
from spark_log.metadata.records import PartitionRecord


@pytest.fixture
def cluster(admin, root):
    """Return the cluster of ``admin``, with a topic and broker 1 beside the root."""
    admin.create_topics([NewTopic("a")])
    admin.register_broker(1, f"{root}-1", rack="east")
    return Cluster(root)


def hold_replica(cluster):
    """Make broker 1 a replica of the topic's partition that is not in sync."""
    topic = cluster.topic("a")
    cluster.metadata.commit(
        lambda image: [PartitionRecord(topic_id=topic.topic_id, partition_id=0, replicas=(0, 1))]
    )


class TestDescribe:
    def test_without_a_root_there_is_nothing_to_describe(self, admin):
        with pytest.raises(RootNotFoundError):
            admin.describe_cluster()

    def test_a_cluster_is_described_by_its_id_and_its_brokers(self, admin, root, cluster):
        described = admin.describe_cluster()
        assert described.cluster_id == cluster.cluster_id
        assert described.brokers == (
            BrokerDescription(0, str(root), replica_count=1, in_sync_count=1, leader_count=1),
            BrokerDescription(
                1,
                f"{root}-1",
                rack="east",
                broker_epoch=0,
                incarnation_id=cluster.image().broker(1).incarnation_id,
            ),
        )
        assert admin.list_brokers() == list(described.brokers)

    @pytest.mark.partition_logs_only("moves partitions to a broker")
    def test_partitions_of_which_it_holds_a_replica_are_counted(self, admin, cluster):
        hold_replica(cluster)
        one = admin.list_brokers()[1]
        assert (one.replica_count, one.in_sync_count, one.leader_count) == (1, 0, 0)


class TestRegister:
    def test_the_description_of_the_new_broker_is_returned(self, admin, root, cluster):
        broker = admin.register_broker(2, f"{root}-2")
        assert broker == admin.list_brokers()[2]
        assert (broker.broker_id, broker.log_dir, broker.state) == (2, f"{root}-2", "active")

    def test_a_cluster_that_does_not_exist_is_created(self, admin, root):
        admin.register_broker(1, f"{root}-1")
        assert [broker.log_dir for broker in admin.list_brokers()] == [str(root), f"{root}-1"]


class TestChange:
    def test_a_fenced_broker_is_unfenced_again(self, admin, cluster):
        assert admin.fence_broker(1).state == "fenced"
        assert admin.list_brokers()[1].fenced
        assert admin.unfence_broker(1).state == "active"
        assert not admin.list_brokers()[1].fenced

    def test_a_broker_without_replicas_is_unregistered(self, admin, cluster):
        assert admin.unregister_broker(1) == []
        assert [broker.broker_id for broker in admin.list_brokers()] == [0]

    @pytest.mark.partition_logs_only("moves partitions to a broker")
    def test_a_broker_with_replicas_is_unregistered_when_they_were_moved(self, admin, cluster):
        hold_replica(cluster)
        assert admin.unregister_broker(1) == [TopicPartition("a", 0)]
        assert admin.list_brokers()[1].state == "unregistering"
        admin.delete_topics(["a"])
        assert admin.unregister_broker(1) == []
        assert [broker.broker_id for broker in admin.list_brokers()] == [0]

    @pytest.mark.parametrize("change", ["fence_broker", "unfence_broker", "unregister_broker"])
    def test_a_broker_that_is_not_registered_is_refused(self, admin, cluster, change):
        with pytest.raises(BrokerIdNotRegisteredError, match="broker 7 is not registered"):
            getattr(admin, change)(7)


class TestStorageOptions:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ("key", "is a str; give a dict: broker id"),
            ({"1": {}}, "has the key '1'; a key is the id of a broker"),
            ({0: {}}, "those of broker 0 are storage_options"),
            ({1: "hunter2"}, r"\[1\] is a str; give a dict"),
        ],
    )
    def test_what_is_not_a_mapping_of_mappings_is_refused(self, root, cluster, options, expected):
        for client in (Admin, Producer, lambda root, **given: Consumer(root=root, **given)):
            with pytest.raises(InvalidConfigurationError, match=expected) as caught:
                client(root, broker_storage_options=options)
            assert "hunter2" not in str(caught.value)

    def test_they_are_those_that_open_the_new_broker(self, root, cluster):
        admin = Admin(root, broker_storage_options={2: {"no_such_option": "hunter2"}})
        with pytest.raises(InvalidConfigurationError, match="no_such_option") as caught:
            admin.register_broker(2, "s3://bucket/log")
        assert "hunter2" not in str(caught.value)
        assert "hunter2" not in repr(admin)
