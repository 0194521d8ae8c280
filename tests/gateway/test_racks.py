"""Consumers read from the gateway of their rack (KIP-392), and from another one when it is gone."""

from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.protocol import message_class
from spark_log.log import BatchAppend
from spark_log.record import ProducerAppend
from tests.gateway.data_client import (
    TOPIC,
    client_batch,
    fetch,
    fetch_fields,
    next_offset_of,
    produce,
    rows_of,
)
from tests.gateway.support import running_gateway
from tests.record.samples import numbered

_Topic = message_class("MetadataRequest").MetadataRequestTopic

LONG_MS = 20_000
"""A wait that a test does not reach the end of."""


@pytest.fixture
def gateways(tmp_path):
    """A gateway in the rack a, and one in b, which know each other."""
    with ExitStack() as stack:
        found = {
            rack: stack.enter_context(
                running_gateway(
                    tmp_path / "root", **{"broker.rack": rack, "broker.join.delay.ms": 0}
                )
            )
            for rack in "ab"
        }
        for _ in range(2):  # each sees what the other did
            tick(*found.values())
        Admin(str(tmp_path / "root")).create_topics([NewTopic(TOPIC)])
        yield found


def tick(*gateways):
    for each in gateways:
        each.server.gateway._member.tick()  # noqa: SLF001 - without waiting for its time


def id_of(gateway):
    return gateway.server.gateway.registered.gateway_id


@pytest.fixture
def clients(gateways):
    with ExitStack() as stack:
        yield {rack: stack.enter_context(each.client()) for rack, each in gateways.items()}


class TestFetches:
    def test_of_a_client_of_another_rack_name_the_gateway_of_its_rack(self, gateways, clients):
        produce(clients["a"], client_batch(0, 3))
        for version in (11, 12):
            found = fetch(clients["a"], 1, version=version, rack_id="b", max_wait_ms=LONG_MS)
            assert (found.error_code, bytes(found.records)) == (ErrorCode.NONE, b"")
            assert found.preferred_read_replica == id_of(gateways["b"])
            assert (found.log_start_offset, found.high_watermark) == (0, 3)

    def test_of_a_client_of_the_same_rack_or_of_none_are_answered(self, clients):
        produce(clients["a"], client_batch(0, 3))
        for rack in ("b", "", "c"):  # there is no gateway in c
            found = fetch(clients["b"], 0, rack_id=rack)
            assert (found.preferred_read_replica, next_offset_of(found)) == (-1, 3)

    def test_before_version_11_are_answered(self, clients):
        produce(clients["a"], client_batch(0, 3))
        assert next_offset_of(fetch(clients["a"], 0, version=10)) == 3

    def test_of_an_offset_that_is_not_in_the_log_are_answered(self, clients, tmp_path):
        produce(clients["a"], client_batch(0, 3))
        produce(clients["a"], client_batch(3, 3))
        fetch(clients["b"], 0)
        Admin(str(tmp_path / "root")).delete_records({TopicPartition(TOPIC, 0): 3})
        for each in clients.values():
            found = fetch(each, 9, rack_id="b")
            assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert found.preferred_read_replica == -1
        assert fetch(clients["b"], 0, rack_id="b").error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert next_offset_of(fetch(clients["b"], 3, rack_id="b")) == 6

    def test_after_the_end_that_this_gateway_knows_are_answered_by_the_log(self, clients):
        """The client comes from the other gateway, with offsets that only that one has given."""
        assert next_offset_of(fetch(clients["b"], 0)) is None
        produce(clients["a"], client_batch(0, 3))
        found = fetch(clients["b"], 3, rack_id="b")
        assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, 3)

    def test_in_a_session_name_the_gateway_each_time(self, gateways, clients):
        first = clients["a"].ask("Fetch", 11, **fetch_fields({0: 0}, rack_id="b", session_epoch=0))
        fields = {**fetch_fields({}, max_wait_ms=LONG_MS, rack_id="b"), "topics": []}
        second = clients["a"].ask(
            "Fetch", 11, session_id=first.session_id, session_epoch=1, **fields
        )
        for response in (first, second):
            (found,) = response.responses[0].partitions
            assert found.preferred_read_replica == id_of(gateways["b"])

    def test_of_committed_records_end_at_the_same_offset_at_both_gateways(self, gateways, clients):
        log = gateways["a"].cluster.partition_log(gateways["a"].cluster.topic(TOPIC), 0)
        produce(clients["a"], client_batch(0, 3))
        open_transaction(log)
        for each in clients.values():
            assert next_offset_of(fetch(each, 0, isolation_level=1)) == 3
            found = fetch(each, 3, isolation_level=1)
            assert (found.last_stable_offset, found.high_watermark) == (3, 5)

    def test_wait_for_records_that_come_through_the_other_gateway(self, clients):
        clients["b"].send("Fetch", 11, **fetch_fields({0: 0}, max_wait_ms=LONG_MS, rack_id="b"))
        produce(clients["a"], client_batch(0, 3))
        _, response = clients["b"].receive()
        assert [offset for offset, _ in rows_of(response.responses[0].partitions[0])] == [0, 1, 2]

    def test_are_answered_when_the_gateway_of_the_rack_is_gone(self, gateways, clients):
        produce(clients["a"], client_batch(0, 3))
        gateways["b"].run(gateways["b"].server.gateway.leave())
        tick(gateways["a"])
        assert next_offset_of(fetch(clients["a"], 0, rack_id="b")) == 3


