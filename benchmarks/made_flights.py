"""A topic of records like the flights of the demo: JSON of 19 fields."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.record import RECORD_SCHEMA

PARTITIONS = 4
_BATCH = 100_000
_CARRIERS = ("UA", "AA", "B6", "DL", "EV", "HA")


def write_flights(root: str | Path, records: int) -> Cluster:
    """Write a topic ``flights`` of `PARTITIONS` partitions; return the opened root."""
    admin = Admin(root)
    settings = {"retention.ms": -1, "flush.on.append": False}
    admin.create_topics([NewTopic("flights", PARTITIONS, topic_configs=settings)])
    cluster = Cluster(root)
    topic = cluster.topic("flights")
    logs = [cluster.partition_log(topic, number) for number in range(PARTITIONS)]
    for index, first in enumerate(range(0, records, _BATCH)):
        batch = _flights(first, min(_BATCH, records - first))
        logs[index % PARTITIONS].append(batch)
    return cluster


def _flights(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    values = [
        json.dumps(
            {
                "year": 2013,
                "month": 1,
                "day": n % 28 + 1,
                "dep_time": 517,
                "sched_dep_time": 515,
                "dep_delay": n * 7 % 900,
                "arr_time": 830,
                "sched_arr_time": 819,
                "arr_delay": 11,
                "carrier": _CARRIERS[n % 6],
                "flight": n % 8000,
                "tailnum": f"N{n % 20_000:05}",
                "origin": "EWR",
                "dest": "IAH",
                "air_time": 227,
                "distance": 1400,
                "hour": 5,
                "minute": 15,
                "time_hour": "2013-01-01T10:00:00Z",
            }
        ).encode()
        for n in numbers
    ]
    times_us = np.arange(first, first + count) * 1_000_000 + 1_356_998_400_000_000
    columns = {
        "key": pa.array([_CARRIERS[n % 6].encode() for n in numbers], pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.nulls(count, RECORD_SCHEMA.field("headers").type),
        "timestamp": pa.array(times_us).cast(RECORD_SCHEMA.field("timestamp").type),
    }
    return pa.RecordBatch.from_arrays(
        [columns[name] for name in RECORD_SCHEMA.names], schema=RECORD_SCHEMA
    )
