"""MirrorMaker 2: from a broker of Kafka into gateways, back, and between two roots."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka

from benchmarks.kafka_broker import KafkaBroker
from benchmarks.kafka_connect import PATIENCE_S, ConnectProcess, properties
from tests.gateway.processes import free_port
from tests.gateway.suites.kafka_connect.place import (
    Place,
    Record,
    Topics,
    assert_once_in_order,
    numbered,
)
from tests.gateway.suites.suite import running_gateways
from tests.waiting import wait_until

_PERIODS = (
    "refresh.topics.interval.seconds",
    "refresh.groups.interval.seconds",
    "sync.topic.configs.interval.seconds",
    "sync.group.offsets.interval.seconds",
    "emit.checkpoints.interval.seconds",
    "emit.heartbeats.interval.seconds",
)
_FACTORS = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.")
_STORED = ("config", "offset", "status")


@dataclass(frozen=True)
class Flow:
    """A direction in which MirrorMaker copies.

    Attributes:
        source: the name of the cluster that is read.
        target: the name of the other one.
        read: the topics of the source.
        written: the topics of the target.
    """

    source: str
    target: str
    read: Topics
    written: Topics

    def of(self, topic: str) -> str:
        """Return the name of a topic's copy."""
        return f"{self.source}.{topic}"


def mirror_settings(
    clusters: Mapping[str, str], flows: Mapping[str, str], **settings: object
) -> dict[str, object]:
    """Return the settings of a MirrorMaker that soon sees what has changed.

    Args:
        clusters: the bootstrap servers by the names of clusters.
        flows: the target of each source.
        settings: more settings, with ``_`` for ``.``.
    """
    found: dict[str, object] = {
        "clusters": ",".join(clusters),
        "topics": "flights.*",
        "groups": ".*",
        "sync.group.offsets.enabled": "true",
        "offset.lag.max": 0,
        "tasks.max": 2,
        "offset.flush.interval.ms": 500,
        "scheduled.rebalance.max.delay.ms": 2000,
        **dict.fromkeys(_PERIODS, 1),
        **{f"{each}replication.factor": 1 for each in _FACTORS},
        **{f"{each}.storage.replication.factor": 1 for each in _STORED},
    }
    found |= {f"{name}.bootstrap.servers": servers for name, servers in clusters.items()}
    found |= {f"{source}->{target}.enabled": "true" for source, target in flows.items()}
    return found | {name.replace("_", "."): value for name, value in settings.items()}


@contextmanager
def mirror_maker(
    folder: Path, name: str, settings: Mapping[str, object]
) -> Iterator[ConnectProcess]:
    """Run MirrorMaker's own process for the block."""
    with ConnectProcess(folder, name, "mirror.MirrorMaker", [properties(settings)]) as process:
        yield process


def _wait_for(process: ConnectProcess, condition: Callable[[], Any], complaint: str) -> Any:
    try:
        return wait_until(condition, complaint, timeout_s=PATIENCE_S, interval_s=0.3)
    except AssertionError as error:
        raise AssertionError(f"{error}; its log ends:\n{process.last_log_lines()}") from None


@dataclass(frozen=True)
class Mirrored:
    """A broker of Kafka and the gateways, and a MirrorMaker that copies from each to the other.

    Attributes:
        into: the direction from Kafka to the gateways.
        back: the way back.
        process: MirrorMaker.
    """

    into: Flow
    back: Flow
    process: ConnectProcess


@contextmanager
def mirrored(place: Place) -> Iterator[Mirrored]:
    """Run a broker and a MirrorMaker for the block."""
    with KafkaBroker(place.folder) as broker:
        kafka, log = Topics(broker.bootstrap_servers), place.topics
        clusters = {"kafka": kafka.bootstrap_servers, "log": log.bootstrap_servers}
        settings = mirror_settings(clusters, {"kafka": "log", "log": "kafka"})
        flows = Flow("kafka", "log", kafka, log), Flow("log", "kafka", log, kafka)
        for flow in flows:
            flow.read.create(f"flights-{flow.source}", 3, {"retention.ms": "-1"})  # old records
        with mirror_maker(place.folder, "mirror-both", settings) as process:
            yield Mirrored(*flows, process)


