"""Streaming queries on ``format("spark_log")`` in a Spark session, with checkpoint and progress."""

import json
import logging
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.datasource.stream.lag import PartitionLag, lag_of
from tests.datasource.streams import (
    add_partitions,
    append,
    create_again,
    delete_records,
    topic_id,
)

pytestmark = pytest.mark.spark

TIMEOUT_S = 90


@pytest.fixture
def root(tmp_path: Path) -> str:
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", num_partitions=2)])
    return url


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def stream(spark: SparkSession, root: str, **options: str) -> DataFrame:
    given = {"startingOffsets": "earliest", **options}
    if not given.keys() & {"subscribePattern", "assign"}:
        given.setdefault("subscribe", "t")
    return spark.readStream.format("spark_log").options(**given).load(root)


def start(df: DataFrame, checkpoint: Path, **trigger: Any) -> tuple[StreamingQuery, list[int]]:
    """Start a query; return it, and the list to which its values are added."""
    found: list[int] = []

    def take(batch: DataFrame, _: int) -> None:
        found.extend(int(row.value) for row in batch.select("value").collect())

    writer = df.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start(), found


def run(df: DataFrame, checkpoint: Path, **trigger: Any) -> tuple[StreamingQuery, list[int]]:
    """Run a query to its end; return it, and the values that it wrote, in order."""
    query, found = start(df, checkpoint, **trigger)
    assert query.awaitTermination(TIMEOUT_S)
    return query, sorted(found)


def written(checkpoint: Path, batch: int) -> dict[str, dict[str, int]]:
    """Return the offsets of a batch in the checkpoint."""
    found: dict[str, dict[str, int]]
    found = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])
    return found


def test_available_now_reads_in_batches_reports_lag_and_the_groups_progress(
    spark: SparkSession, root: str, checkpoint: Path
) -> None:
    append(root, "t", 0, range(50))
    append(root, "t", 1, range(100, 120))
    options = {"maxOffsetsPerTrigger": "30", "group.id": "g"}

    query, found = run(stream(spark, root, **options), checkpoint, availableNow=True)

    assert found == [*range(50), *range(100, 120)]
    batches = [each for each in query.recentProgress if each.numInputRows]
    assert [each.numInputRows for each in batches] == [29, 29, 12]
    lags = [lag_of(each.sources[0]) for each in batches]
    p0, p1 = TopicPartition("t", 0), TopicPartition("t", 1)
    assert [(lag[p0].records, lag[p1].records) for lag in lags] == [(29, 12), (8, 4), (0, 0)]
    assert all(lag.time_ms and lag.time_ms > 0 for lag in lags[0].values())
    assert lags[2] == {p0: PartitionLag(0, 0), p1: PartitionLag(0, 0)}
    assert written(checkpoint, 2) == {
        "t": {"0": 50, "1": 20},
        f"t@{topic_id(root, 't')}": {},
    }
    committed = OffsetsTable(Cluster(root)).fetch("g")
    assert {tp: each.offset for tp, each in committed.items()} == {p0: 50, p1: 20}, (
        "the last batch too"
    )

    append(root, "t", 0, [50])
    _, found = run(stream(spark, root, **options), checkpoint, availableNow=True)
    assert found == [50], "a restart goes on where the checkpoint is"
    assert OffsetsTable(Cluster(root)).fetch("g")[p0].offset == 51


def test_once_reads_everything_in_one_batch_whatever_the_limits(
    spark: SparkSession, root: str, checkpoint: Path
) -> None:
    append(root, "t", 0, range(50))
    df = stream(spark, root, maxOffsetsPerTrigger="3")
    query, found = run(df, checkpoint, once=True)
    assert found == list(range(50))
    assert len([each for each in query.recentProgress if each.numInputRows]) == 1
    append(root, "t", 1, range(5))
    assert run(df, checkpoint, once=True)[1] == list(range(5))


def test_a_running_query_finds_records_new_partitions_and_a_topic_created_again(
    spark: SparkSession, root: str, checkpoint: Path
) -> None:
    append(root, "t", 0, [-1])
    df = stream(spark, root, startingOffsets="latest", includeHeaders="true")
    query, found = start(df, checkpoint, processingTime="0 seconds")
    try:
        query.processAllAvailable()
        append(root, "t", 1, [1, 2])
        reads(query, found, [1, 2])
        add_partitions(root, "t", 3)
        append(root, "t", 2, [3])
        reads(query, found, [1, 2, 3])
        create_again(root, "t", 1)
        append(root, "t", 0, [4])
        reads(query, found, [1, 2, 3, 4])
    finally:
        query.stop()
    assert query.exception() is None
    assert sum(each.numInputRows for each in query.recentProgress) == 4


def reads(query: StreamingQuery, found: list[int], expected: list[int]) -> None:
    """Let the query read all records that were acknowledged before this call."""
    query.processAllAvailable()
    assert sorted(found) == expected


