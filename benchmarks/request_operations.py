"""The operations whose requests are counted, and how many each may send.

Each is a context manager: it prepares what the operation needs, and yields the operation. What it
sends before and after is not counted.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa

from spark_log import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    NewTopic,
    OffsetSpec,
    Producer,
    TopicPartition,
)

CHANGES = 104
"""Changes of metadata in the root that is opened."""

SEGMENTS = 59
"""Small segments that are read."""

IDLE_S = 5.0
"""How long an idle consumer rests before its requests are counted, and how long they are."""

_POLL_MS = 100


@dataclass(frozen=True, slots=True)
class Root:
    """A root on the S3 server.

    Attributes:
        url: ``s3://…``.
        options: storage options whose requests are delayed and counted.
        direct: storage options without the delay.
    """

    url: str
    options: Mapping[str, Any]
    direct: Mapping[str, Any]

    def admin(self) -> Admin:
        """Return an `Admin` whose requests are not counted."""
        return Admin(self.url, storage_options=self.direct)

    def create_topic(self, partitions: int = 1, name: str = "t") -> list[TopicPartition]:
        """Create a topic, and return its partitions."""
        self.admin().create_topics([NewTopic(name, partitions)])
        return [TopicPartition(name, each) for each in range(partitions)]

    def send(self, records: int, topic: str = "t", partitions: int = 1) -> None:
        """Append records, each as a segment of its own."""
        with Producer(self.url, storage_options=self.direct) as producer:
            for number in range(records):
                producer.send(topic, b"value", partition=number % partitions).result()

    def producer(self, **settings: Any) -> Producer:
        """Return a producer."""
        return Producer(self.url, storage_options=self.options, **settings)

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        """Return a consumer."""
        given = {"auto_offset_reset": "earliest", **settings}
        return Consumer(*topics, root=self.url, storage_options=self.options, **given)


Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation, and how many requests it may send.

    Attributes:
        name: what it does.
        prepare: yields the operation.
        most: requests that it may send each time.
        most_rounds: requests of these that may wait for each other.
        repeats: how often it is measured.
        lasts_s: for an operation that goes on: seconds in which it is counted, and `most` is for
            each second; else 0.
        waits: whether it sends requests while it waits, so that their number is not fixed.
    """

    name: str
    prepare: Callable[[Root], AbstractContextManager[Call]]
    most: float
    most_rounds: float | None = None
    repeats: int = 1
    lasts_s: float = 0.0
    waits: bool = False


# --- producers -----------------------------------------------------------------------------------


@contextmanager
def first_send(root: Root) -> Iterator[Call]:
    """A new producer sends its first record."""
    root.create_topic()
    root.send(1)
    opened: list[Producer] = []

    def send() -> None:
        producer = root.producer()
        opened.append(producer)
        producer.send("t", b"value").result()

    yield send
    opened[0].close()


@contextmanager
def append(root: Root) -> Iterator[Call]:
    """A producer that has sent before sends a record, and waits until it is in the log."""
    root.create_topic()
    with root.producer() as producer:
        producer.send("t", b"value").result()
        yield lambda: producer.send("t", b"value").result()


@contextmanager
def transaction(root: Root) -> Iterator[Call]:
    """A transaction of one record in one partition."""
    root.create_topic()
    with root.producer(transactional_id="id") as producer:
        producer.init_transactions()

        def run() -> None:
            with producer.transaction():
                producer.send("t", b"value")

        run()
        yield run


# --- consumers -----------------------------------------------------------------------------------


@contextmanager
def first_record(root: Root) -> Iterator[Call]:
    """A new consumer without a group reads its first record."""
    (tp,) = root.create_topic()
    root.send(1)
    opened: list[Consumer] = []

    def read() -> None:
        consumer = root.consumer()
        opened.append(consumer)
        consumer.assign([tp])
        consumer.seek_to_beginning()
        _read(consumer, 1)

    yield read
    opened[0].close()


@contextmanager
def small_segments(root: Root) -> Iterator[Call]:
    """A consumer that knows the root reads small segments from their beginning."""
    (tp,) = root.create_topic()
    root.send(SEGMENTS)
    with root.consumer() as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning()
        _read(consumer, SEGMENTS)
        consumer.seek(tp, 0)
        yield lambda: _read(consumer, SEGMENTS)


def idle(partitions: int) -> Callable[[Root], AbstractContextManager[Call]]:
    """A consumer that has read everything waits for records."""

    @contextmanager
    def prepare(root: Root) -> Iterator[Call]:
        tps = root.create_topic(partitions)
        root.send(partitions, partitions=partitions)
        with root.consumer() as consumer:
            consumer.assign(tps)
            consumer.seek_to_beginning()
            _read(consumer, partitions)
            _poll_for(consumer, IDLE_S)
            yield lambda: _poll_for(consumer, IDLE_S)

    return prepare


@contextmanager
def end_to_end(root: Root) -> Iterator[Call]:
    """A record is sent, and a consumer that waits for it has it."""
    (tp,) = root.create_topic()
    with root.producer() as producer, root.consumer() as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning()

        def run() -> None:
            producer.send("t", b"value")
            _read(consumer, 1)

        for _ in range(3):
            run()
        yield run


# --- groups --------------------------------------------------------------------------------------


