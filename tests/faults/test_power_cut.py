"""After a power cut at any moment of typical work, everything acknowledged is in the root."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from spark_log import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from spark_log.cluster import Cluster
from spark_log.cluster.cleaner import ClusterCleaner
from spark_log.cluster.topic_deletion import finish_deletions
from spark_log.cluster.verifier import ClusterVerifier
from spark_log.coordinator.offsets import creation as offsets_creation
from spark_log.coordinator.offsets.table import OffsetsTable
from spark_log.testing.history import Operation, Outcome, Send
from spark_log.testing.power_cut import PowerCut
from tests.faults.operation_notes import check_operations, read_of_log, sends

PARTITIONS = 2
GROUPS = ("g", "h")


@dataclass
class Told:
    """The acknowledgements, each with its moment; of records also the moment before the send."""

    cluster_id: list[Any] = field(default_factory=list)
    topics: list[Any] = field(default_factory=list)
    sends: list[tuple[int, int, Send]] = field(default_factory=list)
    starts: list[Any] = field(default_factory=list)
    commits: list[Any] = field(default_factory=list)
    configs: list[Any] = field(default_factory=list)
    ended: list[Any] = field(default_factory=list)

    def history(self, moment) -> Iterator[Operation]:
        """Yield the sends that had begun at a moment, with what was known of them."""
        for number, (begun, done, send) in enumerate(self.sends):
            if done <= moment:
                yield Operation("producer", number, (send,), Outcome.COMMITTED)
            elif begun <= moment:
                yield Operation("producer", number, (replace(send, offset=None),))


class Work:
    """All kinds of acknowledged operations on a root, in an order that a seed chooses."""

    def __init__(self, disk, root, seed):
        self.disk = disk
        self.root = root
        self.random = Random(seed)
        self.told = Told()
        self.topics = []
        self.ends = {}

    def do(self, steps):
        self.admin = Admin(self.root)
        self.create_topic()
        self.tell(self.told.cluster_id, Cluster(self.root).cluster_id)
        self.producer = Producer(self.root)
        works = [self.create_topic, self.change_topic, self.delete_topic, self.delete_records]
        works += [self.clean, self.maintain, self.consume, self.commit]
        for _ in range(steps):
            self.random.choice([*works, self.commit, *[self.produce] * 5])()
        self.producer.close()
        self.admin.close()
        self.disk.scan()

    def tell(self, told, what):
        told.append((self.disk.moment(), what))

    def create_topic(self):
        topic = f"t{len(self.topics)}"
        self.admin.create_topics([NewTopic(topic, PARTITIONS)])
        self.tell(self.told.topics, topic)
        self.topics.append(topic)

    def live_topic(self):
        return self.random.choice(self.topics[-2:])

    def change_topic(self):
        topic, value = self.live_topic(), self.random.randint(1000, 9999)
        change = ConfigResource(
            ConfigResourceType.TOPIC, topic, {"snapshot.interval.segments": value}
        )
        self.admin.alter_configs([change])
        self.tell(self.told.configs, (topic, str(value)))

    def delete_topic(self):
        if len(self.topics) > 2 and self.topics[0] is not None:
            at = next(n for n, name in enumerate(self.topics) if name)
            if at < len(self.topics) - 2:
                self.tell(self.told.ended, (self.topics[at], False))
                self.admin.delete_topics([self.topics[at]])
                self.tell(self.told.ended, (self.topics[at], True))
                self.topics[at] = None

    def produce(self):
        begun, first = self.disk.moment(), len(self.told.sends)
        values = [f"value {first + number}" for number in range(self.random.randint(1, 5))]
        sent = [self.producer.send(self.live_topic(), value.encode()) for value in values]
        for value, future in zip(values, sent, strict=True):
            metadata = future.result(60)
            partition = TopicPartition(metadata.topic, metadata.partition)
            self.ends[partition] = max(self.ends.get(partition, 0), metadata.offset + 1)
            send = Send(partition, value, metadata.offset)
            self.told.sends.append((begun, self.disk.moment(), send))

    def delete_records(self):
        live = [partition for partition in self.ends if partition.topic in self.topics[-2:]]
        if live:
            partition = self.random.choice(live)
            offset = self.random.randint(0, self.ends[partition])
            self.admin.delete_records({partition: offset})
            self.tell(self.told.starts, (partition, offset))

    def clean(self):
        list(ClusterCleaner(Cluster(self.root)).clean())

    def maintain(self):
        OffsetsTable(Cluster(self.root)).maintain()
        self.disk.scan()

    def commit(self):
        topic = self.live_topic()
        partition = TopicPartition(topic, self.random.randrange(PARTITIONS))
        offset = self.random.randint(0, self.ends.get(partition, 0))
        self.admin.alter_group_offsets("h", {partition: OffsetAndMetadata(offset)})
        self.tell(self.told.commits, ("h", partition, offset))

    def consume(self):
        topic = self.live_topic()
        with Consumer(topic, root=self.root, group_id="g", enable_auto_commit=False) as consumer:
            consumer.poll(timeout_ms=100)
            for partition in sorted(consumer.assignment()):
                offset = self.random.randint(0, self.ends.get(partition, 0))
                consumer.commit({partition: OffsetAndMetadata(offset)})
                self.tell(self.told.commits, ("g", partition, offset))


def is_due(operation, partition, start):
    """Whether it sent to a partition what a deletion up to ``start`` has not removed."""
    (send,) = operation.actions
    return send.topic_partition == partition and (send.offset is None or send.offset >= start)


def check(told, moment, root):
    def by(what):
        return [each for at, each in what if at <= moment]

    admin = Admin(root)
    begun = {topic for topic, _ in by(told.ended)}
    gone = {topic for topic, is_done in by(told.ended) if is_done}
    there = set(admin.list_topics())
    assert set(by(told.topics)) - begun <= there
    assert not there & gone
    assert Cluster(root).cluster_id == told.cluster_id[0][1]
    for topic, value in dict(by(told.configs)).items():
        if topic in there:
            entry = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            asked = {v for t, v in (each for _, each in told.configs) if t == topic}
            found = entry["topic"][topic]["snapshot.interval.segments"].value
            assert found == value or found in asked
    starts: dict[TopicPartition, int] = {}
    for partition, offset in by(told.starts):
        starts[partition] = max(starts.get(partition, 0), offset)
    history = [*told.history(moment)]
    sent = {send.topic_partition for send in sends(history)}
    for partition in sorted(each for each in sent if each.topic in there):
        with Consumer(root=root, value_deserializer=bytes.decode) as consumer:
            consumer.assign([partition])
            start = consumer.beginning_offsets([partition])[partition]
            moves = [o for _, (p, o) in told.starts if p == partition]
            assert starts.get(partition, 0) <= start <= max(moves, default=0)
            end = consumer.end_offsets([partition])[partition]
            consumer.seek_to_beginning()
            read: list[tuple[int, str]] = []
            while start + len(read) < end:
                records = consumer.poll(timeout_ms=10_000).get(partition)
                assert records, f"{partition} cannot be read from {start + len(read)}"
                read += [(record.offset, str(record.value)) for record in records]
        assert [offset for offset, _ in read] == list(range(start, end))
        kept = [each for each in history if is_due(each, partition, start)]
        check_operations([*kept, read_of_log(partition, read, start)])
    for group in GROUPS:
        committed = {p: o for g, p, o in by(told.commits) if g == group}
        positions = admin.list_group_offsets(group)
        for partition, offset in committed.items():
            if partition.topic in there:
                later = [o for _, (g, p, o) in told.commits if (g, p) == (group, partition)]
                assert positions[partition].offset == offset or positions[partition].offset in later
    # The data of a topic is removed in the end if the topic is not in the metadata.
    list(finish_deletions(Cluster(root)))
    known = {topic.directory for topic in Cluster(root).image().topics()}
    names = {name for name in Cluster(root).store.list_directories("") if name.startswith("t")}
    assert names <= known
    errors = [str(f) for f in ClusterVerifier(Cluster(root)).findings() if f.severity == "error"]
    assert not errors


def test_the_deletion_of_a_topic_is_finished_after_a_power_cut(tmp_path):
    """The marker is durable before the topic is removed: otherwise the data would never be."""
    for seed in range(10):
        place = tmp_path / str(seed)
        with PowerCut(place / "disk", place / "kept") as disk:
            root = str(place / "disk/root")
            admin = Admin(root)
            admin.create_topics([NewTopic("t")])
            with Producer(root) as producer:
                producer.send("t", b"value")
            admin.delete_topics(["t"])
        disk.restore(disk.moment(), Random(seed), place / "after")
        cluster = Cluster(str(place / "after/root"))
        list(finish_deletions(cluster))
        assert not [name for name in cluster.store.list_directories("") if name.startswith("t.")]


SHORT = [(seed, 30, 8) for seed in range(3)]
LONG = [
    pytest.param(seed, 60, 40, marks=pytest.mark.long, id=f"long-{seed}")
    for seed in range(100, 100 + int(os.environ.get("POWER_CUT_SEEDS", "2")))
]


@pytest.mark.parametrize(("seed", "steps", "cuts"), [*SHORT, *LONG])
def test_nothing_that_was_acknowledged_is_lost(tmp_path, monkeypatch, seed, steps, cuts):
    # The Delta log is cleaned up by age; here every file counts as old.
    for key, value in {
        "delta.logRetentionDuration": "interval 0 seconds",
        "delta.checkpointInterval": "3",
    }.items():
        monkeypatch.setitem(offsets_creation.TABLE_PROPERTIES, key, value)
    with PowerCut(tmp_path / "disk", tmp_path / "kept") as disk:
        work = Work(disk, str(tmp_path / "disk/root"), seed)
        work.do(steps)
    random = Random(seed)
    created = work.told.cluster_id[0][0]
    for _ in range(cuts):
        moment = random.randint(created, disk.moment())
        disk.restore(moment, random, tmp_path / "after")
        check(work.told, moment, str(tmp_path / "after/root"))
        shutil.rmtree(tmp_path / "after")