@pytest.mark.long
def test_process_all_available_returns_when_all_that_was_acknowledged_is_processed(
    spark: SparkSession, root: str, checkpoint: Path
) -> None:
    df = stream(spark, root)
    query, found = start(df, checkpoint, processingTime="0 seconds")
    try:
        query.processAllAvailable()
        for count in range(10, 110, 10):
            for number in range(count - 10, count):
                append(root, "t", number % 2, [number])
            query.processAllAvailable()
            assert sorted(found) == list(range(count))
    finally:
        query.stop()


def fails_on_its_first_batch(df: DataFrame, checkpoint: Path) -> None:
    """Run a query that fails after the plan of its first batch, as in a crash."""

    def fail(batch: DataFrame, _: int) -> None:
        raise RuntimeError("the sink is away")

    writer = df.writeStream.foreachBatch(fail).option("checkpointLocation", str(checkpoint))
    with pytest.raises(PySparkException, match="the sink is away"):
        writer.trigger(availableNow=True).start().awaitTermination(TIMEOUT_S)
    assert (checkpoint / "offsets" / "0").exists()
    assert not (checkpoint / "commits" / "0").exists()


def test_a_first_batch_that_failed_is_run_again_from_where_it_began(
    spark: SparkSession, root: str, checkpoint: Path, tmp_path: Path
) -> None:
    append(root, "t", 0, range(10))
    df = stream(spark, root)
    fails_on_its_first_batch(df, checkpoint)
    shutil.copytree(checkpoint, tmp_path / "lenient")
    append(root, "t", 0, range(10, 12))
    delete_records(root, "t", 0, 4, 0)
    with pytest.raises(PySparkException, match="offsets 0 to 3 are not retained any more"):
        run(df, checkpoint, availableNow=True)
    lenient = stream(spark, root, failOnDataLoss="false")
    assert run(lenient, tmp_path / "lenient", availableNow=True)[1] == list(range(4, 12))


def test_a_first_batch_that_a_query_on_kafka_left_unfinished_begins_where_that_says(
    spark: SparkSession, root: str, checkpoint: Path
) -> None:
    append(root, "t", 0, range(10))
    kafkas_batch(checkpoint, 0, '{"t":{"0":6,"1":0}}', is_committed=False)
    (checkpoint / "metadata").write_text(f'{{"id":"{uuid.uuid4()}"}}')
    (checkpoint / "sources" / "0").mkdir(parents=True)
    (checkpoint / "sources" / "0" / "0").write_bytes(b'\0v1\n{"t":{"0":2,"1":0}}')
    with pytest.raises(PySparkException, match="give the query's checkpointLocation to readStream"):
        run(stream(spark, root), checkpoint, availableNow=True)

    df = stream(spark, root, checkpointLocation=str(checkpoint))
    query, found = run(df, checkpoint, availableNow=True)

    assert found == list(range(2, 10))
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [4, 4]


def test_a_checkpoint_that_a_query_on_kafka_wrote_is_read_on_from(
    spark: SparkSession, root: str, checkpoint: Path
) -> None:
    append(root, "t", 0, range(10))
    append(root, "t", 1, range(100, 110))
    for batch, offsets in enumerate(['{"t":{"0":2,"1":1}}', '{"t":{"1":5,"0":4}}']):
        kafkas_batch(checkpoint, batch, offsets)
    identity = f'{{"id":"{uuid.uuid4()}"}}'
    (checkpoint / "metadata").write_text(identity)
    (checkpoint / "sources" / "0").mkdir(parents=True)
    (checkpoint / "sources" / "0" / "0").write_bytes(b'\0v1\n{"t":{"0":0,"1":0}}')

    query, found = run(stream(spark, root), checkpoint, availableNow=True)

    assert found == [*range(4, 10), *range(105, 110)]
    assert str(query.id) == json.loads(identity)["id"]
    assert written(checkpoint, 2) == {
        "t": {"0": 10, "1": 10},
        f"t@{topic_id(root, 't')}": {},
    }


def test_a_batch_that_a_query_on_kafka_left_unfinished_is_run_again(
    spark: SparkSession, root: str, checkpoint: Path
) -> None:
    append(root, "t", 0, range(10))
    kafkas_batch(checkpoint, 0, '{"t":{"0":2,"1":0}}')
    kafkas_batch(checkpoint, 1, '{"t":{"0":6,"1":0}}', is_committed=False)
    (checkpoint / "metadata").write_text(f'{{"id":"{uuid.uuid4()}"}}')

    query, found = run(stream(spark, root), checkpoint, availableNow=True)

    assert found == list(range(2, 10))
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [4, 4]


