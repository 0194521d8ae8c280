"""Checkpoints that are moved, or copied so that two queries go on from the same place."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from tests.datasource.streams import append

pytestmark = pytest.mark.spark

TIMEOUT_S = 120


@pytest.fixture
def root(tmp_path: Path) -> str:
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t"), NewTopic("u"), NewTopic("v")])
    append(url, "t", 0, range(5))
    return url


def copy(spark: SparkSession, root: str, checkpoint: Path, topic: str = "u") -> None:
    """Run a query that copies ``t`` to another topic, up to the present end."""
    source = spark.readStream.format("spark_log").options(subscribe="t", startingOffsets="earliest")
    writer = source.load(root).select("value").writeStream.format("spark_log")
    writer = writer.options(path=root, topic=topic, checkpointLocation=str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(TIMEOUT_S)


def values(root: str, topic: str = "u") -> list[int]:
    cluster = Cluster(root)
    log = cluster.partition_log(cluster.topic(topic), 0)
    found = [batch.records.column("value").to_pylist() for batch in log.scan(0)]
    return [int(value) for batch in found for value in batch]


@pytest.mark.long
def test_a_moved_checkpoint_goes_on_where_it_was(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    copy(spark, root, tmp_path / "here")
    shutil.move(tmp_path / "here", tmp_path / "there")
    append(root, "t", 0, range(5, 8))

    copy(spark, root, tmp_path / "there")

    assert values(root) == list(range(8))


def test_a_copied_checkpoint_is_the_same_query_and_writes_a_batch_once(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    copy(spark, root, tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    append(root, "t", 0, range(5, 8))
    for checkpoint in ("one", "two"):
        copy(spark, root, tmp_path / checkpoint)
        assert values(root) == list(range(8))

    append(root, "t", 0, range(8, 10))
    copy(spark, root, tmp_path / "one")
    append(root, "t", 0, range(10, 11))
    copy(spark, root, tmp_path / "two")
    assert values(root) == list(range(11)), "its batch begins with the other's, and goes on"


@pytest.mark.long
def test_a_copied_checkpoint_for_another_topic_is_another_writer(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    copy(spark, root, tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    append(root, "t", 0, range(5, 8))

    copy(spark, root, tmp_path / "one")
    copy(spark, root, tmp_path / "two", topic="v")

    assert (values(root), values(root, "v")) == (list(range(8)), [5, 6, 7])


def test_a_checkpoint_goes_on_at_a_copy_of_its_root(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    copy(spark, root, tmp_path / "checkpoint")
    append(root, "t", 0, range(5, 8))
    other = str(tmp_path / "other")
    command = [sys.executable, "-m", "spark_log.cli", "mirror", "from-root", "--source", root]
    done = subprocess.run(
        [*command, "--root", other, "--topics", "t|u", "--until-end"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr

    copy(spark, other, tmp_path / "checkpoint")

    assert values(other) == list(range(8))
