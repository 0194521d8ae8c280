"""Configs of topics and of the cluster: sources of values, and changes."""

from dataclasses import replace
from typing import Annotated, Literal

import pytest
from pydantic import BeforeValidator, Field

from spark_log.config import ClusterConfig, TopicConfig
from spark_log.config.model import split_list
from spark_log.errors import IgnoredOptionWarning, InvalidConfigurationError
from spark_log.metadata import MetadataImage
from spark_log.metadata.configs import (
    CLUSTER_CONFIGS,
    TOPIC_CONFIGS,
    alterations,
    config_entries,
    kind_of,
)
from spark_log.metadata.records import ConfigRecord
from spark_log.types import AlterConfigOp, ConfigResource, ConfigResourceType, ConfigSynonym


class ListConfig(TopicConfig):
    """The config table with a list key, like Kafka's ``cleanup.policy``."""

    cleanup_policy: Annotated[
        tuple[Literal["delete", "compact"], ...], BeforeValidator(split_list)
    ] = Field(default=("delete",), description="What becomes of old records.")


LISTS = replace(TOPIC_CONFIGS, model=ListConfig)


def altered(overrides, changes, kind=TOPIC_CONFIGS):
    """Return the changes as a dict: None for a restored default."""
    return {record.name: record.value for record in alterations("a", overrides, changes, kind)}


class TestDescribe:
    def test_an_override_goes_before_the_default_and_both_are_told(self):
        entry = config_entries({"segment.bytes": "2097152"})["segment.bytes"]
        assert (entry.value, entry.source) == ("2097152", "DYNAMIC_TOPIC_CONFIG")
        assert (entry.default, entry.is_default) == ("1073741824", False)
        assert entry.synonyms == (
            ConfigSynonym("segment.bytes", "2097152", "DYNAMIC_TOPIC_CONFIG"),
            ConfigSynonym("segment.bytes", "1073741824", "DEFAULT_CONFIG"),
        )
        assert (entry.type, entry.is_sensitive, entry.is_read_only) == ("INT", False, False)
        assert entry.documentation == TopicConfig.keys()["segment.bytes"].doc

    def test_without_one_the_default_counts(self):
        entry = config_entries({})["flush.on.append"]
        assert (entry.value, entry.source, entry.is_default) == ("true", "DEFAULT_CONFIG", True)
        assert entry.synonyms == (ConfigSynonym("flush.on.append", "true", "DEFAULT_CONFIG"),)

    def test_an_override_that_equals_the_default_is_still_an_override(self):
        entry = config_entries({"flush.on.append": "true"})["flush.on.append"]
        assert (entry.source, entry.is_default) == ("DYNAMIC_TOPIC_CONFIG", False)

    def test_every_key_of_the_table_is_there_in_order(self):
        assert list(config_entries({})) == sorted(TopicConfig.keys())

    def test_what_a_newer_version_set_is_shown(self):
        entry = config_entries({"newer.key": "x"})["newer.key"]
        assert (entry.value, entry.default, entry.type) == ("x", None, "UNKNOWN")
        assert entry.synonyms == (ConfigSynonym("newer.key", "x", "DYNAMIC_TOPIC_CONFIG"),)

    def test_only_the_keys_asked_for_come(self):
        assert list(config_entries({}, ["segment_bytes"])) == ["segment.bytes"]
        assert config_entries({}, []) == {}
        with pytest.raises(InvalidConfigurationError, match=r"did you mean 'segment\.bytes'"):
            config_entries({}, ["segment.byte"])

    def test_a_list_is_shown_with_commas(self):
        entry = config_entries({}, ["cleanup.policy"], LISTS)["cleanup.policy"]
        assert (entry.value, entry.type) == ("delete", "LIST")


class TestSetAndDelete:
    def test_what_is_not_named_stays(self):
        changes = {"segment.bytes": 2097152, "flush.on.append": False}
        assert altered({"compression.type": "zstd"}, changes) == {
            "flush.on.append": "false",
            "segment.bytes": "2097152",
        }

    def test_values_are_kept_as_they_were_checked(self):
        assert altered({}, {"flush_on_append": "FALSE"}) == {"flush.on.append": "false"}

    def test_what_is_as_it_was_makes_no_record(self):
        assert altered({"flush.on.append": "false"}, {"flush.on.append": False}) == {}
        assert altered({}, {"flush.on.append": (AlterConfigOp.DELETE, None)}) == {}

    @pytest.mark.parametrize("operation", [AlterConfigOp.DELETE, "DELETE", "delete", 1])
    def test_an_operation_is_named_or_numbered(self, operation):
        overrides = {"flush.on.append": "false"}
        assert altered(overrides, {"flush.on.append": (operation, None)}) == {
            "flush.on.append": None
        }

    def test_what_a_newer_version_set_can_be_deleted_and_does_not_stand_in_the_way(self):
        overrides = {"newer.key": "x"}
        assert altered(overrides, {"newer.key": ("DELETE", None)}) == {"newer.key": None}
        assert altered(overrides, {"segment.bytes": "2097152"}) == {"segment.bytes": "2097152"}

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"segment.byte": "1"}, "did you mean 'segment.bytes'"),
            ({"segment.byte": ("DELETE", None)}, "did you mean 'segment.bytes'"),
            ({"segment.bytes": "1"}, "config 'segment.bytes' is '1', expected int"),
            ({"segment.bytes": None}, "SET needs a value; to restore the default, DELETE it"),
            ({"segment.bytes": ("REPLACE", "1")}, "there is no operation 'REPLACE'; expected SET"),
            ({"segment.bytes": (7, "1")}, "there is no operation 7"),
        ],
    )
    def test_mistakes_are_refused(self, changes, message):
        with pytest.raises(InvalidConfigurationError, match=message):
            alterations("a", {}, changes)

    def test_what_takes_the_place_of_a_codec_is_stored(self):
        with pytest.warns(IgnoredOptionWarning, match="zstd is used instead"):
            (record,) = alterations("a", {}, {"compression.type": "gzip"})
        assert (record.name, record.value) == ("compression.type", "zstd")

    def test_settings_that_only_brokers_need_are_left_out(self):
        changes = {"segment.jitter.ms": "5", "flush.ms": ("DELETE", None), "retention.ms": "9"}
        with pytest.warns(
            IgnoredOptionWarning, match=r"Topic ignores segment\.jitter\.ms, flush\.ms"
        ):
            (record,) = alterations("a", {}, changes)
        assert (record.name, record.value) == ("retention.ms", "9")


