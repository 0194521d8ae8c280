"""Writing a DataFrame with ``format("spark_log")``."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_log import Admin, IgnoredOptionWarning, NewTopic
from spark_log.cluster import Cluster
from spark_log.datasource.options.write_options import parse_write_options
from spark_log.datasource.write.batch_writer import LogBatchWriter
from spark_log.log import PartitionLog

pytestmark = pytest.mark.spark


def logs(root: str, topic: str = "t") -> list[PartitionLog]:
    cluster = Cluster(root)
    found = cluster.topic(topic)
    return [cluster.partition_log(found, number) for number in sorted(found.partitions)]


def values(root: str, topic: str = "t") -> list[list[bytes]]:
    """Return the values of every partition, in offset order."""
    return [
        [value for batch in log.scan(0) for value in batch.records.column("value").to_pylist()]
        for log in logs(root, topic)
    ]


def write(df: DataFrame, root: str, **options: str) -> None:
    df.write.format("spark_log").mode("append").options(**options).save(root)


def error_of(df: DataFrame, root: str, **options: str) -> str:
    with pytest.raises(PySparkException) as raised:
        write(df, root, **options)
    return str(raised.value)


def test_every_column_is_kept(spark: SparkSession, root: str) -> None:
    moment = datetime(2013, 7, 4, 12, 30, 0, 123456, tzinfo=UTC)
    headers = [("trace", bytearray(b"1")), ("trace", bytearray(b"2")), ("none", None)]
    df = spark.createDataFrame(
        [(bytearray(b"k"), bytearray(b"v"), headers, moment), (None, None, None, moment)],
        "key binary, value binary, headers array<struct<key:string,value:binary>>, "
        "timestamp timestamp",
    ).coalesce(1)

    write(df.withColumn("partition", F.lit(2)), root, topic="t")

    (batch,) = logs(root)[2].read(0)[0]
    assert batch.records.to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "headers": [
                {"key": "trace", "value": b"1"},
                {"key": "trace", "value": b"2"},
                {"key": "none", "value": None},
            ],
            "timestamp": moment,
        },
        {"key": None, "value": None, "headers": None, "timestamp": moment},
    ]


def test_an_empty_array_of_headers_is_read_back_as_one(spark: SparkSession, root: str) -> None:
    df = spark.createDataFrame(
        [(b"empty", []), (b"none", None)],
        "value binary, headers array<struct<key:string,value:binary>>",
    )
    write(df, root, topic="t")

    read = spark.read.format("spark_log").options(path=root, subscribe="t", includeHeaders="true")
    found = {bytes(row["value"]): row["headers"] for row in read.load().collect()}
    assert found == {b"empty": [], b"none": None}


def test_a_column_of_type_timestamp_is_kept_to_the_microsecond(
    spark: SparkSession, root: str
) -> None:
    write(
        spark.sql("SELECT 'a' AS value, timestamp'2013-07-04 12:30:00.123456' AS timestamp"),
        root,
        topic="t",
    )

    read = spark.read.format("spark_log").options(path=root, subscribe="t").load()
    assert [row[0] for row in read.selectExpr("unix_micros(timestamp)").collect()] == [
        1372941000123456
    ]


def test_strings_are_written_as_utf8(spark: SparkSession, root: str) -> None:
    write(spark.createDataFrame([("ключ", "значение")], ["key", "value"]), root, topic="t")

    records = [
        row for log in logs(root) for batch in log.scan(0) for row in batch.records.to_pylist()
    ]
    assert [(row["key"], row["value"]) for row in records] == [
        ("ключ".encode(), "значение".encode())
    ]


def test_keys_go_where_kafkas_clients_send_them(spark: SparkSession, root: str) -> None:
    # partition = toPositive(murmur2(key)) % 4, with the hashes of Kafka's UtilsTest
    hashes = {"21": -973932308, "foobar": -790332482, "abc": 479470107}
    df = spark.createDataFrame([(key, key) for key in hashes], ["key", "value"])

    write(df, root, topic="t")

    expected: list[list[bytes]] = [[], [], [], []]
    for key, hashed in hashes.items():
        expected[(hashed & 0x7FFFFFFF) % 4].append(key.encode())
    assert [sorted(found) for found in values(root)] == [sorted(keys) for keys in expected]


def test_without_keys_all_partitions_get_records(spark: SparkSession, root: str) -> None:
    df = spark.range(80_000, numPartitions=2).select(F.col("id").cast("string").alias("value"))

    write(df, root, topic="t")

    counts = [len(found) for found in values(root)]
    assert sum(counts) == 80_000
    assert min(counts) >= 10_000, "the sticky partitioner moves on after 10,000 records"


def test_an_explicit_partition_wins_over_the_key(spark: SparkSession, root: str) -> None:
    df = spark.createDataFrame(
        [("21", "a", 3), ("21", "b", None), ("foobar", "c", 3)],
        "key string, value string, partition int",
    )

    write(df, root, topic="t")

    by_key = ((-973932308) & 0x7FFFFFFF) % 4
    found = values(root)
    assert sorted(found[3]) == sorted([b"a", b"c", *([b"b"] if by_key == 3 else [])])
    assert b"b" in found[by_key]


def test_a_partition_out_of_range_leaves_nothing_of_its_task(
    spark: SparkSession, root: str
) -> None:
    df = spark.range(50_000, numPartitions=1).select(
        F.lit("v").alias("value"),
        F.when(F.col("id") == 49_999, 4).otherwise(F.col("id") % 4).cast("int").alias("partition"),
    )

    assert "column 'partition' contains 4, but topic 't' has 4 partitions" in error_of(
        df, root, topic="t"
    )

    assert values(root) == [[], [], [], []]
    left = [path for path in Path(root).glob("t.*/*/*") if path.is_file()]
    assert left == [], "staged files are removed"


def test_topics_may_come_from_a_column(spark: SparkSession, root: str) -> None:
    Admin(root).create_topics([NewTopic("u")])
    df = spark.createDataFrame([("t", "1"), ("u", "2"), ("u", "3")], ["topic", "value"])

    write(df, root)

    assert sorted(value for found in values(root) for value in found) == [b"1"]
    assert sorted(values(root, "u")[0]) == [b"2", b"3"]


def test_the_topic_option_wins_over_the_column(spark: SparkSession, root: str) -> None:
    write(spark.createDataFrame([("nowhere", "1")], ["topic", "value"]), root, topic="t")

    assert [value for found in values(root) for value in found] == [b"1"]


def test_missing_timestamps_are_the_time_of_writing(spark: SparkSession, root: str) -> None:
    before = datetime.now(UTC)
    write(spark.createDataFrame([("a",)], ["value"]), root, topic="t")
    after = datetime.now(UTC)

    (row,) = [
        row for log in logs(root) for batch in log.scan(0) for row in batch.records.to_pylist()
    ]
    assert before <= row["timestamp"] <= after


def test_a_task_begins_another_segment_at_segment_bytes(spark: SparkSession, root: str) -> None:
    Admin(root).create_topics([NewTopic("small", topic_configs={"segment.bytes": 1 << 20})])
    df = spark.range(40_000, numPartitions=1).select(
        F.repeat(F.sha2(F.col("id").cast("string"), 256), 2).alias("value")
    )

    write(df, root, topic="small")

    description = Admin(root).describe_topics(["small"])[0].partitions[0]
    assert description.log_end_offset == 40_000
    assert description.segments >= 4


def test_compression_is_the_writers_choice_unless_the_topic_has_one(
    spark: SparkSession, root: str
) -> None:
    Admin(root).create_topics([NewTopic("plain", topic_configs={"compression.type": "none"})])
    df = spark.range(20_000, numPartitions=1).select(F.lit("x" * 100).alias("value"))

    write(df, root, **{"topic": "t", "compression.type": "zstd"})
    write(df, root, **{"topic": "plain", "compression.type": "zstd"})

    def size(topic: str) -> int:
        return sum(part.size_bytes for part in Admin(root).describe_topics([topic])[0].partitions)

    assert size("t") < 20_000 * 100 / 4 < size("plain")
    assert sum(len(found) for found in values(root)) == 20_000


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("'a' AS key", {"topic": "t"}, "the DataFrame has no column 'value'; its columns are key"),
        ("1 AS value", {"topic": "t"}, "column 'value' is of type int, expected string or binary"),
        ("'a' AS value, 'x' AS partition", {"topic": "t"}, "column 'partition' is of type string"),
        ("'a' AS value", {}, "no topic: set the option 'topic', or add a column 'topic'"),
        ("'a' AS value, cast(null AS string) AS topic", {}, "1 rows have a null topic"),
        ("'a' AS value", {"topic": "tt"}, "there is no topic 'tt'; did you mean t?"),
        (
            "'a' AS value",
            {"topc": "t"},
            "unknown option 'topc' for format spark_log; did you mean 'topic'?",
        ),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    spark: SparkSession, root: str, columns: str, options: dict[str, str], expected: str
) -> None:
    assert expected in error_of(spark.sql(f"SELECT {columns}"), root, **options)

    assert values(root) == [[], [], [], []]


def test_records_without_partition_go_where_the_key_says_also_when_the_column_is_null(
    spark: SparkSession, root: str
) -> None:
    Admin(root).create_topics([NewTopic("u", num_partitions=4)])
    df = spark.range(20).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")

    write(df, root, topic="t")
    write(df.withColumn("partition", F.lit(None).cast("int")), root, topic="u")

    assert [sorted(found) for found in values(root)] == [
        sorted(found) for found in values(root, "u")
    ]
    assert len([found for found in values(root) if found]) > 1


def test_timestamps_may_be_doubles(spark: SparkSession, root: str) -> None:
    """Seconds since the epoch, truncated to microseconds like Spark's cast; NaN is null."""
    df = spark.sql(
        "SELECT * FROM VALUES ('a', 1372941000.1234567D), ('b', -0.5D), ('c', double('NaN')), "
        "('d', cast(null AS double)) AS (value, timestamp)"
    )
    before = datetime.now(UTC)
    write(df, root, topic="t")

    found = {
        row["value"].decode(): row["timestamp"]
        for log in logs(root)
        for batch in log.scan(0)
        for row in batch.records.to_pylist()
    }
    assert found["a"] == datetime(2013, 7, 4, 12, 30, 0, 123456, tzinfo=UTC)
    assert found["b"] == datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)
    assert found["c"] >= before
    assert found["d"] >= before


