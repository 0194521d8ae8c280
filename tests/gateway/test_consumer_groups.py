"""Consumer groups of librdkafka at gateways, beside our own consumers, and with gateways killed."""

import os
import signal
import threading

import pytest

from spark_log import Admin, ConfigResource, Consumer, NewTopic, Producer, TopicPartition
from tests.gateway.processes import gateway_processes
from tests.waiting import wait_until

confluent_kafka = pytest.importorskip("confluent_kafka")
AdminClient = pytest.importorskip("confluent_kafka.admin").AdminClient

TOPIC, PARTITIONS = "flights", 4
TIMEOUT_S = 60

CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
CONSUMER = {"group.protocol": "consumer"}
"""Settings of the classic protocol; with the consumer protocol (KIP-848) they are the cluster's."""


@pytest.fixture
def root(gateway):
    Admin(gateway.cluster.root).create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])
    set_group_settings(gateway.cluster.root)
    return gateway.cluster.root


def set_group_settings(root):
    settings = {
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.session.timeout.ms": "6000",
    }
    Admin(root).alter_configs([ConfigResource("broker", "", settings)])


class GroupConsumer:
    """A consumer of librdkafka on a thread of its own, which commits after each poll.

    Attributes:
        read: the values that it has read, with partition and offset.
        assigned: the partitions that it has.
    """

    def __init__(self, addresses, name, topics=(TOPIC,), **config):
        self.read = []
        self.assigned = set()
        self.errors = []
        self._stopping = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": ",".join(addresses),
                "group.id": "g",
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 200,
                **(CLASSIC if "group.protocol" not in config else {}),
                **config,
            }
        )
        self._consumer.subscribe(list(topics))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stopping.is_set():
            messages = self._consumer.consume(100, timeout=0.1)
            self.assigned = {each.partition for each in self._consumer.assignment()}
            for message in messages:
                if message.error() is None:
                    value = message.value().decode()
                    self.read.append((value, message.partition(), message.offset()))
            if messages:
                try:
                    self._consumer.commit(asynchronous=False)
                except confluent_kafka.KafkaException as error:
                    self.errors.append(error.args[0].name())
        self._consumer.close()

    def stop(self):
        self._stopping.set()
        self._thread.join(TIMEOUT_S)


def send(root, numbers):
    with Producer(root) as producer:
        for number in numbers:
            producer.send(TOPIC, f"v{number}".encode(), partition=number % PARTITIONS)


def values(*consumers):
    return {value for each in consumers for value, _, _ in each.read}


