"""Gateways that are killed in the midst of librdkafka's transactions: copies are exactly once."""

import threading
import time
from collections import Counter

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.gateway.processes import GatewayProcess, gateway_processes

confluent_kafka = pytest.importorskip("confluent_kafka")

RECORDS = 2_000
ABORT_EVERY = 7
TIMEOUT_S = 120


class Copier:
    """Copies a topic by transactions with the offsets of its group, and aborts some of them."""

    def __init__(self, addresses):
        common = {
            "bootstrap.servers": ",".join(addresses),
            "retry.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 500,
        }
        self._common = common
        self._consumer = confluent_kafka.Consumer(
            {
                **common,
                "group.id": "copiers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._producer = None
        self.outcomes: Counter[str] = Counter()
        self.error = None

    def run(self):
        try:
            self._consumer.subscribe(["in"])
            deadline_s = time.monotonic() + TIMEOUT_S
            while self._committed() < RECORDS and time.monotonic() < deadline_s:
                self._copy()
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._consumer.close()

    def _committed(self):
        found = self._consumer.committed([confluent_kafka.TopicPartition("in", 0)], TIMEOUT_S)
        return found[0].offset

    def _copy(self):
        if self._producer is None:
            self._producer = confluent_kafka.Producer(
                {**self._common, "transactional.id": "copier", "linger.ms": 2}
            )
            self._producer.init_transactions(TIMEOUT_S)
        messages = [each for each in self._consumer.consume(50, 1.0) if each.error() is None]
        if not messages:
            return
        producer, number = self._producer, sum(self.outcomes.values())
        try:
            producer.begin_transaction()
            for each in messages:
                producer.produce("out", each.value(), partition=int(each.value()) % 2)
            producer.send_offsets_to_transaction(
                self._consumer.position(self._consumer.assignment()),
                self._consumer.consumer_group_metadata(),
                TIMEOUT_S,
            )
            if number % ABORT_EVERY == ABORT_EVERY - 1:
                producer.abort_transaction(TIMEOUT_S)
                self._rewind()
                self.outcomes["aborted"] += 1
            else:
                self._commit(producer)
                self.outcomes["committed"] += 1
        except confluent_kafka.KafkaException as failure:
            error = failure.args[0]
            self.outcomes[error.name()] += 1
            if error.fatal():
                self._producer = None
            elif error.txn_requires_abort():
                producer.abort_transaction(TIMEOUT_S)
            else:
                raise
            self._rewind()

    @staticmethod
    def _commit(producer):
        while True:
            try:
                producer.commit_transaction(TIMEOUT_S)
            except confluent_kafka.KafkaException as failure:
                if not failure.args[0].retriable():
                    raise
            else:
                return

    def _rewind(self):
        for each in self._consumer.committed(self._consumer.assignment(), TIMEOUT_S):
            each.offset = max(each.offset, 0)
            self._consumer.seek(each)


@pytest.mark.long
def test_every_record_is_copied_once(tmp_path):
    root = str(tmp_path / "root")
    with gateway_processes(root, 2) as gateways:
        Admin(root).create_topics([NewTopic("in", 1), NewTopic("out", 2)])
        with Producer(root) as producer:
            for number in range(RECORDS):
                producer.send("in", b"%d" % number)
        copier = Copier([each.address for each in gateways])
        thread = threading.Thread(target=copier.run)
        thread.start()
        for victim in range(2):
            until = (victim + 1) * RECORDS // 4
            while thread.is_alive() and copied(root) < until:
                thread.join(0.2)
            gateways[victim].kill()
            gateways.append(GatewayProcess(root))
        thread.join(TIMEOUT_S)
        assert copier.error is None
    values = Counter(committed(root))
    assert values == Counter(b"%d" % number for number in range(RECORDS))
    assert copier.outcomes["aborted"] > 2


def copied(root):
    """The number of records whose copies are committed."""
    found = Admin(root).list_group_offsets("copiers")
    return sum(each.offset for each in found.values())


def committed(root):
    """The committed values of both partitions, as our own consumer reads them."""
    with Consumer(
        root=root, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([TopicPartition("out", each) for each in range(2)])
        found = []
        while polled := consumer.poll(timeout_ms=1000):
            found += [record.value for each in polled.values() for record in each]
        return found
