"""Reading with ``format("spark_log")``."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_log import Admin, NewTopic
from spark_log.metadata import Cluster
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE

pytestmark = pytest.mark.spark

BASE_US = 1_372_896_000_000_000


def fill(root: str, topic: str, partition: int, count: int, batches: int = 1) -> None:
    """Append ``count`` records: value = number, timestamp = one second later each."""
    cluster = Cluster(root)
    log = cluster.partition_log(cluster.topic(topic), partition)
    for numbers in np.array_split(np.arange(count), batches):
        size = len(numbers)
        times = BASE_US + numbers * 1_000_000
        log.append(
            pa.RecordBatch.from_arrays(
                [
                    pa.array([b"k"] * size, pa.binary()),
                    pa.array([str(number).encode() for number in numbers], pa.binary()),
                    pa.array([[("h", b"1")]] * size, HEADERS_TYPE),
                    pa.array(times, pa.int64()).cast(TIMESTAMP_TYPE),
                ],
                schema=RECORD_SCHEMA,
            )
        )


def read(spark: SparkSession, root: str, **options: str) -> DataFrame:
    return spark.read.format("spark_log").options(**{"subscribe": "t", **options}).load(root)


def numbers(df: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in df.select("value").collect())


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
    fill(root, "t", 1, 3)
    fill(root, "t", 3, 2)

    rows = read(spark, root, includeHeaders="true").orderBy("partition", "offset").collect()

    assert [(row.partition, row.offset, bytes(row.value)) for row in rows] == [
        (1, 0, b"0"), (1, 1, b"1"), (1, 2, b"2"), (3, 0, b"0"), (3, 1, b"1"),
    ]  # fmt: skip
    first = rows[0]
    assert (first.topic, bytes(first.key), first.timestampType) == ("t", b"k", 0)
    assert first.timestamp.timestamp() * 1e6 == BASE_US
    assert [(header.key, bytes(header.value)) for header in first.headers] == [("h", b"1")]


def test_an_empty_topic_reads_as_no_rows(spark: SparkSession, root: str) -> None:
    assert read(spark, root).count() == 0


def test_many_small_segments_read_as_one_log(spark: SparkSession, root: str) -> None:
    fill(root, "t", 0, 500, batches=100)

    rows = read(spark, root).select("offset", "value").orderBy("offset").collect()

    assert [(row.offset, int(row.value)) for row in rows] == [(n, n) for n in range(500)]


def test_offsets_bound_what_is_read(spark: SparkSession, root: str) -> None:
    fill(root, "t", 0, 100, batches=7)

    df = read(
        spark,
        root,
        startingOffsets='{"t":{"0":13,"1":-2,"2":-2,"3":-2}}',
        endingOffsets='{"t":{"0":57,"1":-1,"2":-1,"3":-1}}',
    )

    assert numbers(df) == list(range(13, 57))


def test_times_bound_what_is_read(spark: SparkSession, root: str) -> None:
    fill(root, "t", 0, 100)
    base_ms = BASE_US // 1000

    df = read(
        spark,
        root,
        startingTimestamp=str(base_ms + 20_001),
        endingTimestamp=str(base_ms + 30_000),
    )

    assert numbers(df) == list(range(21, 30))


def test_a_time_after_the_end_reads_nothing(spark: SparkSession, root: str) -> None:
    fill(root, "t", 0, 10)
    assert read(spark, root, startingTimestamp="99999999999999").count() == 0


def test_assigned_partitions_only(spark: SparkSession, root: str) -> None:
    fill(root, "t", 0, 3)
    fill(root, "t", 1, 5)
    Admin(root).create_topics([NewTopic("u")])
    fill(root, "u", 0, 7)

    df = spark.read.format("spark_log").option("assign", '{"t":[1],"u":[0]}').load(root)

    assert {row.topic: row["count"] for row in df.groupBy("topic").count().collect()} == {
        "t": 5,
        "u": 7,
    }


def test_several_topics(spark: SparkSession, root: str) -> None:
    Admin(root).create_topics([NewTopic("u")])
    fill(root, "t", 0, 3)
    fill(root, "u", 0, 4)
    assert read(spark, root, subscribe="t, u").count() == 7


def test_a_schema_of_fewer_columns_reads_only_those(spark: SparkSession, root: str) -> None:
    fill(root, "t", 0, 3)
    reader = spark.read.format("spark_log").schema("offset bigint, value binary")

    rows = reader.option("subscribe", "t").load(root).collect()

    assert [row.asDict() for row in rows] == [
        {"offset": n, "value": str(n).encode()} for n in range(3)
    ]


def test_only_columns_that_are_not_stored(spark: SparkSession, root: str) -> None:
    fill(root, "t", 0, 3)
    reader = spark.read.format("spark_log").schema("offset bigint, topic string")
    assert [tuple(row) for row in reader.option("subscribe", "t").load(root).collect()] == [
        (0, "t"), (1, "t"), (2, "t"),
    ]  # fmt: skip


def test_a_damaged_segment_is_named_with_its_position(spark: SparkSession, root: str) -> None:
    fill(root, "t", 0, 1000)
    (segment,) = Path(root).glob("t.*/t-0/*.log")
    data = bytearray(segment.read_bytes())
    at = data.index(b"500501502")
    data[at] ^= 1
    segment.write_bytes(data)

    with pytest.raises(PySparkException, match=r"t-0/0{20}\.log, position \d+: checksum is"):
        read(spark, root).collect()
    assert read(spark, root, **{"check.crcs": "false"}).count() == 1000


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "tt"}, "there is no topic 'tt'; did you mean t?"),
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'?"),
        ({"startingOffsets": "begin"}, "expected earliest, latest, or JSON as"),
        ({"startingOffsets": '{"t":{"0":0}}'}, "has no offset for t-1, t-2, t-3"),
        ({"startingOffsets": '{"t":{"0":0,"1":0,"2":0,"3":0,"4":0}}'}, "names t-4"),
        ({"startingOffsets": '{"t":{"0":9,"1":0,"2":0,"3":0}}'}, "offset 9 is out of range"),
        ({"startingOffsets": '{"t":{"0":-3,"1":0,"2":0,"3":0}}'}, "expected earliest"),
        ({"startingOffsets": "latest"}, "a batch read cannot start at latest"),
        ({"endingOffsets": "earliest"}, "a batch read cannot start at latest or end at earliest"),
        ({"subscribe": ""}, "give exactly one of the options 'subscribe'"),
        ({"assign": '{"t":[0]}'}, "give exactly one of the options 'subscribe'"),
        ({"includeHeaders": "yes"}, "option 'includeHeaders' is 'yes', expected true or false"),
        ({"startingTimestamp": "noon"}, "option 'startingTimestamp' is 'noon'"),
    ],
)
def test_bad_options_are_refused(
    spark: SparkSession, root: str, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        read(spark, root, **options).collect()
    assert expected in str(raised.value)


def test_an_unknown_column_in_the_schema_is_refused(spark: SparkSession, root: str) -> None:
    reader = spark.read.format("spark_log").option("subscribe", "t")
    with pytest.raises(PySparkException, match="did you mean 'offset'"):
        reader.schema("offsets bigint").load(root).collect()
    with pytest.raises(PySparkException, match="column 'offset' is bigint"):
        reader.schema("offset string").load(root).collect()
