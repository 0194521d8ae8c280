"""Spark's own source and sink for Kafka through gateways, beside spark_log on the same root.

They run with pytest in a process of their own, whose Spark has the connector's jars: BROKERS and
ROOT in the environment have the gateways and their root.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.spark_vs_kafka import connector_jars
from benchmarks.workload import session
from spark_log import Admin, NewTopic, Producer, TopicPartition
from tests.waiting import TIMEOUT_S, wait_until

BROKERS, ROOT = os.environ.get("BROKERS", ""), os.environ.get("ROOT", "")
KAFKA, SPARK_LOG = "kafka", "spark_log"
FORMATS = (KAFKA, SPARK_LOG)
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
START = datetime(2026, 11, 1, tzinfo=UTC)
RECORDS = 60

Options = Mapping[str, str]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    spark = session(jars=connector_jars(), app_name="spark-kafka", extra_settings=settings)
    yield spark
    spark.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[[str], str]:
    return lambda source: str(tmp_path / f"checkpoint-{source}")


_numbers = count()


def new_topic(partitions: int = 1, prefix: str = "t") -> str:
    """Create a topic; return its name."""
    name = f"{prefix}-{os.getpid()}-{next(_numbers)}"
    Admin(ROOT).create_topics([NewTopic(name, num_partitions=partitions)])
    return name


def address(source: str) -> Options:
    if source == SPARK_LOG:
        return {"path": ROOT}
    # The second is the wait at the end of each partition, which is 500 ms by default.
    return {"kafka.bootstrap.servers": BROKERS, "kafka.fetch.max.wait.ms": "10"}


def read(spark: SparkSession, source: str, options: Options) -> DataFrame:
    given = {"includeHeaders": "true", **options}
    return spark.read.format(source).options(**address(source), **given).load()


def read_stream(spark: SparkSession, source: str, options: Options) -> DataFrame:
    given = {"includeHeaders": "true", "startingOffsets": "earliest", **options}
    return spark.readStream.format(source).options(**address(source), **given).load()


def rows(df: DataFrame) -> list[Row]:
    """Return all columns of all rows; timestamps have milliseconds, as in Kafka."""
    assert set(df.columns) <= set(COLUMNS)
    to_ms = f.date_trunc("millisecond", "timestamp").alias("timestamp")
    columns = [to_ms if each == "timestamp" else f.col(each) for each in df.columns]
    found = df.select(*columns).sort("topic", "partition", "offset").collect()
    return [
        Row(**{**each.asDict(), "headers": each.headers or None}) if "headers" in each else each
        for each in found
    ]


def read_rows(spark: SparkSession, source: str, options: Options) -> list[Row]:
    return rows(read(spark, source, options))


def equal_rows(spark: SparkSession, options: Options, most: int | None = None) -> list[Row]:
    """Return what both sources read; they differ in nothing."""
    of_kafka, of_spark_log = (read_rows(spark, each, options) for each in FORMATS)
    assert of_kafka == of_spark_log
    assert most is None or len(of_kafka) == most
    return of_kafka


def error_of(action: Callable[[], object]) -> str:
    with pytest.raises((PySparkException, Py4JJavaError)) as raised:
        action()
    return str(raised.value)


def send(topic: str, first: int, end: int, partition: int = -1, **config: Any) -> None:
    """Produce records of every kind through the gateway: one has the time of its number."""
    producer = KafkaProducer({"bootstrap.servers": BROKERS, "linger.ms": 5, **config})
    errors: list[object] = []
    for number in range(first, end):
        headers: list[tuple[str, str | bytes | None]] = []
        if number % 3 == 1:
            headers = [("number", b"%d" % number), ("none", None)]
        if number % 3 == 2:
            headers = [("same", b"1"), ("same", b""), ("other", b"\x00\xff")]
        producer.produce(
            topic,
            None if number % 7 == 0 else b"value %d" % number * (number % 5),
            None if number % 4 == 3 else b"key %d" % (number % 9),
            partition=partition,
            timestamp=ms(number),
            headers=headers,
            on_delivery=lambda error, _: errors.append(error),
        )
    assert producer.flush(60) == 0
    assert errors == [None] * (end - first)


def partition_count(topic: str) -> int:
    found = AdminClient({"bootstrap.servers": BROKERS}).list_topics(topic, timeout=60)
    return len(found.topics[topic].partitions)


def ms(number: int) -> int:
    """The time of a record: there is one a second."""
    return int(START.timestamp() * 1000) + number * 1000 + number % 10


@pytest.fixture(scope="session")
def filled() -> str:
    """A topic of three partitions, in each a third of the records in the order of time."""
    topic = new_topic(3, "filled")
    for number, codec in enumerate(("none", "lz4", "zstd")):
        first = number * RECORDS // 3
        for partition in range(3):
            send(topic, first, first + RECORDS // 3, partition, **{"compression.type": codec})
    return topic


def in_json(topic: str, numbers: Sequence[int]) -> str:
    return json.dumps({topic: {str(each): number for each, number in enumerate(numbers)}})


class TestBatch:
    def test_all_columns_of_records_of_every_kind(self, spark: SparkSession, filled: str) -> None:
        found = equal_rows(spark, {"subscribe": filled}, 3 * RECORDS)
        assert [each.offset for each in found] == [*range(RECORDS)] * 3
        assert {each.timestampType for each in found} == {0}
        assert {len(each.headers or ()) for each in found} == {0, 2, 3}
        assert found[7].value is None
        assert found[3].key is None
        assert found[9].timestamp == (START + timedelta(seconds=9, milliseconds=9)).replace(
            tzinfo=None
        )

    def test_the_schemas_are_equal(self, spark: SparkSession, filled: str) -> None:
        for headers in ("true", "false"):
            options = {"subscribe": filled, "includeHeaders": headers}
            schemas = {read(spark, each, options).schema.simpleString() for each in FORMATS}
            assert len(schemas) == 1

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [
            ((-2, -2, -2), (-1, -1, -1), 3 * RECORDS),
            ((0, 10, 20), (60, 50, 30), 60 + 40 + 10),
            ((5, -2, 60), (6, 2, -1), 1 + 2 + 0),
            ((60, 60, 60), (-1, -1, -1), 0),
        ],
    )
    def test_offsets(
        self,
        spark: SparkSession,
        filled: str,
        start: tuple[int, ...],
        end: tuple[int, ...],
        expected: int,
    ) -> None:
        options = {
            "subscribe": filled,
            "startingOffsets": in_json(filled, start),
            "endingOffsets": in_json(filled, end),
        }
        equal_rows(spark, options, expected)

    @pytest.mark.parametrize("start", [None, 0, 10, 59])
    @pytest.mark.parametrize("end", [None, 59, 1000])
    def test_a_time_for_all_partitions(
        self, spark: SparkSession, filled: str, start: int | None, end: int | None
    ) -> None:
        options = {"subscribe": filled}
        if start is not None:
            options["startingTimestamp"] = str(ms(start))
        if end is not None:
            options["endingTimestamp"] = str(ms(end))
        expected = 3 * (min(RECORDS if end is None else end, RECORDS) - (start or 0))
        equal_rows(spark, options, expected)

    def test_a_time_for_each_partition(self, spark: SparkSession, filled: str) -> None:
        options = {
            "subscribe": filled,
            "startingOffsetsByTimestamp": in_json(filled, [ms(0), ms(10) - 1, ms(30) + 1]),
            "endingOffsetsByTimestamp": in_json(filled, [ms(20), ms(1000), ms(40)]),
        }
        equal_rows(spark, options, 20 + 50 + 9)

    def test_no_record_has_the_starting_time(self, spark: SparkSession, filled: str) -> None:
        options = {"subscribe": filled, "startingTimestamp": str(ms(1000))}
        for source in FORMATS:
            said = error_of(partial(read_rows, spark, source, options))
            assert str(ms(1000)) in said
        latest = {**options, "startingOffsetsByTimestampStrategy": "latest"}
        equal_rows(spark, latest, 0)

    def test_ways_to_subscribe(self, spark: SparkSession, filled: str) -> None:
        other = new_topic(2, "filled")
        send(other, 0, 9)
        equal_rows(spark, {"subscribe": f"{filled},{other}"}, 3 * RECORDS + 9)
        equal_rows(spark, {"subscribePattern": f"{filled}|{other}"}, 3 * RECORDS + 9)
        equal_rows(spark, {"assign": json.dumps({filled: [0, 2]})}, 2 * RECORDS)

    def test_an_empty_topic(self, spark: SparkSession) -> None:
        equal_rows(spark, {"subscribe": new_topic(2)}, 0)

    @pytest.mark.parametrize("without_headers", ["includeHeaders", "default"])
    def test_columns_without_headers(
        self, spark: SparkSession, filled: str, without_headers: str
    ) -> None:
        options = {"subscribe": filled, without_headers: "false"}
        if without_headers == "default":
            found = [spark.read.format(each).options(**address(each)) for each in FORMATS]
            dfs = [each.option("subscribe", filled).load() for each in found]
        else:
            dfs = [read(spark, each, options) for each in FORMATS]
        assert {len(each.columns) for each in dfs} == {7}
        assert rows(dfs[0]) == rows(dfs[1])

    @pytest.mark.parametrize(("minimum", "planned"), [(1, 3), (3, 3), (6, 6), (30, 30)])
    def test_minimum_of_tasks(
        self, spark: SparkSession, filled: str, minimum: int, planned: int
    ) -> None:
        options = {"subscribe": filled, "minPartitions": str(minimum)}
        equal_rows(spark, options, 3 * RECORDS)
        counts = {each: read(spark, each, options).rdd.getNumPartitions() for each in FORMATS}
        assert counts[KAFKA] == planned
        assert counts[SPARK_LOG] >= minimum

    def test_the_ranges_of_tasks(self, spark: SparkSession, filled: str) -> None:
        """Those of the connector are as with Kafka; spark_log divides where files begin."""
        options = {"subscribe": filled, "minPartitions": "6"}
        ranges = {}
        for source in FORMATS:
            df = read(spark, source, options).withColumn("task", f.spark_partition_id())
            grouped = df.groupBy("task", "partition").agg(
                f.min("offset").alias("first"), f.max("offset").alias("last")
            )
            found = grouped.collect()
            ranges[source] = sorted((each.partition, each.first, each.last) for each in found)
        halves = ((0, 29), (30, 59))
        assert ranges[KAFKA] == [(partition, *half) for partition in range(3) for half in halves]
        assert len(ranges[SPARK_LOG]) == 6

    def test_most_records_of_a_task(self, spark: SparkSession, filled: str) -> None:
        options = {"subscribe": filled, "maxRecordsPerPartition": "25"}
        equal_rows(spark, options, 3 * RECORDS)
        counts = {each: read(spark, each, options).rdd.getNumPartitions() for each in FORMATS}
        # The connector looks at it in streams, or with minPartitions.
        assert counts == {KAFKA: 3, SPARK_LOG: 9}

    def test_records_that_were_deleted(self, spark: SparkSession) -> None:
        topic = new_topic(1)
        send(topic, 0, 40)
        Admin(ROOT).delete_records({TopicPartition(topic, 0): 15})
        equal_rows(spark, {"subscribe": topic}, 25)
        options = {"subscribe": topic, "startingOffsets": in_json(topic, [0])}
        for source in FORMATS:
            said = error_of(partial(read_rows, spark, source, options))
            assert "failOnDataLoss" in said
        equal_rows(spark, {**options, "failOnDataLoss": "false"}, 25)


class TestTransactions:
    @pytest.fixture(scope="session")
    def topic(self) -> Iterator[str]:
        """A topic with committed, aborted and plain records, before an open transaction."""
        topic = new_topic(2)
        producer = KafkaProducer(
            {"bootstrap.servers": BROKERS, "transactional.id": f"{topic}-a", "linger.ms": 5}
        )
        producer.init_transactions(60)
        for number in range(6):
            producer.begin_transaction()
            for each in range(10):
                value = b"%d %d" % (number, each)
                producer.produce(topic, value, b"k", partition=each % 2, timestamp=ms(number))
            producer.flush(60)
            producer.commit_transaction(60) if number % 2 else producer.abort_transaction(60)
        send(topic, 0, 4, 0)
        with Producer(ROOT, transactional_id=f"{topic}-ours") as ours:
            ours.init_transactions()
            for number in range(4):
                ours.begin_transaction()
                ours.send(topic, b"ours %d" % number, partition=1).get(60)
                ours.commit_transaction() if number % 2 else ours.abort_transaction()
        with Producer(ROOT, transactional_id=f"{topic}-open") as ours:
            ours.init_transactions()
            ours.begin_transaction()
            ours.send(topic, b"open", partition=0).get(60)
            send(topic, 4, 8, 0)
            yield topic
            ours.abort_transaction()

    def test_read_committed(self, spark: SparkSession, topic: str) -> None:
        options = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
        found = equal_rows(spark, options, 30 + 4 + 2)
        assert b"open" not in {bytes(each.value or b"") for each in found}

    def test_read_uncommitted(self, spark: SparkSession, topic: str) -> None:
        equal_rows(spark, {"subscribe": topic}, 60 + 8 + 4 + 1)

    def test_a_stream_stops_before_the_open_transaction(
        self, spark: SparkSession, topic: str, checkpoint: Callable[[str], str]
    ) -> None:
        options = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
        both = [Batches(read_stream(spark, each, options)) for each in FORMATS]
        for each, source in zip(both, FORMATS, strict=True):
            each.run(checkpoint(source))
        assert both[0].rows() == both[1].rows()
        assert len(both[0].rows()) == 36


class Batches:
    """The micro-batches of runs of one query."""

    def __init__(self, df: DataFrame) -> None:
        self._df = df
        self.batches: list[list[Row]] = []

    def run(self, checkpoint: str) -> None:
        """Read what exists (``Trigger.AvailableNow``)."""
        query = self.start(checkpoint, availableNow=True)
        assert query.awaitTermination(TIMEOUT_S)

    def start(self, checkpoint: str, **trigger: Any) -> StreamingQuery:
        def add(df: DataFrame, _: int) -> None:
            self.batches.append(rows(df))

        writer = self._df.writeStream.foreachBatch(add).option("checkpointLocation", checkpoint)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def rows(self) -> list[Row]:
        found = [row for batch in self.batches for row in batch]
        return sorted(found, key=lambda each: (each.topic, each.partition, each.offset))

    def counts(self) -> list[int]:
        return [len(each) for each in self.batches if each]


class TestStreams:
    """Each test runs the same query with both sources."""

    def both(self, spark: SparkSession, options: Options) -> dict[str, Batches]:
        return {each: Batches(read_stream(spark, each, options)) for each in FORMATS}

    def run(self, both: dict[str, Batches], checkpoint: Callable[[str], str]) -> list[Row]:
        """Run both queries to the end of the log; return all rows that each has read so far."""
        for source, each in both.items():
            each.run(checkpoint(source))
        assert both[KAFKA].rows() == both[SPARK_LOG].rows()
        return both[KAFKA].rows()

    def test_available_now(
        self, spark: SparkSession, filled: str, checkpoint: Callable[[str], str]
    ) -> None:
        both = self.both(spark, {"subscribe": filled})
        assert len(self.run(both, checkpoint)) == 3 * RECORDS

    def test_the_batches_of_a_limit_have_the_same_rows(
        self, spark: SparkSession, filled: str, checkpoint: Callable[[str], str]
    ) -> None:
        both = self.both(spark, {"subscribe": filled, "maxOffsetsPerTrigger": "50"})
        self.run(both, checkpoint)
        assert both[KAFKA].batches == both[SPARK_LOG].batches
        assert both[KAFKA].counts() == [48, 48, 48, 36]

    def test_a_restart_continues(
        self, spark: SparkSession, checkpoint: Callable[[str], str]
    ) -> None:
        topic = new_topic(2)
        send(topic, 0, 10)
        both = self.both(spark, {"subscribe": topic})
        assert len(self.run(both, checkpoint)) == 10
        send(topic, 10, 25)
        assert len(self.run(both, checkpoint)) == 25
        assert both[KAFKA].counts() == both[SPARK_LOG].counts() == [10, 15]

    def test_each_reads_the_checkpoint_of_the_other(
        self, spark: SparkSession, checkpoint: Callable[[str], str]
    ) -> None:
        topic = new_topic(2)
        send(topic, 0, 10)
        both = self.both(spark, {"subscribe": topic})
        self.run(both, checkpoint)
        send(topic, 10, 25)
        swapped = dict(zip(FORMATS, map(checkpoint, reversed(FORMATS)), strict=True))
        assert len(self.run(both, swapped.__getitem__)) == 25

    def test_the_least_of_a_batch(
        self, spark: SparkSession, checkpoint: Callable[[str], str]
    ) -> None:
        topic = new_topic(1)
        send(topic, 0, 10)
        options = {"subscribe": topic, "minOffsetsPerTrigger": "30", "maxTriggerDelay": "1h"}
        both = self.both(spark, options)
        running = [each.start(checkpoint(source)) for source, each in both.items()]
        try:
            for query in running:
                query.processAllAvailable()
            assert [each.counts() for each in both.values()] == [
                [10],
                [10],
            ]  # the first has no least
            send(topic, 10, 20)
            for query in running:
                query.processAllAvailable()
            assert [each.counts() for each in both.values()] == [[10], [10]]
            send(topic, 20, 45)
            for query in running:
                query.processAllAvailable()
            assert [each.counts() for each in both.values()] == [[10, 35], [10, 35]]
        finally:
            for query in running:
                query.stop()

    def test_partitions_that_are_added_while_it_runs(
        self, spark: SparkSession, checkpoint: Callable[[str], str]
    ) -> None:
        topic = new_topic(1)
        send(topic, 0, 5, 0)
        options = {"subscribe": topic, "startingOffsets": "latest"}
        both = self.both(spark, {**options, "kafka.metadata.max.age.ms": "100"})
        running = [each.start(checkpoint(source)) for source, each in both.items()]
        try:
            for query in running:
                query.processAllAvailable()
            Admin(ROOT).create_partitions({topic: 3})
            wait_until(lambda: partition_count(topic) == 3)  # not read for each request
            for partition in range(3):
                send(topic, 5, 10, partition)
            wait_until(lambda: all(len(each.rows()) == 15 for each in both.values()))
        finally:
            for query in running:
                query.stop()
        assert both[KAFKA].rows() == both[SPARK_LOG].rows()
        assert [each.offset for each in both[KAFKA].rows()] == [*range(5, 10), *range(5), *range(5)]

    @pytest.mark.parametrize("is_failure", ["true", "false"])
    def test_records_that_are_deleted_before_they_are_read(
        self, spark: SparkSession, checkpoint: Callable[[str], str], is_failure: str
    ) -> None:
        topic = new_topic(1)
        send(topic, 0, 10)
        both = self.both(spark, {"subscribe": topic, "failOnDataLoss": is_failure})
        self.run(both, checkpoint)
        send(topic, 10, 30)
        Admin(ROOT).delete_records({TopicPartition(topic, 0): 20})
        if is_failure == "false":
            found = self.run(both, checkpoint)
            assert [each.offset for each in found] == [*range(10), *range(20, 30)]
        else:
            for source, each in both.items():
                said = error_of(partial(each.run, checkpoint(source)))
                assert "failOnDataLoss" in said
                assert len(each.rows()) == 10

    def test_a_topic_of_a_pattern_is_deleted(
        self, spark: SparkSession, checkpoint: Callable[[str], str]
    ) -> None:
        kept, deleted = new_topic(1, "pair"), new_topic(1, "pair")
        send(kept, 0, 5)
        send(deleted, 0, 5)
        options = {"subscribePattern": f"{kept}|{deleted}", "failOnDataLoss": "false"}
        both = self.both(spark, options)
        self.run(both, checkpoint)
        Admin(ROOT).delete_topics([deleted])
        send(kept, 5, 10)
        assert len(self.run(both, checkpoint)) == 15

    def test_a_starting_time(
        self, spark: SparkSession, filled: str, checkpoint: Callable[[str], str]
    ) -> None:
        options = {"subscribe": filled, "startingTimestamp": str(ms(45))}
        assert len(self.run(self.both(spark, options), checkpoint)) == 3 * 15
        json_options = {
            "subscribe": filled,
            "startingOffsetsByTimestamp": in_json(filled, [ms(59), ms(58), ms(57)]),
        }
        both = self.both(spark, json_options)
        assert len(self.run(both, lambda source: checkpoint(f"{source}-json"))) == 1 + 2 + 3


class TestSink:
    """Both sources read the rows that one sink has written."""

    def rows_to_write(self, spark: SparkSession, topic: str, n: int = 40) -> DataFrame:
        number = f.col("id").cast("string")
        header = f.struct(f.lit("number").alias("key"), number.cast("binary").alias("value"))
        return spark.range(n).select(
            f.when(f.col("id") % 5 != 0, f.concat(f.lit("key "), f.col("id") % 7)).alias("key"),
            f.when(f.col("id") % 6 != 0, f.concat(f.lit("value "), number)).alias("value"),
            f.lit(topic).alias("topic"),
            (f.col("id") % 2).cast("int").alias("partition"),
            f.when(f.col("id") % 3 != 0, f.array(header, header)).alias("headers"),
        )

    @pytest.mark.parametrize("sink", FORMATS)
    def test_all_columns_of_a_batch(self, spark: SparkSession, sink: str) -> None:
        topic = new_topic(2)
        df = self.rows_to_write(spark, topic)
        df.write.format(sink).mode("append").options(**address(sink), includeHeaders="true").save()
        found = equal_rows(spark, {"subscribe": topic}, 40)
        written = sorted(df.collect(), key=lambda each: (each.partition, each.value or ""))
        by_value = sorted(found, key=lambda each: (each.partition, bytes(each.value or b"")))
        for mine, each in zip(written, by_value, strict=True):
            assert mine.topic == each.topic
            assert (mine.value or "").encode() == bytes(each.value or b"")
        headers = {len(each.headers or ()) for each in found}
        assert headers == {0, 2}

    @pytest.mark.parametrize("sink", FORMATS)
    def test_the_option_topic_and_keys_choose_the_same_partitions(
        self, spark: SparkSession, sink: str
    ) -> None:
        topic = new_topic(5)
        df = spark.range(50).select(
            f.concat(f.lit("key "), f.col("id")).alias("key"), f.lit("v").alias("value")
        )
        df.write.format(sink).mode("append").options(**address(sink), topic=topic).save()
        found = equal_rows(spark, {"subscribe": topic}, 50)
        partitions = {bytes(each.key): each.partition for each in found}
        expected = KafkaProducer({"bootstrap.servers": BROKERS, "partitioner": "murmur2_random"})
        other = new_topic(5)
        for key in partitions:
            expected.produce(other, b"v", key)
        assert expected.flush(60) == 0
        assert partitions == {
            bytes(each.key): each.partition for each in equal_rows(spark, {"subscribe": other})
        }

    @pytest.mark.parametrize("sink", FORMATS)
    def test_a_stream(
        self, spark: SparkSession, filled: str, checkpoint: Callable[[str], str], sink: str
    ) -> None:
        topic = new_topic(2)
        options = {"subscribe": filled, "maxOffsetsPerTrigger": "70"}
        df = read_stream(spark, sink, options).select(
            "key", "value", "headers", (f.col("offset") % 2).cast("int").alias("partition")
        )
        writer = df.writeStream.format(sink).options(**address(sink), topic=topic)
        writer = writer.option("checkpointLocation", checkpoint(sink)).option(
            "includeHeaders", "true"
        )
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)
        found = equal_rows(spark, {"subscribe": topic}, 3 * RECORDS)
        assert {each.partition for each in found} == {0, 1}

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_codecs_and_settings_of_the_producer(self, spark: SparkSession, codec: str) -> None:
        topic = new_topic(2)
        settings = {
            "kafka.compression.type": codec,
            "kafka.acks": "all",
            "kafka.enable.idempotence": "true",
            "kafka.linger.ms": "5",
            "kafka.batch.size": "2000",
        }
        df = self.rows_to_write(spark, topic)
        df.write.format(KAFKA).mode("append").options(**address(KAFKA), **settings).save()
        equal_rows(spark, {"subscribe": topic}, 40)

    def test_a_transactional_id_is_passed_on_and_refused_by_the_client(
        self, spark: SparkSession
    ) -> None:
        topic = new_topic(2)
        df = self.rows_to_write(spark, topic)
        writer = df.write.format(KAFKA).mode("append").options(**address(KAFKA))
        said = error_of(writer.option("kafka.transactional.id", topic).save)
        assert "initTransactions" in said
        equal_rows(spark, {"subscribe": topic}, 0)

    def test_our_producer_and_kafkas_in_turns(self, spark: SparkSession) -> None:
        topic = new_topic(2)
        ours = Producer(ROOT)
        for number in range(3):
            for each in range(5):
                ours.send(
                    topic,
                    b"ours %d" % each,
                    b"k%d" % each,
                    headers=[("a", b"b")] if each % 2 else None,
                    timestamp_ms=ms(number * 10 + each),
                )
            ours.flush()
            send(topic, number * 10 + 5, number * 10 + 10)
        ours.close()
        equal_rows(spark, {"subscribe": topic}, 30)
        options = {"subscribe": topic, "startingTimestamp": str(ms(12))}
        equal_rows(spark, options)

    def test_a_topic_with_the_time_of_appending(self, spark: SparkSession) -> None:
        topic = f"appended-{os.getpid()}-{next(_numbers)}"
        configs = {"message.timestamp.type": "LogAppendTime"}
        Admin(ROOT).create_topics([NewTopic(topic, topic_configs=configs)])
        send(topic, 0, 10)
        self.rows_to_write(spark, topic).drop("partition").write.format(SPARK_LOG).mode(
            "append"
        ).options(**address(SPARK_LOG)).save()
        found = equal_rows(spark, {"subscribe": topic}, 50)
        assert {each.timestampType for each in found} == {1}
