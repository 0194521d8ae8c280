"""Spark reads a topic's table, and may not change it."""

import pytest

from spark_log.testing.spark import spark
from tests.table.test_committer import COMPACT

__all__ = ["spark"]


@pytest.mark.spark
def test_spark_reads_what_the_log_has_and_is_refused(opened, spark):
    root = opened(partitions=2)
    for round_number in range(12):  # past a checkpoint
        root.fill(3, round_number % 2, start=10 * round_number)
        root.clean()
    table = f"delta.`{root.directory}`"
    rows = spark.sql(f"select partition, offset, key, value, headers from {table}").collect()
    for partition in range(2):
        found = sorted(
            (each.offset, bytes(each.key), bytes(each.value))
            for each in rows
            if each.partition == partition
        )
        assert found == root.log_rows(partition)
    times = spark.sql(f"select min(timestamp), max(offset), count(*) from {table}").first()
    assert times[0].timestamp() > 1_600_000_000
    assert times[1:] == (35, 72)
    pruned = spark.sql(f"select offset from {table} where partition = 1 and offset >= 30")
    assert pruned.count() == 6
    before, version = root.log_files(), root.newest.number
    for statement in (
        f"VACUUM {table} RETAIN 0 HOURS",
        f"OPTIMIZE {table}",
        f"DELETE FROM {table} WHERE offset < 5",
        f"UPDATE {table} SET value = key",
        f"INSERT INTO {table} SELECT * FROM {table}",
        f"RESTORE TABLE {table} TO VERSION AS OF 1",
        f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'false')",
    ):
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        with pytest.raises(Exception, match="sparkLog"):
            spark.sql(statement).collect()
        assert root.log_files() == before
    assert root.newest.number == version
    old = spark.read.format("delta").option("versionAsOf", 1).load(str(root.directory))
    assert old.count() == root.table.at(1).partitions[0].end + root.table.at(1).partitions[1].end


@pytest.mark.spark
def test_spark_reads_one_row_of_each_key(opened, spark):
    root = opened(**COMPACT)
    root.fill(20)
    root.clean()
    rows = spark.read.format("delta").load(str(root.directory)).collect()
    assert sorted((r.offset, bytes(r.key), bytes(r.value)) for r in rows) == root.table_rows()
    assert len({bytes(row.key) for row in rows}) == len(rows)
