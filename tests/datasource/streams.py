"""Topics for streaming reads without Spark."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.datasource.stream.micro_batch_planner import MicroBatchPlanner
from spark_log.datasource.stream.stream_offset import StreamOffset
from spark_log.log.files.file_names import StartMarker
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE
from spark_log.util.clock import ManualClock

BASE_US = 1_372_896_000_000_000


def append(
    root: str, topic: str, partition: int, values: Iterable[object], timestamp_us: int = BASE_US
) -> None:
    """Append records with these values, one second apart."""
    texts = [str(value).encode() for value in values]
    cluster = Cluster(root)
    log = cluster.partition_log(cluster.topic(topic), partition)
    size = len(texts)
    times = pa.array([timestamp_us + number * 1_000_000 for number in range(size)], pa.int64())
    log.append(
        pa.RecordBatch.from_arrays(
            [
                pa.nulls(size, pa.binary()),
                pa.array(texts, pa.binary()),
                pa.nulls(size, HEADERS_TYPE),
                times.cast(TIMESTAMP_TYPE),
            ],
            schema=RECORD_SCHEMA,
        )
    )


def topic_id(root: str, topic: str) -> str:
    return Cluster(root).topic(topic).topic_id


def add_partitions(root: str, topic: str, count: int) -> None:
    """Add partitions to a topic, up to ``count``."""
    from spark_log.metadata.records import PartitionRecord

    cluster = Cluster(root)
    found = cluster.topic(topic)
    cluster.metadata.commit(
        lambda image: [
            PartitionRecord(topic_id=found.topic_id, partition_id=number)
            for number in range(image.topic(topic).num_partitions, count)
        ]
    )


def create_again(root: str, topic: str, partitions: int) -> None:
    admin = Admin(root)
    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, num_partitions=partitions)])


def delete_records(root: str, topic: str, partition: int, start: int, segment: int) -> None:
    """Set the log start offset; ``segment`` is the base offset of the segment that contains it."""
    cluster = Cluster(root)
    log = cluster.partition_log(cluster.topic(topic), partition)
    if log.stripe is not None:
        log.move_start(start)
        return
    cluster.store.put_if_absent(f"{log.directory}/{StartMarker(start, segment).name}", b"")


def batches(root: str, clock: ManualClock, **options: str) -> MicroBatchPlanner:
    """Return the planner of a query on ``t`` that starts at earliest, unless options differ."""
    given = {"path": root, "startingOffsets": "earliest", **options}
    if not given.keys() & {"subscribePattern", "assign"}:
        given.setdefault("subscribe", "t")
    return MicroBatchPlanner(parse_read_options(given, is_stream=True), clock)


def at(root: str, *offsets: int, topic: str = "t") -> StreamOffset:
    """Return the offset with the current ids of a topic; offsets in order of partitions."""
    numbered = {TopicPartition(topic, number): offset for number, offset in enumerate(offsets)}
    return StreamOffset(numbered, {topic: topic_id(root, topic)})
