"""Metadata, DescribeCluster and FindCoordinator: the gateways, and who serves what."""

from contextlib import ExitStack
from dataclasses import replace

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.protocol import ZERO_UUID, message_class
from spark_log.metadata import PartitionChangeRecord
from spark_log.util import random_id
from tests.gateway.support import RawClient, running_gateway

_Topic = message_class("MetadataRequest").MetadataRequestTopic


def topics(answer):
    return {each.name: each for each in answer.topics}


@pytest.fixture
def admin(gateway, tmp_path):
    admin = Admin(tmp_path / "root")
    admin.create_topics([NewTopic("flights", 3), NewTopic("weather", 1)])
    return admin


@pytest.mark.parametrize("version", range(14))
def test_each_version_lists_all_topics_with_a_leader_for_each_partition(
    gateway, client, admin, version
):
    answer = client.ask("Metadata", version, topics=None if version else [])
    found = topics(answer)
    assert set(found) == {"flights", "weather"}
    (broker,) = answer.brokers
    assert (broker.host, broker.port) == ("127.0.0.1", gateway.port)
    for partition in found["flights"].partitions:
        assert (partition.error_code, partition.leader_id) == (0, broker.node_id)
        assert partition.replica_nodes == partition.isr_nodes == [broker.node_id]
    assert [each.partition_index for each in found["flights"].partitions] == [0, 1, 2]
    assert answer.controller_id == (broker.node_id if version else -1)
    assert answer.cluster_id == (gateway.cluster.cluster_id if version >= 2 else None)
    ids = {name: each.topic_id for name, each in found.items()}
    image = gateway.cluster.image()
    known = {name: image.topic(name).topic_id for name in found}
    assert ids == (known if version >= 10 else dict.fromkeys(found, ZERO_UUID))


def test_a_list_of_all_topics_has_one_that_somebody_else_has_just_created(client, admin):
    assert len(client.ask("Metadata", 12, topics=None).topics) == 2
    admin.create_topics([NewTopic("hotels")])
    assert "hotels" in topics(client.ask("Metadata", 12, topics=None))
    admin.create_topics([NewTopic("trains")])
    assert "trains" in topics(client.ask("DescribeTopicPartitions", 0, topics=[]))


def test_none_and_no_topics_are_not_the_same_from_version_1_on(client, admin):
    assert client.ask("Metadata", 1, topics=[]).topics == []
    assert len(client.ask("Metadata", 0, topics=[]).topics) == 2


def test_the_leader_epoch_is_the_logs_own(gateway, client, admin):
    topic = gateway.cluster.topic("flights")
    changes = [PartitionChangeRecord(topic_id=topic.topic_id, partition_id=1, leader=0)] * 5
    Cluster(gateway.cluster.root).metadata.commit(lambda image: changes)
    gateway.cluster.image()
    answer = client.ask("Metadata", 9, topics=None)
    epochs = [each.leader_epoch for each in topics(answer)["flights"].partitions]
    assert epochs == [0, 5, 0]


def test_a_partition_that_no_root_leads_has_a_gateway_all_the_same(gateway, client, admin):
    topic = gateway.cluster.topic("flights")
    change = PartitionChangeRecord(topic_id=topic.topic_id, partition_id=0, leader=-1)
    gateway.cluster.metadata.commit(lambda image: [change])
    partition = topics(client.ask("Metadata", 12, topics=None))["flights"].partitions[0]
    assert partition.leader_id == gateway.server.gateway.registered.gateway_id


@pytest.mark.parametrize("name", [None, ""])  # Java's consumer sends an empty one
def test_a_topic_is_found_by_its_id(gateway, client, admin, name):
    topic_id = gateway.cluster.topic("weather").topic_id
    wanted = [_Topic(topic_id=topic_id, name=name), _Topic(topic_id=random_id(), name=name)]
    known, unknown = client.ask("Metadata", 12, topics=wanted).topics
    assert (known.name, known.topic_id, known.error_code) == ("weather", topic_id, 0)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize(("version", "allowed"), [(1, False), (4, True)])
def test_an_unknown_topic_is_created_if_the_client_permits(gateway, client, version, allowed):
    wanted = [_Topic(name="new")]
    answer = client.ask("Metadata", version, topics=wanted, allow_auto_topic_creation=allowed)
    assert answer.topics[0].error_code == 0
    assert len(answer.topics[0].partitions) == 1
    assert gateway.cluster.image().find("new") is not None