def _mirrored(place: Place) -> Mirrored:
    """Return the two clusters of all tests that harm nobody else's."""
    found = place.kept.get("mirrored")
    if found is None:
        found = place.kept["mirrored"] = place.stack.enter_context(mirrored(place))
    assert isinstance(found, Mirrored)
    return found


def _both(test: Callable[[Flow, ConnectProcess], None]) -> list[Callable[[Place], None]]:
    """Return a test of each direction."""

    def into(place: Place) -> None:
        test(_mirrored(place).into, _mirrored(place).process)

    def back(place: Place) -> None:
        test(_mirrored(place).back, _mirrored(place).process)

    into.__name__ = f"{test.__name__}_from_kafka"
    back.__name__ = f"{test.__name__}_to_kafka"
    return [into, back]


def _send_all_kinds(topics: Topics, topic: str) -> None:
    """Produce records of all kinds: keys, headers, times, nothing, and each codec."""
    chance = random.Random(42)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": topics.bootstrap_servers, "compression.type": codec}
        )
        for number in range(200):
            producer.produce(
                topic,
                None if not number % 7 else chance.randbytes(chance.randrange(300)),
                None if not number % 5 else chance.randbytes(chance.randrange(12)),
                partition=number % 3,
                timestamp=1_700_000_000_000 + chance.randrange(10**6),
                headers=[("a", b"1"), ("a", None), ("empty", b""), ("b", chance.randbytes(9))]
                if number % 2
                else None,
            )
        assert producer.flush(60) == 0


def _sorted(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda each: (each.partition, each.offset))


def records_are_equal_byte_for_byte(flow: Flow, process: ConnectProcess) -> None:
    topic = f"flights-{flow.source}"
    _send_all_kinds(flow.read, topic)
    copy = flow.of(topic)
    _wait_for(process, lambda: copy in flow.written.names(), f"{copy} is not created")
    assert _sorted(flow.written.records(copy, 1000)) == _sorted(flow.read.records(topic))


def configs_and_partitions_follow(flow: Flow, process: ConnectProcess) -> None:
    topic = f"flights-configs-{flow.source}"
    configs = {"cleanup.policy": "compact", "max.message.bytes": "2000000"}
    flow.read.create(topic, 2, configs)
    copy = flow.of(topic)
    _wait_for(process, lambda: len(flow.written.partitions(copy)) == 2, f"{copy} is not created")
    _wait_for(
        process,
        lambda: configs.items() <= flow.written.configs(copy).items(),
        "the configs are not those of the source",
    )
    resource = confluent_kafka.admin.ConfigResource(
        "topic",
        topic,
        incremental_configs=[
            confluent_kafka.admin.ConfigEntry(
                "retention.ms",
                "123456789",
                incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET,
            ),
            confluent_kafka.admin.ConfigEntry(
                "max.message.bytes",
                None,
                incremental_operation=confluent_kafka.admin.AlterConfigOpType.DELETE,
            ),
        ],
    )
    flow.read.admin.incremental_alter_configs([resource])[resource].result(60)
    more = confluent_kafka.admin.NewPartitions(topic, 5)
    flow.read.admin.create_partitions([more])[topic].result(60)

    def has_followed() -> bool:
        found = flow.written.configs(copy)
        default = flow.read.configs(topic)["max.message.bytes"]
        return found["retention.ms"] == "123456789" and found["max.message.bytes"] == default

    _wait_for(process, has_followed, "changed configs do not follow")
    _wait_for(process, lambda: len(flow.written.partitions(copy)) == 5, "partitions do not follow")
    for partition in range(5):
        flow.read.send(topic, numbered(10, partition * 10), partition=partition, key=b"key")
    assert _sorted(flow.written.records(copy, 50)) == _sorted(flow.read.records(topic))


