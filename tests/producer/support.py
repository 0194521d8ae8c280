"""Producers for tests: on stores with faults, on a manual clock, without threads."""

import itertools
from pathlib import Path

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.producer import Producer
from spark_log.producer._runtime import ProducerRuntime
from tests.log.support import HookedStore

ANY_TIME = {"flush.on.append": False, "message.timestamp.after.max.ms": 2**63 - 1}
_names = itertools.count()


def new_root(tmp_path, *topics, **configs):
    """Return a new root with topics; each is a name, or a pair of name and partition count."""
    root = Path(tmp_path) / f"root-{next(_names)}"
    made = [topic if isinstance(topic, tuple) else (topic, 1) for topic in topics]
    Admin(root).create_topics(
        [NewTopic(name, count, topic_configs={**ANY_TIME, **configs}) for name, count in made]
    )
    return root


def hooked(producer):
    """Put a `HookedStore` around a producer's store, and return it."""
    cluster = producer._cluster  # noqa: SLF001 - also of a producer as users open it
    cluster.store = HookedStore(cluster.store)
    return cluster.store


class InspectedProducer(Producer):
    """A producer that gives a test access to some of its parts."""

    def __init__(self, root, **settings):
        super().__init__(root, **settings)
        self.cluster = self._cluster
        self.accumulator = self._accumulator

    def refresh(self, topic):
        """Read the topic's metadata now, as another thread may at any time."""
        self._router.refresh(topic)

    def queue(self, topic, partition=0):
        """The state of a partition to which a record was sent."""
        return self._routes[topic].queues[partition]

    def forget_log(self, topic, partition=0):
        """Let the next append open the partition's log again, as after an error."""
        if topic in self._routes:
            self.queue(topic, partition).forget_log()


class SteppedProducer(InspectedProducer):
    """A producer without threads: it appends when its test calls `run_once`.

    `identity` is its producer id and epoch, as of a producer that has replaced another one.
    """

    def __init__(self, root, *, identity=None, **settings):
        self._identity = identity
        super().__init__(root, **settings)
        self.run_once = self._runtime.sender.run_once
        self.next_ready_ms = self._runtime.next_ready_ms
        self.fail_expired = self._runtime.completer.fail_expired

    def _new_runtime(self, cluster, new_partitioner):
        return ProducerRuntime(
            cluster,
            self.config,
            self.client_id,
            new_partitioner=new_partitioner,
            interceptors=self._interceptors,
            reporters=self._reporters,
            on_fork=self._on_fork,
            identity=self._identity,
            starts_threads=False,
        )


def by_hand(root, clock, **config):
    """A producer without threads, on a manual clock; `run` makes it append."""
    return SteppedProducer(root, clock=clock, **config)


def run(producer, clock, *, until_ms=600_000):
    """Run a producer without threads until no partition is ready; advance the clock as needed."""
    end_ms = clock.monotonic_ms() + until_ms
    while True:
        while producer.run_once():
            pass
        ready_ms = producer.next_ready_ms()
        if ready_ms > end_ms:
            return
        clock.advance_ms(max(0.001, ready_ms - clock.monotonic_ms()))


def rows(root, topic, isolation_level="read_uncommitted"):
    """Return all rows of a topic as ``{partition: [row, …]}``, by offset."""
    cluster = Cluster(root)
    found = {}
    image = cluster.topic(topic)
    for partition in image.partitions:
        log = cluster.partition_log(image, partition)
        found[partition] = [
            row
            for batch in log.scan(log.observe().log_start_offset, isolation_level=isolation_level)
            for row in batch.records.to_pylist()
        ]
    return found


def values(root, topic):
    """Return all values of a topic as ``{partition: [value, …]}``, by offset."""
    return _values(rows(root, topic))


def committed(root, topic):
    """Return the values that a reader of committed records sees, as `values` does."""
    return _values(rows(root, topic, "read_committed"))


def _values(found):
    return {partition: [row["value"] for row in found[partition]] for partition in found}


def headers(root, topic, partition=0):
    """Return the batch headers of a partition, in the order of the log."""
    cluster = Cluster(root)
    log = cluster.partition_log(cluster.topic(topic), partition)
    readers = [log.files.open(segment.name) for segment in log.observe().live.segments]
    return [each for reader in readers for _, found in reader.all_headers() for each in found]
