"""DescribeTopicPartitions, DescribeLogDirs, elections, reassignments, and ACLs."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.protocol import message_class
from tests.cli.support import append

_Wanted = message_class("DescribeTopicPartitionsRequest")
_LogDirs = message_class("DescribeLogDirsRequest")
_Elect = message_class("ElectLeadersRequest")
_Reassign = message_class("AlterPartitionReassignmentsRequest")
_Dirs = message_class("AlterReplicaLogDirsRequest")


def _topic(name):
    return message_class("MetadataRequest").MetadataRequestTopic(name=name)


@pytest.fixture
def root(gateway, tmp_path):
    root = tmp_path / "root"
    admin = Admin(root)
    admin.create_topics([NewTopic("a", 3), NewTopic("b", 1), NewTopic("c", 4)])
    admin.register_broker(1, tmp_path / "one")
    gateway.cluster.image()
    return root


def pages(client, limit, *names):
    """Return all answers, each asked for with the cursor of the one before."""
    cursor = None
    while True:
        answer = client.ask(
            "DescribeTopicPartitions",
            0,
            topics=[_Wanted.TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        yield [(each.name, [p.partition_index for p in each.partitions]) for each in answer.topics]
        if answer.next_cursor is None:
            return
        found = answer.next_cursor
        cursor = _Wanted.Cursor(topic_name=found.topic_name, partition_index=found.partition_index)


def test_topics_are_described_in_pages(client, root):
    assert list(pages(client, 100)) == [[("a", [0, 1, 2]), ("b", [0]), ("c", [0, 1, 2, 3])]]
    assert list(pages(client, 2)) == [
        [("a", [0, 1])],
        [("a", [2]), ("b", [0])],
        [("c", [0, 1])],
        [("c", [2, 3])],
    ]
    assert list(pages(client, 4, "c", "a", "none")) == [
        [("a", [0, 1, 2]), ("c", [0])],
        [("c", [1, 2, 3]), ("none", [])],
    ]


@pytest.mark.parametrize("version", range(1, 5))
def test_sizes_of_partitions_are_in_the_log_dirs(client, root, version):
    append(root, "a", b"x" * 1000)
    answer = client.ask("DescribeLogDirs", version, topics=None)
    sizes = {
        (topic.name, each.partition_index): each.partition_size
        for found in answer.results
        for topic in found.topics
        for each in topic.partitions
    }
    assert len(sizes) == 8
    assert sizes["a", 0] > 1000
    assert answer.results[0].log_dir == str(root)
    wanted = [_LogDirs.DescribableLogDirTopic(topic="b", partitions=[0, 7])]
    answer = client.ask("DescribeLogDirs", version, topics=wanted)
    found = [each for result in answer.results for each in result.topics]
    assert [(each.name, len(each.partitions)) for each in found] == [("b", 1)]


@pytest.mark.parametrize("version", range(3))
def test_an_election_tells_the_error_of_each_partition(client, root, version):
    wanted = [_Elect.TopicPartitions(topic="a", partitions=[0, 9])]
    answer = client.ask("ElectLeaders", version, topic_partitions=wanted, election_type=0)
    (topic,) = answer.replica_election_results
    assert [(each.partition_id, each.error_code) for each in topic.partition_result] == [
        (0, ErrorCode.ELECTION_NOT_NEEDED),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    if version:
        answer = client.ask("ElectLeaders", version, topic_partitions=wanted, election_type=7)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


def reassign(client, replicas, topic="a", number=0):
    """Ask for the reassignment of a partition; return its error code."""
    partition = _Reassign.ReassignablePartition(partition_index=number, replicas=replicas)
    wanted = [_Reassign.ReassignableTopic(name=topic, partitions=[partition])]
    (found,) = client.ask("AlterPartitionReassignments", 0, topics=wanted).responses
    return found.partitions[0].error_code


def test_a_replication_factor_that_must_not_change_is_refused_in_kafkas_words(client, root):
    partition = _Reassign.ReassignablePartition(partition_index=0, replicas=[0, 1])
    wanted = [_Reassign.ReassignableTopic(name="a", partitions=[partition])]
    fields = {"topics": wanted, "allow_replication_factor_change": False}
    (answer,) = client.ask("AlterPartitionReassignments", 1, **fields).responses
    (found,) = answer.partitions
    assert found.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert found.error_message == "The replication factor is changed from 1 to 2"
    assert client.ask("ListPartitionReassignments", 0, topics=None).topics == []


def test_partitions_move_between_roots(client, root):
    assert reassign(client, [1]) == 0
    (listed,) = client.ask("ListPartitionReassignments", 0, topics=None).topics
    assert [(each.partition_index, each.adding_replicas) for each in listed.partitions] == [
        (0, [1])
    ]
    assert reassign(client, None) == 0
    assert client.ask("ListPartitionReassignments", 0, topics=None).topics == []
    assert reassign(client, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign(client, [77]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(client, [1], "none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_may_be_reassigned_to_the_gateway_that_clients_see_it_on(gateway, client, root):
    (topic,) = client.ask("Metadata", 4, topics=[_topic("a")]).topics
    shown = topic.partitions[0].replica_nodes
    assert reassign(client, shown) == 0
    assert client.ask("ListPartitionReassignments", 0, topics=None).topics == []
    assert reassign(client, [*shown, 1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(client, shown, number=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    Admin(root).register_broker(shown[0], root.parent / "as the gateway")
    gateway.cluster.image()
    assert reassign(client, shown) == 0
    (listed,) = client.ask("ListPartitionReassignments", 0, topics=None).topics
    assert listed.partitions[0].adding_replicas == shown


@pytest.mark.parametrize("version", range(1, 3))
def test_replicas_stay_in_their_directories(client, root, version):
    def alter(path, topic="a", number=0):
        wanted = _Dirs.AlterReplicaLogDir(
            path=str(path), topics=[_Dirs.AlterReplicaLogDirTopic(name=topic, partitions=[number])]
        )
        (found,) = client.ask("AlterReplicaLogDirs", version, dirs=[wanted]).results
        assert (found.topic_name, found.partitions[0].partition_index) == (topic, number)
        return found.partitions[0].error_code

    assert alter(root) == 0
    assert alter(root.parent / "one") == ErrorCode.LOG_DIR_NOT_FOUND
    assert alter("/elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert alter(root, number=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(root, "none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(1, 4))
def test_there_are_no_acls(client, version):
    answer = client.ask(
        "DescribeAcls", version, resource_type_filter=2, operation=3, permission_type=3
    )
    assert answer.error_code == ErrorCode.SECURITY_DISABLED
    creation = message_class("CreateAclsRequest").AclCreation(resource_type=2, resource_name="t")
    (result,) = client.ask("CreateAcls", version, creations=[creation]).results
    assert result.error_code == ErrorCode.SECURITY_DISABLED
    filtered = message_class("DeleteAclsRequest").DeleteAclsFilter(resource_type_filter=2)
    (result,) = client.ask("DeleteAcls", version, filters=[filtered]).filter_results
    assert result.error_code == ErrorCode.SECURITY_DISABLED
