"""Measures an object of a stripe beside one segment for each of its partitions.

    python -m benchmarks.stripes

Each partition gets one record of 100 bytes by one producer. Times are CPU times of this process for
each entry, the medians of several tries, in turns; files are in memory. Sizes are those of the
files, for each entry.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

import pyarrow as pa

from benchmarks.log_report import Figure, Report, parser, run
from spark_log.config import TopicConfig
from spark_log.log import BatchAppend, LocalLog, PartitionDirectory
from spark_log.log.stripe import (
    Stripe,
    StripeAppender,
    StripeDirectory,
    StripedLog,
    StripeEntry,
    stripe_path,
    take_home,
)
from spark_log.record import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE, ProducerAppend
from spark_log.storage.memory import MemoryStore

PARTITIONS = (10, 100, 1000)
TRIES = 7
HOME_PARTITIONS = 100
HOME_BYTES = 30_000_000
HOME_RECORDS = (1, 10, 100)
"""Records of 1 KiB in each batch that is taken home."""

TOPIC_ID = "BAmGwfbUQVSsLzdzBSFxhA"
TOPIC = f"flights.{TOPIC_ID}"
CONFIG = TopicConfig.parse({"flush.on.append": False, "merge.tail.segments": 0})


class Topic:
    """A topic in memory: a stripe, and a log for each partition that is appended to alone.

    Attributes:
        store: the files.
        stripe: the stripe's directory.
        shared: the stripe as a process uses it.
        alone: the logs.
        striped: the logs of the stripe's partitions.
    """

    def __init__(self, partitions: int, name: str = "stripes") -> None:
        """Open a topic.

        Args:
            partitions: number of partitions.
            name: a name of its files in memory.
        """
        self.store = MemoryStore(f"{name}, {partitions} partitions")
        self.stripe = StripeDirectory(
            self.store, stripe_path(TOPIC, 0), topic_id=TOPIC_ID, stripe=0, config=CONFIG
        )
        self.shared = Stripe(self.stripe, self.directory)
        self.alone = [self._open(LocalLog, "alone", each) for each in range(partitions)]
        self.striped = [
            self._open(partial(StripedLog, self.shared), "flights", each)
            for each in range(partitions)
        ]

    def home(self, partition: int) -> LocalLog:
        """Return the log of a partition's records at home."""
        return self._open(LocalLog, "flights", partition)

    def directory(self, partition: int) -> PartitionDirectory:
        """Return the directory of a partition's records at home."""
        return self.home(partition).files

    def size_bytes(self, directory: str, suffix: str) -> int:
        """Return the size of a directory's last file of a kind."""
        sizes = [each.size_bytes for each in self.store.list(directory) if suffix in each.name]
        return sizes[-1]

    def append_each(self, batch: BatchAppend) -> None:
        """Append a batch to each log."""
        for log in self.alone:
            log.append(batch.records, producer=batch.producer)

    def _open(self, open_log: Callable[..., LocalLog], name: str, partition: int) -> LocalLog:
        directory = f"{TOPIC}/{name}-{partition}"
        return open_log(
            self.store, directory, topic_id=TOPIC_ID, partition=partition, config=CONFIG
        )


def batch_of(number: int, count: int = 1, size_bytes: int = 100) -> BatchAppend:
    """Return records with values of a size, and the sequence numbers from ``number`` on."""
    columns = [
        pa.nulls(count, pa.binary()),
        pa.array([b"x" * size_bytes] * count, pa.binary()),
        pa.nulls(count, HEADERS_TYPE),
        pa.array([1_700_000_000_000_000] * count, pa.int64()).view(TIMESTAMP_TYPE),
    ]
    records = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    return BatchAppend(records, ProducerAppend(7, 0, number))


def home_mb_per_s(records: int) -> float:
    """Return the MB of records that are taken home in a second of CPU.

    Args:
        records: number of records of 1 KiB in each batch. Each object has one batch of each
            partition.
    """
    topic = Topic(HOME_PARTITIONS, f"home of {records}")
    appender = StripeAppender(topic.stripe)
    objects = HOME_BYTES // (HOME_PARTITIONS * records * 1024)
    for number in range(objects):
        batch = batch_of(number * records, records, 1024)
        appender.append([StripeEntry(each, batch) for each in range(HOME_PARTITIONS)])
    began_s = time.process_time()
    taken = take_home(topic.stripe, topic.directory)
    spent_s = time.process_time() - began_s
    assert taken is not None
    return taken.size_bytes / 1e6 / spent_s


def read_all(logs: Sequence[LocalLog], offset: int) -> None:
    """Read one record of each partition."""
    for log in logs:
        log.read(offset, 1)


def figures() -> Iterator[Figure]:
    """Yield the figures."""
    for partitions in PARTITIONS:
        topic = Topic(partitions)
        appender = StripeAppender(topic.stripe)
        reader = topic.shared.reader
        for log in topic.striped:
            log.read(0)
        times: dict[str, list[float]] = {}
        for number in range(TRIES):
            batch = batch_of(number)
            entries = [StripeEntry(each, batch) for each in range(partitions)]
            steps: dict[str, Callable[[], object]] = {
                "append, a segment each": partial(topic.append_each, batch),
                "append, one object": partial(appender.append, entries),
                "take in an object": reader.poll,
                "read it": partial(read_all, topic.striped, number),
                "take it home": partial(take_home, topic.stripe, topic.directory),
            }
            for name, step in steps.items():
                began_s = time.process_time()
                step()
                spent_s = time.process_time() - began_s
                times.setdefault(name, []).append(spent_s * 1e6 / partitions)
        for name, found in times.items():
            yield Figure(f"{partitions} partitions: {name}", median(found[1:]), "µs")
        alone_bytes = topic.size_bytes(topic.alone[0].directory, ".log")
        object_bytes = topic.size_bytes(topic.stripe.path, ".stripe") / partitions
        yield Figure(f"{partitions} partitions: size, a segment each", alone_bytes, "bytes")
        yield Figure(f"{partitions} partitions: size, one object", object_bytes, "bytes")
    for records in HOME_RECORDS:
        name = f"taken home, batches of {records} records of 1 KiB, for each second of CPU"
        yield Figure(name, home_mb_per_s(records), "MB")


def measure(options: argparse.Namespace) -> Report:
    """Measure everything."""
    return Report("stripes", list(figures()))


def main() -> None:
    """Run the benchmark."""
    run(parser("stripes", __doc__), measure)


if __name__ == "__main__":
    main()
