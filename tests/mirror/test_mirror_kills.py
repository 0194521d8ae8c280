"""Many records are mirrored by processes that are killed on the way: equal record for record.

MIRROR_RECORDS=10000000 MIRROR_KILLS=10 make test-long JOBS=0 ARGS='-k mirror_kills' takes an hour.
"""

import hashlib
import os
import subprocess

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition as KafkaPartition

from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from spark_log.mirror.kafka.row_producer import rows_by_partition
from tests.mirror.test_mirroring import KILLS, command, end_of_log, has_topic, kill_when

pytestmark = pytest.mark.long

RECORDS = int(os.environ.get("MIRROR_RECORDS", "20000"))
PARTITIONS = 2
TIME_MS = 1_700_000_000_000


class Digests:
    """A checksum and a count of the records of each partition, in their order."""

    def __init__(self):
        self.counts = [0] * PARTITIONS
        self._hashes = [hashlib.sha256() for _ in range(PARTITIONS)]

    def add(self, partition, key, value, time_ms):
        self.counts[partition] += 1
        self._hashes[partition].update(b"%r %r %d\n" % (key, value, time_ms))

    def __eq__(self, other):
        return self.summary() == other.summary()

    __hash__ = None  # type: ignore[assignment]

    def summary(self):
        return [*self.counts, *(each.hexdigest() for each in self._hashes)]


def record(number):
    """Key, value and time of a record; its partition is the number modulo theirs."""
    key = None if number % 5 == 1 else b"key-%d" % (number % 100)
    value = None if number % 11 == 3 else b"value-%d" % number
    return key, value, TIME_MS + number


def expected():
    digests = Digests()
    for number in range(RECORDS):
        digests.add(number % PARTITIONS, *record(number))
    return digests


def of_kafka(kafka, topic):
    """The committed records of Kafka."""
    digests = Digests()
    consumer = kafka._consumer("digests")  # noqa: SLF001
    consumer.assign([KafkaPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for each in consumer.consume(10_000, 0.2):
            if each.error() is None:
                digests.add(each.partition(), each.key(), each.value(), each.timestamp()[1])
            else:
                assert each.error().code() == KafkaError._PARTITION_EOF  # noqa: SLF001
                ended.add(each.partition())
    consumer.close()
    return digests


def of_log(root, topic):
    """The committed records of the log."""
    digests = Digests()
    places = [TopicPartition(topic, each) for each in range(PARTITIONS)]
    with Consumer(root=root, isolation_level="read_committed") as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        while any(consumer.position(each) < ends[each] for each in places):
            for rows in rows_by_partition(consumer.poll_table(1_000, 10_000)):
                for found in zip(rows.keys, rows.values, rows.times_ms, strict=True):
                    digests.add(rows.topic_partition.partition, *found)
    return digests


def mirror_with_kills(argv, position):
    """Mirror everything; kill the process each time when it has copied its part."""
    for kill in range(KILLS):
        reached = RECORDS * (kill + 1) // (KILLS + 1)
        kill_when(argv, lambda reached=reached: position() >= reached)
    subprocess.run([*argv, "--until-end"], check=True, capture_output=True, timeout=7200)


def test_records_of_kafka_are_in_the_log_once(kafka, tmp_path, names):
    root = tmp_path / "root"
    kafka.create_topic(names.topic, PARTITIONS)
    producer = KafkaProducer({"bootstrap.servers": kafka.servers, "linger.ms": 50})
    for number in range(RECORDS):
        key, value, time_ms = record(number)
        while True:
            try:
                producer.produce(names.topic, value, key, number % PARTITIONS, timestamp=time_ms)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(600) == 0
    admin = Admin(root)
    mirror_with_kills(
        command("from-kafka", kafka, root, names),
        lambda: end_of_log(root, names.topic) if has_topic(admin, names.topic) else 0,
    )
    assert of_log(root, names.topic) == expected()


def test_records_of_the_log_are_in_kafka_once(kafka, tmp_path, names):
    root = tmp_path / "root"
    forever = {"retention.ms": "-1"}
    Admin(root).create_topics([NewTopic(names.topic, PARTITIONS, topic_configs=forever)])
    kafka.create_topic(names.topic, PARTITIONS)
    with Producer(root) as log:
        for first in range(0, RECORDS, 100_000):
            numbers = range(first, min(first + 100_000, RECORDS))
            keys, values, times_ms = zip(*map(record, numbers), strict=True)
            table = pa.table(
                {
                    "key": pa.array(keys, pa.binary()),
                    "value": pa.array(values, pa.binary()),
                    "timestamp": pa.array(times_ms, pa.timestamp("ms", tz="UTC")),
                    "partition": pa.array([each % PARTITIONS for each in numbers], pa.int32()),
                }
            )
            log.send_table(names.topic, table)
    mirror_with_kills(command("to-kafka", kafka, root, names), lambda: kafka.end(names.topic))
    assert of_kafka(kafka, names.topic) == expected()