def _read_by_group(topics: Topics, topic: str, group: str, count: int) -> list[str]:
    """Return the next values that a group reads of a topic; its offsets are committed."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": topics.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
    )
    consumer.subscribe([topic])
    found: list[str] = []

    def take() -> bool:
        message: Any
        for message in consumer.consume(count - len(found), timeout=0.5):
            assert message.error() is None
            found.append(message.value().decode())
        return len(found) == count

    try:
        wait_until(take, "the group does not read all", timeout_s=PATIENCE_S)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def groups_continue_at_the_copy(flow: Flow, process: ConnectProcess) -> None:
    topic = flow.read.create(f"flights-groups-{flow.source}", 1)
    copy = flow.of(topic)
    _wait_for(process, lambda: copy in flow.written.names(), f"{copy} is not created")
    flow.read.send(topic, numbered(1000))
    flow.written.records(copy, 1000)
    group, part = f"readers-{flow.source}", f"half-{flow.source}"
    assert _read_by_group(flow.read, topic, group, 1000) == numbered(1000)
    _read_by_group(flow.read, topic, part, 500)
    _wait_for(
        process,
        lambda: flow.written.committed(group) == {(copy, 0): 1000},
        f"the group's offsets are {flow.written.committed(group)}",
    )
    halves = _wait_for(process, lambda: flow.written.committed(part), "the group has no offset")
    # MirrorMaker keeps fewer of its pairs of offsets the older they are, and errs to the earlier.
    assert 0 < halves[copy, 0] <= 500
    flow.read.send(topic, numbered(100, 1000))
    assert _read_by_group(flow.read, topic, group, 50) == numbered(50, 1000)
    _wait_for(
        process,
        lambda: flow.written.committed(group)[copy, 0] > 1000,
        "the group's offset does not follow",
    )
    begin = flow.written.committed(group)[copy, 0]
    assert begin <= 1050
    flow.written.records(copy, 1100)
    found = _read_by_group(flow.written, copy, group, 1100 - begin)
    assert found == numbered(1100 - begin, begin)


def topics_of_its_own_are_there(flow: Flow, process: ConnectProcess) -> None:
    def has_beat() -> bool:
        beats, copies = flow.read.records("heartbeats"), flow.of("heartbeats")
        return len(beats) > 3 and len(flow.written.records(copies)) > 3

    _wait_for(process, has_beat, "there are no heartbeats")
    checkpoints = f"{flow.source}.checkpoints.internal"
    assert flow.written.configs(checkpoints)["cleanup.policy"] == "compact"
    assert flow.written.records(checkpoints)
    syncs = f"mm2-offset-syncs.{flow.target}.internal"
    assert flow.read.configs(syncs)["cleanup.policy"] == "compact"
    assert flow.read.records(syncs)


def exactly_once_from_gateway_to_gateway_while_it_is_killed(place: Place) -> None:
    with running_gateways(place.folder / "target-root") as target:
        written, read = Topics(target.bootstrap_servers), place.topics
        clusters = {"one": read.bootstrap_servers, "two": written.bootstrap_servers}
        settings = mirror_settings(clusters, {"one": "two"}) | {
            "topics": "once",
            "two.exactly.once.source.support": "enabled",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{free_port()}",
            "consumer.isolation.level": "read_committed",
        }
        topic = read.create("once", 2)
        sent = 0
        with mirror_maker(place.folder, "mirror-once", settings) as process:
            _wait_for(process, lambda: "one.once" in written.names(), "one.once is not created")
            for turn in range(4):
                for _ in range(10):
                    for partition in (0, 1):
                        read.send(topic, numbered(50, sent), partition=partition)
                    sent += 50
                if turn:
                    written.records("one.once", sent)  # some of this turn
                    process.kill()
                    process.start()
            written.records("one.once", 2 * sent)
            for partition in (0, 1):
                found = [
                    each.text for each in written.records("one.once") if each.partition == partition
                ]
                assert_once_in_order(found, numbered(sent))


TESTS = (
    *_both(records_are_equal_byte_for_byte),
    *_both(configs_and_partitions_follow),
    *_both(groups_continue_at_the_copy),
    *_both(topics_of_its_own_are_there),
    exactly_once_from_gateway_to_gateway_while_it_is_killed,
)
