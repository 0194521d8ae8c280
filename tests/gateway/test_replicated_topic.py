"""A topic with replicas, through a gateway."""

import threading

import pytest

from spark_log import Admin, NewTopic
from spark_log.errors import StorageError
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.protocol import message_class
from spark_log.log import PartitionLog
from tests.gateway.data_client import (
    TOPIC,
    batches_of,
    client_batch,
    fetch,
    produce,
    produce_fields,
    rows_of,
)
from tests.gateway.support import TIMEOUT_S, running_gateway
from tests.record.samples import numbered
from tests.waiting import wait_until


@pytest.fixture
def admin(tmp_path):
    admin = Admin(str(tmp_path / "root"))
    admin.create_topics([NewTopic("first")])
    for broker_id in (1, 2):
        admin.register_broker(broker_id, str(tmp_path / f"broker{broker_id}"))
    topic = NewTopic(TOPIC, replication_factor=3, topic_configs={"min.insync.replicas": "2"})
    admin.create_topics([topic])
    yield admin
    admin.close()


@pytest.fixture
def gateway(tmp_path, admin):
    with running_gateway(str(tmp_path / "root")) as gateway:
        yield gateway


@pytest.fixture
def client(gateway):
    with gateway.client() as client:
        yield client


def end_of_epoch(client, epoch, *, current=-1):
    request = message_class("OffsetForLeaderEpochRequest")
    topic = request.OffsetForLeaderTopic(
        topic=TOPIC,
        partitions=[
            request.OffsetForLeaderPartition(
                partition=0, leader_epoch=epoch, current_leader_epoch=current
            )
        ],
    )
    answer = client.ask("OffsetForLeaderEpoch", 4, replica_id=-1, topics=[topic])
    found = answer.topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


def values(client, offset=0):
    return [value for _, value in rows_of(fetch(client, offset))]


def test_is_written_and_read(client):
    produce(client, client_batch(0, 2))
    produce(client, client_batch(2, 2))
    assert values(client) == [f"record:{number}" for number in range(4)]


def test_continues_under_another_leader_whose_epoch_clients_are_told(client, admin, gateway):
    produce(client, client_batch(0, 2))
    before = gateway.cluster.topic(TOPIC).partitions[0]
    admin.fence_broker(before.leader)
    log = gateway.cluster.partition_log(gateway.cluster.topic(TOPIC), 0)
    log.append(numbered(2, 2))  # by another process, which knows the new leader
    last = produce(client, client_batch(4, 2))
    assert last.error_code == ErrorCode.NONE
    epoch = gateway.cluster.topic(TOPIC).partitions[0].leader_epoch
    assert epoch > before.leader_epoch
    found, epochs, offset = [], [], 0
    while offset < last.base_offset + 2:
        fetched = fetch(client, offset)
        found += [value for _, value in rows_of(fetched)]
        epochs += [(each.base_offset, each.leader_epoch) for each in batches_of(fetched)]
        offset = batches_of(fetched)[-1].last_offset + 1
    assert found == [f"record:{number}" for number in range(6)]
    assert dict(epochs)[0] == before.leader_epoch
    assert dict(epochs)[last.base_offset] == epoch
    assert end_of_epoch(client, before.leader_epoch) == (0, before.leader_epoch, 2)
    assert end_of_epoch(client, epoch) == (0, epoch, last.base_offset + 2)


def test_tells_clients_of_other_leader_epochs(client, admin, gateway):
    produce(client, client_batch(0, 2))
    before = gateway.cluster.topic(TOPIC).partitions[0]
    admin.fence_broker(before.leader)
    epoch = gateway.cluster.topic(TOPIC).partitions[0].leader_epoch
    stale = fetch(client, 0, epoch=before.leader_epoch)
    assert stale.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert fetch(client, 0, epoch=epoch).error_code == ErrorCode.NONE
    assert fetch(client, 0, epoch=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert end_of_epoch(client, epoch, current=before.leader_epoch)[0] == (
        ErrorCode.FENCED_LEADER_EPOCH
    )
    assert end_of_epoch(client, epoch + 1) == (0, -1, -1)


class HeldCatchUp:
    """The copying to the other replicas after ``acks=1``, which begins when a test says so."""

    def __init__(self, monkeypatch):
        self.may_begin = threading.Event()
        self.error = None
        self.calls = 0
        catch_up = PartitionLog.catch_up

        def held(log):
            self.calls += 1
            assert self.may_begin.wait(TIMEOUT_S)
            if self.error is not None:
                raise self.error
            catch_up(log)

        monkeypatch.setattr(PartitionLog, "catch_up", held)


@pytest.fixture
def held(monkeypatch):
    return HeldCatchUp(monkeypatch)


def test_with_acks_1_the_answer_comes_when_the_leader_has_it_and_readers_wait_for_all(
    client, gateway, held
):
    with gateway.client() as reader:
        assert values(reader) == []
        assert produce(client, client_batch(0, 2), acks=1).base_offset == 0
        assert values(reader) == []
        held.may_begin.set()
        wait_until(lambda: values(reader))
        assert values(reader) == ["record:0", "record:1"]
        assert produce(client, client_batch(2, 2), acks=-1).base_offset == 2
        assert values(reader, 2) == ["record:2", "record:3"]
    assert held.calls == 1


@pytest.mark.parametrize("acks", [1, -1])
def test_what_the_other_replicas_did_not_get_comes_with_the_next_append(client, held, acks):
    held.may_begin.set()
    held.error = StorageError("a replica does not answer")
    assert produce(client, client_batch(0, 2), acks=1).base_offset == 0
    assert values(client) == []
    held.error = None
    assert produce(client, client_batch(2, 2), acks=acks).base_offset == 2
    wait_until(lambda: len(values(client)) >= 4)
    assert values(client) == [f"record:{number}" for number in range(4)]


def test_a_record_of_acks_1_that_is_lost_with_its_leader_is_shown_to_nobody(
    client, gateway, admin, held
):
    produce(client, client_batch(0, 1))
    assert produce(client, client_batch(7, 1), acks=1).base_offset == 1
    wait_until(lambda: held.calls)
    leader = gateway.cluster.topic(TOPIC).partitions[0].leader
    admin.fence_broker(leader)  # before the others have it
    log = gateway.cluster.partition_log(gateway.cluster.topic(TOPIC), 0)
    log.append(numbered(1, 1))  # the offset is given again
    held.may_begin.set()
    last = produce(client, client_batch(2, 1))
    found, offset = [], 0
    while offset <= last.base_offset:
        fetched = fetch(client, offset)
        found += [value for _, value in rows_of(fetched)]
        offset = batches_of(fetched)[-1].last_offset + 1
    assert found == [f"record:{number}" for number in range(3)]


def test_a_batch_with_acks_1_waits_with_one_that_waits_for_all(client, gateway, held):
    """They share one put."""
    with gateway.client() as first:
        first.send("Produce", 9, **produce_fields(client_batch(0, 1), acks=1))
        wait_until(lambda: held.calls)
        for number, acks in ((1, 1), (2, -1)):
            client.send("Produce", 9, **produce_fields(client_batch(number, 1), acks=acks))
        held.may_begin.set()
        for _ in range(2):
            client.receive()
        assert values(client) == [f"record:{number}" for number in range(3)]
    assert held.calls == 1
