"""`by_partition`: task *i* owns partition *i*."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_log import Admin, InvalidRecordError, UnknownTopicOrPartitionError
from spark_log.datasource import by_partition

pytestmark = pytest.mark.spark


def test_each_task_has_the_rows_of_its_partition(spark: SparkSession, root: str) -> None:
    df = spark.range(1000, numPartitions=3).selectExpr(
        "cast(id AS string) AS key", "cast(id AS string) AS value"
    )

    owned = by_partition(df, root, "t").select("partition", F.spark_partition_id().alias("task"))

    rows = owned.distinct().collect()
    assert sorted((row.partition, row.task) for row in rows) == [(n, n) for n in range(4)]


def test_a_write_makes_one_segment_for_each_partition(spark: SparkSession, root: str) -> None:
    df = spark.range(20_000, numPartitions=5).selectExpr(
        "cast(id AS string) AS key", "cast(id AS string) AS value"
    )

    by_partition(df, root, "t").write.format("spark_log").mode("append").option("topic", "t").save(
        root
    )

    partitions = Admin(root).describe_topics(["t"])[0].partitions
    assert [partition.segments for partition in partitions] == [1, 1, 1, 1]
    assert sum(partition.log_end_offset for partition in partitions) == 20_000


def test_the_partitions_are_those_the_writer_would_choose(spark: SparkSession, root: str) -> None:
    df = spark.range(500).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    writer = df.write.format("spark_log").mode("append").option("topic", "t")
    writer.save(root)
    reader = spark.read.format("spark_log").option("subscribe", "t")
    written = {bytes(row.key).decode(): row.partition for row in reader.load(root).collect()}

    chosen = {row.key: row.partition for row in by_partition(df, root, "t").collect()}

    assert chosen == written


def test_rows_without_a_key_are_spread(spark: SparkSession, root: str) -> None:
    df = spark.range(100_000, numPartitions=1).selectExpr("cast(id AS string) AS value")

    counts = by_partition(df, root, "t").groupBy("partition").count().collect()

    assert {row.partition for row in counts} == {0, 1, 2, 3}
    assert min(row["count"] for row in counts) >= 20_000


def test_an_explicit_partition_is_kept(spark: SparkSession, root: str) -> None:
    df = spark.createDataFrame(
        [("a", "1", 3), ("a", "2", None), ("a", "3", 0)], "key string, value string, partition int"
    )

    chosen = {row.value: row.partition for row in by_partition(df, root, "t").collect()}

    assert (chosen["1"], chosen["3"]) == (3, 0)
    assert chosen["2"] == by_partition(df.drop("partition"), root, "t").first().partition  # type: ignore[union-attr]


def test_what_cannot_be_written_is_refused_before_the_shuffle(
    spark: SparkSession, root: str
) -> None:
    df = spark.range(1)
    with pytest.raises(InvalidRecordError, match="no column 'value'"):
        by_partition(df, root, "t")
    with pytest.raises(UnknownTopicOrPartitionError):
        by_partition(df.withColumn("value", F.lit("x")), root, "nope")
