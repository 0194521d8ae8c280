"""A running producer uses changed topic configs after its next metadata refresh."""

import pytest

from spark_log import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
)
from spark_log.cluster import Cluster
from spark_log.config import TopicConfig
from spark_log.errors import SparkLogError
from spark_log.producer.send.append_errors import DeleteDelayLoweredError
from tests.producer.support import by_hand, hooked, new_root, run, values

MAX_AGE_MS = 1_000
OF_THE_CLEANER = {
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "merge.compression.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "table.format",
    "table.commit.interval.ms",
    "table.deleted.file.retention.ms",
    "table.value.format",
    "table.schema",
    "table.keep.value",
}
"""Configs that producers do not use; tests/cluster/test_cleaner.py tests them."""

OF_REPLICATION = {
    "min.insync.replicas",
    "replica.lag.time.max.ms",
    "unclean.leader.election.enable",
    "stripes",  # set when a topic is created, and never changed
}
"""Configs that decide about replicas, in tests/log/chain and tests/metadata/partitions."""


class Running:
    """A producer that sends before and after its topic's configs are changed."""

    def __init__(self, tmp_path, clock, **configs):
        self.clock = clock
        self.root = new_root(tmp_path, "t", **configs)
        self.producer = by_hand(self.root, clock, metadata_max_age_ms=MAX_AGE_MS, retries=0)
        self.send(b"before")

    def send(self, value=b"x", **more):
        """Send a record, and return its future."""
        sent = self.producer.send("t", value, **more)
        run(self.producer, self.clock, until_ms=100)
        return sent

    def error(self, value=b"x", **more):
        return self.send(value, **more).exception(0)

    def change(self, key, value):
        """Change a config; the producer's metadata are not refreshed yet."""
        topic = ConfigResource(ConfigResourceType.TOPIC, "t", {key: value})
        Admin(self.root, clock=self.clock).alter_configs([topic])

    def files(self):
        return list(self.log().files.store.list(self.log().directory))

    def names(self):
        return [file.name for file in self.files()]

    def log(self):
        cluster = Cluster(self.root)
        return cluster.partition_log(cluster.topic("t"), 0)

    def handle(self):
        """The log that the producer has open."""
        return self.producer.queue("t").log

    def now_ms(self):
        return self.clock.time_us() // 1_000


def last_segment_bytes(running):
    running.send(b"a" * 100_000)
    return max(file.size_bytes for file in running.files() if file.name == running.names()[-1])


def last_segment_is_small(running):
    return last_segment_bytes(running) < 20_000


def is_refused(kind, **more):
    def effect(running):
        given = {key: value(running) if callable(value) else value for key, value in more.items()}
        error = running.error(**given)
        assert error is None or isinstance(error, kind), error
        return error is not None

    return effect


def is_stamped(running):
    return running.send(timestamp_ms=5).result(0).timestamp != 5


def is_merged(running):
    for _ in range(4):
        running.send()
    return any("-" in name and name.endswith(".log") for name in running.names())


def is_snapshot_there(running):
    for _ in range(3):
        running.send()
    return any(name.endswith(".snapshot") for name in running.names())


def is_split(running):
    before = len(running.names())
    for _ in range(300):
        running.producer.send("t", b"x" * 10_000)
    run(running.producer, running.clock, until_ms=100)
    return len([name for name in running.names()[before:] if name.endswith(".log")]) > 1


def is_synced(running):
    store, synced = running.producer.cluster.store, []
    put = type(store).put_if_absent

    def noted(self, path, source, *, sync=True):
        synced.append(sync)
        put(self, path, source, sync=sync)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(store), "put_if_absent", noted)
        running.send()
    return synced[-1]


def is_handle(key):
    """Of a config that is used only inside the log: the log was opened with it."""

    def effect(running):
        running.send()
        config = running.handle().config.dotted()
        return config[key] != TopicConfig().dotted()[key]

    return effect


EFFECTS = {
    "cleanup.policy": ("compact", is_refused(InvalidRecordError)),
    "compression.type": ("zstd", last_segment_is_small),
    "file.delete.delay.ms": (120_000, is_handle("file.delete.delay.ms")),
    "flush.on.append": (True, is_synced),
    "index.interval.bytes": (1, is_handle("index.interval.bytes")),
    "max.message.bytes": (10, is_refused(RecordTooLargeError, value=b"x" * 11)),
    "merge.tail.segments": (2, is_merged),
    "message.timestamp.after.max.ms": (
        1_000,
        is_refused(InvalidTimestampError, timestamp_ms=lambda r: r.now_ms() + 5_000),
    ),
    "message.timestamp.before.max.ms": (
        1_000,
        is_refused(InvalidTimestampError, timestamp_ms=lambda r: r.now_ms() - 5_000),
    ),
    "message.timestamp.type": ("LogAppendTime", is_stamped),
    "producer.id.expiration.ms": (3_600_000, is_handle("producer.id.expiration.ms")),
    "segment.bytes": (1_048_576, is_split),
    "segment.ms": (1_000, is_handle("segment.ms")),
    "snapshot.interval.segments": (1, is_snapshot_there),
}


def test_every_key_is_seen_to(tmp_path):
    assert EFFECTS.keys() | OF_THE_CLEANER | OF_REPLICATION == TopicConfig.keys().keys()


@pytest.mark.partition_logs_only("looks at files of a partition")
@pytest.mark.parametrize("key", EFFECTS)
def test_a_change_counts_once_the_metadata_are_old_without_a_restart(tmp_path, clock, key):
    value, effect = EFFECTS[key]
    running = Running(tmp_path, clock)
    assert not effect(running)
    running.change(key, value)
    clock.advance_ms(MAX_AGE_MS)
    running.producer.partitions_for("t")
    assert effect(running)
    running.change(key, ("DELETE", None) if key != "flush.on.append" else False)
    clock.advance_ms(MAX_AGE_MS)
    stays = ("merge.tail.segments", "snapshot.interval.segments", "message.timestamp.after.max.ms")
    if key in stays:  # what was made is there; the default refuses too
        return
    running.producer.partitions_for("t")
    assert not effect(running)


@pytest.mark.partition_logs_only("looks at files of a partition")
def test_an_append_during_which_the_delay_is_lowered_is_looked_up(tmp_path, clock):
    """A cleaner with the new config may have freed the name before the put."""
    root = new_root(tmp_path, "t")
    producer = by_hand(root, clock, linger_ms=0)
    store = hooked(producer)
    tries = []

    def lower(path, call):
        topic = ConfigResource(ConfigResourceType.TOPIC, "t", {"file.delete.delay.ms": 1_000})
        Admin(root, clock=clock).alter_configs([topic])
        tries.append(path)
        return call()

    store.once("put_if_absent", lower)
    sent = producer.send("t", b"x")
    run(producer, clock)
    assert sent.result(0).offset == 0
    assert len(tries) == 1
    assert producer.metrics()["producer-metrics"]["record-retry-total"] == 1
    assert producer.queue("t").log.config.file_delete_delay_ms == 1_000
    assert values(root, "t") == {0: [b"x"]}
    assert issubclass(DeleteDelayLoweredError, SparkLogError)