@pytest.mark.parametrize("type_", ["bigint", "string", "timestamp_ntz", "float", "date"])
def test_a_timestamp_of_another_type_is_ignored_with_a_warning(
    spark: SparkSession, root: str, type_: str
) -> None:
    df = spark.sql(f"SELECT 'a' AS value, cast(NULL AS {type_}) AS timestamp").unionAll(
        spark.sql(f"SELECT 'b' AS value, cast(timestamp'2013-07-04' AS {type_}) AS timestamp")
    )
    with pytest.warns(IgnoredOptionWarning, match=f"'timestamp' is of type {type_}, expected"):
        LogBatchWriter(df.schema, parse_write_options({"path": root, "topic": "t"}))
    before = datetime.now(UTC)

    write(df, root, topic="t")

    rows = [row for log in logs(root) for batch in log.scan(0) for row in batch.records.to_pylist()]
    assert sorted(row["value"] for row in rows) == [b"a", b"b"]
    assert all(row["timestamp"] >= before for row in rows)


def test_options_of_a_program_for_kafka_do_not_fail_a_write(spark: SparkSession, root: str) -> None:
    options = {"kafka.compression.type": "gzip", "includeHeaders": "true", "kafka.acks": "all"}
    write(spark.sql("SELECT 'a' AS value"), root, topic="t", **options)
    assert [value for each in values(root) for value in each] == [b"a"]
    with pytest.warns(IgnoredOptionWarning) as caught:
        LogBatchWriter(
            spark.sql("SELECT 'a' AS value").schema,
            parse_write_options({"path": root, "topic": "t", **options}),
        )
    assert [str(each.message) for each in caught] == [
        "format spark_log ignores includeHeaders",
        "option kafka.compression.type is gzip, which Arrow files do not support (they support "
        "none, lz4 and zstd); zstd is used instead",
    ]


