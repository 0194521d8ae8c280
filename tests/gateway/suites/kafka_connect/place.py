"""`Place`: what the tests of Kafka Connect share: gateways, workers, files, and reads of topics."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka_connect import PATIENCE_S, DistributedWorker
from tests.gateway.processes import free_port
from tests.gateway.suites.suite import Gateways
from tests.waiting import wait_until

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"

EXACTLY_ONCE: Mapping[str, object] = {"exactly.once.source.support": "enabled"}
"""Settings of workers whose sources write by transactions."""


@dataclass
class Place:
    """The gateways and the folder of a run.

    Attributes:
        folder: a folder for files.
        gateways: the gateways.
        stack: ends what runs until the end of the suite.
        topics: the gateways' topics.
        kept: what tests keep for those after them, by name.
    """

    folder: Path
    gateways: Gateways
    stack: ExitStack
    topics: Topics = field(init=False)
    kept: dict[str, object] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.topics = Topics(self.gateways.bootstrap_servers)

    @property
    def worker(self) -> DistributedWorker:
        """The worker of the tests that harm nobody else's."""
        found = self.kept.get("worker")
        if not isinstance(found, DistributedWorker) or not found.is_alive:
            found = self.stack.enter_context(self.new_worker("shared", names_of_workers("shared")))
            self.kept["worker"] = found
        return found

    def new_worker(
        self, name: str, settings: Mapping[str, object], gateways: Gateways | None = None
    ) -> DistributedWorker:
        """Return a worker that is not started yet; its files are in the folder."""
        servers = (gateways or self.gateways).bootstrap_servers
        return DistributedWorker(self.folder, name, servers, free_port(), settings)

    def path(self, name: str) -> Path:
        """Return a path in the folder that nobody else has."""
        return self.folder / f"{name}-{uuid.uuid4().hex[:8]}.txt"


def names_of_workers(name: str) -> dict[str, object]:
    """Return settings of workers that share a group and three topics with each other alone."""
    return {
        "group.id": name,
        "config.storage.topic": f"{name}-configs",
        "offset.storage.topic": f"{name}-offsets",
        "status.storage.topic": f"{name}-status",
    }


def file_source(file: Path, topic: str, **settings: object) -> dict[str, object]:
    """Return the config of a connector that sends the lines of a file; ``_`` stands for ``.``."""
    base = {"connector.class": FILE_SOURCE, "tasks.max": 1, "file": file, "topic": topic}
    return base | {name.replace("_", "."): value for name, value in settings.items()}


def file_sink(file: Path, topics: str, **settings: object) -> dict[str, object]:
    """Return the config of a connector that writes values to a file; ``_`` stands for ``.``."""
    base = {"connector.class": FILE_SINK, "tasks.max": 1, "file": file, "topics": topics}
    return base | {name.replace("_", "."): value for name, value in settings.items()}


def numbered(count: int, begin: int = 0) -> list[str]:
    """Return lines that tell their place."""
    return [f"line {number} of a file that is copied" for number in range(begin, begin + count)]


def text_of(lines: Sequence[str]) -> str:
    """Return the content of a file with these lines."""
    return "".join(f"{each}\n" for each in lines)


