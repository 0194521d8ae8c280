"""A Kafka client, readers of both sides, and mirrors for the tests of the bridge."""

from contextlib import contextmanager
from dataclasses import replace

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from spark_log import Consumer as LogConsumer
from spark_log import TopicPartition
from spark_log.mirror import KafkaCluster, LogAddress, MirrorSettings, TopicFilter
from spark_log.mirror.kafka.errors import is_not_ready
from tests.waiting import wait_until

FAST = {"refresh_interval_s": 0.2}


class KafkaClient:
    """Creates topics, sends, reads and commits in Kafka."""

    def __init__(self, servers):
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.cluster = KafkaCluster({"bootstrap.servers": servers})

    def create_topic(self, topic, partitions=2, **settings):
        given = {"retention_ms": -1, **settings}  # the timestamps are old
        config = {name.replace("_", "."): str(value) for name, value in given.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result()

    def topics(self):
        return self.admin.list_topics(timeout=30).topics

    def grow(self, topic, total):
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result()

    def send(self, topic, count, first=0, partitions=2):
        """Send numbered records; some have no key, no value or no headers."""
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 50})
        for number in range(first, first + count):
            producer.produce(
                topic,
                None if number % 7 == 3 else f"value-{number}".encode(),
                None if number % 5 == 1 else f"key-{number % 3}".encode(),
                number % partitions,
                timestamp=1_700_000_000_000 + number,
                headers=[("n", str(number).encode()), ("n", None)] if number % 2 else None,
            )
        assert producer.flush(60) == 0

    @contextmanager
    def transaction(self, transactional_id):
        producer = Producer(
            {"bootstrap.servers": self.servers, "transactional.id": transactional_id}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        yield producer
        producer.commit_transaction(60)

    def read(self, topic, partitions=2):
        """Return the committed records of each partition: key, value, headers, milliseconds."""
        consumer = self._consumer("reader")
        consumer.assign(
            [KafkaPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)]
        )
        records: dict[int, list[tuple[object, ...]]] = {each: [] for each in range(partitions)}
        ended: set[int] = set()
        while len(ended) < partitions:
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    content = message.key(), message.value(), message.headers() or []
                    time_ms = message.timestamp()[1]
                    records[message.partition()].append((message.offset(), *content, time_ms))
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF  # noqa: SLF001
                    ended.add(message.partition())
        consumer.close()
        return records

    def delete_records(self, topic, before):
        places = [KafkaPartition(topic, 0, before)]
        for each in self.admin.delete_records(places).values():
            each.result()

    def end(self, topic):
        """Return the sum of the log end offsets of two partitions."""
        consumer = self._consumer("ends")
        places = [KafkaPartition(topic, each) for each in (0, 1)]
        total = sum(consumer.get_watermark_offsets(each, 10)[1] for each in places)
        consumer.close()
        return total

    def commit(self, group, offsets):
        """Commit offsets of a group: (topic, partition) → offset."""
        consumer = self._consumer(group)
        places = [KafkaPartition(tp[0], tp[1], offset) for tp, offset in offsets.items()]

        def is_committed():
            try:
                consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as error:  # the coordinator of the first group is being made
                if not is_not_ready(error.args[0]):
                    raise
                return False
            return True

        wait_until(is_committed)
        consumer.close()

    def _consumer(self, group):
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )


def read_log(root, topic, partitions=2):
    """Return the committed records of each partition: key, value, headers, milliseconds."""
    places = [TopicPartition(topic, each) for each in range(partitions)]
    records: dict[int, list[tuple[object, ...]]] = {each: [] for each in range(partitions)}
    with LogConsumer(root=root, isolation_level="read_committed") as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        while any(consumer.position(each) < ends[each] for each in places):
            for tp, found in consumer.poll(1000).items():
                records[tp.partition] += [
                    (each.offset, each.key, each.value, each.headers, each.timestamp)
                    for each in found
                ]
    return records


def without_offsets(records):
    return {number: [each[1:] for each in found] for number, found in records.items()}


def mirror(kind, kafka, root, names, **settings):
    """Return a mirror of one test's topics, that commits often."""
    given = MirrorSettings(
        kafka_alias=names.alias,
        topics=TopicFilter.parse([f"{names.topic}.*"]),
        commit_interval_ms=20,
    )
    return kind(kafka.cluster, LogAddress(root), replace(given, **settings))


def run_until_end(kind, kafka, root, names, **settings):
    """Mirror all records that exist now; return the metrics."""
    with mirror(kind, kafka, root, names, **settings) as opened:
        opened.run(lambda: False, until_end=True)
        return opened.metrics()
