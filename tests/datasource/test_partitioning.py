"""`by_partition`: task *i* writes partition *i*."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_log import Admin, InvalidRecordError, UnknownTopicOrPartitionError
from spark_log.datasource import by_partition
from spark_log.datasource.write import partitioning
from spark_log.record.murmur2 import partition_for_keys

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


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("kind", ["string", "binary"])
def test_the_partitions_are_those_that_kafkas_clients_choose(
    spark: SparkSession,
    root: str,
    kind: str,
    is_compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not is_compiled:  # as with Spark Connect
        monkeypatch.setattr(partitioning, "_partition_compiled", lambda df, count: None)
    keys = ["", "a", "21", "foobar", "é", "日本語", "😀", "x" * 3000, *map(str, range(500))]
    df = spark.createDataFrame([(key, key) for key in keys], ["key", "value"])
    df = df.withColumn("key", F.col("key").cast(kind))

    owned = by_partition(df, root, "t")
    chosen = {row.value: row.partition for row in owned.collect()}

    owned.explain()
    assert ("static_invoke" in capsys.readouterr().out) == is_compiled
    hashed = partition_for_keys(pa.array([key.encode() for key in keys], pa.binary()), 4)
    assert chosen == dict(zip(keys, hashed.tolist(), strict=True))


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_string_key_that_is_not_utf8_still_goes_where_its_bytes_belong(
    spark: SparkSession, root: str, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(partitioning, "_partition_compiled", lambda df, count: None)
    raw = [bytes([0xFF, number]) for number in range(64)]
    df = spark.createDataFrame([(bytearray(key),) for key in raw], "key binary")
    df = df.withColumn("key", F.col("key").cast("string")).withColumn("value", F.lit("v"))

    by_partition(df, root, "t").write.format("spark_log").mode("append").option("topic", "t").save(
        root
    )

    rows = spark.read.format("spark_log").option("subscribe", "t").load(root).collect()
    hashed = partition_for_keys(pa.array(raw, pa.binary()), 4)
    assert {bytes(row.key): row.partition for row in rows} == dict(
        zip(raw, hashed.tolist(), strict=True)
    )


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

    by_key = partition_for_keys(pa.array([b"a"]), 4)[0]
    assert chosen == {"1": 3, "2": by_key, "3": 0}


def test_what_cannot_be_written_is_refused_before_the_shuffle(
    spark: SparkSession, root: str
) -> None:
    df = spark.range(1)
    with pytest.raises(InvalidRecordError, match="no column 'value'"):
        by_partition(df, root, "t")
    with pytest.raises(UnknownTopicOrPartitionError):
        by_partition(df.withColumn("value", F.lit("x")), root, "nope")
