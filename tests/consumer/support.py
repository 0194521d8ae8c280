"""Appends records for tests, and polls until they arrive."""

import time

import pyarrow as pa

from spark_log import ConsumerRebalanceListener, TopicPartition
from spark_log.cluster import Cluster
from spark_log.log.files.file_names import SegmentName
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE
from spark_log.storage.directory_watch import SilentWatch
from spark_log.types import ConsumerRecord
from tests.waiting import wait_until

T0 = TopicPartition("t", 0)
THREE = [TopicPartition("three", number) for number in range(3)]
PATIENCE_MS = 60_000
"""Maximum time that a test waits for an event."""


class ClockWatch(SilentWatch):
    """A watch that waits by advancing the clock; it first returns ``hints`` one by one.

    Attributes:
        waits_ms: the timeouts of the waits that were not ended by a hint.
    """

    def __init__(self, clock):
        super().__init__()
        self.clock = clock
        self.hints = []
        self.waits_ms = []

    def wait(self, timeout_ms):
        if self.hints:
            return {self.hints.pop()}
        if timeout_ms > 0:
            self.waits_ms.append(timeout_ms)
            self.clock.advance_ms(timeout_ms)
        return set()


def append(root, values, *, to=T0, keys=None, headers=None, times_us=None):
    """Append records as one segment; return the offset of the first."""
    count = len(values)
    now_us = time.time_ns() // 1000
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(keys or [None] * count, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(headers or [None] * count, HEADERS_TYPE),
            pa.array(times_us or [now_us] * count, TIMESTAMP_TYPE),
        ],
        schema=RECORD_SCHEMA,
    )
    return log_of(root, to).append(batch).base_offset


def log_of(root, partition=T0):
    cluster = Cluster(root)
    return cluster.partition_log(cluster.topic(partition.topic), partition.partition)


def damage(root, base_offset, bytes_of_values):
    """Change the first byte of these values in a segment of ``t``; return the file's path."""
    store = Cluster(root).store
    path = f"{log_of(root).directory}/{SegmentName(base_offset).file_name}"
    data = bytearray(store.read(path, 0, 10**6).to_pybytes())
    data[data.index(bytes_of_values)] = ord("9")
    store.put(path, bytes(data))
    return path


def numbered(start, stop):
    """Return values that contain their number."""
    return [b"%d" % number for number in range(start, stop)]


def poll_until(consumer, count, **options):
    """Poll until ``count`` records were returned; return them by partition."""
    found: dict[TopicPartition, list[ConsumerRecord]] = {}
    until_s = time.monotonic() + PATIENCE_MS / 1000
    while sum(map(len, found.values())) < count:
        records = consumer.poll(timeout_ms=PATIENCE_MS, **options)
        # An empty poll may have moved a position.
        assert records or time.monotonic() < until_s, f"only {found} of {count} records came"
        for partition, those in records.items():
            found.setdefault(partition, []).extend(those)
    return found


def values_of(found, partition=T0):
    return [record.value for record in found.get(partition, [])]


def read_values(consumer, count, partition=T0, **options):
    """Poll ``count`` records of one partition, and return their values."""
    return values_of(poll_until(consumer, count, **options), partition)


class Notes(ConsumerRebalanceListener):
    """Records the calls of its methods in ``told``."""

    def __init__(self):
        self.told = []

    def on_partitions_revoked(self, revoked):
        self.told.append(("revoked", revoked))

    def on_partitions_assigned(self, assigned):
        self.told.append(("assigned", assigned))

    def on_partitions_lost(self, lost):
        self.told.append(("lost", lost))


def settle(shares):
    """Poll until each consumer has its number of partitions; return the partitions of each.

    Args:
        shares: consumer → number of partitions.
    """
    consumers = list(shares)

    def are_settled():
        for consumer in consumers:
            consumer.poll()
        return [len(consumer.assignment()) for consumer in consumers] == list(shares.values())

    wait_until(are_settled)
    found = [consumer.assignment() for consumer in consumers]
    assert sum(map(len, found)) == len(set().union(*found)), "two have the same"
    return found
