"""A topic that is a table, as its cleaners and other programs use it."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from spark_log import Admin, ConfigResource, NewTopic, TopicPartition
from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.table import TopicTable, verify_partition
from tests.record.samples import record_batch, row

COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
DELTA = {"table.format": "delta", "merge.tail.segments": "0"}


class TableRoot:
    """A root with the topic ``t``."""

    def __init__(self, url, clock, storage_options=None):
        self.url = url
        self.clock = clock
        self.cluster = Cluster(url, storage_options=storage_options, clock=clock)
        self.admin = Admin(url, storage_options=storage_options)

    @property
    def topic(self):
        return self.cluster.topic("t")

    @property
    def directory(self):
        return Path(self.url, self.topic.directory)

    @property
    def table(self):
        """The table as a process sees it that opens it now."""
        return TopicTable(self.cluster.store, self.topic, self.clock)

    @property
    def newest(self):
        return self.table.refresh()

    def partition(self, number=0):
        return self.newest.partitions[number]

    def log(self, partition=0):
        return self.cluster.partition_log(self.topic, partition)

    def append(self, *rows, partition=0):
        """Append a batch of (key, value)."""
        now = self.clock.time_us()
        self.log(partition).append(
            record_batch([row(key=key, value=value, timestamp=now) for key, value in rows])
        )

    def fill(self, count, partition=0, start=0):
        """Append batches of two records each."""
        for at in range(start, start + count):
            rows = [(b"k%d" % (at % 7), b"a%d" % at), (b"k%d" % (at % 5), b"b%d" % at)]
            self.append(*rows, partition=partition)

    def fill_with_all_kinds(self, count, partition=0):
        """Append records with null and empty keys and values, headers and times of years."""
        draw = random.Random(partition)
        for at in range(count):
            rows = [
                row(
                    key=draw.choice([None, b"", b"k%d" % (number % 7)]),
                    value=draw.choice([None, b"", draw.randbytes(9), b'{"n": %d}' % number]),
                    headers=draw.choice([None, [], [("h", b"\xff"), ("h", None)]]),
                    timestamp=self.clock.time_us() - draw.randrange(10**15),
                )
                for number in range(at, at + draw.randint(1, 9))
            ]
            self.log(partition).append(record_batch(rows))

    def clean(self, **options):
        """Clean the topic; return the results."""
        found = list(ClusterCleaner(self.cluster, ["t"], table_at_once=True, **options).clean())
        assert [each.error for each in found if each.error] == []
        return found

    def errors(self):
        """Clean the topic; return the errors."""
        found = ClusterCleaner(self.cluster, ["t"], table_at_once=True).clean()
        return [each.error for each in found if each.error]

    def set(self, **settings):
        """Change settings of the topic."""
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        self.admin.alter_configs([ConfigResource("topic", "t", configs)])

    def delete_records(self, offset, partition=0):
        self.admin.delete_records({TopicPartition("t", partition): offset})

    def findings(self, partition=0):
        """Return the differences between the table and the log."""
        table = self.table
        return list(verify_partition(table, table.refresh(), partition, self.log(partition)))

    def log_rows(self, partition=0):
        """Return the committed records of the log as (offset, key, value)."""
        rows: list[tuple[int, bytes | None, bytes | None]] = []
        for batch in self.log(partition).scan(
            self.log(partition).observe().log_start_offset, isolation_level="read_committed"
        ):
            columns = [batch.records.column(name).to_pylist() for name in ("key", "value")]
            rows += zip(batch.offsets().tolist(), *columns, strict=True)
        return rows

    def log_of_the_table(self):
        """Return the committed records below the table's ends, in the form of `whole_rows`."""
        found, ends = [], self.newest.ends()
        for partition in ends:
            log = self.log(partition)
            start = log.observe().log_start_offset
            for batch in log.scan(start, isolation_level="read_committed"):
                rows = pa.table(batch.records).append_column("offset", pa.array(batch.offsets()))
                numbers = pa.array([partition] * rows.num_rows, pa.int32())
                found += whole_rows(rows.append_column("partition", numbers))
        return [each for each in found if each[1] < ends[each[0]]]

    def delta_rs(self, version=None):
        """Return the table as delta-rs reads it."""
        return DeltaTable(str(self.directory), version=version)

    def table_rows(self, partition=0, version=None):
        """Return the rows that delta-rs reads as (offset, key, value)."""
        found: pa.Table = self.delta_rs(version).to_pyarrow_table(
            filters=[("partition", "=", partition)]
        )
        found = found.sort_by("offset")
        columns = [found.column(name).to_pylist() for name in ("offset", "key", "value")]
        return list(zip(*columns, strict=True))

    def log_files(self):
        """Return the content of all files of the logs, hashed."""
        return {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in self.directory.glob("t-*/*")
        }


def whole_rows(table):
    """Return all columns of records as a sorted list; a timestamp in microseconds."""
    times = table["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", times)
    columns = [table[name] for name in COLUMNS]
    return sorted(
        zip(*(each.to_pylist() for each in columns), strict=True), key=lambda each: each[:2]
    )


def new_table(url, clock, *, partitions=1, storage_options=None, **settings):
    """Make a root with the topic ``t``, a table with these settings."""
    url = str(url)
    configs = DELTA | {key.replace("_", "."): str(value) for key, value in settings.items()}
    topic = NewTopic("t", num_partitions=partitions, topic_configs=configs)
    Admin(url, storage_options=storage_options).create_topics([topic])
    return TableRoot(url, clock, storage_options)
