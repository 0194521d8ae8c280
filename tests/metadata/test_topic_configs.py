"""Settings of topics: where a value comes from, and what a change makes of it."""

from typing import Annotated, Literal

import pytest
from pydantic import BeforeValidator, Field

from spark_log.config import TopicConfig, split_list
from spark_log.errors import InvalidConfigurationError, UnsupportedCompressionTypeError
from spark_log.metadata.topic_configs import alterations, config_entries, topic_of
from spark_log.types import AlterConfigOp, ConfigResource, ConfigResourceType, ConfigSynonym


class ListConfig(TopicConfig):
    """The table with a list key, as Kafka's ``cleanup.policy`` is one."""

    cleanup_policy: Annotated[
        tuple[Literal["delete", "compact"], ...], BeforeValidator(split_list)
    ] = Field(default=("delete",), description="What becomes of old records.")


def altered(overrides, changes, model=TopicConfig):
    """What changes, as a dict: None for what goes back to the default."""
    return {record.name: record.value for record in alterations("a", overrides, changes, model)}


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
        entry = config_entries({}, ["cleanup.policy"], ListConfig)["cleanup.policy"]
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
            ({"segment.bytes": None}, "SET takes a value; to go back to the default, DELETE it"),
            ({"segment.bytes": ("REPLACE", "1")}, "there is no operation 'REPLACE'; expected SET"),
            ({"segment.bytes": (7, "1")}, "there is no operation 7"),
        ],
    )
    def test_mistakes_are_refused(self, changes, message):
        with pytest.raises(InvalidConfigurationError, match=message):
            alterations("a", {}, changes)
        with pytest.raises(UnsupportedCompressionTypeError):
            alterations("a", {}, {"compression.type": "gzip"})


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
        assert altered(overrides, changes, ListConfig) == {"cleanup.policy": result}

    def test_what_is_there_is_not_appended_and_what_is_not_there_not_subtracted(self):
        overrides = {"cleanup.policy": "compact"}
        for operation, value in (("APPEND", "compact"), ("SUBTRACT", "delete")):
            assert altered(overrides, {"cleanup.policy": (operation, value)}, ListConfig) == {}

    def test_a_part_that_is_not_allowed_is_refused(self):
        with pytest.raises(InvalidConfigurationError, match="expected list delete, compact"):
            alterations("a", {}, {"cleanup.policy": ("APPEND", "shrink")}, ListConfig)

    @pytest.mark.parametrize("operation", ["APPEND", "SUBTRACT"])
    def test_nothing_else_is(self, operation):
        with pytest.raises(InvalidConfigurationError) as caught:
            alterations("a", {}, {"segment.bytes": (operation, "1")})
        assert caught.value.key == "segment.bytes"
        assert caught.value.message.startswith(
            f"Can't {operation} to key segment.bytes because its type is not LIST."
        )


class TestResource:
    @pytest.mark.parametrize("kind", [ConfigResourceType.TOPIC, "topic", "TOPIC"])
    def test_is_a_topic(self, kind):
        assert topic_of(ConfigResource(kind, "flights")) == "flights"

    def test_of_another_kind_has_no_settings(self):
        with pytest.raises(InvalidConfigurationError, match="'broker' has no settings"):
            topic_of(ConfigResource("broker", "0"))
