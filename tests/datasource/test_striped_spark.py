"""Spark reads and writes topics with stripes, in batches and in streams."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster

pytestmark = pytest.mark.spark

PARTITIONS = 12


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A root with the topics ``t`` and ``u``: twelve partitions each, in two stripes."""
    url = str(tmp_path / "root")
    Admin(url).create_topics(
        [NewTopic(name, PARTITIONS, topic_configs={"stripes": 2}) for name in ("t", "u")]
    )
    return url


def write(spark: SparkSession, root: str, start: int, end: int, **options: str) -> None:
    rows = spark.range(start, end, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value", f"CAST(id % {PARTITIONS} AS INT) AS partition"
    )
    writer = rows.write.format("spark_log").mode("append").option("topic", "t")
    writer.options(**options).save(root)


def values(spark: SparkSession, root: str, topic: str, **options: str) -> list[int]:
    reader = spark.read.format("spark_log").option("subscribe", topic).options(**options)
    return sorted(int(row.value) for row in reader.load(root).collect())


def objects(root: str, topic: str) -> int:
    return len(list(Path(root).glob(f"{topic}.*/__stripes/*/*.stripe")))


def take_home(root: str) -> None:
    cluster = Cluster(root)
    for number in range(2):
        cluster.stripe(cluster.topic("t"), number).take_home()


def test_batches_and_streams(spark: SparkSession, root: str, tmp_path: Path) -> None:
    write(spark, root, 0, 600)
    assert objects(root, "t") == 4, "two tasks, two stripes"
    take_home(root)
    write(spark, root, 600, 1200, transactional="true")
    everything = list(range(1200))
    assert values(spark, root, "t") == everything
    assert values(spark, root, "t", minPartitions="30") == everything
    assert values(spark, root, "t", **{"isolation.level": "read_committed"}) == everything

    def copy() -> None:
        stream = spark.readStream.format("spark_log").option("subscribe", "t")
        stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "500")
        writer = stream.load(root).select("value").writeStream.format("spark_log")
        writer = writer.options(
            path=root, topic="u", checkpointLocation=str(tmp_path / "checkpoint")
        )
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    copy()
    write(spark, root, 1200, 1300)
    copy()
    assert values(spark, root, "u") == list(range(1300))


def test_a_stream_and_its_sink_go_on_while_stripes_change(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    stream = spark.readStream.format("spark_log").option("subscribe", "t")
    stream = stream.option("startingOffsets", "earliest")
    writer = stream.load(root).select("value").writeStream.format("spark_log")
    writer = writer.options(path=root, topic="u", checkpointLocation=str(tmp_path / "checkpoint"))
    query = writer.start()
    try:
        for number, count in enumerate((0, 3, 1)):
            write(spark, root, 100 * number, 100 * number + 50)
            query.processAllAvailable()
            Admin(root).alter_stripes({"t": count, "u": count})
            write(spark, root, 100 * number + 50, 100 * number + 100)
            query.processAllAvailable()
    finally:
        query.stop()
    assert values(spark, root, "t") == values(spark, root, "u") == list(range(300))
