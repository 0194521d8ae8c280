"""A producer imports no large package, also when it writes snapshots."""

import subprocess
import sys

import pytest

from spark_log import Admin, NewTopic

UNUSED = {
    "asyncio", "concurrent.futures.process", "confluent_kafka", "deltalake", "fastavro", "fsspec",
    "multiprocessing", "obstore", "pandas", "prometheus_client", "pyarrow.acero", "pyarrow.compute",
    "pyarrow.dataset", "pyarrow.fs", "pyarrow.parquet", "pyspark", "requests", "rich",
    "spark_log.admin", "spark_log.delta", "spark_log.gateway",
    "spark_log.log.chain.replica_fetcher", "spark_log.log.clean", "spark_log.log.key_index",
    "spark_log.log.log_start", "spark_log.log.read.key_lookup", "spark_log.log.read.pruning",
    "spark_log.log.rewrite.file_deletion", "spark_log.log.rewrite.key_indexes",
    "spark_log.log.rewrite.merger",
    "spark_log.log.segment.parquet", "spark_log.log.snapshot.snapshot", "spark_log.log.verify",
    "spark_log.metadata.partitions.in_sync_replicas", "spark_log.metadata.table_requirements",
    "spark_log.metrics.registry", "spark_log.record.leader_change", "spark_log.storage.quorum",
    "spark_log.table", "spark_log.transaction", "spark_log.values", "ssl", "subprocess", "typer",
}  # fmt: skip
"""Modules that a client needs neither for its first record nor for those after it: a process that
sends or reads one record would spend most of its time on their import."""

SENDS_ONE = """
import sys
from spark_log import Producer
with Producer(sys.argv[1]) as producer:
    producer.send("t", b"value", key=b"k").result()
print(*sorted(sys.modules))
"""


WITH_SNAPSHOTS = """
import sys
from spark_log import Producer
with Producer(sys.argv[1], transactional_id="t", linger_ms=0) as producer:
    producer.init_transactions()
    for _ in range(70):  # the state log writes a snapshot, too
        with producer.transaction():
            producer.send("t", b"value", key=b"k")
print(sorted(sys.modules.keys() & {"asyncio", "pandas", "deltalake", "pyspark", "typer"}))
"""


WITH_TABLES = """
import sys, time
import pyarrow as pa
from spark_log import Producer
from spark_log.record import TIMESTAMP_TYPE, binary_array, nullable_int_array
now_us = time.time_ns() // 1000
columns = [  # pa.array would import pandas
    binary_array([b"a", b"b", None]),
    binary_array([b"1", None, b"3"]),
    nullable_int_array([now_us, None, None], pa.int64()).view(TIMESTAMP_TYPE),
    nullable_int_array([0, None, None], pa.int32()),
]
table = pa.Table.from_arrays(columns, ["key", "value", "timestamp", "partition"])
with Producer(sys.argv[1]) as producer:
    sent = producer.send_table("t", table).result()
    sent += producer.send_table("t", table.select(["value"]).slice(0, 1), partition=0).result()
assert sum(each.records for each in sent) == 4
print(sorted(sys.modules.keys() & {"asyncio", "pandas", "deltalake", "pyspark", "typer"}))
"""


@pytest.mark.parametrize("script", [WITH_SNAPSHOTS, WITH_TABLES])
def test_a_producer_imports_nothing_that_is_large(tmp_path, script):
    root = str(tmp_path / "root")
    settings = {"flush.on.append": "false", "snapshot.interval.segments": "2"}
    Admin(root).create_topics([NewTopic("t", topic_configs=settings)])
    ran = subprocess.run(
        [sys.executable, "-c", script, root],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "[]\n"), ran.stderr


@pytest.mark.parametrize("stripes", [0, 4])
def test_the_first_record_needs_no_module_that_others_use(tmp_path, stripes):
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("t", topic_configs={"stripes": stripes})])
    ran = subprocess.run(
        [sys.executable, "-c", SENDS_ONE, root],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert sorted(UNUSED.intersection(ran.stdout.split())) == []