@contextmanager
def join(root: Root) -> Iterator[Call]:
    """The only member of a group joins and reads its first record."""
    root.create_topic()
    root.send(1)
    opened: list[Consumer] = []

    def read() -> None:
        consumer = root.consumer("t", group_id="g")
        opened.append(consumer)
        _read(consumer, 1)

    yield read
    opened[0].close()


@contextmanager
def second_join(root: Root) -> Iterator[Call]:
    """A second member joins, gets a partition that the first one releases, and reads a record.

    The requests of the first member are not counted.
    """
    root.create_topic(2)
    root.send(2, partitions=2)
    with Consumer(
        "t",
        root=root.url,
        storage_options=root.direct,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,  # so that the second one reads the same records
    ) as first:
        _read(first, 2)
        opened: list[Consumer] = []

        def read() -> None:
            consumer = root.consumer("t", group_id="g")
            opened.append(consumer)
            while not consumer.poll(_POLL_MS):
                first.poll(0)

        yield read
        opened[0].close()


@contextmanager
def member_at_rest(root: Root) -> Iterator[Call]:
    """The only member of a group, which has read its only partition, waits for records."""
    root.create_topic()
    root.send(1)
    with root.consumer("t", group_id="g", enable_auto_commit=False) as consumer:
        _read(consumer, 1)
        _poll_for(consumer, IDLE_S)
        yield lambda: _poll_for(consumer, IDLE_S)


@contextmanager
def commit(root: Root) -> Iterator[Call]:
    """A member of a group commits its position in one partition."""
    root.create_topic()
    root.send(2)
    numbers = count()
    with root.consumer(
        "t", group_id="g", enable_auto_commit=False, heartbeat_interval_ms=10_000
    ) as consumer:
        _read(consumer, 1)
        tp = TopicPartition("t", 0)

        def run() -> None:
            consumer.seek(tp, next(numbers) % 2)
            consumer.commit()

        run()
        yield run


# --- the root ------------------------------------------------------------------------------------


@contextmanager
def open_root(root: Root) -> Iterator[Call]:
    """A root after many changes of metadata is opened, and its topics are listed."""
    root.create_topic()
    admin = root.admin()
    resource = ConfigResource(ConfigResourceType.TOPIC, "t")
    for number in range(CHANGES):
        admin.alter_configs([_with(resource, {"retention.ms": str(86_400_000 + number)})])
    yield lambda: Admin(root.url, storage_options=root.options).list_topics()


@contextmanager
def create_topic(root: Root) -> Iterator[Call]:
    """A topic of one partition is created."""
    root.create_topic()
    admin = Admin(root.url, storage_options=root.options)
    admin.list_topics()
    numbers = count()
    yield lambda: admin.create_topics([NewTopic(f"made-{next(numbers)}", 1)])


@contextmanager
def describe(root: Root) -> Iterator[Call]:
    """Four partitions are described with their offsets."""
    root.create_topic(4)
    root.send(4, partitions=4)
    admin = Admin(root.url, storage_options=root.options)
    admin.list_topics()
    yield admin.describe_topics


@contextmanager
def end_offsets(root: Root) -> Iterator[Call]:
    """The end offsets of four partitions are asked for."""
    tps = root.create_topic(4)
    root.send(4, partitions=4)
    admin = Admin(root.url, storage_options=root.options)
    admin.list_topics()
    yield lambda: admin.list_offsets(dict.fromkeys(tps, OffsetSpec.LATEST))


OPERATIONS = (
    Operation("first send of a process", first_send, 6),
    Operation("one acknowledged append", append, 1.1, 1, repeats=40),
    Operation("one record, end to end", end_to_end, 3, repeats=40, waits=True),
    Operation("a transaction of one record", transaction, 12, repeats=10),
    Operation("first record of a consumer", first_record, 12),
    Operation(f"{SEGMENTS} small segments", small_segments, SEGMENTS + 2, 10),
    Operation("an idle consumer of 4 partitions, a second", idle(4), 4, lasts_s=IDLE_S, waits=True),
    Operation(
        "an idle consumer of 40 partitions, a second", idle(40), 10, lasts_s=IDLE_S, waits=True
    ),
    Operation("a group's join to its first record", join, 25, 10),
    Operation("a second member's join to its first record", second_join, 40, waits=True),
    Operation("a group's member at rest, a second", member_at_rest, 4, lasts_s=IDLE_S, waits=True),
    Operation("one commit", commit, 4, 3, repeats=10),
    Operation(f"opening a root after {CHANGES} changes", open_root, 4, 3),
    Operation("creating a topic", create_topic, 6, repeats=5),
    Operation("describing 4 partitions", describe, 12, repeats=5),
    Operation("end offsets of 4 partitions", end_offsets, 12, repeats=5),
)


def _read(consumer: Consumer, wanted: int) -> None:
    """Poll until a number of records have come."""
    found = 0
    while found < wanted:
        found += sum(map(len, consumer.poll(_POLL_MS).values()))


def _poll_for(consumer: Consumer, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        table: pa.Table = consumer.poll_table(left_s * 1000)
        assert not table.num_rows


def _with(resource: ConfigResource, configs: dict[str, str]) -> ConfigResource:
    return ConfigResource(resource.resource_type, resource.name, configs)
