"""Gateways that are killed under producers: every acknowledged record is in the log once."""

import threading
import time

import pytest

from spark_log import Admin, Consumer, NewTopic, TopicPartition
from spark_log.testing.history import (
    Assign,
    Operation,
    Outcome,
    Poll,
    Polled,
    Send,
    check_history,
)
from tests.gateway.processes import GatewayProcess, gateway_processes

confluent_kafka = pytest.importorskip("confluent_kafka")

TOPIC = "flights"
PARTITIONS = 3
PRODUCERS = 3
RECORDS = 3000
TIMEOUT_S = 120


class RecordingProducer:
    """An idempotent producer of librdkafka, which notes what it was answered."""

    def __init__(self, name, addresses):
        self.name = name
        self.operations = {}
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": ",".join(addresses),
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 20,
                "topic.metadata.refresh.interval.ms": 500,
                "retry.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "message.timeout.ms": TIMEOUT_S * 1000,
            }
        )

    def run(self, begun):
        for number in range(RECORDS):
            value, partition = f"{self.name}/{number}", number % PARTITIONS
            self._note(number, value, partition, Outcome.UNKNOWN)
            self._producer.produce(
                TOPIC,
                value.encode(),
                partition=partition,
                on_delivery=lambda error, message, number=number: self._on_delivery(
                    number, error, message
                ),
            )
            self._producer.poll(0)
            if number == RECORDS // 3:
                begun.set()
            if not number % 100:
                self._producer.flush(0.05)
        self._producer.flush(TIMEOUT_S)

    def _on_delivery(self, number, error, message):
        if error is None:
            value = message.value().decode()
            self._note(number, value, message.partition(), Outcome.COMMITTED, message.offset())

    def _note(self, number, value, partition, outcome, offset=None):
        send = Send(TopicPartition(TOPIC, partition), value, offset)
        self.operations[number] = Operation(self.name, number, [send], outcome)

    @property
    def acknowledged(self):
        return [
            operation.actions[0].value
            for operation in self.operations.values()
            if operation.outcome is Outcome.COMMITTED
        ]


def read_by_kafka(address):
    """The operations of a consumer of librdkafka that reads everything by assignment."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
    )
    partitions = [confluent_kafka.TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)]
    ends = {
        each.partition: consumer.get_watermark_offsets(each, timeout=TIMEOUT_S)[1]
        for each in partitions
    }
    consumer.assign(partitions)
    begin = Assign([(TopicPartition(TOPIC, each), 0) for each in range(PARTITIONS)])
    operations = [Operation("kafka", 0, [begin], Outcome.COMMITTED)]
    read = dict.fromkeys(ends, 0)
    deadline_s = time.monotonic() + TIMEOUT_S
    while read != ends and time.monotonic() < deadline_s:
        polled = []
        for message in consumer.consume(500, timeout=1.0):
            assert message.error() is None, message.error()
            partition = TopicPartition(TOPIC, message.partition())
            polled.append(Polled(partition, message.offset(), message.value().decode()))
            read[message.partition()] = message.offset() + 1
        operations.append(Operation("kafka", len(operations), [Poll(polled)], Outcome.COMMITTED))
    consumer.close()
    assert read == ends
    return operations


def values_of_ours(root):
    """The values that our own consumer reads."""
    with Consumer(root=root, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, each) for each in range(PARTITIONS)])
        found = []
        while polled := consumer.poll(timeout_ms=500):
            found += [record.value for each in polled.values() for record in each]
        return found


@pytest.mark.long
def test_every_acknowledged_record_is_in_the_log_once(tmp_path):
    root = str(tmp_path / "root")
    with gateway_processes(root, 2) as gateways:
        Admin(root).create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])
        addresses = [each.address for each in gateways]
        producers = [RecordingProducer(f"p{each}", addresses) for each in range(PRODUCERS)]
        begun = [threading.Event() for _ in producers]
        threads = [
            threading.Thread(target=producer.run, args=(event,))
            for producer, event in zip(producers, begun, strict=True)
        ]
        for thread in threads:
            thread.start()
        for event in begun:
            assert event.wait(TIMEOUT_S)
        gateways[0].kill()
        gateways.append(GatewayProcess(root))
        for thread in threads:
            thread.join(TIMEOUT_S)
        sent = [op for producer in producers for op in producer.operations.values()]
        polled = read_by_kafka(gateways[1].address)
    findings = check_history([*sent, *polled])
    assert not findings.anomalies, findings
    acknowledged = [value for producer in producers for value in producer.acknowledged]
    assert len(acknowledged) == PRODUCERS * RECORDS
    assert sorted(values_of_ours(root)) == sorted(value.encode() for value in acknowledged)
