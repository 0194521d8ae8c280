"""`Operation`: an operation whose requests are counted, with its budget."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from spark_log.cluster import Cluster

IDLE_S = 5.0
"""Time for which an idle client rests before the count, and duration of the count."""

_POLL_MS = 100


@dataclass(frozen=True, slots=True)
class Root:
    """A root on the S3 server.

    Attributes:
        url: the URL of the root, ``s3://…``.
        options: the storage options of clients whose requests are delayed and counted.
        direct: the storage options of clients without delay and count.
    """

    url: str
    options: Mapping[str, Any]
    direct: Mapping[str, Any]

    def admin(self) -> Admin:
        """Return an `Admin` whose requests are not counted."""
        return Admin(self.url, storage_options=self.direct)

    def counted_admin(self) -> Admin:
        """Return an `Admin` that has opened the root, and whose requests are counted."""
        admin = Admin(self.url, storage_options=self.options)
        admin.list_topics()
        return admin

    def cluster(self) -> Cluster:
        """Return the opened root, whose requests are counted."""
        cluster = Cluster(self.url, self.options)
        cluster.image()
        return cluster

    def beside(self, name: str) -> "Root":
        """Return another root in the same bucket."""
        return Root(f"{self.url}-{name}", self.options, self.direct)

    def create_topic(
        self, partitions: int = 1, name: str = "t", replicas: int | None = None, **configs: object
    ) -> list[TopicPartition]:
        """Create a topic, and return its partitions.

        Args:
            partitions: the number of partitions.
            name: the name of the topic.
            replicas: the number of replicas of each partition; this registers the brokers.
            configs: the configs of the topic, with ``_`` for ``.``.
        """
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        admin = self.admin()
        for broker_id in range(1, replicas or 1):
            admin.register_broker(broker_id, f"{self.url}-broker-{broker_id}")
        admin.create_topics([NewTopic(name, partitions, replicas, dotted)])
        return [TopicPartition(name, each) for each in range(partitions)]

    def send(
        self, records: int, topic: str = "t", partitions: int = 1, key: bytes | None = None
    ) -> None:
        """Append records, each as a segment of its own."""
        with Producer(self.url, storage_options=self.direct) as producer:
            for number in range(records):
                sent = producer.send(topic, b"value", key, partition=number % partitions)
                sent.result()

    def producer(self, **settings: Any) -> Producer:
        """Return a producer whose requests are counted."""
        return Producer(self.url, storage_options=self.options, **settings)

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        """Return a consumer whose requests are counted."""
        given = {"auto_offset_reset": "earliest", **settings}
        return Consumer(*topics, root=self.url, storage_options=self.options, **given)


Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation, and its budget of requests.

    Attributes:
        name: the description of the operation.
        prepare: yields the operation. Its requests before and after are not counted.
        most: the maximum number of requests for each run.
        most_rounds: the maximum number of these requests that wait for each other.
        why: what the requests do, in sentences.
        repeats: the number of measured runs.
        lasts_s: for a continuous operation, the seconds of the count, and `most` is the maximum per
            second; otherwise 0.
        waits: whether it sends requests while it waits, so that their number depends on time.
        counted_by: the test that counts a waiting operation, on a clock of its own.
        wish: the better budget that one would wish, and why it is not reached; empty for none.
    """

    name: str
    prepare: Callable[[Root], AbstractContextManager[Call]]
    most: float
    most_rounds: float
    why: str
    repeats: int = 1
    lasts_s: float = 0.0
    waits: bool = False
    counted_by: str = ""
    wish: str = ""


def read(consumer: Consumer, records: int) -> None:
    """Poll until a number of records have arrived."""
    found = 0
    while found < records:
        found += sum(map(len, consumer.poll(_POLL_MS).values()))


def poll_for(consumer: Consumer, seconds: float) -> None:
    """Poll a consumer that gets no record."""
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        table: pa.Table = consumer.poll_table(left_s * 1000)
        assert not table.num_rows


def close_all(clients: Iterable[Producer | Consumer]) -> None:
    """Close clients that the operation has opened."""
    for each in clients:
        each.close()
