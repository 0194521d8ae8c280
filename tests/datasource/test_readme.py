"""Python and SQL code of README and docs; ``tests/jobs/test_demo.py`` runs the commands."""

import ast
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from tests.docs.blocks import block
from tests.waiting import wait_until

pytestmark = pytest.mark.spark


def exec_lines(code: str, names: dict[str, Any]) -> list[Any]:
    """Run code like a notebook; return the values of its expressions."""
    given = []
    for part in ast.parse(code).body:
        if isinstance(part, ast.Expr):
            given.append(eval(compile(ast.Expression(part.value), "README", "eval"), names))
        else:
            exec(compile(ast.Module([part], []), "README", "exec"), names)
    return given


def test_its_reads_and_writes_work(
    spark: SparkSession, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = block("README.md", "df.write")
    Admin(root).create_topics([NewTopic("flights")])

    names = {"df": spark.sql("SELECT 'a' AS value"), "spark": spark}
    *_, read = exec_lines(code.replace("/data/log", root), names)

    assert [(row.value, row.offset) for row in read.collect()] == [(b"a", 0)]
    both = block("README.md", "import read_table")
    exec(both.replace("/data/log", root), names)
    assert "|        0|    1|" in capsys.readouterr().out


def test_its_streaming_copy_works(spark: SparkSession, root: str, tmp_path: Path) -> None:
    code = block("docs/spark.md", '.option("topic", "copy")')
    admin = Admin(root)
    admin.create_topics([NewTopic("flights"), NewTopic("copy")])
    rows = spark.sql("SELECT 'k' AS key, 'a' AS value")
    rows.write.format("spark_log").mode("append").option("topic", "flights").save(root)
    names = {"spark": spark}

    exec(code.replace("/data/log", root).replace("/data", str(tmp_path)), names)
    names["copy"].awaitTermination()  # type: ignore[attr-defined]

    copied = spark.read.format("spark_log").option("subscribe", "copy").load(root)
    assert [(row.key, row.value) for row in copied.collect()] == [(b"k", b"a")]


def test_its_sql_works(spark: SparkSession, root: str) -> None:
    query = block("docs/spark.md", "max_by(offset")
    OffsetsTable(Cluster(root)).commit("demo", {TopicPartition("t", 1): OffsetAndMetadata(5)})

    rows = spark.sql(query.replace("/data/log", root)).collect()

    assert [tuple(row) for row in rows] == [("t", 1, 5)]


def test_the_lag_in_the_progress_of_a_query(
    spark: SparkSession, root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lag_and_metrics = block("docs/spark.md", "lag_of(source)")
    names: dict[str, Any] = {"spark": spark}
    exec(block("docs/spark.md", "StreamingQueryListener"), names)
    Admin(root).create_topics([NewTopic("flights")])
    spark.range(30).selectExpr("string(id) AS value").write.format("spark_log").mode(
        "append"
    ).option("topic", "flights").save(root)
    stream = spark.readStream.format("spark_log").option("subscribe", "flights")
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 10)
    writer = stream.load(root).writeStream.format("noop").trigger(availableNow=True)
    writer = writer.queryName("copy").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    query.awaitTermination()

    try:
        printed = ""

        def listener_printed_three_batches() -> bool:
            nonlocal printed
            printed += capsys.readouterr().out
            return printed.count("\n") >= 3

        wait_until(listener_printed_three_batches)
    finally:
        spark.streams.removeListener(names["listener"])
    assert [line.split(" {")[0] for line in printed.splitlines()] == ["copy 0", "copy 1", "copy 2"]
    assert "'maxOffsetsBehindLatest': '20'" in printed.splitlines()[0]
    lag, metrics = exec_lines(lag_and_metrics, {"query": query})
    assert {each: found.records for each, found in lag.items()} == {TopicPartition("flights", 0): 0}
    assert metrics["maxOffsetsBehindLatest"] == "0"
    progress = query.lastProgress
    assert progress is not None
    (source,) = progress.sources
    assert source.metrics == {}, "Spark passes metrics of a Python source now: use them"
    assert "PythonMicroBatchStream" in source.description
    assert progress.name == "copy"
