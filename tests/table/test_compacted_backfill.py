"""A compacted topic is a table, is none, and so on, while it is written, read and cleaned."""

import threading
import time

import pytest
from deltalake import DeltaTable

from spark_log import Admin, ConfigResource, Consumer, NewTopic, Producer, TopicPartition
from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.table import TopicTable, verify_partition

PARTITIONS = 2
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "flush.on.append": False,
    "segment.bytes": 1 << 20,
    "table.commit.interval.ms": 0,
    "file.delete.delay.ms": 1000,
}
DEADLINE_S = 120


class Keys:
    """Sends numbers, each under one of some keys, and deletes a key at times."""

    def __init__(self, producer, count):
        self._producer, self._count = producer, count
        self.sent = 0
        self.newest: list[dict[bytes, int | None]] = [{} for _ in range(PARTITIONS)]

    def send(self):
        number = self.sent
        partition, key = number % PARTITIONS, b"k%d" % (number * 7919 % self._count)
        value = None if number % 11 == 10 else number
        content = None if value is None else b"%d" % value
        self._producer.send("t", content, key=key, partition=partition)
        self.newest[partition][key] = value
        self.sent += 1


class Load:
    """A producer and a consumer that use the topic until they are stopped."""

    def __init__(self, root, keys):
        self._root, self._keys = root, keys
        self._stopped = threading.Event()
        self._errors: list[BaseException] = []
        works = (self._produce, self._consume)
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in works]

    def __enter__(self):
        for each in self._threads:
            each.start()

    def __exit__(self, *error):
        self._stopped.set()
        for each in self._threads:
            each.join(DEADLINE_S)
        assert self._errors == []

    def _run(self, work):
        try:
            work()
        except BaseException as error:
            self._errors.append(error)

    def _produce(self):
        while not self._stopped.wait(0.02):
            for _ in range(20):
                self._keys.send()

    def _consume(self):
        """Read until nothing follows; the newest value of each key is right then."""
        newest: list[dict[bytes | None, int | None]] = [{} for _ in range(PARTITIONS)]
        last = [-1] * PARTITIONS
        with Consumer(root=self._root) as consumer:
            tps = [TopicPartition("t", number) for number in range(PARTITIONS)]
            consumer.assign(tps)
            consumer.seek_to_beginning()
            deadline = time.monotonic() + DEADLINE_S
            while newest != self._keys.newest or not self._stopped.is_set():
                assert time.monotonic() < deadline, "a record is missing"
                for tp, records in consumer.poll(100).items():
                    for record in records:
                        assert record.offset > last[tp.partition]
                        last[tp.partition] = record.offset
                        value = record.value
                        assert value is None or isinstance(value, bytes)
                        assert isinstance(record.key, bytes)
                        newest[tp.partition][record.key] = None if value is None else int(value)


def set_format(root, value):
    Admin(root).alter_configs([ConfigResource("topic", "t", {"table.format": value})])


def clean(root):
    errors = [each.error for each in ClusterCleaner(Cluster(root), ["t"]).clean()]
    assert not any(errors), errors


def clean_until(root, table, is_reached):
    """Clean until the table is as it should be: a compaction waits for the delay after another."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_reached(table.refresh()):
        assert time.monotonic() < deadline
        clean(root)
    return table.refresh()


@pytest.mark.parametrize(
    ("count", "keys", "rounds"),
    [(3000, 49, 2), pytest.param(500_000, 19_999, 5, marks=pytest.mark.long)],
)
def test_a_compacted_topic_is_a_table_and_none_again_under_load(tmp_path, count, keys, rounds):
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("t", PARTITIONS, topic_configs=SETTINGS)])
    with Producer(root, linger_ms=1, batch_size=4096) as producer:
        sender = Keys(producer, keys)
        for _ in range(count):
            sender.send()
        producer.flush()
        clean(root)  # compacted, and not a table yet
        cluster = Cluster(root)
        topic = cluster.image().topic("t")
        table = TopicTable(cluster.store, topic, cluster.clock)
        least = count // PARTITIONS // 2  # what is beyond the last segment is not compacted
        with Load(root, sender):
            for _ in range(rounds):
                set_format(root, "delta")
                version = clean_until(
                    root, table, lambda found: min(found.ends().values(), default=0) > least
                )
                assert version.is_on
                rows = DeltaTable(table.url).to_pyarrow_table(columns=["partition", "key"])
                found = list(zip(*(each.to_pylist() for each in rows.columns), strict=True))
                assert len(found) == len(set(found)) > keys, "one row of each key"
                for number in range(PARTITIONS):
                    log = cluster.partition_log(topic, number)
                    assert list(verify_partition(table, version, number, log)) == []

                set_format(root, "none")
                version = clean_until(root, table, lambda found: not found.is_on)
                assert dict(version.data_files) == {}
                assert DeltaTable(table.url).to_pyarrow_table().num_rows == 0
            producer.flush()
