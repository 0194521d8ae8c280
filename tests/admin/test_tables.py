"""Answers of `Admin` as Arrow tables."""

from datetime import UTC, datetime

from spark_log import Admin, ConfigResource, NewTopic, OffsetSpec, TopicPartition
from spark_log.admin.tables import (
    CONFIGS_SCHEMA,
    LOG_DIRS_SCHEMA,
    OFFSETS_SCHEMA,
    TOPICS_SCHEMA,
    configs_table,
    log_dirs_table,
    offsets_table,
    topics_table,
)
from tests.metadata.support import append


def admin_of(root):
    admin = Admin(root)
    admin.create_topics([NewTopic("a", 2, topic_configs={"flush.on.append": False})])
    append(root, "a", 3)
    return admin


def test_topics_are_a_row_for_each_partition(tmp_path):
    (described,) = admin_of(tmp_path / "root").describe_topics()
    table = topics_table([described])
    assert table.schema == TOPICS_SCHEMA
    first, second = table.to_pylist()
    assert (first["topic"], first["topic_id"], first["partition"]) == ("a", described.topic_id, 0)
    assert (first["log_end_offset"], first["replicas"], first["segments"]) == (3, [0], 1)
    assert (second["partition"], second["size_bytes"]) == (1, 0)


def test_settings_are_a_row_for_each_key(tmp_path):
    admin = admin_of(tmp_path / "root")
    resource = ConfigResource("topic", "a", ["flush.on.append"])
    table = configs_table(admin.describe_configs([resource]))
    assert table.schema == CONFIGS_SCHEMA
    (row,) = table.to_pylist()
    assert (row["resource_type"], row["resource_name"]) == ("topic", "a")
    assert (row["name"], row["value"], row["default"]) == ("flush.on.append", "false", "true")


def test_offsets_have_nulls_for_what_there_is_not(tmp_path):
    admin = admin_of(tmp_path / "root")
    specs = {TopicPartition("a", number): OffsetSpec.MAX_TIMESTAMP for number in (0, 1)}
    table = offsets_table(admin.list_offsets(specs))
    assert table.schema == OFFSETS_SCHEMA
    first, second = table.to_pylist()
    assert first["offset"] == 2
    assert first["timestamp"] == datetime(2023, 11, 14, 22, 13, 20, 2000, UTC)
    assert (second["offset"], second["timestamp"], second["leader_epoch"]) == (None, None, None)


def test_log_dirs_are_a_row_for_each_replica(tmp_path):
    described = admin_of(tmp_path / "root").describe_log_dirs()
    table = log_dirs_table(described)
    assert table.schema == LOG_DIRS_SCHEMA
    assert table.num_rows == 2
    row = table.to_pylist()[0]
    assert (row["broker"], row["log_dir"]) == (0, str(tmp_path / "root"))
    assert row["path"] == described[0].replicas[0].path


def test_nothing_is_an_empty_table():
    assert topics_table([]).schema == TOPICS_SCHEMA
    assert log_dirs_table([]).num_rows == offsets_table({}).num_rows == 0
