"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

import pytest

from spark_log import Admin, NewTopic, Producer
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.protocol import ZERO_UUID, message_class
from spark_log.util import random_id
from tests.cli.support import append

_New = message_class("CreateTopicsRequest")
_Deleted = message_class("DeleteTopicsRequest").DeleteTopicState
_Partitions = message_class("CreatePartitionsRequest")
_Records = message_class("DeleteRecordsRequest")


def new_topic(name, partitions=1, factor=-1, assignments=(), **configs):
    return _New.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            _New.CreatableReplicaAssignment(partition_index=number, broker_ids=ids)
            for number, ids in enumerate(assignments)
        ],
        configs=[
            _New.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def codes(results):
    return [(each.name, each.error_code) for each in results]


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_each_by_itself(gateway, client, version):
    answer = client.ask(
        "CreateTopics",
        version,
        topics=[
            new_topic("a", 3, retention_ms="1000"),
            new_topic("b c"),
            new_topic("d", 2, 7),
            new_topic("e", 0),
            new_topic("f", retention_ms="many"),
            new_topic("g", -1),
        ],
    )
    assert codes(answer.topics) == [
        ("a", 0),
        ("b c", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("d", ErrorCode.INVALID_REPLICATION_FACTOR),
        ("e", ErrorCode.INVALID_PARTITIONS),
        ("f", ErrorCode.INVALID_CONFIG),
        ("g", 0),
    ]
    image = gateway.cluster.image()
    assert {topic.name: topic.num_partitions for topic in image.topics()} == {"a": 3, "g": 1}
    assert image.topic("a").overrides == {"retention.ms": "1000"}
    first = answer.topics[0]
    if version >= 5:
        assert (first.num_partitions, first.replication_factor) == (3, 1)
        assert {each.name: each.value for each in first.configs}["retention.ms"] == "1000"
        assert "many" in answer.topics[4].error_message
    assert first.topic_id == (image.topic("a").topic_id if version >= 7 else ZERO_UUID)
    again = client.ask("CreateTopics", version, topics=[new_topic("a")])
    assert codes(again.topics) == [("a", ErrorCode.TOPIC_ALREADY_EXISTS)]


def test_nothing_is_created_to_validate(gateway, client):
    wanted = [new_topic("a", 3), new_topic("b", 0)]
    answer = client.ask("CreateTopics", 7, topics=wanted, validate_only=True)
    assert codes(answer.topics) == [("a", 0), ("b", ErrorCode.INVALID_PARTITIONS)]
    assert list(gateway.cluster.image().topics()) == []


def test_a_config_without_a_value_is_refused_in_kafkas_words(gateway, client):
    wanted = [new_topic("a", retention_bytes=None, retention_ms="1"), new_topic("b")]
    answer = client.ask("CreateTopics", 7, topics=wanted)
    assert codes(answer.topics) == [("a", ErrorCode.INVALID_CONFIG), ("b", 0)]
    said = answer.topics[0].error_message
    assert said == "Null value not supported for topic configs: retention.bytes"
    assert [each.name for each in gateway.cluster.image().topics()] == ["b"]


def test_a_topic_that_is_given_twice_is_refused(gateway, client):
    answer = client.ask("CreateTopics", 7, topics=[new_topic("a"), new_topic("a"), new_topic("b")])
    assert codes(answer.topics) == [("a", ErrorCode.INVALID_REQUEST), ("b", 0)]


def test_an_assignment_to_gateways_says_the_number_of_partitions(gateway, client):
    own = gateway.server.gateway.registered.gateway_id
    wanted = [
        new_topic("a", -1, -1, [[own], [own], [own]]),
        new_topic("b", -1, -1, [[0], [0]]),
        new_topic("c", -1, -1, [[5]]),
    ]
    answer = client.ask("CreateTopics", 7, topics=wanted)
    assert [(each.error_code, each.num_partitions) for each in answer.topics] == [
        (0, 3),
        (0, 2),
        (ErrorCode.INVALID_REPLICA_ASSIGNMENT, -1),
    ]


def test_a_config_of_kafkas_without_effect_is_no_error(client):
    answer = client.ask("CreateTopics", 7, topics=[new_topic("a", segment_jitter_ms="5")])
    assert codes(answer.topics) == [("a", 0)]


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_each_by_itself(gateway, client, tmp_path, version):
    Admin(tmp_path / "root").create_topics([NewTopic("a"), NewTopic("b"), NewTopic("kept")])
    if version < 6:
        answer = client.ask("DeleteTopics", version, topic_names=["a", "none", "b"])
        expected: list[tuple[str | None, int]] = [
            ("a", 0),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("b", 0),
        ]
    else:
        topic_id = gateway.cluster.image().topic("b").topic_id
        wanted = [
            _Deleted(name="a"),
            _Deleted(name="none"),
            _Deleted(name=None, topic_id=topic_id),
            _Deleted(name=None, topic_id=random_id()),
            _Deleted(name=None),
            _Deleted(name="kept", topic_id=topic_id),
        ]
        answer = client.ask("DeleteTopics", version, topics=wanted)
        expected = [
            ("a", 0),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("b", 0),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
            (None, ErrorCode.INVALID_REQUEST),
            ("kept", ErrorCode.INVALID_REQUEST),
        ]
    assert codes(answer.responses) == expected
    assert [topic.name for topic in gateway.cluster.image().topics()] == ["kept"]


def test_a_deletion_by_id_spares_a_topic_that_is_created_again_meanwhile(
    gateway, client, tmp_path, monkeypatch
):
    other = Admin(tmp_path / "root")
    topic_id = other.create_topics([NewTopic("a")])["a"]
    admin = gateway.server.gateway.admin
    delete = admin.delete_topics

    def create_again_first(*args, **kwargs):
        other.delete_topics(["a"])
        other.create_topics([NewTopic("a")])
        delete(*args, **kwargs)

    monkeypatch.setattr(admin, "delete_topics", create_again_first)
    wanted = [_Deleted(name=None, topic_id=topic_id)]
    (result,) = client.ask("DeleteTopics", 6, topics=wanted).responses
    assert (result.name, result.error_code) == ("a", ErrorCode.UNKNOWN_TOPIC_ID)
    assert other.list_topics() == ["a"]


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_each_topic_by_itself(gateway, client, tmp_path, version):
    Admin(tmp_path / "root").create_topics([NewTopic("a"), NewTopic("b", 5)])
    own = gateway.server.gateway.registered.gateway_id
    assignment = [_Partitions.CreatePartitionsAssignment(broker_ids=[own])] * 2
    wanted = [
        _Partitions.CreatePartitionsTopic(name="a", count=3, assignments=assignment),
        _Partitions.CreatePartitionsTopic(name="b", count=2, assignments=None),
        _Partitions.CreatePartitionsTopic(name="none", count=2, assignments=None),
    ]
    expected = [
        ("a", 0),
        ("b", ErrorCode.INVALID_PARTITIONS),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for validate_only, count in ((True, 1), (False, 3)):
        answer = client.ask("CreatePartitions", version, topics=wanted, validate_only=validate_only)
        assert codes(answer.results) == expected
        assert gateway.cluster.image().topic("a").num_partitions == count


@pytest.mark.parametrize("count", [2, 4])
def test_an_assignment_to_gateways_has_each_new_partition(gateway, client, tmp_path, count):
    Admin(tmp_path / "root").create_topics([NewTopic("a")])
    own = gateway.server.gateway.registered.gateway_id
    assignment = [_Partitions.CreatePartitionsAssignment(broker_ids=[own])] * 2
    wanted = _Partitions.CreatePartitionsTopic(name="a", count=count, assignments=assignment)
    answer = client.ask("CreatePartitions", 3, topics=[wanted], validate_only=False)
    assert codes(answer.results) == [("a", ErrorCode.INVALID_REPLICA_ASSIGNMENT)]
    assert gateway.cluster.image().topic("a").num_partitions == 1


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_before_an_offset(client, tmp_path, version):
    root = tmp_path / "root"
    Admin(root).create_topics([NewTopic("a", 2)])
    append(root, "a", *[b"x"] * 10)
    wanted = _Records.DeleteRecordsTopic(
        name="a",
        partitions=[
            _Records.DeleteRecordsPartition(partition_index=number, offset=offset)
            for number, offset in ((0, 4), (1, 9), (7, 0))
        ],
    )
    (found,) = client.ask("DeleteRecords", version, topics=[wanted]).topics
    assert [
        (each.partition_index, each.error_code, each.low_watermark) for each in found.partitions
    ] == [
        (0, 0, 4),
        (1, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    wanted.partitions = [_Records.DeleteRecordsPartition(partition_index=0, offset=-1)]
    (found,) = client.ask("DeleteRecords", version, topics=[wanted]).topics
    assert found.partitions[0].low_watermark == 10


@pytest.mark.parametrize(("policy", "code"), [("compact", 44), ("compact,delete", 0)])
def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(client, tmp_path, policy, code):
    root = tmp_path / "root"
    Admin(root).create_topics([NewTopic("a", topic_configs={"cleanup.policy": policy})])
    with Producer(root) as producer:
        producer.send("a", b"x", key=b"k").result(30)
    partition = _Records.DeleteRecordsPartition(partition_index=0, offset=1)
    wanted = _Records.DeleteRecordsTopic(name="a", partitions=[partition])
    (found,) = client.ask("DeleteRecords", 2, topics=[wanted]).topics
    assert found.partitions[0].error_code == code
    assert found.partitions[0].low_watermark == (-1 if code else 1)
