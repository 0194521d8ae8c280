"""Operations of Spark: planning, tasks, micro-batches. They need a running session.

Batches and writes run in the session, so that the requests of its Python processes are counted. For
a stream, this process makes the calls that Spark makes in the query's own Python process. The other
modules do not import this one.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from benchmarks.request_operations.operation import IDLE_S, Call, Operation, Root
from spark_log.cluster import Cluster
from spark_log.datasource.options import parse_read_options
from spark_log.datasource.read import read_schema
from spark_log.datasource.stream import LogStreamReader
from spark_log.log import LogAppendInfo
from spark_log.log.segment import BatchAppend
from spark_log.log.stripe import StripeEntry
from spark_log.record import RECORD_SCHEMA

PARTITIONS = 4
"""Number of partitions that a batch or a stream reads."""

STRIPED, STRIPES = 100, 2
"""Number of partitions of a striped topic, and of its stripes."""

_TRIGGER_S = 0.01
"""Interval at which Spark polls a stream without records (``spark.sql.streaming.pollingDelay``)."""


def _options(root: Root) -> dict[str, Any]:
    return {f"storage.{key}": value for key, value in root.options.items()}


def _read(root: Root) -> DataFrame:
    reader = SparkSession.active().read.format("spark_log").option("subscribe", "t")
    return reader.options(**_options(root)).load(root.url)


@contextmanager
def planning(root: Root) -> Iterator[Call]:
    """A batch read of four partitions is planned, up to its tasks."""
    root.create_topic(PARTITIONS)
    root.send(PARTITIONS, partitions=PARTITIONS)

    def plan() -> None:
        tasks = _read(root)._jdf.queryExecution().toRdd().getNumPartitions()
        assert tasks == PARTITIONS

    yield plan


@contextmanager
def task(root: Root) -> Iterator[Call]:
    """A task reads one partition with one segment; the read was planned before."""
    root.create_topic()
    root.send(1)
    rows = _read(root)._jdf.queryExecution().toRdd()
    assert rows.getNumPartitions() == 1
    yield rows.count


@contextmanager
def write(root: Root) -> Iterator[Call]:
    """A batch of one task is written to one partition."""
    root.create_topic()
    root.send(1)
    rows = SparkSession.active().range(10).selectExpr("CAST(id AS STRING) AS value").coalesce(1)

    def run() -> None:
        writer = rows.write.format("spark_log").mode("append").option("topic", "t")
        writer.options(**_options(root)).save(root.url)

    yield run


# --- streams -------------------------------------------------------------------------------------


@contextmanager
def _stream(root: Root) -> Iterator[LogStreamReader]:
    """Yield the reader of a query that has read a record of each of four partitions."""
    root.create_topic(PARTITIONS)
    root.send(PARTITIONS, partitions=PARTITIONS)
    given = {"path": root.url, "subscribe": "t", "startingOffsets": "earliest", **_options(root)}
    yield LogStreamReader(
        read_schema(include_headers=False), parse_read_options(given, is_stream=True)
    )


@contextmanager
def micro_batch(root: Root) -> Iterator[Call]:
    """A micro-batch with a record in each of four partitions is planned."""
    with _stream(root) as reader:
        end = reader.initialOffset()

        def plan() -> None:
            nonlocal end
            root.send(PARTITIONS, partitions=PARTITIONS)
            start, end = end, reader.latestOffset(end, ReadAllAvailable())
            assert len(reader.partitions(start, end)) == PARTITIONS
            reader.reportLatestOffset()

        plan()
        yield plan


@contextmanager
def idle_stream(root: Root) -> Iterator[Call]:
    """A stream that has read everything waits for records."""
    with _stream(root) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        reader.partitions(start, end)

        def wait() -> None:
            until_s = time.monotonic() + IDLE_S
            while time.monotonic() < until_s:
                assert reader.latestOffset(end, ReadAllAvailable()) == end
                time.sleep(_TRIGGER_S)

        wait()
        yield wait


# --- striped topics ------------------------------------------------------------------------------


def _append_to_all(root: Root) -> None:
    """Append a record to each partition of the striped topic, by one object for each stripe."""
    cluster = Cluster(root.url, root.direct)
    topic = cluster.topic("t")
    row = {"value": b"value", "headers": [], "timestamp": datetime.now(UTC)}
    records = pa.RecordBatch.from_pylist([row], schema=RECORD_SCHEMA)
    for number in range(STRIPES):
        entries = [
            StripeEntry(partition, BatchAppend(records))
            for partition in range(number, STRIPED, STRIPES)
        ]
        for result in cluster.stripe(topic, number).appends.append(entries):
            assert isinstance(result, LogAppendInfo), result


@contextmanager
def striped_planning(root: Root) -> Iterator[Call]:
    """A batch read of a striped topic is planned, up to its tasks."""
    root.create_topic(STRIPED, stripes=STRIPES)
    _append_to_all(root)

    def plan() -> None:
        tasks = _read(root)._jdf.queryExecution().toRdd().getNumPartitions()
        assert tasks == STRIPED

    yield plan


@contextmanager
def striped_write(root: Root) -> Iterator[Call]:
    """A batch of one task is written to all partitions of a striped topic."""
    root.create_topic(STRIPED, stripes=STRIPES)
    _append_to_all(root)
    rows = SparkSession.active().range(STRIPED).coalesce(1)
    rows = rows.selectExpr("CAST(id AS STRING) AS value", "CAST(id AS INT) AS partition")

    def run() -> None:
        writer = rows.write.format("spark_log").mode("append").option("topic", "t")
        writer.options(**_options(root)).save(root.url)

    yield run


@contextmanager
def _striped_stream(root: Root) -> Iterator[tuple[LogStreamReader, dict[str, Any]]]:
    """Yield the reader of a query on a striped topic, and its offset at the end of the log."""
    root.create_topic(STRIPED, stripes=STRIPES)
    _append_to_all(root)
    given = {"path": root.url, "subscribe": "t", **_options(root)}
    reader = LogStreamReader(
        read_schema(include_headers=False), parse_read_options(given, is_stream=True)
    )
    start = reader.initialOffset()
    yield reader, reader.latestOffset(start, ReadAllAvailable())


@contextmanager
def striped_micro_batch(root: Root) -> Iterator[Call]:
    """A micro-batch with a record in each partition of a striped topic is planned."""
    with _striped_stream(root) as (reader, end):

        def plan() -> None:
            nonlocal end
            _append_to_all(root)
            start, end = end, reader.latestOffset(end, ReadAllAvailable())
            assert len(reader.partitions(start, end)) == STRIPED
            reader.reportLatestOffset()

        plan()
        yield plan


@contextmanager
def idle_striped_stream(root: Root) -> Iterator[Call]:
    """A stream that has read everything of a striped topic waits for records."""
    with _striped_stream(root) as (reader, end):

        def wait() -> None:
            until_s = time.monotonic() + IDLE_S
            while time.monotonic() < until_s:
                assert reader.latestOffset(end, ReadAllAvailable()) == end
                time.sleep(_TRIGGER_S)

        wait()
        yield wait


OPERATIONS = (
    Operation(
        f"planning a batch read of {PARTITIONS} partitions",
        planning,
        12,
        6,
        "The driver opens the root, lists each partition, and reads its last segment.",
        repeats=3,
    ),
    Operation(
        "a task that reads one partition of one segment",
        task,
        2,
        2,
        "The task lists the partition and reads the segment.",
        repeats=3,
    ),
    Operation(
        "a write of one task to one partition",
        write,
        11,
        9,
        "The driver and the task open the root. The task lists the partition, reads its last "
        "segment, and puts the records. A process that has written before sends fewer requests.",
        repeats=3,
    ),
    Operation(
        f"planning a micro-batch of {PARTITIONS} partitions",
        micro_batch,
        9,
        4,
        "The driver checks the metadata. For each partition it reads the next segment, and asks "
        "for the one after it.",
        repeats=5,
    ),
    Operation(
        f"an idle stream of {PARTITIONS} partitions, a second",
        idle_stream,
        PARTITIONS + 2,
        3,
        "Once a second the driver checks the metadata, and asks for the next segment of each "
        "partition.",
        lasts_s=IDLE_S,
        waits=True,
        counted_by="tests/datasource/test_stream_batches.py",
    ),
    Operation(
        f"planning a batch read of {STRIPED} partitions in {STRIPES} stripes",
        striped_planning,
        STRIPED + 14,
        18,
        "The driver opens the root, reads each stripe, and lists each partition, since the read "
        "begins at the log's start.",
        repeats=3,
    ),
    Operation(
        f"a write of one task to {STRIPED} partitions in {STRIPES} stripes",
        striped_write,
        14,
        13,
        "The driver and the task open the root. The task lists each stripe, reads its objects, "
        "and puts one.",
        repeats=3,
    ),
    Operation(
        f"planning a micro-batch of {STRIPED} partitions in {STRIPES} stripes",
        striped_micro_batch,
        6,
        4,
        "The driver checks the metadata. Of each stripe it reads the next object, and asks for the "
        "one after it.",
        repeats=5,
    ),
    Operation(
        f"an idle stream of {STRIPED} partitions in {STRIPES} stripes, a second",
        idle_striped_stream,
        4,
        3,
        "Once a second the driver checks the metadata, and asks for the next object of each "
        "stripe.",
        lasts_s=IDLE_S,
        waits=True,
        counted_by="tests/datasource/test_striped_reads.py",
    ),
)
