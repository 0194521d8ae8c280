"""``transactional=true`` in a Spark session: micro-batches and batch writes are whole, and once."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.datasource import SparkLogDataSource
from spark_log.datasource.options.write_options import parse_write_options
from spark_log.datasource.write.stream_writer import LogStreamWriter
from spark_log.transaction import TransactionMetadata, TransactionStateLog
from tests.datasource.sink_support import committed, numbers
from tests.datasource.test_sink_streaming import Copy
from tests.docs.blocks import block

pytestmark = pytest.mark.spark

OTHER_ROWS_EACH_TIME = "cast(cast(value AS int) + 1000 * floor(rand() * 1000) AS string) AS value"


@pytest.fixture
def copy(spark: SparkSession, root: str, tmp_path: Path) -> Copy:
    return Copy(spark, root, tmp_path)


def write(df: DataFrame, root: str, **options: str) -> None:
    given = {"topic": "t", "transactional": "true", **options}
    df.write.format("spark_log").mode("append").options(**given).save(root)


def found(root: str) -> list[int]:
    return sorted(number for part in committed(root) for number in part)


def states(root: str) -> list[TransactionMetadata]:
    cluster = Cluster(root)
    return [
        TransactionStateLog.view(cluster.store, each, cluster.clock).state
        for each in TransactionStateLog.list_names(cluster.store, cluster.clock)
    ]


# --- micro-batches -------------------------------------------------------------------------------


def test_each_micro_batch_is_a_transaction_of_the_query(copy: Copy, root: str) -> None:
    copy.add(*range(100))
    copy.add(*range(100, 200))
    query = copy.run(topic="t", transactional="true")
    assert found(root) == [*range(200)]

    copy.add(*range(200, 300))
    copy.run(topic="t", transactional="true")

    assert found(root) == [*range(300)]
    (state,) = states(root)
    assert state.transactional_id == f"spark-{query.id}-t"
    assert (state.state, state.transaction, state.batch_id) == ("CompleteCommit", 3, 2)


def test_a_micro_batch_with_other_rows_is_written_once_when_it_runs_again(
    copy: Copy, root: str
) -> None:
    """The idempotent sink has to refuse such a plan."""
    for _ in range(2):
        copy.add(*range(100))
    copy.run(OTHER_ROWS_EACH_TIME, topic="t", transactional="true")
    before = numbers(root)
    copy.forget(1)

    query = copy.run(OTHER_ROWS_EACH_TIME, topic="t", transactional="true")

    assert [progress.batchId for progress in query.recentProgress] == [1]
    assert numbers(root) == before
    assert sorted(number % 1000 for number in found(root)) == sorted([*range(100)] * 2)


class FailingWriter(LogStreamWriter):
    """Its task 1 fails once, after it has appended."""

    def write(self, iterator):
        from pyspark import TaskContext

        message = super().write(iterator)
        context = TaskContext.get()
        mark = Path(f"{self._options.root}-mark".removeprefix("file://"))
        if context is not None and context.partitionId() == 1 and not mark.exists():
            mark.touch()
            raise RuntimeError("failed after its append")
        return message


class FailingSource(SparkLogDataSource):
    @classmethod
    def name(cls):
        return "spark_log_failing"

    def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
        return FailingWriter(schema, parse_write_options(self.options))


def test_a_failed_micro_batch_is_aborted_and_whole_and_once_after_the_restart(
    copy: Copy, root: str
) -> None:
    copy.spark.dataSource.register(FailingSource)
    copy.add(*range(400))
    source = copy.spark.readStream.text(str(copy.files)).repartition(4)

    def run() -> None:
        query = source.selectExpr(OTHER_ROWS_EACH_TIME).writeStream.format("spark_log_failing")
        query = query.options(path=root, topic="t", transactional="true")
        query = query.option("checkpointLocation", str(copy.checkpoint))
        assert query.trigger(availableNow=True).start().awaitTermination(120)

    with pytest.raises(PySparkException, match="failed after its append"):
        run()
    assert sum(map(len, numbers(root))) > 0
    read = copy.spark.read.format("spark_log").option("subscribe", "t")
    assert read.option("isolation.level", "read_committed").load(root).count() == 0

    run()

    assert sorted(number % 1000 for number in found(root)) == [*range(400)]
    assert [state.batch_id for state in states(root)] == [0]


def test_topics_of_a_column_are_one_transaction(copy: Copy, root: str) -> None:
    Admin(root).create_topics([NewTopic("u")])
    copy.add(*range(100))
    query = copy.run("if(value < 50, 't', 'u') AS topic", "value", transactional="true")

    both = [number for topic in "tu" for part in committed(root, topic) for number in part]
    assert sorted(both) == [*range(100)]
    assert [state.transactional_id for state in states(root)] == [f"spark-{query.id}-*"]


def test_empty_micro_batches_make_no_transaction(copy: Copy, root: str) -> None:
    copy.add(1)
    source = copy.spark.readStream.text(str(copy.files)).where("value > 5")
    assert copy.write(source, topic="t", transactional="true").awaitTermination(120)
    assert states(root) == []


def test_the_example_of_the_documentation(copy: Copy, root: str, tmp_path: Path) -> None:
    code = block("docs/spark.md", '"transactional", "true"').replace("/data/log", root)
    code = code.replace("/data", str(tmp_path)).replace(
        ".start()", ".trigger(availableNow=True).start()"
    )
    Admin(root).create_topics([NewTopic("enriched")])
    copy.add(*range(10))
    names: dict[str, Any] = {"enriched": copy.spark.readStream.text(str(copy.files))}
    exec(code, names)
    assert names["query"].awaitTermination(120)
    assert committed(root, "enriched") == [[*range(10)]]


# --- batch writes --------------------------------------------------------------------------------


def test_a_batch_write_is_one_transaction(spark: SparkSession, root: str, tmp_path: Path) -> None:
    df = spark.range(1000, numPartitions=4).selectExpr("cast(id AS string) AS value")
    summary = tmp_path / "summary.json"
    write(df, root, summaryPath=str(summary))

    assert found(root) == [*range(1000)]
    (state,) = states(root)
    assert (state.state, state.transaction, len(state.participants)) == ("CompleteCommit", 1, 4)
    assert json.loads(summary.read_text())["records"] == 1000


def test_a_failed_batch_write_leaves_nothing_to_read(spark: SparkSession, root: str) -> None:
    value = "if(id = 999, raise_error('the last row is bad'), cast(id AS string)) AS value"
    df = spark.range(1000, numPartitions=4).selectExpr(value)

    with pytest.raises(PySparkException, match="the last row is bad"):
        write(df, root)
    write(spark.range(5).selectExpr("cast(id AS string) AS value"), root)

    assert found(root) == [*range(5)]


def test_a_batch_write_with_an_app_id_that_runs_again_writes_nothing(
    spark: SparkSession, root: str
) -> None:
    df = spark.range(100, numPartitions=2).selectExpr("cast(id AS string) AS value")
    drawn = df.withColumn("value", (F.col("value") + 1000 * F.floor(F.rand() * 9)).cast("int"))
    drawn = drawn.selectExpr("cast(value AS string) AS value")
    for version in ("1", "1", "2", "1"):
        write(drawn, root, txnAppId="app", txnVersion=version)

    assert sorted(number % 1000 for number in found(root)) == sorted([*range(100)] * 2)
    (state,) = states(root)
    assert (state.transactional_id, state.transaction, state.batch_id) == ("spark-app-t", 2, 2)
