"""Admin clients that nobody here wrote: confluent-kafka's, kafka-python's, and kcat."""

import shutil
import subprocess

import pytest


@pytest.fixture
def admin(gateway):
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": gateway.address})


def outcomes(futures):
    """Return the result of each call, or the name of its error."""
    from confluent_kafka import KafkaException

    found = {}
    for key, future in futures.items():
        try:
            found[str(key)] = future.result(30)
        except KafkaException as error:
            found[str(key)] = error.args[0].name()
    return found


class TestConfluentKafka:
    def test_topics(self, admin):
        from confluent_kafka.admin import NewPartitions, NewTopic

        wanted = [NewTopic("a", 3, 1), NewTopic("b", -1, -1), NewTopic("c d", 1, 1)]
        assert outcomes(admin.create_topics(wanted)) == {
            "a": None,
            "b": None,
            "c d": "TOPIC_EXCEPTION",
        }
        assert outcomes(admin.create_topics([NewTopic("a", 1, 1)])) == {"a": "TOPIC_ALREADY_EXISTS"}
        assert outcomes(admin.create_partitions([NewPartitions("a", 5)])) == {"a": None}
        listed = admin.list_topics(timeout=30)
        assert {name: len(each.partitions) for name, each in listed.topics.items()} == {
            "a": 5,
            "b": 1,
        }
        assert {each.leader for each in listed.topics["a"].partitions.values()} == {1001}
        assert outcomes(admin.delete_topics(["a", "none"])) == {
            "a": None,
            "none": "UNKNOWN_TOPIC_OR_PART",
        }

    def test_the_cluster_and_descriptions_of_topics(self, gateway, admin):
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import NewTopic

        outcomes(admin.create_topics([NewTopic("a", 2, 1)]))
        cluster = admin.describe_cluster(include_authorized_operations=True).result(30)
        assert cluster.cluster_id == gateway.cluster.cluster_id
        assert [(each.id, each.port) for each in cluster.nodes] == [(1001, gateway.port)]
        assert len(cluster.authorized_operations) == 7
        (described,) = (
            each.result(30) for each in admin.describe_topics(TopicCollection(["a"])).values()
        )
        assert len(described.partitions) == 2

    def test_configs(self, admin):
        from confluent_kafka.admin import (
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ConfigSource,
            NewTopic,
        )

        outcomes(admin.create_topics([NewTopic("a", 1, 1, config={"retention.ms": "5"})]))
        operation = AlterConfigOpType.APPEND
        change = ConfigEntry("cleanup.policy", "compact", incremental_operation=operation)
        resource = ConfigResource("topic", "a", incremental_configs=[change])
        outcomes(admin.incremental_alter_configs([resource]))
        (entries,) = outcomes(admin.describe_configs([ConfigResource("topic", "a")])).values()
        assert entries["cleanup.policy"].value == "delete,compact"
        assert entries["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        assert entries["segment.ms"].is_default
        (broker,) = outcomes(admin.describe_configs([ConfigResource("broker", "1001")])).values()
        assert broker["auto.create.topics.enable"].value == "true"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python(gateway):
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=gateway.address)
    try:
        (created,) = admin.create_topics([NewTopic("a", 3, 1)])["topics"]
        assert (created["error_code"], created["num_partitions"]) == (0, 3)
        assert admin.list_topics() == ["a"]
        assert len(admin.describe_topics(["a"])[0]["partitions"]) == 3
        configs = {"retention.ms": "5"}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "a", configs)])
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "a")])
        assert found["topic"]["a"]["retention.ms"]["value"] == "5"
        assert admin.list_config_resources(["topic"]) == {"topic": ["a"]}
        assert admin.describe_log_dirs()
        assert admin.delete_topics(["a"])["topics"][0]["error_code"] == 0
    finally:
        admin.close()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat(gateway, admin):
    from confluent_kafka.admin import NewTopic

    outcomes(admin.create_topics([NewTopic("a", 2, 1)]))
    command = ["kcat", "-L", "-b", gateway.address]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert f"broker 1001 at {gateway.address} (controller)" in found
    assert 'topic "a" with 2 partitions' in found
