"""Topics and batch reads without Spark."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.datasource.read.split_reader import read_split
from spark_log.datasource.read.splits import plan_splits
from spark_log.log.files.file_names import StartMarker
from spark_log.metadata.records import PartitionRecord
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE

BASE_US = 1_372_896_000_000_000
BASE_MS = BASE_US // 1000
ALL_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


SETTINGS = {"flush.on.append": "false"}
"""Settings of all topics; the fixture ``striped`` adds ``stripes``."""

HOMES = {"every": 0}
"""Number of appends of `fill` after which a stripe is taken home; 0 never takes it home."""


def create(root, topic, partitions=1, **configs):
    Admin(root).create_topics([NewTopic(topic, partitions, topic_configs={**SETTINGS, **configs})])


def add_partition(root, topic):
    """Add a partition to a topic."""

    def decide(image):
        found = image.topic(topic)
        return [PartitionRecord(topic_id=found.topic_id, partition_id=found.num_partitions)]

    Cluster(root).metadata.commit(decide)


def log_of(root, topic="t", partition=0):
    cluster = Cluster(root)
    return cluster.partition_log(cluster.topic(topic), partition)


def records(values, times_us=None):
    """Return records with key ``k`` and a number as value, one second apart unless times are
    given.
    """
    size = len(values)
    times = BASE_US + np.asarray(values) * 1_000_000 if times_us is None else times_us
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"k"] * size, pa.binary()),
            pa.array([str(number).encode() for number in values], pa.binary()),
            pa.array([[("h", b"1")]] * size, HEADERS_TYPE),
            pa.array(times, pa.int64()).cast(TIMESTAMP_TYPE),
        ],
        schema=RECORD_SCHEMA,
    )


def fill(root, topic, partition, values, segments=1, times_us=None):
    """Append numbers as values, in segments of the same size."""
    log = log_of(root, topic, partition)
    times = None if times_us is None else np.array_split(np.asarray(times_us), segments)
    for index, part in enumerate(np.array_split(np.asarray(values), segments)):
        log.append(records(part.tolist(), None if times is None else times[index]))
        if HOMES["every"] and index % HOMES["every"] == 0:
            log.stripe.take_home()


def retain_from(root, offset, segment_base_offset, topic="t", partition=0):
    """Set the log start offset, like retention does first."""
    log = log_of(root, topic, partition)
    if log.stripe is not None:
        log.move_start(offset)
        return
    marker = StartMarker(offset, segment_base_offset)
    (Path(root) / log.directory / marker.name).touch()


def options_of(root, *, is_stream=False, **options):
    defaults = {} if {"assign", "subscribePattern"} & options.keys() else {"subscribe": "t"}
    given = {"path": root, **defaults, **options}
    return parse_read_options(given, is_stream=is_stream)


def plan(root, **options):
    return plan_splits(options_of(root, **options))


def ranges(splits):
    """Return splits as ``[(topic-partition, start, end), …]``."""
    return [
        (str(TopicPartition(split.topic, split.partition)), split.start_offset, split.end_offset)
        for split in splits
    ]


def read(root, where=None, columns=ALL_COLUMNS, **options):
    """Return all rows of a batch read as dictionaries, split by split."""
    checked = options_of(root, **options)
    splits = plan_splits(checked) if where is None else plan_splits(checked, where)
    return [
        row
        for split in splits
        for batch in read_split(split, columns, checked)
        for row in batch.to_pylist()
    ]


def numbers(rows):
    return sorted(int(row["value"]) for row in rows)
