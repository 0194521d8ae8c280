"""Measures a consumer that reads a backlog of a stripe from its beginning.

    python -m benchmarks.striped_backlog --objects 100 --partitions 300

Each object has a record of each partition. The root is local, but its files are read by requests,
as on an object store, which are counted; they take no time. Sizes are those of this process.
"""

import argparse
import time
from collections import Counter
from typing import Any, ClassVar
from unittest import mock
from weakref import WeakSet

from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.log_workload import local_stores
from benchmarks.process_memory import memory_bytes
from benchmarks.stripes import batch_of
from spark_log import Admin, Consumer, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.log import BatchAppend
from spark_log.log.stripe import StripeEntry, StripeObject, directory
from spark_log.storage.local import LocalStore

_TOPIC = "flights"
_READS = ("read", "read_tail", "open_buffer")


class _Opened(StripeObject):
    """An object that is counted while it is open."""

    opened: ClassVar[WeakSet[StripeObject]] = WeakSet()

    def __init__(self, *where: Any, **of: Any) -> None:
        super().__init__(*where, **of)
        self.opened.add(self)


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("striped_backlog", __doc__)
    options.add_argument("--objects", type=int, default=100, help="of the stripe (100)")
    options.add_argument("--partitions", type=int, default=300, help="of the topic (300)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Write the backlog, and read it."""
    objects, partitions = options.objects, options.partitions
    with local_stores(options.directory) as new_store:
        root = new_store().url
        settings = {"stripes": 1, "flush.on.append": False}
        Admin(root).create_topics([NewTopic(_TOPIC, partitions, topic_configs=settings)])
        cluster = Cluster(root)
        stripe = cluster.stripe(cluster.topic(_TOPIC), 0)
        batch = BatchAppend(batch_of(0).records)
        for _ in range(objects):
            stripe.appends.append([StripeEntry(each, batch) for each in range(partitions)])
        del cluster, stripe
        calls: Counter[str] = Counter()
        counting = {name: _counting(name, calls) for name in (*_READS, "list")}
        with (
            mock.patch.multiple(LocalStore, is_mapped=False, **counting),
            mock.patch.object(directory, "StripeObject", _Opened),
        ):
            figures = _read(root, partitions, objects * partitions, calls)
    return Report("striped_backlog", figures, {"objects": objects, "partitions": partitions})


def _read(root: str, partitions: int, records: int, calls: Counter[str]) -> list[Figure]:
    with Consumer(root=root, enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(_TOPIC, each) for each in range(partitions)])
        consumer.seek_to_beginning()
        before, most_bytes, most_open = memory_bytes()["VmRSS"], 0, 0
        began_s, found = time.process_time(), 0
        while found < records:
            found += sum(map(len, consumer.poll(500, max_records=1_000).values()))
            most_bytes = max(most_bytes, memory_bytes()["VmRSS"])
            most_open = max(most_open, len(_Opened.opened))
        took_s = time.process_time() - began_s
    return [
        Figure("CPU of a record", took_s / records * 1e6, "µs"),
        Figure("reads", calls["read"], ""),
        Figure("listings", calls["list"], ""),
        Figure("growth of the resident memory, at most", (most_bytes - before) / 1e6, "MB"),
        Figure("objects that are open, at most", most_open, ""),
    ]


def _counting(name: str, calls: Counter[str]) -> Any:
    original = getattr(LocalStore, name)

    def counting(self: LocalStore, path: str, *args: Any, **options: Any) -> Any:
        calls["read" if name in _READS else name] += 1
        return original(self, path, *args, **options)

    return counting


if __name__ == "__main__":
    main()
