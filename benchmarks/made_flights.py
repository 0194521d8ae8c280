"""A topic of records like the flights of the demo: JSON of 19 fields."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.record import RECORD_SCHEMA

PARTITIONS = 4
_BATCH = 100_000
_CARRIERS = (b"UA", b"AA", b"B6", b"DL", b"EV", b"HA")
_VALUE = (
    b'{"year": 2013, "month": 1, "day": %d, "dep_time": 517, "sched_dep_time": 515, '
    b'"dep_delay": %d, "arr_time": 830, "sched_arr_time": 819, "arr_delay": 11, '
    b'"carrier": "%s", "flight": %d, "tailnum": "N%05d", "origin": "EWR", "dest": "IAH", '
    b'"air_time": 227, "distance": 1400, "hour": 5, "minute": 15, '
    b'"time_hour": "2013-01-01T10:00:00Z"}'
)

VALUE_BYTES = 334
"""Mean size of a value."""

VALUE_SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)
"""The fields of a value, as Spark's DDL."""


def write_flights(
    root: str | Path,
    records: int,
    *,
    topic: str = "flights",
    settings: Mapping[str, object] | None = None,
) -> Cluster:
    """Write a topic of `PARTITIONS` partitions; return the opened root.

    Args:
        root: the cluster root.
        records: number of records; each is one second later than the one before.
        topic: the topic's name.
        settings: settings of the topic, in addition to those of all topics of flights.
    """
    configs = {"retention.ms": -1, "flush.on.append": False, **(settings or {})}
    Admin(root).create_topics([NewTopic(topic, PARTITIONS, topic_configs=configs)])
    cluster = Cluster(root)
    image = cluster.topic(topic)
    logs = [cluster.partition_log(image, number) for number in range(PARTITIONS)]
    for index, first in enumerate(range(0, records, _BATCH)):
        batch = _flights(first, min(_BATCH, records - first))
        logs[index % PARTITIONS].append(batch)
    return cluster


def _flights(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    values = [
        _VALUE % (n % 28 + 1, n * 7 % 900, _CARRIERS[n % 6], n % 8000, n % 20_000) for n in numbers
    ]
    times_us = np.arange(first, first + count) * 1_000_000 + 1_356_998_400_000_000
    columns = {
        "key": pa.array([_CARRIERS[n % 6] for n in numbers], pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.nulls(count, RECORD_SCHEMA.field("headers").type),
        "timestamp": pa.array(times_us).cast(RECORD_SCHEMA.field("timestamp").type),
    }
    return pa.RecordBatch.from_arrays(
        [columns[name] for name in RECORD_SCHEMA.names], schema=RECORD_SCHEMA
    )
