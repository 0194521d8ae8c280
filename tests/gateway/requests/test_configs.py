"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.protocol import message_class
from tests.gateway.support import running_gateway

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

_Describe = message_class("DescribeConfigsRequest").DescribeConfigsResource
_Incremental = message_class("IncrementalAlterConfigsRequest")
_Alter = message_class("AlterConfigsRequest")


@pytest.fixture(autouse=True)
def topic(gateway, tmp_path):
    configs = {"retention.ms": 5, "cleanup.policy": "delete"}
    Admin(tmp_path / "root").create_topics([NewTopic("a", topic_configs=configs), NewTopic("b")])


def describe(client, resource_type, name, keys=None, *, version=4, **options):
    resource = _Describe(resource_type=resource_type, resource_name=name, configuration_keys=keys)
    (found,) = client.ask("DescribeConfigs", version, resources=[resource], **options).results
    return found


def overrides(gateway, name="a"):
    return dict(gateway.cluster.image().topic(name).overrides)


@pytest.mark.parametrize("version", range(1, 5))
def test_configs_of_a_topic_have_source_default_and_synonyms(gateway, client, version):
    admin = Admin(gateway.cluster.root)
    admin.alter_configs([_cluster({"min.insync.replicas": 1, "replica.lag.time.max.ms": 9})])
    found = describe(client, TOPIC, "a", version=version, include_synonyms=True)
    entries = {each.name: each for each in found.configs}
    assert (found.error_code, len(entries)) == (0, 31)
    retention, lag = entries["retention.ms"], entries["replica.lag.time.max.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("5", 1, False)
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "604800000", 5),  # the name of Kafka's brokers
    ]
    assert (lag.value, lag.config_source) == ("9", 3)
    assert entries["segment.ms"].config_source == 5
    if version >= 3:
        types = {key: entries[key].config_type for key in entries}
        assert types["retention.ms"] == 5
        assert types["cleanup.policy"] == 7
        assert types["flush.on.append"] == 1
        assert types["min.cleanable.dirty.ratio"] == 6
        assert types["compression.type"] == 2


def test_keys_that_are_asked_for_are_answered_and_unknown_ones_left_out(client):
    found = describe(client, TOPIC, "a", ["cleanup.policy", "no.such.key"])
    assert [(each.name, each.value) for each in found.configs] == [("cleanup.policy", "delete")]
    assert found.configs[0].synonyms == []
    assert found.configs[0].documentation is None
    found = describe(client, TOPIC, "a", ["cleanup.policy"], include_documentation=True)
    assert found.configs[0].documentation


def test_configs_of_the_gateway_and_of_the_cluster(gateway, client):
    own = str(gateway.server.gateway.registered.gateway_id)
    entries = {each.name: each for each in describe(client, BROKER, own).configs}
    assert entries["auto.create.topics.enable"].value == "true"
    assert entries["auto.create.topics.enable"].read_only
    assert entries["log.retention.ms"].value == "604800000"
    assert entries["message.max.bytes"].value == "1048588"
    assert (entries["compression.type"].value, entries["compression.type"].read_only) == (
        "producer",
        True,
    )
    assert entries["group.max.size"].config_source == 5
    assert entries["broker.id"].value == own
    listeners = entries["advertised.listeners"]
    assert listeners.value == f"PLAINTEXT://{gateway.address}"
    assert (listeners.config_source, listeners.config_type, listeners.read_only) == (4, 7, True)
    cluster = {each.name for each in describe(client, BROKER, "").configs}
    assert "group.max.size" in cluster
    assert "auto.create.topics.enable" not in cluster


def test_a_config_of_the_gateway_has_its_default_besides(tmp_path):
    with running_gateway(tmp_path / "other", **{"num.partitions": 7}) as gateway:
        own = str(gateway.server.gateway.registered.gateway_id)
        with gateway.client() as client:
            found = describe(client, BROKER, own, include_synonyms=True)
    entries = {each.name: each for each in found.configs}
    synonyms = {
        key: [(each.value, each.source) for each in entries[key].synonyms]
        for key in ("num.partitions", "auto.create.topics.enable", "broker.rack")
    }
    assert synonyms == {
        "num.partitions": [("7", 4), ("1", 5)],
        "auto.create.topics.enable": [("true", 5)],
        "broker.rack": [],
    }
    assert (entries["num.partitions"].config_source, entries["broker.rack"].value) == (4, None)


def test_resources_without_configs_are_no_error_and_unknown_ones_are(client):
    for resource_type in (LOGGER, CLIENT_METRICS):
        found = describe(client, resource_type, "x")
        assert (found.error_code, found.configs) == (0, [])
    assert describe(client, TOPIC, "none").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(client, 77, "x").error_code == ErrorCode.INVALID_REQUEST