def test_an_unknown_topic_is_not_created_otherwise(gateway, client, tmp_path):
    answer = client.ask("Metadata", 9, topics=[_Topic(name="new")], allow_auto_topic_creation=False)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = client.ask("Metadata", 9, topics=[_Topic(name="a b")])
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    config = {"auto.create.topics.enable": False}
    with running_gateway(tmp_path / "other", **config) as other, other.client() as asking:
        answer = asking.ask("Metadata", 1, topics=[_Topic(name="new")])
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_somebody_else_just_created_is_known(gateway, client, tmp_path):
    client.ask("Metadata", 9, topics=None)
    Admin(tmp_path / "root").create_topics([NewTopic("new", 2)])
    answer = client.ask("Metadata", 9, topics=[_Topic(name="new")], allow_auto_topic_creation=False)
    assert len(answer.topics[0].partitions) == 2


def test_authorized_operations_are_told_if_asked_for(client, admin):
    answer = client.ask("Metadata", 8, topics=None, include_topic_authorized_operations=True)
    assert answer.topics[0].topic_authorized_operations == 3576  # Kafka's without ACLs
    assert answer.cluster_authorized_operations == -(2**31)


# --- several gateways ----------------------------------------------------------------------------


def test_all_gateways_name_the_same_leaders_and_clients_are_kept_in_their_rack(tmp_path, admin_of):
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                running_gateway(
                    tmp_path / "root", **{"broker.rack": rack, "broker.join.delay.ms": 0}
                )
            )
            for rack in ("a", "a", "b")
        ]
        for _ in range(2):  # each sees what the others did
            for each in running:
                each.server.gateway._member.tick()  # noqa: SLF001 - without waiting for its time
        striped = NewTopic("s", 64, topic_configs={"stripes": 4})
        admin_of(tmp_path / "root").create_topics([NewTopic("t", 64), striped])
        of_rack, everywhere = [], []
        for each in running:
            with each.client() as client:
                wanted = [_Topic(name="t")]
                answer = client.ask("Metadata", 12, topics=wanted)
                assert len(answer.brokers) == 3
                everywhere.append([p.leader_id for p in answer.topics[0].partitions])
            with RawClient(each.host, each.port, client_id="orders,rack=b") as client:
                answer = client.ask("Metadata", 12, topics=wanted)
                of_rack.append({p.leader_id for p in answer.topics[0].partitions})
        assert everywhere[0] == everywhere[1] == everywhere[2]
        assert len(set(everywhere[0])) == 3
        assert of_rack == 3 * [{running[2].server.gateway.registered.gateway_id}]
        with running[0].client() as client:
            answer = client.ask("Metadata", 12, topics=[_Topic(name="s")])
            leaders = {p.partition_index: p.leader_id for p in answer.topics[0].partitions}
            for stripe in range(4):
                assert len({leaders[number] for number in range(stripe, 64, 4)}) == 1
        with running[0].client() as client:
            keys = [f"g{number}" for number in range(50)]
            found = client.ask("FindCoordinator", 4, key_type=0, coordinator_keys=keys)
            assert [each.key for each in found.coordinators] == keys
            assert len({each.node_id for each in found.coordinators}) == 3
        with running[1].client() as client:
            again = client.ask("FindCoordinator", 4, key_type=0, coordinator_keys=keys)
            assert again == found


@pytest.fixture
def admin_of():
    return Admin


# --- others --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_lists_the_gateways(gateway, client, version):
    answer = client.ask("DescribeCluster", version)
    (broker,) = answer.brokers
    assert (broker.host, broker.port) == ("127.0.0.1", gateway.port)
    assert answer.controller_id == broker.broker_id
    assert answer.cluster_id == gateway.cluster.cluster_id
    if version:
        refused = client.ask("DescribeCluster", version, endpoint_type=2)
        assert refused.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_names_a_gateway(gateway, client, version):
    kind = 1 if version else 0
    if version < 4:
        found = client.ask("FindCoordinator", version, key="k", key_type=kind)
    else:
        (found,) = client.ask(
            "FindCoordinator", version, key_type=kind, coordinator_keys=["k"]
        ).coordinators
    assert (found.error_code, found.host, found.port) == (0, "127.0.0.1", gateway.port)


def test_find_coordinator_refuses_an_unknown_type(client):
    (found,) = client.ask("FindCoordinator", 6, key_type=9, coordinator_keys=["k"]).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_the_list_of_gateways_has_this_one_even_if_it_was_removed(gateway, client):
    member = gateway.server.gateway._member  # noqa: SLF001 - a state that takes 9 seconds
    own = member.gateway
    member.registry = replace(member.registry, gateways=())
    answer = client.ask("Metadata", 12, topics=None)
    assert [each.node_id for each in answer.brokers] == [own.gateway_id]
