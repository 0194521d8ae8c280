"""Reads with ``format("spark_log")`` in a Spark session.

``test_splits`` and ``test_split_reader`` test planning and tasks without Spark.
"""

import sys

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceReader

from spark_log.datasource.read import batch_reader
from tests.datasource.reading import BASE_MS, create, fill

pytestmark = pytest.mark.spark


def read(spark: SparkSession, root: str, **options: str) -> DataFrame:
    given = {} if {"assign", "subscribePattern"} & options.keys() else {"subscribe": "t"}
    return spark.read.format("spark_log").options(**(given | options)).load(root)


def numbers(df: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in df.select("value").collect())


@pytest.fixture
def pushdown(spark: SparkSession):
    """Enable the pushdown of filters."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_the_columns_are_the_kafka_connectors(spark: SparkSession, root: str) -> None:
    assert read(spark, root).schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    assert (
        read(spark, root, includeHeaders="true")
        .schema.simpleString()
        .endswith(",headers:array<struct<key:string,value:binary>>>")
    )


def test_every_record_is_read_with_its_place(spark: SparkSession, root: str) -> None:
    fill(root, "t", 1, range(3))
    fill(root, "t", 3, range(2))

    rows = read(spark, root, includeHeaders="true").orderBy("partition", "offset").collect()

    assert [(row.partition, row.offset, bytes(row.value)) for row in rows] == [
        (1, 0, b"0"),
        (1, 1, b"1"),
        (1, 2, b"2"),
        (3, 0, b"0"),
        (3, 1, b"1"),
    ]
    first = rows[0]
    assert (first.topic, bytes(first.key), first.timestampType) == ("t", b"k", 0)
    assert first.timestamp.timestamp() * 1e3 == BASE_MS
    assert [(header.key, bytes(header.value)) for header in first.headers] == [("h", b"1")]


def test_an_empty_topic_reads_as_no_rows(spark: SparkSession, root: str) -> None:
    assert read(spark, root).count() == 0


def test_offsets_and_tasks_are_as_asked_for(spark: SparkSession, root: str) -> None:
    fill(root, "t", 0, range(100), segments=7)
    fill(root, "t", 1, range(100, 110))

    df = read(
        spark,
        root,
        startingOffsets='{"t":{"0":13,"1":-2,"2":-2,"3":-2}}',
        endingOffsets='{"t":{"0":57,"1":-1,"2":-1,"3":-1}}',
        minPartitions="6",
    )

    tasks = df.select("value", F.spark_partition_id().alias("task")).collect()
    assert sorted(int(row.value) for row in tasks) == [*range(13, 57), *range(100, 110)]
    assert len({row.task for row in tasks}) == 6


def test_several_topics_by_pattern(spark: SparkSession, root: str) -> None:
    create(root, "t2")
    create(root, "other")
    fill(root, "t", 0, range(3))
    fill(root, "t2", 0, range(4))
    fill(root, "other", 0, range(5))
    counts = read(spark, root, subscribePattern="^t").groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in counts} == {"t": 3, "t2": 4}


def test_a_schema_of_fewer_columns_reads_only_those(spark: SparkSession, root: str) -> None:
    fill(root, "t", 0, range(3))
    reader = spark.read.format("spark_log").schema("offset bigint, value binary")

    rows = reader.option("subscribe", "t").load(root).collect()

    assert [row.asDict() for row in rows] == [
        {"offset": n, "value": str(n).encode()} for n in range(3)
    ]


def test_a_frame_reads_the_records_that_were_there_when_it_was_planned(
    spark: SparkSession, root: str
) -> None:
    """All uses of a DataFrame read the same records, in one query and in the next one.

    Spark plans a Python source once for each ``load()``, and Kafka's relation once for each action.
    """
    fill(root, "t", 0, range(11))
    df = read(spark, root)
    assert numbers(df.union(df)) == sorted([*range(11), *range(11)])
    assert df.count() == 11
    fill(root, "t", 0, range(11, 20))
    assert df.count() == len(df.collect()) == 11
    assert read(spark, root).count() == 20


def test_a_program_written_for_kafka_needs_a_path_and_no_more(
    spark: SparkSession, root: str
) -> None:
    fill(root, "t", 0, range(3))
    options = {"kafka.bootstrap.servers": "host:9092", "kafka.session.timeout.ms": "10000"}
    assert read(spark, root, **options).count() == 3
    with pytest.raises(PySparkException, match="has no effect, spark-log has no brokers"):
        spark.read.format("spark_log").options(subscribe="t", **options).load()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "tt"}, "there is no topic 'tt'; did you mean t?"),
        ({"startingOffsets": "latest"}, "a batch read cannot start at latest"),
        ({"startingOffsets": '{"t":{"0":9,"1":0,"2":0,"3":0}}'}, "starts at offset 9 and ends"),
    ],
)
def test_errors_reach_the_user(
    spark: SparkSession, root: str, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        read(spark, root, **options).collect()
    assert expected in str(raised.value)


def test_an_unknown_column_in_the_schema_is_refused(spark: SparkSession, root: str) -> None:
    reader = spark.read.format("spark_log").option("subscribe", "t")
    with pytest.raises(PySparkException, match="did you mean 'offset'"):
        reader.schema("offsets bigint").load(root).collect()
    with pytest.raises(PySparkException, match="column 'offset' has type bigint"):
        reader.schema("offset string").load(root).collect()


@pytest.mark.usefixtures("pushdown")
def test_filters_of_one_read_are_not_those_of_another(spark: SparkSession, root: str) -> None:
    """Spark 4.2.0 and 4.3.0 use the plan of one scan with filters for all scans of its source."""
    for number in range(4):
        fill(root, "t", number, range(number * 100, number * 100 + 100), segments=4)
    df = read(spark, root)
    one, two = df.where("partition = 1"), df.where("partition = 2")

    assert numbers(one) == list(range(100, 200))
    assert df.count() == 400
    assert numbers(two) == list(range(200, 300))
    assert df.count() == 400
    assert numbers(one.union(two)) == list(range(100, 300))
    assert df.where("partition = 3 or cast(value as string) = '0'").count() == 101
    assert one.select("offset").join(two.select("offset"), "offset").count() == 100


@pytest.mark.usefixtures("pushdown")
def test_every_filter_holds_when_spark_hands_them_down(spark: SparkSession, root: str) -> None:
    for number in range(4):
        fill(root, "t", number, range(number * 100, number * 100 + 100), segments=4)
    df = read(spark, root)
    middle = F.timestamp_millis(F.lit(BASE_MS + 150_000))

    assert numbers(df.where("partition = 2")) == list(range(200, 300))
    assert numbers(df.where("topic like 't%' and offset between 97 and 98")) == [
        97,
        98,
        197,
        198,
        297,
        298,
        397,
        398,
    ]
    assert numbers(df.where(F.col("timestamp") >= middle)) == list(range(150, 400))
    assert numbers(df.where("topic = 'u'")) == []
    left = df.where("offset in (3, 5) and partition in (0, 1) and cast(value as string) > '3'")
    assert numbers(left) == [5]


PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module of Spark that asks a reader which filters it takes over."""


def test_filters_are_taken_over_where_spark_keeps_them_with_their_scan(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, PUSHDOWN_WORKER, batch_reader)
    assert batch_reader.batch_reader_class() is batch_reader.LogBatchReader
    monkeypatch.setattr(DataSourceReader, "pushLimit", None, raising=False)
    assert batch_reader.batch_reader_class() is batch_reader.FilteringBatchReader


def test_without_pushdown_filters_are_sparks(spark: SparkSession, root: str) -> None:
    fill(root, "t", 0, range(10))
    assert numbers(read(spark, root).where("offset > 7 and partition = 0")) == [8, 9]