def test_a_group_has_the_configs_that_the_cluster_has_for_all_groups(gateway, client):
    Admin(gateway.cluster.root).alter_configs(
        [_cluster({"group.consumer.session.timeout.ms": 77_000})]
    )
    found = describe(client, GROUP, "any", include_synonyms=True)
    assert [(each.name, each.value, each.config_source) for each in found.configs] == [
        ("consumer.heartbeat.interval.ms", "5000", 5),
        ("consumer.session.timeout.ms", "77000", 5),
    ]
    assert [(each.name, each.value, each.source) for each in found.configs[1].synonyms] == [
        ("consumer.session.timeout.ms", "77000", 5)
    ]
    assert describe(client, GROUP, "").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("session.timeout.ms", 44_999, "greater than or equal to {}.min.session.timeout.ms"),
        ("session.timeout.ms", 60_001, "less than or equal to {}.max.session.timeout.ms"),
        ("heartbeat.interval.ms", 4_999, "greater than or equal to {}.min.heartbeat.interval.ms"),
        ("heartbeat.interval.ms", 15_001, "less than or equal to {}.max.heartbeat.interval.ms"),
    ],
)
def test_configs_of_a_group_have_limits(client, key, value, message):
    """Kafka's messages and limits; its test compares the whole message."""
    changed = alter(client, GROUP, "mine", (f"consumer.{key}", SET, str(value)))
    assert changed.error_code == ErrorCode.INVALID_CONFIG
    assert changed.error_message == f"consumer.{key} must be {message.format('group.consumer')}"
    nearest = value + 1 if "greater" in message else value - 1
    allowed = alter(client, GROUP, "mine", (f"consumer.{key}", SET, str(nearest)))
    assert allowed.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_may_have_configs_of_its_own(gateway, client, version):
    timeout = "consumer.session.timeout.ms"
    changed = alter(client, GROUP, "mine", (timeout, SET, "50000"), version=version)
    assert changed.error_code == ErrorCode.NONE
    (found,) = describe(client, GROUP, "mine", [timeout], include_synonyms=True).configs
    assert (found.value, found.config_source, found.read_only) == ("50000", 8, False)
    assert [(each.name, each.value, each.source) for each in found.synonyms] == [
        (timeout, "50000", 8)
    ]
    (other,) = describe(client, GROUP, "other", [timeout]).configs
    assert (other.value, other.config_source) == ("45000", 5)
    listed = client.ask("ListConfigResources", 1, resource_types=[GROUP]).config_resources
    assert [(each.resource_type, each.resource_name) for each in listed] == [(GROUP, "mine")]
    alter(client, GROUP, "mine", (timeout, DELETE, None), version=version)
    assert gateway.cluster.image().group_overrides == {}


def test_configs_that_no_group_can_have_are_refused(client):
    timeout = "consumer.session.timeout.ms"
    changes = (("g", timeout, "0"), ("g", "retention.ms", "5"), ("", timeout, "5"))
    refused = [
        alter(client, GROUP, name, (key, SET, value)).error_code for name, key, value in changes
    ]
    assert refused == [
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
    ]


def test_a_gateway_describes_its_own_configs_and_no_others(client):
    for name in ("77", "a-name"):
        found = describe(client, BROKER, name)
        assert (found.error_code, found.configs) == (ErrorCode.INVALID_REQUEST, [])
        assert name in found.error_message


def listed(client, *resource_types, version=1):
    fields = {"resource_types": list(resource_types)} if version else {}
    answer = client.ask("ListConfigResources", version, **fields)
    assert answer.error_code == 0
    return [(each.resource_type, each.resource_name) for each in answer.config_resources]


def test_resources_are_listed_by_type(gateway, client):
    own = str(gateway.server.gateway.registered.gateway_id)
    assert listed(client, TOPIC) == [(TOPIC, "a"), (TOPIC, "b")]
    assert listed(client, BROKER) == [(BROKER, own)]
    assert listed(client, GROUP) == []
    assert listed(client)[2:] == [(BROKER, own), (8, own)]
    assert listed(client, version=0) == []
    answer = client.ask("ListConfigResources", 1, resource_types=[TOPIC, 77])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    for resource_type, name in listed(client):
        assert describe(client, resource_type, name).error_code == 0


def _cluster(configs):
    from spark_log import ConfigResource, ConfigResourceType

    return ConfigResource(ConfigResourceType.BROKER, "", configs)


