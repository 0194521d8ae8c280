"""`Admin` on configs of topics and of the cluster."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from spark_log import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
)
from spark_log.cluster import Cluster
from spark_log.errors import (
    InvalidConfigurationError,
    UnknownTopicOrPartitionError,
)
from spark_log.metadata import MetadataImage, PartitionChangeRecord
from tests.metadata.support import metadata_files


@pytest.mark.partition_logs_only("tells all configs that a topic has set")
class TestConfigs:
    def test_changes_are_described_with_their_source(self, admin):
        admin.create_topics([NewTopic("a", topic_configs={"segment.bytes": 2**21})])
        changes = {"compression.type": "zstd", "segment.bytes": ("DELETE", None)}
        admin.alter_configs([ConfigResource("topic", "a", changes)])
        entries = admin.describe_configs([ConfigResource("topic", "a")])["topic"]["a"]
        sources = {entry.name for entry in entries.values() if not entry.is_default}
        assert sources == {"compression.type"}
        assert entries["compression.type"].value == "zstd"
        assert entries["segment.bytes"].source == "DEFAULT_CONFIG"

    def test_can_be_asked_for_what_is_changed_or_is_not(self, admin):
        admin.create_topics([NewTopic("a", topic_configs={"segment.bytes": 2**21})])
        (resource,) = [ConfigResource(ConfigResourceType.TOPIC, "a")]
        modified = admin.describe_configs([resource], config_filter="modified")["topic"]["a"]
        others = admin.describe_configs([resource], config_filter="default")["topic"]["a"]
        assert list(modified) == ["segment.bytes"]
        assert "segment.bytes" not in others
        assert "flush.on.append" in others
        with pytest.raises(InvalidConfigurationError, match="expected all, modified, default"):
            admin.describe_configs([resource], config_filter="dynamic")

    @pytest.mark.parametrize("validate_only", [True, False])
    @pytest.mark.parametrize(
        ("refused", "error"),
        [
            (ConfigResource("topic", "b", {"segment.bytes": 1}), InvalidConfigurationError),
            (ConfigResource("topic", "b", {"segment.byte": 1}), InvalidConfigurationError),
            (ConfigResource("topic", "b", ["segment.bytes"]), InvalidConfigurationError),
            (ConfigResource("broker", "0", {}), InvalidConfigurationError),
            (ConfigResource("topic", "no-such", {}), UnknownTopicOrPartitionError),
        ],
    )
    def test_all_or_none_are_changed(self, admin, root, refused, error, validate_only):
        admin.create_topics([NewTopic("a"), NewTopic("b")])
        before = metadata_files(root)
        good = ConfigResource("topic", "a", {"segment.bytes": 2**21})
        with pytest.raises(error):
            admin.alter_configs([good, refused], validate_only=validate_only)
        assert metadata_files(root) == before

    def test_validate_only_writes_nothing(self, admin, root):
        admin.create_topics([NewTopic("a")])
        before = metadata_files(root)
        good = ConfigResource("topic", "a", {"segment.bytes": 2**21})
        admin.alter_configs([good], validate_only=True)
        assert metadata_files(root) == before

    def test_several_for_one_topic_come_one_after_the_other_in_one_change(self, admin, root):
        admin.create_topics([NewTopic("a")])
        changes: list[dict[str, Any]] = [
            {"segment.bytes": 2**21, "index.interval.bytes": 1},
            {"segment.bytes": 2**22, "index.interval.bytes": ("DELETE", None)},
        ]
        admin.alter_configs([ConfigResource("topic", "a", each) for each in changes])
        assert admin.describe_topics()[0].configs == {"segment.bytes": str(2**22)}
        assert len(metadata_files(root)) == 2

    def test_of_two_that_change_other_keys_at_once_none_undoes_the_other(self, admin, root):
        admin.create_topics([NewTopic("a")])
        keys = [
            "segment.bytes",
            "max.message.bytes",
            "index.interval.bytes",
            "file.delete.delay.ms",
        ]

        def alter(key):
            Admin(root).alter_configs([ConfigResource("topic", "a", {key: 2**21})])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(alter, keys))
        assert admin.describe_topics()[0].configs == dict.fromkeys(sorted(keys), str(2**21))

    def test_who_looks_again_has_the_new_settings_without_a_restart(self, admin, root):
        admin.create_topics([NewTopic("a")])
        running = Cluster(root)
        assert running.topic("a").config().segment_bytes == 2**30
        Admin(root).alter_configs([ConfigResource("topic", "a", {"segment.bytes": 2**21})])
        assert running.topic("a").config().segment_bytes == 2**21


OWN = {"segment.bytes": 2**21, "retention.ms": 1000, "compression.type": "zstd"}


@pytest.mark.partition_logs_only("tells all configs that a topic has set")
class TestReset:
    @pytest.fixture(autouse=True)
    def topic(self, admin):
        admin.create_topics([NewTopic("a", topic_configs=OWN)])

    def overrides(self, admin):
        return sorted(admin.describe_topics(["a"])[0].configs)

    def test_only_the_given_keys_get_their_defaults(self, admin):
        admin.reset_configs([ConfigResource("topic", "a", ["segment.bytes", "flush.on.append"])])
        assert self.overrides(admin) == ["compression.type", "retention.ms"]

    def test_values_of_a_dict_are_ignored(self, admin):
        admin.reset_configs([ConfigResource("topic", "a", {"segment.bytes": "x"})])
        assert self.overrides(admin) == ["compression.type", "retention.ms"]

    @pytest.mark.parametrize("keys", [None, []])
    def test_without_keys_all_overrides_are_reset_and_other_resources_stay(self, admin, keys):
        admin.create_topics([NewTopic("b", topic_configs=OWN)])
        admin.reset_configs([ConfigResource("topic", "a", keys)])
        assert self.overrides(admin) == []
        assert len(admin.describe_topics(["b"])[0].configs) == 3

    def test_the_number_of_stripes_stays_without_keys(self, admin):
        """It says where the records are: only a change that moves them changes it."""
        admin.create_topics([NewTopic("c", topic_configs=OWN | {"stripes": 1})])
        admin.reset_configs([ConfigResource("topic", "c")])
        assert admin.describe_topics(["c"])[0].configs.keys() == {"stripes"}
        with pytest.raises(InvalidConfigurationError, match="alter c --stripes 0"):
            admin.reset_configs([ConfigResource("topic", "c", ["stripes"])])

    def test_validate_only_changes_nothing(self, admin):
        admin.reset_configs([ConfigResource("topic", "a")], validate_only=True)
        assert self.overrides(admin) == sorted(OWN)

    def test_an_unknown_key_or_topic_resets_nothing(self, admin):
        first = ConfigResource("topic", "a", ["retention.ms"])
        with pytest.raises(InvalidConfigurationError):
            admin.reset_configs([first, ConfigResource("topic", "a", ["retention"])])
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.reset_configs([first, ConfigResource("topic", "other")])
        assert self.overrides(admin) == sorted(OWN)


@pytest.mark.partition_logs_only("tells all configs that a topic has set")
def test_a_lower_min_insync_replicas_makes_nobody_eligible_in_the_same_change(admin, root):
    def change(**fields):
        cluster.metadata.commit(
            lambda _: [PartitionChangeRecord(topic_id=topic_id, partition_id=0, **fields)]
        )

    admin.create_topics([NewTopic("a", topic_configs={"min.insync.replicas": 2})])
    cluster = Cluster(root)
    topic_id = cluster.topic("a").topic_id
    change(replicas=(0, 1), eligible_leader_replicas=(1,))
    before = len(metadata_files(root))
    admin.alter_configs([ConfigResource("topic", "a", {"min.insync.replicas": 1})])
    assert len(metadata_files(root)) == before + 1
    assert cluster.topic("a").partitions[0].eligible_leader_replicas == ()


def test_a_group_has_its_own_config_else_that_of_the_cluster(admin, root):
    admin.create_topics([NewTopic("a")])
    session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    of_cluster = {f"group.{session}": 60_000, f"group.{interval}": 2000}
    admin.alter_configs(
        [ConfigResource("broker", "", of_cluster), ConfigResource("group", "g", {session: 50_000})]
    )

    def configs(group_id):
        found = admin.describe_configs([ConfigResource("group", group_id)])["group"][group_id]
        return {each.name: (each.value, each.source) for each in found.values()}

    inherited = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert configs("g") == {
        session: ("50000", "DYNAMIC_GROUP_CONFIG"),
        interval: ("2000", inherited),
    }
    assert configs("h") == {session: ("60000", inherited), interval: ("2000", inherited)}
    image = Cluster(root).image()
    again = MetadataImage()
    for record in image.records():
        again.replay(record)
    assert again.group_config("g") == image.group_config("g")
    assert image.group_config("g").consumer_session_timeout_ms == 50_000
    assert image.group_config("h").consumer_heartbeat_interval_ms == 2000
    admin.reset_configs([ConfigResource("group", "g")])
    assert Cluster(root).image().group_overrides == {}
    assert image.group_overrides == {"g": {session: "50000"}}, "an image does not change"
    with pytest.raises(InvalidConfigurationError, match="the id of the group is empty"):
        admin.describe_configs([ConfigResource("group", "")])


def test_resources_that_can_be_described_are_listed(admin):
    admin.create_topics([NewTopic("b"), NewTopic("a")])
    admin.alter_client_quotas({"app": {"producer_byte_rate": 1}, None: {"consumer_byte_rate": 2}})
    timeout = "consumer.session.timeout.ms"
    admin.alter_configs([ConfigResource("group", "g", {timeout: 50_000})])
    listed = {"topic": ["a", "b"], "broker": [""], "client": ["", "app"], "group": ["g"]}
    assert admin.list_config_resources() == listed
    assert admin.list_config_resources(["TOPIC"]) == {"topic": ["a", "b"]}
    assert admin.list_config_resources([ConfigResourceType.CLIENT]) == {"client": ["", "app"]}
    described = admin.describe_configs(
        [ConfigResource(kind, name) for kind, names in listed.items() for name in names]
    )
    assert {kind: list(names) for kind, names in described.items()} == listed
    with pytest.raises(InvalidConfigurationError, match="expected topic, broker"):
        admin.list_config_resources(["cluster"])