class TestLists:
    @pytest.mark.parametrize(
        ("overrides", "operation", "value", "result"),
        [
            ({}, "APPEND", "compact", "delete,compact"),
            ({}, "APPEND", "compact,delete", "delete,compact"),
            ({"cleanup.policy": "compact"}, "APPEND", "delete", "compact,delete"),
            ({"cleanup.policy": ""}, "APPEND", "delete", "delete"),
            ({"cleanup.policy": "compact,delete"}, "SUBTRACT", "delete", "compact"),
            ({}, "SUBTRACT", "delete", ""),
            ({"cleanup.policy": "compact"}, "SUBTRACT", "compact", ""),
        ],
    )
    def test_are_appended_to_and_subtracted_from(self, overrides, operation, value, result):
        changes = {"cleanup.policy": (operation, value)}
        assert altered(overrides, changes, LISTS) == {"cleanup.policy": result}

    def test_what_is_there_is_not_appended_and_what_is_not_there_not_subtracted(self):
        overrides = {"cleanup.policy": "compact"}
        for operation, value in (("APPEND", "compact"), ("SUBTRACT", "delete")):
            assert altered(overrides, {"cleanup.policy": (operation, value)}, LISTS) == {}

    def test_a_part_that_is_not_allowed_is_refused(self):
        with pytest.raises(InvalidConfigurationError, match="expected list delete, compact"):
            alterations("a", {}, {"cleanup.policy": ("APPEND", "shrink")}, LISTS)

    @pytest.mark.parametrize("operation", ["APPEND", "SUBTRACT"])
    def test_a_value_that_is_no_list_cannot_be_added_to_or_taken_from(self, operation):
        with pytest.raises(InvalidConfigurationError) as caught:
            alterations("a", {}, {"segment.bytes": (operation, "1")})
        assert caught.value.key == "segment.bytes"
        assert caught.value.message.startswith(
            f"Can't {operation} to key segment.bytes because its type is not LIST."
        )


class TestCluster:
    def test_has_the_limits_of_groups(self):
        entry = config_entries({"group.max.size": "5"}, None, CLUSTER_CONFIGS)["group.max.size"]
        assert (entry.value, entry.source) == ("5", "DYNAMIC_DEFAULT_BROKER_CONFIG")
        assert list(config_entries({}, None, CLUSTER_CONFIGS)) == sorted(ClusterConfig.keys())
        (record,) = alterations("", {}, {"group_max_size": 5}, CLUSTER_CONFIGS)
        assert record == ConfigRecord(
            resource_type="broker", resource_name="", name="group.max.size", value="5"
        )

    def test_limits_that_let_nobody_join_are_refused(self):
        limits = {"group.min.session.timeout.ms": "9000", "group.max.session.timeout.ms": "8000"}
        with pytest.raises(
            InvalidConfigurationError, match=r"9000, more than .*, 8000: no consumer"
        ):
            alterations("", {}, limits, CLUSTER_CONFIGS)


class TestInherited:
    def test_a_topic_has_a_value_of_the_cluster_with_its_source(self):
        image = MetadataImage()
        for name, value in (("min.insync.replicas", "2"), ("group.max.size", "5")):
            image.replay(
                ConfigRecord(resource_type="broker", resource_name="", name=name, value=value)
            )
        inherited = TOPIC_CONFIGS.inherited(image, "flights")
        assert inherited == {"min.insync.replicas": "2"}
        entry = config_entries({}, None, inherited=inherited)["min.insync.replicas"]
        assert (entry.value, entry.source) == ("2", "DYNAMIC_DEFAULT_BROKER_CONFIG")
        own = {"min.insync.replicas": "3"}
        entry = config_entries(own, None, inherited=inherited)["min.insync.replicas"]
        assert (entry.value, entry.source) == ("3", "DYNAMIC_TOPIC_CONFIG")
        assert [synonym.value for synonym in entry.synonyms] == ["3", "2", "1"]


class TestResource:
    @pytest.mark.parametrize("kind", [ConfigResourceType.TOPIC, 2, "topic", "TOPIC"])
    def test_is_a_topic(self, kind):
        assert kind_of(ConfigResource(kind, "flights")) is TOPIC_CONFIGS

    @pytest.mark.parametrize("kind", [ConfigResourceType.BROKER, "broker"])
    def test_without_a_name_is_the_cluster(self, kind):
        assert kind_of(ConfigResource(kind, "")) is CLUSTER_CONFIGS

    def test_of_another_kind_is_refused(self):
        with pytest.raises(InvalidConfigurationError, match="expected topic, broker"):
            kind_of(ConfigResource("client-metrics", "0"))