@contextmanager
def growing_file(path: Path, rate: int = 60) -> Iterator[Callable[[], int]]:
    """Append numbered lines to a file until the block ends; yield a function that counts them.

    Args:
        path: the file.
        rate: the lines a second.
    """
    ending = threading.Event()
    counted = [0]

    def write() -> None:
        step = max(rate // 20, 1)
        with path.open("a") as file:
            while not ending.wait(0.05):
                file.write(text_of(numbered(step, counted[0])))
                file.flush()
                counted[0] += step

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield lambda: counted[0]
    finally:
        ending.set()
        thread.join()


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a consumer gets it."""

    partition: int
    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def text(self) -> str:
        """Its value as text."""
        assert self.value is not None
        return self.value.decode()


class Topics:
    """The topics of some gateways or brokers, by clients of librdkafka.

    Attributes:
        admin: an admin client.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin = AdminClient(self._config({}))

    def create(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic; return its name."""
        new = NewTopic(topic, partitions, 1, config=dict(config or {}))
        self.admin.create_topics([new])[topic].result(60)
        return topic

    def names(self) -> set[str]:
        """Return the names of all topics."""
        return set(self.admin.list_topics(timeout=60).topics)

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic; none if there is no such topic."""
        found = self.admin.list_topics(timeout=60).topics
        return sorted(found[topic].partitions) if topic in found else []

    def configs(self, topic: str) -> dict[str, str]:
        """Return the configs of a topic."""
        resource = confluent_kafka.admin.ConfigResource("topic", topic)
        found = self.admin.describe_configs([resource])[resource].result(60)
        return {name: each.value for name, each in found.items()}

    def send(self, topic: str, values: Sequence[str | None], **arguments: Any) -> None:
        """Produce values; more arguments are those of ``Producer.produce``."""
        producer = confluent_kafka.Producer(self._config({"linger.ms": 5}))
        failures: list[KafkaError] = []
        for value in values:
            producer.produce(
                topic,
                value,
                on_delivery=lambda error, _: failures.append(error) if error else None,
                **arguments,
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert failures == []

    def records(self, topic: str, at_least: int = 0) -> list[Record]:
        """Return the committed records of a topic, those of a partition in their order.

        Args:
            topic: the topic; without it there are no records.
            at_least: the number of records to wait for.

        Raises:
            AssertionError: It has fewer for long.
        """
        if not at_least and not self.partitions(topic):
            return []
        partitions = wait_until(
            lambda: self.partitions(topic), f"there is no {topic}", timeout_s=PATIENCE_S
        )
        settings = {
            "group.id": "tests",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "isolation.level": "read_committed",
        }
        consumer = Consumer(self._config(settings))
        found: list[Record] = []
        ended: set[int] = set()
        deadline_s = time.monotonic() + PATIENCE_S
        try:
            consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
            while len(ended) < len(partitions) or len(found) < at_least:
                assert time.monotonic() < deadline_s, (
                    f"{topic} has {len(found)} of {at_least} records; the ends of {sorted(ended)} "
                    f"of {partitions} were reached"
                )
                message: Any
                for message in consumer.consume(1000, timeout=0.2):
                    error = message.error()
                    if error is None:
                        found.append(_record(message))
                        ended.discard(message.partition())
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                        ended.add(message.partition())
                    elif not error.retriable():
                        raise KafkaException(error)
        finally:
            consumer.close()
        return found

    def lines(self, topic: str, at_least: int = 0) -> list[str]:
        """Return the values of `records`."""
        return [each.text for each in self.records(topic, at_least)]

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offsets of a group."""
        request = confluent_kafka.ConsumerGroupTopicPartitions(group)
        try:
            found = self.admin.list_consumer_group_offsets([request])[group].result(60)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return {}
            raise
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions}

    def _config(self, settings: Mapping[str, object]) -> dict[str, Any]:
        # What it complains of while a gateway is killed is expected.
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 0, **settings}


def _record(message: Any) -> Record:
    return Record(
        message.partition(),
        message.offset(),
        message.timestamp(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


def assert_once_in_order(found: Sequence[str], expected: Sequence[str]) -> None:
    """Compare lines, and tell what is missing, doubled or moved."""
    if list(found) == list(expected):
        return
    seen = set(found)
    missing = [each for each in expected if each not in seen]
    doubled = len(found) - len(seen)
    at = next(
        (n for n, (one, other) in enumerate(zip(found, expected, strict=False)) if one != other),
        min(len(found), len(expected)),
    )
    raise AssertionError(
        f"{len(found)} lines of {len(expected)}; {len(missing)} are missing {missing[:3]}, "
        f"{doubled} are doubled; the first that differs is number {at}: {list(found[at : at + 3])}"
    )