def alter(client, resource_type, name, *changes, version=1, **options):
    resource = _Incremental.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            _Incremental.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    (found,) = client.ask(
        "IncrementalAlterConfigs", version, resources=[resource], **options
    ).responses
    return found


@pytest.mark.parametrize("version", range(2))
def test_configs_are_changed_one_by_one(gateway, client, version):
    found = alter(
        client,
        TOPIC,
        "a",
        ("retention.ms", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
        ("segment.ms", SET, "77"),
        version=version,
    )
    assert found.error_code == 0
    assert overrides(gateway) == {"cleanup.policy": "delete,compact", "segment.ms": "77"}
    alter(client, TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete"), version=version)
    assert overrides(gateway)["cleanup.policy"] == "compact"
    alter(client, TOPIC, "a", ("cleanup.policy", SUBTRACT, "compact"), version=version)
    (found,) = describe(client, TOPIC, "a", ["cleanup.policy"]).configs
    assert found.value == ""
    alter(client, BROKER, "", ("group.max.size", SET, "9"), version=version)
    assert gateway.cluster.image().cluster_config().group_max_size == 9


@pytest.mark.parametrize(
    ("resource_type", "name", "change", "code"),
    [
        (TOPIC, "a", ("retention.ms", SET, "much"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", ("retention.m", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "a", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "none", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "1001", ("num.io.threads", SET, "1"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "5000"), ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "m", ("x", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_is_not_possible_changes_nothing(
    gateway, client, resource_type, name, change, code
):
    before = overrides(gateway)
    valid = "consumer.heartbeat.interval.ms" if resource_type == GROUP else "segment.ms"
    found = alter(client, resource_type, name, (valid, SET, "7000"), change)
    assert found.error_code == code
    assert found.error_message
    assert overrides(gateway) == before


def test_a_gateway_has_no_configs_to_delete(gateway, client):
    """Kafka's tool for reassignments deletes the throttles of brokers and topics at the end."""
    own = str(gateway.server.gateway.registered.gateway_id)
    throttles = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    assert alter(client, BROKER, own, *((key, DELETE, None) for key in throttles)).error_code == 0
    change = ("leader.replication.throttled.replicas", DELETE, None)
    before = overrides(gateway)
    assert alter(client, TOPIC, "a", change).error_code == 0
    assert overrides(gateway) == before


def test_nothing_is_changed_to_validate_and_a_key_twice_is_refused(gateway, client):
    before = overrides(gateway)
    assert alter(client, TOPIC, "a", ("segment.ms", SET, "7"), validate_only=True).error_code == 0
    twice = [("segment.ms", SET, "7"), ("segment.ms", DELETE, None)]
    assert alter(client, TOPIC, "a", *twice).error_code == ErrorCode.INVALID_REQUEST
    assert overrides(gateway) == before


def test_configs_without_a_value_are_named_in_kafkas_words(client):
    changes = [("retention.ms", SET, None), ("segment.ms", DELETE, None), ("a", APPEND, None)]
    found = alter(client, TOPIC, "a", *changes)
    assert found.error_message == "Null value not supported for : retention.ms, a"


@pytest.mark.parametrize("version", range(3))
def test_the_old_request_replaces_all_configs_of_a_resource(gateway, client, version):
    resource = _Alter.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="a",
        configs=[_Alter.AlterableConfig(name="segment.ms", value="77")],
    )
    unknown = _Alter.AlterConfigsResource(resource_type=TOPIC, resource_name="none")
    empty = _Alter.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="b",
        configs=[_Alter.AlterableConfig(name="segment.ms", value=None)],
    )
    found = client.ask("AlterConfigs", version, resources=[resource, unknown, empty]).responses
    assert [each.error_code for each in found] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert overrides(gateway) == {"segment.ms": "77"}
    assert overrides(gateway, "b") == {}


def test_the_old_request_leaves_the_number_of_stripes(gateway, client):
    """It says where the records are, and tools that set all other configs do not know it."""
    Admin(gateway.cluster.root).create_topics([NewTopic("striped", topic_configs={"stripes": 1})])
    resource = _Alter.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="striped",
        configs=[_Alter.AlterableConfig(name="segment.ms", value="77")],
    )
    (found,) = client.ask("AlterConfigs", 2, resources=[resource]).responses
    assert found.error_code == 0
    assert overrides(gateway, "striped") == {"segment.ms": "77", "stripes": "1"}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_configs_of_a_topic_that_cannot_exist_are_told_from_those_of_an_absent_one(
    client, name, code
):
    assert describe(client, TOPIC, name).error_code == code