def kafkas_batch(checkpoint: Path, batch: int, offsets: str, *, is_committed: bool = True) -> None:
    """Write the checkpoint files of a batch of a query on ``format("kafka")``."""
    metadata = {
        "batchWatermarkMs": 0,
        "batchTimestampMs": 1_735_689_600_000,
        "conf": {"spark.sql.shuffle.partitions": "2"},
    }
    text = json.dumps(metadata, separators=(",", ":"))
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{text}\n{offsets}")
    if is_committed:
        (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


@pytest.mark.parametrize(
    ("trigger", "message"),
    [
        ({"continuous": "1 second"}, "spark_log does not support continuous processing"),
        ({"realTime": "5 minutes"}, "is not supported in Real-time Mode"),
    ],
)
def test_continuous_and_real_time_triggers_are_refused(
    spark: SparkSession, root: str, checkpoint: Path, trigger: dict[str, str], message: str
) -> None:
    writer = stream(spark, root).writeStream.format("console").outputMode("update")
    writer = writer.option("checkpointLocation", str(checkpoint))
    with pytest.raises(PySparkException, match=message):
        writer.trigger(**trigger).start().awaitTermination(TIMEOUT_S)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "'endingOffsets' is for batches"),
        ({"subscribe": "tt"}, "there is no topic 'tt'; did you mean t?"),
    ],
)
def test_bad_options_are_refused(
    spark: SparkSession, root: str, checkpoint: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        run(stream(spark, root, **options), checkpoint, availableNow=True)
    assert message in str(caught.value)


def test_a_query_fails_where_records_are_gone_and_goes_on_where_it_shall(
    spark: SparkSession, root: str, checkpoint: Path
) -> None:
    append(root, "t", 0, range(50))
    delete_records(root, "t", 0, 20, 0)
    options = {"startingOffsets": '{"t":{"0":0,"1":0}}'}
    with pytest.raises(PySparkException, match="offsets 0 to 19 are not retained any more"):
        run(stream(spark, root, **options), checkpoint, availableNow=True)
    lenient = stream(spark, root, failOnDataLoss="false", **options)
    _, found = run(lenient, checkpoint, availableNow=True)
    assert found == list(range(20, 50)), "each once"


def test_a_topic_deleted_while_a_batch_runs_does_not_fail_a_query_that_shall_not(
    spark: SparkSession, root: str, checkpoint: Path
) -> None:
    append(root, "t", 0, range(10))
    df = stream(spark, root, failOnDataLoss="false", maxOffsetsPerTrigger="5")

    def delete(batch: DataFrame, number: int) -> None:
        create_again(root, "t", 1)
        batch.collect()

    writer = df.writeStream.foreachBatch(delete).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(TIMEOUT_S)
    assert query.exception() is None


@pytest.mark.long
def test_a_topic_that_was_created_again_between_two_runs_is_read_anew(
    spark: SparkSession, root: str, checkpoint: Path
) -> None:
    append(root, "t", 0, range(5))
    run(stream(spark, root), checkpoint, availableNow=True)
    former = written(checkpoint, 0)
    create_again(root, "t", 2)
    append(root, "t", 0, range(100, 109))
    _, found = run(stream(spark, root), checkpoint, availableNow=True)
    assert found == list(range(100, 109)), "neither its first five left out, nor an alarm"
    assert written(checkpoint, 1).keys() != former.keys()


@pytest.mark.long
def test_a_join_with_itself_meets_every_record_with_every_other(
    spark: SparkSession, root: str, checkpoint: Path
) -> None:
    append(root, "t", 0, [1, 2, 6])
    df = stream(spark, root).selectExpr("int(string(value)) value", "int(string(value)) % 5 key")
    _, found = run(df.join(df, "key").selectExpr("key value"), checkpoint, availableNow=True)
    assert found == [1, 1, 1, 1, 2]
    offsets = (checkpoint / "offsets" / "0").read_text().splitlines()[2:]
    assert len(set(offsets)) == 1, "Spark makes two sources of it, and they agree"


@pytest.mark.long
def test_limits_are_each_sources_own(spark: SparkSession, root: str, checkpoint: Path) -> None:
    Admin(root).create_topics([NewTopic("u")])
    append(root, "t", 0, range(10))
    append(root, "u", 0, range(100, 112))
    both = stream(spark, root, maxOffsetsPerTrigger="5").union(
        stream(spark, root, subscribe="u", maxOffsetsPerTrigger="5")
    )
    query, found = run(both, checkpoint, availableNow=True)
    assert found == [*range(10), *range(100, 112)]
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [10, 10, 2]


@pytest.mark.long
def test_a_watermark_on_the_records_time(spark: SparkSession, root: str, checkpoint: Path) -> None:
    append(root, "t", 0, range(10))
    counted = (
        stream(spark, root)
        .withWatermark("timestamp", "10 seconds")
        .groupBy(F.window("timestamp", "5 seconds"))
        .agg(F.count("*").cast("string").alias("value"))
        .select("value")
    )
    assert run(counted, checkpoint, availableNow=True)[1] == [], "none is closed yet"
    append(root, "t", 1, [0], timestamp_us=1_372_896_600_000_000)
    assert run(counted, checkpoint, availableNow=True)[1] == [5, 5]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="py4j")