@pytest.mark.parametrize(
    "config",
    [
        {"partition.assignment.strategy": "range"},
        {"partition.assignment.strategy": "cooperative-sticky"},
        CONSUMER,
        {**CONSUMER, "group.remote.assignor": "range"},
    ],
)
def test_two_consumers_share_the_partitions_and_one_takes_over(gateway, root, config):
    first = GroupConsumer([gateway.address], "first", **config)
    wait_until(lambda: len(first.assigned) == PARTITIONS)
    second = GroupConsumer([gateway.address], "second", **config)
    wait_until(lambda: len(first.assigned) == len(second.assigned) == PARTITIONS // 2)
    assert not first.assigned & second.assigned
    send(root, range(200))
    wait_until(lambda: len(values(first, second)) == 200)
    first.stop()
    wait_until(lambda: len(second.assigned) == PARTITIONS)
    second.stop()
    committed = Admin(root).list_group_offsets("g")
    assert [committed[TopicPartition(TOPIC, each)].offset for each in range(PARTITIONS)] == [50] * 4
    assert len(first.read) + len(second.read) == 200, "nothing is read twice"


def test_our_own_consumer_goes_on_where_kafkas_clients_stopped(gateway, root):
    send(root, range(40))
    theirs = GroupConsumer([gateway.address], "theirs")
    wait_until(lambda: len(values(theirs)) == 40)
    theirs.stop()
    send(root, range(40, 60))
    with Consumer(TOPIC, root=root, group_id="g", auto_offset_reset="earliest") as ours:
        found = set()
        while polled := ours.poll(timeout_ms=500):
            found |= {record.value for each in polled.values() for record in each}
    assert found == {b"v%d" % number for number in range(40, 60)}
    again = GroupConsumer([gateway.address], "again")
    send(root, [60])
    wait_until(lambda: values(again) == {"v60"})
    again.stop()


def test_a_static_member_that_starts_again_keeps_its_partitions(gateway, root):
    config = {"group.instance.id": "i", "session.timeout.ms": 30_000}
    other = GroupConsumer([gateway.address], "other", **{**config, "group.instance.id": "j"})
    static = GroupConsumer([gateway.address], "static", **config)
    wait_until(lambda: len(static.assigned) == len(other.assigned) == PARTITIONS // 2)
    before = static.assigned
    generation = Admin(root).describe_groups(["g"])["g"].generation
    static.stop()
    again = GroupConsumer([gateway.address], "static", **config)
    wait_until(lambda: again.assigned == before)
    assert Admin(root).describe_groups(["g"])["g"].generation == generation
    again.stop()
    other.stop()


def test_a_static_member_of_the_consumer_protocol_keeps_its_partitions(gateway, root):
    other = GroupConsumer([gateway.address], "other", **CONSUMER, **{"group.instance.id": "j"})
    static = GroupConsumer([gateway.address], "static", **CONSUMER, **{"group.instance.id": "i"})
    wait_until(lambda: len(static.assigned) == len(other.assigned) == PARTITIONS // 2)
    before, kept = static.assigned, other.assigned
    static.stop()
    again = GroupConsumer([gateway.address], "static", **CONSUMER, **{"group.instance.id": "i"})
    wait_until(lambda: again.assigned == before)
    assert other.assigned == kept
    again.stop()
    other.stop()


def test_a_regular_expression_finds_a_topic_that_exists(gateway, root):
    send(root, range(8))
    consumer = GroupConsumer([gateway.address], "regex", ["^fl[a-z]+s"], **CONSUMER)
    wait_until(lambda: len(values(consumer)) == 8)
    consumer.stop()


def test_a_group_changes_its_protocol_when_it_is_empty(gateway, root):
    send(root, range(8))
    before = GroupConsumer([gateway.address], "classic")
    wait_until(lambda: len(values(before)) == 8)
    before.stop()
    send(root, range(8, 16))
    after = GroupConsumer([gateway.address], "consumer", **CONSUMER)
    wait_until(lambda: len(values(after)) == 8)
    after.stop()
    send(root, range(16, 20))
    again = GroupConsumer([gateway.address], "classic")
    wait_until(lambda: values(again) == {f"v{number}" for number in range(16, 20)})
    again.stop()


def test_an_admin_client_sees_the_type_and_the_partitions_of_a_group(gateway, root):
    consumer = GroupConsumer([gateway.address], "a-client", **CONSUMER)
    wait_until(lambda: len(consumer.assigned) == PARTITIONS)
    admin = AdminClient({"bootstrap.servers": gateway.address})
    only = {confluent_kafka.ConsumerGroupType.CONSUMER}
    (listed,) = admin.list_consumer_groups(types=only).result(TIMEOUT_S).valid
    assert (listed.group_id, listed.state.name) == ("g", "STABLE")
    group = admin.describe_consumer_groups(["g"])["g"].result(TIMEOUT_S)
    assert (group.type.name, group.partition_assignor) == ("CONSUMER", "uniform")
    (member,) = group.members
    assert member.client_id == "a-client"
    assigned = {each.partition for each in member.assignment.topic_partitions}
    assert assigned == set(range(PARTITIONS))
    consumer.stop()


@pytest.mark.long
@pytest.mark.parametrize("config", [CLASSIC, CONSUMER])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_gateways_that_are_killed_or_stopped_lose_nothing(tmp_path, how, config):
    """Two of three gateways in turn; the stopped one continues when another has its groups."""
    root = str(tmp_path / "root")
    with gateway_processes(root, 3) as gateways:
        Admin(root).create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])
        set_group_settings(root)
        addresses = [each.address for each in gateways]
        consumers = [GroupConsumer(addresses, f"c{number}", **config) for number in range(3)]
        sent = 0
        for victim in (*gateways[:2], None):
            send(root, range(sent, sent + 500))
            sent += 500
            wait_until(lambda: len(values(*consumers)) > sent - 400)  # noqa: B023
            if victim is not None and how is signal.SIGKILL:
                victim.kill()
            elif victim is not None:
                os.kill(victim.pid, how)
                threading.Timer(8, os.kill, (victim.pid, signal.SIGCONT)).start()
        wait_until(lambda: len(values(*consumers)) == sent)
        wait_until(lambda: offsets_of(root) == sent)
        for each in consumers:
            each.stop()
    assert values(*consumers) == {f"v{number}" for number in range(sent)}


def offsets_of(root):
    """The sum of the committed offsets: the number of records that are done."""
    return sum(each.offset for each in Admin(root).list_group_offsets("g").values())
