"""The README's Python and SQL; its shell commands are run in ``tests/jobs/test_demo.py``."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.coordinator import OffsetsTable
from spark_log.metadata import Cluster

README = (Path(__file__).parents[2] / "README.md").read_text()

pytestmark = pytest.mark.spark


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_its_reads_and_writes_work(spark: SparkSession, root: str) -> None:
    (code,) = (block for block in blocks("python") if "df.write" in block)
    Admin(root).create_topics([NewTopic("flights")])

    exec(code.replace("/data/log", root), {"df": spark.sql("SELECT 'a' AS value"), "spark": spark})

    assert Admin(root).describe_topics(["flights"])[0].partitions[0].log_end_offset == 1


def test_its_streaming_copy_works(spark: SparkSession, root: str, tmp_path: Path) -> None:
    (code,) = (block for block in blocks("python") if "readStream" in block)
    admin = Admin(root)
    admin.create_topics([NewTopic("flights"), NewTopic("copy")])
    rows = spark.sql("SELECT 'k' AS key, 'a' AS value")
    rows.write.format("spark_log").mode("append").option("topic", "flights").save(root)
    names = {"spark": spark}

    exec(code.replace("/data/log", root).replace("/data", str(tmp_path)), names)
    names["copy"].awaitTermination()  # type: ignore[attr-defined]

    copied = spark.read.format("spark_log").option("subscribe", "copy").load(root)
    assert [(row.key, row.value) for row in copied.collect()] == [(b"k", b"a")]


def test_its_clients_work(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (block for block in blocks("python") if "Producer" in block)

    exec(code.replace("/data/log", root), {})

    partition, offset, value = capsys.readouterr().out.split(" ", 2)
    assert (int(partition) in range(4), offset, value) == (True, "0", "b'2 apples'\n")


def test_its_sql_works(spark: SparkSession, root: str) -> None:
    (query,) = blocks("sql")
    OffsetsTable(Cluster(root)).commit("demo", {TopicPartition("t", 1): OffsetAndMetadata(5)})

    rows = spark.sql(query.replace(".demo/log", root)).collect()

    assert [tuple(row) for row in rows] == [("t", 1, 5)]
