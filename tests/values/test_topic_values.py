"""A topic whose settings ask for impossible columns is neither created nor altered."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.config import TopicConfig
from spark_log.errors import InvalidConfigurationError
from spark_log.types import ConfigResource
from spark_log.values import typed_values_of

BAD = [
    ({"table.value.format": "json"}, "config 'table.value.format' is json, which needs 'table.s"),
    ({"table.value.format": "avro"}, "needs 'table.schema': an Avro schema"),
    (
        {"table.value.format": "json", "table.schema": "a TEXT"},
        "config 'table.schema': position 3: expected a type such as STRING",
    ),
    (
        {"table.value.format": "json", "table.schema": "offset INT"},
        "config 'table.schema': column offset: a topic has a column of this name",
    ),
    (
        {"table.value.format": "avro", "table.schema": "a INT"},
        "config 'table.schema': it is not JSON",
    ),
    ({"table.value.format": "xml"}, "table.value.format"),
]
GOOD = {"table.value.format": "json", "table.schema": "a INT, b STRING"}


@pytest.mark.parametrize(("settings", "message"), BAD)
def test_a_topic_with_impossible_columns_is_not_created(tmp_path, settings, message):
    admin = Admin(tmp_path / "root")

    with pytest.raises(InvalidConfigurationError) as raised:
        admin.create_topics([NewTopic("t", 1, topic_configs=settings)])

    assert message in str(raised.value)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(("settings", "message"), BAD)
def test_impossible_columns_are_refused_before_a_topic_is_altered(tmp_path, settings, message):
    admin = Admin(tmp_path / "root")
    admin.create_topics([NewTopic("t", 1)])

    with pytest.raises(InvalidConfigurationError) as raised:
        admin.alter_configs([ConfigResource("topic", "t", settings)])

    assert message in str(raised.value)


@pytest.mark.parametrize("more", [{}, {"table.value.format": "none"}])
def test_a_schema_stays_also_without_a_format(tmp_path, more):
    admin = Admin(tmp_path / "root")
    admin.create_topics([NewTopic("t", 1, topic_configs=GOOD)])

    with pytest.raises(InvalidConfigurationError, match=r"'table[.]schema'"):
        admin.alter_configs([ConfigResource("topic", "t", {"table.schema": "", **more})])
    admin.alter_configs([ConfigResource("topic", "t", {"table.value.format": "none"})])
    with pytest.raises(InvalidConfigurationError, match="it would be gone"):
        admin.alter_configs([ConfigResource("topic", "t", {"table.schema": ""})])
    admin.alter_configs([ConfigResource("topic", "t", {"table.value.format": "json"})])


@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_column_keeps_its_type_while_there_is_no_format(tmp_path, in_one_step):
    """Files of the first format are still part of the table."""
    admin = Admin(tmp_path / "root")
    admin.create_topics([NewTopic("t", 1, topic_configs=GOOD)])
    admin.alter_configs([ConfigResource("topic", "t", {"table.value.format": "none"})])
    changed = {"table.schema": "a BIGINT, b STRING"}
    if in_one_step:
        changed["table.value.format"] = "json"

    with pytest.raises(InvalidConfigurationError, match="column a is int32, and would be int64"):
        admin.alter_configs([ConfigResource("topic", "t", changed)])

    avro = """{"type":"record","name":"r","fields":[{"name":"a","type":"int"},
        {"name":"b","type":"string"},{"name":"c","type":"long"}]}"""
    admin.alter_configs([ConfigResource("topic", "t", {"table.schema": avro})])
    with pytest.raises(InvalidConfigurationError, match="column c would be gone"):
        admin.alter_configs([ConfigResource("topic", "t", GOOD)])


def test_a_schema_that_never_had_a_format_can_be_mended(tmp_path):
    admin = Admin(tmp_path / "root")
    admin.create_topics([NewTopic("t", 1, topic_configs={"table.schema": "a TEXT"})])

    admin.alter_configs([ConfigResource("topic", "t", GOOD)])


def test_the_columns_of_settings():
    typed = typed_values_of(TopicConfig.parse({**GOOD, "table.keep.value": "false"}))

    assert typed is not None
    assert typed.schema.names == ["a", "b"]
    assert not typed.keeps_values
    assert typed_values_of(TopicConfig.parse({"table.schema": "not read"})) is None


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("a INT", "column b would be gone; keep it, it may stay null"),
        ("a BIGINT, b STRING", "column a is int32, and would be int64; add a new one"),
        ("a INT, b STRING, c STRUCT<x: STRING>", "column c is struct<x: int32>, and would be"),
        ("a INT, b STRING, c STRUCT<y: STRING>", "column c is struct<x: int32>, and would be"),
    ],
)
def test_a_column_keeps_its_type(tmp_path, schema, message):
    admin = Admin(tmp_path / "root")
    before = {**GOOD, "table.schema": "a INT, b STRING, c STRUCT<x: INT>"}
    admin.create_topics([NewTopic("t", 1, topic_configs=before)])

    with pytest.raises(InvalidConfigurationError) as raised:
        admin.alter_configs([ConfigResource("topic", "t", {"table.schema": schema})])

    assert message in str(raised.value)


def test_columns_can_be_added_later(tmp_path):
    admin = Admin(tmp_path / "root")
    before = {**GOOD, "table.schema": "a INT, b ARRAY<STRUCT<x: INT>>"}
    admin.create_topics([NewTopic("t", 1, topic_configs=before)])

    schema = "c STRING, b ARRAY<STRUCT<y: DATE, x: INT>>, a INT"
    admin.alter_configs([ConfigResource("topic", "t", {"table.schema": schema})])