def test_large_values_go_through(spark: SparkSession, root: str) -> None:
    df = spark.range(1000, numPartitions=1).select(F.lit(bytes(15_000)).alias("value"))

    write(df, root, topic="t")

    assert sum(len(found) for found in values(root)) == 1000


def test_a_plan_that_spark_still_has_to_analyse_is_written(spark: SparkSession, root: str) -> None:
    write(spark.range(1, 1000).select(F.to_json(F.struct("*")).alias("value")), root, topic="t")

    assert sum(len(found) for found in values(root)) == 999


def test_a_summary_on_request_tells_what_was_written(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    df = spark.range(100, numPartitions=2).selectExpr(
        "cast(id AS string) AS value", "cast(id % 2 AS int) AS partition"
    )
    path = tmp_path / "summary.json"

    write(df, root, topic="t", summaryPath=str(path))

    summary = json.loads(path.read_text())
    size = summary.pop("bytes")
    assert size == sum(
        segment.file.size_bytes for log in logs(root) for segment in log.observe().live.segments
    )
    share = {"records": 50, "firstOffset": 0, "lastOffset": 49}
    assert summary == {
        "records": 100,
        "repeatedRecords": 0,
        "tasks": 2,
        "topics": {"t": {"0": share, "1": share}},
    }
    assert [file.name for file in tmp_path.glob("*summary*")] == ["summary.json"]


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_spark_refuses_other_save_modes_and_names_those_that_go(
    spark: SparkSession, root: str, mode: str
) -> None:
    df = spark.createDataFrame([("a",)], ["value"])
    with pytest.raises(PySparkException, match=r"(?i)append.*overwrite"):
        df.write.format("spark_log").mode(mode).option("topic", "t").save(root)
    assert values(root) == [[], [], [], []]


def test_overwrite_is_refused(spark: SparkSession, root: str) -> None:
    df = spark.createDataFrame([("a",)], ["value"])
    with pytest.raises(PySparkException, match="save mode overwrite is not supported"):
        df.write.format("spark_log").mode("overwrite").option("topic", "t").save(root)


def test_a_missing_root_says_how_to_make_one(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([("a",)], ["value"])
    assert "there is no spark-log root at" in error_of(df, str(tmp_path / "none"), topic="t")
    assert not (tmp_path / "none").exists()