def test_the_replicas_of_a_partition_are_one_gateway_of_each_rack(gateways, clients):
    for rack, client in clients.items():
        (topic,) = client.ask("Metadata", 12, topics=[_Topic(name=TOPIC)]).topics
        (found,) = topic.partitions
        ids = sorted(map(id_of, gateways.values()))
        assert sorted(found.replica_nodes) == sorted(found.isr_nodes) == ids, rack
        assert found.leader_id == found.replica_nodes[0]


class TestConsumers:
    """A consumer of librdkafka with ``client.rack``, which asks the leader first."""

    @pytest.fixture
    def reader(self, gateways):
        """A consumer in the rack in which the leader is not; the names of both racks."""
        gateway = gateways["a"].server.gateway
        leader = gateway.leader(gateway.cluster.topic(TOPIC).topic_id, 0).rack
        near = "b" if leader == "a" else "a"
        consumer = Consumer(
            {
                "bootstrap.servers": gateways[leader].address,
                "group.id": "readers",
                "client.rack": near,
                "enable.auto.commit": False,
            }
        )
        consumer.assign([ClientPartition(TOPIC, 0, 0)])
        yield consumer, leader, near
        consumer.close()

    def read(self, consumer, count):
        found: list[int] = []
        while len(found) < count:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            found.append(message.offset())
        return found

    def test_read_from_the_gateway_of_their_rack(self, gateways, clients, reader):
        consumer, leader, near = reader
        produce(clients[leader], client_batch(0, 3))
        assert self.read(consumer, 3) == [0, 1, 2]
        waits = gateways[near].server.gateway.partitions.get(gateways[near].cluster.topic(TOPIC), 0)
        while not gateways[near].call(lambda: waits.is_waited_for):
            pass
        produce(clients[leader], client_batch(3, 2))
        assert self.read(consumer, 2) == [3, 4]

    def test_read_from_the_leader_when_the_gateway_of_their_rack_is_gone(
        self, gateways, clients, reader
    ):
        consumer, leader, near = reader
        produce(clients[leader], client_batch(0, 3))
        assert self.read(consumer, 3) == [0, 1, 2]
        gateways[near].run(gateways[near].server.stop())
        tick(gateways[leader])
        produce(clients[leader], client_batch(3, 2))
        assert self.read(consumer, 2) == [3, 4]


def open_transaction(log):
    log.append_batches([BatchAppend(numbered(0, 2), ProducerAppend(7, 0, 0, True))])
