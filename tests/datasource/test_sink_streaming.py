"""Streaming writes in a Spark session: the cases of KafkaSinkSuite, and exactly once."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from spark_log import Admin, NewTopic, SparkLogError
from spark_log.datasource import SparkLogDataSource
from tests.datasource.sink_support import numbers
from tests.docs.blocks import block

pytestmark = pytest.mark.spark

JOINED = '{"transactionalId": "x", "producerId": 1, "producerEpoch": 0}'


class Copy:
    """A streaming query from text files to topics, with one file per micro-batch."""

    def __init__(self, spark: SparkSession, root: str, directory: Path) -> None:
        self.spark = spark
        self.root = root
        self.files = directory / "files"
        self.files.mkdir()
        self.checkpoint = directory / "checkpoint"

    def add(self, *values: int) -> None:
        """Write a file with one value per row."""
        count = len(list(self.files.iterdir()))
        staged = self.files / f".{count}"
        staged.write_text("".join(f"{value}\n" for value in values))
        staged.rename(self.files / f"{count:04}.txt")

    def start(self, *columns: str, output_mode: str = "append", **options: str) -> StreamingQuery:
        source = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.files))
        return self.write(source.selectExpr(*columns or ["value"]), output_mode, **options)

    def write(self, df: DataFrame, output_mode: str = "append", **options: str) -> StreamingQuery:
        return (
            df.writeStream.format("spark_log")
            .options(path=self.root, checkpointLocation=str(self.checkpoint), **options)
            .outputMode(output_mode)
            .trigger(availableNow=True)
            .start()
        )

    def run(self, *columns: str, **options: str) -> StreamingQuery:
        query = self.start(*columns, **options)
        assert query.awaitTermination(120)
        return query

    def forget(self, batch_id: int) -> None:
        """Remove the commit of a micro-batch from the checkpoint, as if the driver had died
        before.
        """
        for path in (self.checkpoint / "commits").glob(f"*{batch_id}*"):
            path.unlink()

    def error(self, *columns: str, **options: str) -> str:
        with pytest.raises(PySparkException) as raised:
            self.start(*columns, **options).awaitTermination(120)
        return str(raised.value)


@pytest.fixture
def copy(spark: SparkSession, root: str, tmp_path: Path) -> Copy:
    return Copy(spark, root, tmp_path)


def found(root: str) -> list[int]:
    return sorted(number for part in numbers(root) for number in part)


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        pytest.param(["'t' AS topic", "value"], {}, id="topic by column"),
        pytest.param(["value"], {"topic": "t"}, id="topic by option"),
        pytest.param(["'nowhere' AS topic", "value"], {"topic": " t "}, id="the option wins"),
    ],
)
def test_rows_go_to_the_topic_micro_batch_by_micro_batch(
    copy: Copy, root: str, columns: list[str], options: dict[str, str]
) -> None:
    copy.add(1, 2, 3)
    copy.add(4, 5)
    copy.run(*columns, **options)
    assert found(root) == [1, 2, 3, 4, 5]

    copy.add(6, 7)
    copy.run(*columns, **options)
    assert found(root) == [1, 2, 3, 4, 5, 6, 7]


def test_a_micro_batch_that_is_run_again_after_a_restart_appends_nothing_twice(
    copy: Copy, root: str
) -> None:
    copy.add(*range(100))
    copy.add(*range(100, 200))
    copy.run(topic="t")
    before = numbers(root)
    copy.forget(1)

    query = copy.run(topic="t")

    assert [progress.batchId for progress in query.recentProgress] == [1]
    assert numbers(root) == before
    assert found(root) == list(range(200))


def test_without_idempotence_it_appends_again_as_the_connector_does(copy: Copy, root: str) -> None:
    copy.add(1)
    copy.run(topic="t", idempotent="false")
    copy.forget(0)
    copy.run(topic="t", idempotent="false")

    assert found(root) == [1, 1]


def test_progress_counts_the_rows_that_were_written(copy: Copy) -> None:
    copy.add(1, 2, 3)
    query = copy.run(topic="t")

    (progress,) = query.recentProgress
    assert (progress.numInputRows, progress.sink.numOutputRows) == (3, 3)


def counted(copy: Copy, source: DataFrame | None = None) -> DataFrame:
    source = source or copy.spark.readStream.text(str(copy.files))
    counts = source.groupBy("value").agg(F.count("*").alias("n"))
    return counts.selectExpr("value AS key", "cast(n AS string) AS value")


def test_complete_mode_appends_the_whole_result_each_time(copy: Copy, root: str) -> None:
    for values in ((7, 7), (8,)):
        copy.add(*values)
        assert copy.write(counted(copy), "complete", topic="t").awaitTermination(120)

    assert found(root) == sorted([2, 2, 1])


def test_spark_refuses_update_mode_for_sinks_in_python(copy: Copy) -> None:
    copy.add(7)
    with pytest.raises(PySparkException, match="does not support Update mode"):
        copy.write(counted(copy), "update", topic="t").awaitTermination(120)


def test_the_readmes_way_writes_an_aggregate_in_update_mode_once(
    copy: Copy, root: str, tmp_path: Path
) -> None:
    code = block("docs/spark.md", 'outputMode("update")')
    code = code.replace("/data/log", root).replace("/data", str(tmp_path))
    Admin(root).create_topics([NewTopic("totals", num_partitions=2)])
    source = copy.spark.readStream.option("maxFilesPerTrigger", 1).text(str(copy.files))

    def run() -> None:
        names: dict[str, Any] = {"totals": counted(copy, source)}
        exec(code.replace(".start()", ".trigger(availableNow=True).start()"), names)
        assert names["query"].awaitTermination(120)

    copy.add(7)
    copy.add(7)
    run()
    assert sorted(number for part in numbers(root, "totals") for number in part) == [1, 2]

    for path in (tmp_path / "totals" / "commits").glob("*1*"):
        path.unlink()  # as if the driver had died before the commit
    run()
    assert sorted(number for part in numbers(root, "totals") for number in part) == [1, 2]


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        (["value AS key", "value"], {}, "no topic: set the option 'topic', or add a column"),
        (["'t' AS topic", "cast(value AS int) AS value"], {}, "column 'value' is of type int"),
        (["value"], {"topic": "nowhere"}, "there is no topic 'nowhere'"),
    ],
)
def test_bad_columns_end_the_query(
    copy: Copy, root: str, columns: list[str], options: dict[str, str], expected: str
) -> None:
    copy.add(1)

    assert expected in copy.error(*columns, **options)

    assert found(root) == []


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("topic string, key string", {}, "the DataFrame has no column 'value'"),
        ("topic int, value string", {}, "column 'topic' is of type int, expected string"),
        ("topic string, key int, value string", {}, "column 'key' is of type int"),
        ("topic string, value string, partition string", {}, "'partition' is of type string"),
        ("topic string, value string, headers string", {}, "'headers' is of type string"),
        ("value string", {"topic": "t", "kafka.key.serializer": "x"}, "is not supported"),
        ("value string", {"topic": "t", "kafka.value.serializer": "x"}, "is not supported"),
        ("value string", {"topic": "t", "kafka.partitioner.class": "x"}, "column partition"),
        ("value string", {"topic": "t", "summaryPath": "x"}, "is for batch writes"),
        ("value string", {"topic": "t", "joinTransaction": JOINED}, "is for batch writes"),
        ("value string", {"topic": "t", "idempotent": "maybe"}, "expected true or false"),
    ],
)
def test_bad_columns_and_options_are_refused_when_the_writer_is_made(
    root: str, columns: str, options: dict[str, str], expected: str
) -> None:
    source = SparkLogDataSource({"path": root, **options})
    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)

    with pytest.raises(SparkLogError, match=expected):
        source.streamWriter(schema, overwrite=False)


def test_a_null_topic_ends_the_query(copy: Copy, root: str) -> None:
    copy.add(1)
    assert "1 rows have a null topic" in copy.error("cast(null AS string) AS topic", "value")


def test_options_for_kafkas_clients_do_not_break_a_query(copy: Copy, root: str) -> None:
    copy.add(1)
    copy.run(topic="t", **{"kafka.bootstrap.servers": "b:9092", "kafka.acks": "all"})
    assert found(root) == [1]
