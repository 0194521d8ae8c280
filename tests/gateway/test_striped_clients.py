"""librdkafka's producers, groups and transactions on a topic with two stripes."""

from collections import Counter
from typing import Any

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from tests.gateway.support import running_gateway

confluent_kafka = pytest.importorskip("confluent_kafka")

TIMEOUT_S = 60
PARTITIONS = 12


@pytest.fixture
def root(tmp_path):
    root = str(tmp_path / "root")
    configs = {"stripes": "2"}
    Admin(root).create_topics(
        [NewTopic(name, PARTITIONS, topic_configs=configs) for name in ("in", "out")]
    )
    return root


@pytest.fixture
def gateway(root):
    with running_gateway(root) as gateway:
        yield gateway


def producer_of(gateway, **config):
    return confluent_kafka.Producer(
        {
            "bootstrap.servers": gateway.address,
            "enable.idempotence": True,
            "linger.ms": 20,
            "partitioner": "murmur2_random",
            **config,
        }
    )


def send(producer, topic, records):
    """Send keyed records, and return the partition and the offset of each value."""
    places = {}

    def on_delivery(error, message):
        assert error is None, error
        places[message.value()] = message.partition(), message.offset()

    for key, value in records:
        producer.produce(topic, value, key=key, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert len(places) == len(records)
    return places


def consumer_of(gateway, group="g", **config):
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": gateway.address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 10_000,
            **config,
        }
    )


class Group:
    """The members of one group, which are polled in turn.

    Attributes:
        members: the consumers.
        counts: the number of messages of each of them.
    """

    def __init__(self, gateway, members, topic, group="g", **config):
        self.members = [consumer_of(gateway, group, **config) for _ in range(members)]
        self.counts = [0] * members
        for each in self.members:
            each.subscribe([topic])

    def poll(self, count):
        """Return the next messages, once there are so many."""
        found: list[Any] = []
        while len(found) < count:
            for number, member in enumerate(self.members):
                message = member.poll(0.05)
                if message is not None:
                    assert message.error() is None
                    found.append(message)
                    self.counts[number] += 1
        return found

    def wait_for_assignment(self):
        """Poll until all partitions are assigned, to all members; no record may arrive."""
        while not self._is_assigned():
            for member in self.members:
                assert member.poll(0.05) is None

    def _is_assigned(self):
        numbers = [{each.partition for each in member.assignment()} for member in self.members]
        return all(numbers) and sum(map(len, numbers)) == PARTITIONS

    def close(self):
        for each in self.members:
            each.close()


def keyed(count, first=0):
    return [(b"key-%d" % number, b"%d" % number) for number in range(first, first + count)]


def places_of(messages):
    return {each.value(): (each.partition(), each.offset()) for each in messages}


def test_two_members_of_a_group_read_what_is_produced_by_keys(gateway):
    group = Group(gateway, 2, "in")
    group.wait_for_assignment()
    producer = producer_of(gateway)
    places = send(producer, "in", keyed(300))
    assert {partition for partition, _ in places.values()} == set(range(PARTITIONS))
    messages = group.poll(300)
    assert all(group.counts), "each member reads"
    assert places_of(messages) == places
    assert {each.key() for each in messages} == {key for key, _ in keyed(300)}
    for member in group.members:
        member.commit(asynchronous=False)
    group.close()
    later = send(producer, "in", keyed(50, first=300))
    group = Group(gateway, 2, "in")
    assert places_of(group.poll(50)) == later
    group.close()


def test_another_gateway_continues_an_idempotent_producer_and_a_group(root, gateway):
    with running_gateway(root) as other:
        producer = producer_of(gateway)
        places = send(producer, "in", keyed(100))
        group = Group(other, 1, "in")
        assert places_of(group.poll(100)) == places
        places |= send(producer_of(other), "in", keyed(100, first=100))
        places |= send(producer, "in", keyed(100, first=200))
        more = places_of(group.poll(200))
        assert more.items() <= places.items()
        group.close()
    everything = Group(gateway, 1, "in", group="another")
    messages = everything.poll(300)
    assert places_of(messages) == places
    offsets = Counter((each.partition(), each.offset()) for each in messages)
    assert max(offsets.values()) == 1
    everything.close()


def test_a_transaction_is_read_when_it_is_committed_and_not_when_it_is_aborted(gateway):
    producer = producer_of(gateway, **{"transactional.id": "x"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    first = send(producer, "in", keyed(60))
    producer.commit_transaction(TIMEOUT_S)
    producer.begin_transaction()
    send(producer, "in", keyed(60, first=1_000))
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    third = send(producer, "in", keyed(60, first=60))
    group = Group(gateway, 1, "in")
    uncommitted = Group(gateway, 1, "in", "u", **{"isolation.level": "read_uncommitted"})
    assert places_of(group.poll(60)) == first
    assert len(places_of(uncommitted.poll(180))) == 180
    producer.commit_transaction(TIMEOUT_S)
    assert places_of(group.poll(60)) == third
    for each in (group, uncommitted):
        each.close()


def test_a_consumer_and_producer_in_transactions_copies_each_record_once(root, gateway):
    send(producer_of(gateway), "in", keyed(120))
    source = consumer_of(gateway)
    source.subscribe(["in"])
    producer = producer_of(gateway, **{"transactional.id": "copy"})
    producer.init_transactions(TIMEOUT_S)
    aborted, copied = False, 0
    while copied < 120:
        producer.begin_transaction()
        messages = source.consume(25, 1.0)
        for each in messages:
            producer.produce("out", each.value(), key=each.key())
        if copied >= 50 and not aborted:
            assert producer.flush(TIMEOUT_S) == 0
            producer.abort_transaction(TIMEOUT_S)
            aborted = True
            source.close()
            source = consumer_of(gateway)
            source.subscribe(["in"])
            continue
        positions = source.position(source.assignment())
        producer.send_offsets_to_transaction(
            [each for each in positions if each.offset >= 0],
            source.consumer_group_metadata(),
            TIMEOUT_S,
        )
        producer.commit_transaction(TIMEOUT_S)
        copied += len(messages)
    source.close()
    group = Group(gateway, 1, "out", group="reader")
    values = Counter(each.value() for each in group.poll(120))
    assert values == {value: 1 for _, value in keyed(120)}
    group.close()
    cluster = Cluster(root)
    for stripe in cluster.stripes(cluster.topic("out")):
        assert stripe.directory.list().end_number > 0


def test_clients_go_on_while_the_number_of_stripes_changes(gateway, root):
    producer = producer_of(gateway)
    transactional = producer_of(gateway, **{"transactional.id": "tx"})
    transactional.init_transactions(TIMEOUT_S)
    group = Group(gateway, 2, "in")
    group.wait_for_assignment()
    # At last the number changes and changes back, before a gateway notices.
    for number, counts in enumerate(((0,), (3,), (2,), (3, 2))):
        records = [(b"%d" % key, b"%d-%d" % (number, key)) for key in range(24)]
        places = send(producer, "in", records[:12])
        transactional.begin_transaction()
        places |= send(transactional, "in", records[12:18])
        for count in counts:
            Admin(root).alter_stripes({"in": count})
        places |= send(transactional, "in", records[18:])
        transactional.commit_transaction(TIMEOUT_S)
        found = group.poll(len(records))
        assert {each.value(): (each.partition(), each.offset()) for each in found} == places
    for member in group.members:
        member.close()
