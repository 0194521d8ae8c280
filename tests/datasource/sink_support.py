"""Attempts of a task without Spark, and the records that they leave in the log."""

import pyarrow as pa

from spark_log.cluster import Cluster
from spark_log.datasource.options.write_options import parse_write_options
from spark_log.datasource.write.identity import WriteIdentity
from spark_log.datasource.write.record_buffers import RecordBuffers
from spark_log.datasource.write.task_writer import TaskWriter

QUERY = "0f5d2d3e-6f2b-4f0e-9d3c-6b1f2a3c4d5e"


def rows(numbers, partition=0, padding=0):
    """Return rows with numbers and padding as values, without keys, for given partitions."""
    values = [b"%d" % number + b"." * padding for number in numbers]
    return pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([partition] * len(values), pa.int32()),
        }
    )


def task(root, *, query=QUERY, batch_id=0, number=0, topic="t", buffers=None, **options):
    """Return a writer for one attempt of a task of a micro-batch."""
    given = {"path": root, **({"topic": topic} if topic else {}), **options}
    identity = WriteIdentity(query, batch_id, number, is_stream=True)
    return TaskWriter(parse_write_options(given), identity, buffers=buffers)


def attempt(root, batches, **settings):
    """Run one attempt to its end, and return its result."""
    with task(root, **settings) as writer:
        return writer.write(batches)


def partition_logs(root, topic="t"):
    cluster = Cluster(root)
    found = cluster.topic(topic)
    return [cluster.partition_log(found, number) for number in sorted(found.partitions)]


def numbers(root, topic="t", isolation_level="read_uncommitted"):
    """Return the values of every partition as numbers, in offset order."""
    return [
        [
            int(value.rstrip(b"."))
            for batch in log.scan(0, isolation_level=isolation_level)
            for value in batch.records.column("value").to_pylist()
        ]
        for log in partition_logs(root, topic)
    ]


def committed(root, topic="t"):
    """Return the committed values of every partition as numbers, in offset order."""
    return numbers(root, topic, "read_committed")


def segment_sizes(root, topic="t"):
    """Return the sizes of each partition's segments in bytes."""
    return [
        [segment.file.size_bytes for segment in log.observe().live.segments]
        for log in partition_logs(root, topic)
    ]


__all__ = [
    "QUERY",
    "RecordBuffers",
    "attempt",
    "committed",
    "numbers",
    "partition_logs",
    "rows",
    "segment_sizes",
    "task",
]
