"""A compacted topic is a table: a million updates of 50,000 keys, by `Consumer` and by Spark."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from spark_log import Admin, Consumer, NewTopic, TopicPartition
from spark_log.cluster.cluster import Cluster
from spark_log.log.clean.compactor import compact
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE

KEYS = 50_000
UPDATES = 1_000_000
ROUNDS = 8
PARTITIONS = 2
APPENDS = 5
"""Of each round, to each partition."""

DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The topic's root, and the expected content as a dictionary."""
    root = str(tmp_path_factory.mktemp("table"))
    Admin(root).create_topics(
        [
            NewTopic(
                "t",
                num_partitions=PARTITIONS,
                topic_configs={"cleanup.policy": "compact", "flush.on.append": "false"},
            )
        ]
    )
    cluster = Cluster(root)
    topic = cluster.topic("t")
    logs = [cluster.partition_log(topic, partition) for partition in range(PARTITIONS)]
    random = np.random.default_rng(11)
    model = np.full(KEYS, -1)
    updates = np.arange(UPDATES)
    compactions = 0
    for round_, numbers in enumerate(np.array_split(updates, ROUNDS)):
        keys = random.integers(0, KEYS, len(numbers))
        is_deleted = random.random(len(numbers)) < 0.1
        model[keys] = np.where(is_deleted, -1, numbers)  # the last record of a key stays
        for partition, log in enumerate(logs):
            for chosen in np.array_split(np.flatnonzero(keys % PARTITIONS == partition), APPENDS):
                log.append(batch(keys[chosen], numbers[chosen], is_deleted[chosen]))
            now_us = log.clock.time_us() + 2 * DAY_US * (
                round_ + 1
            )  # tombstones are removed in between
            done = compact(log.replica, now_us=now_us, memory_bytes=2**20 if round_ % 2 else 2**27)
            compactions += done.segments_written > 0
    assert compactions == ROUNDS * PARTITIONS
    return root, {b"%d" % key: b"%d" % value for key, value in enumerate(model) if value >= 0}


def batch(keys, numbers, is_deleted):
    values = pc.if_else(pa.array(is_deleted), None, pa.array(numbers).cast(pa.string()))
    columns = [
        pa.array(keys).cast(pa.string()).cast(pa.binary()),
        values.cast(pa.binary()),
        pa.nulls(len(keys), HEADERS_TYPE),
        pa.array(numbers).cast(TIMESTAMP_TYPE),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def test_a_consumer_builds_the_same_dictionary(table):
    root, expected = table
    built: dict[Any, Any] = {}
    read = 0
    partitions = [TopicPartition("t", number) for number in range(PARTITIONS)]
    with Consumer(root=root, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            records = consumer.poll_table(timeout_ms=60_000)
            read += len(records)
            built.update(zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True))
        assert all(consumer.position(each) == ends[each] for each in partitions)
        assert set(consumer.lag().values()) == {0}
    assert {key: value for key, value in built.items() if value is not None} == expected
    assert read < UPDATES / 5, "most records were skipped"


@pytest.mark.long
@pytest.mark.spark
def test_spark_builds_the_same_dictionary(spark, table):
    root, expected = table
    df = (
        spark.read.format("spark_log")
        .option("subscribe", "t")
        .option("minPartitions", 4)
        .load(root)
    )
    last = (
        df.groupBy("key").agg(F.max_by("value", "offset").alias("value")).where("value IS NOT NULL")
    )
    rows = last.toArrow()
    built = dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
    assert built == expected
