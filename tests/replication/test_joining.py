"""A replica on an object store joins until every writer knows it."""

import threading
from uuid import uuid4

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster, register_broker
from spark_log.metadata import METADATA_LEASE_MS
from spark_log.replication import (
    ClusterRecovery,
    Controller,
    ReplicaRecovery,
    out_of_sync_replicas,
)
from tests.sleeping_clock import SleepingClock


@pytest.fixture
def cluster():
    root = f"memory://{uuid4()}"
    clock = SleepingClock()
    cluster = Cluster(f"{root}-0", clock=clock, create=True)
    for broker_id in (1, 2):
        register_broker(cluster, broker_id, f"{root}-{broker_id}")
    assignment = {partition: [1, 2] for partition in range(3)}
    topic = NewTopic("t", replica_assignment=assignment)
    Admin(cluster.root, clock=cluster.clock).create_topics([topic])
    for partition in range(3):
        states = cluster.partition_log(cluster.topic("t"), partition).states
        states.remove_from_isr(states.refresh(), (2,))
    clock.slept_ms = 0
    return cluster


def test_a_replica_joins_until_every_writer_knows_it(cluster):
    recovery = ReplicaRecovery(cluster, cluster.topic("t"), 0, 2)
    assert recovery.advance().is_joining
    assert recovery.remaining_ms == METADATA_LEASE_MS
    cluster.clock.advance_ms(METADATA_LEASE_MS - 1)
    report = recovery.advance()
    assert (report.is_joining, report.is_in_sync) == (True, False)
    assert cluster.topic("t").partitions[0].joining == (2,)
    cluster.clock.advance_ms(1)
    report = recovery.advance()
    assert (report.is_joining, report.is_in_sync) == (False, True)
    assert cluster.topic("t").partitions[0].isr == (1, 2)


def test_its_time_begins_anew_when_the_replicas_change(cluster):
    recovery = ReplicaRecovery(cluster, cluster.topic("t"), 0, 2)
    recovery.advance()
    cluster.clock.advance_ms(METADATA_LEASE_MS)
    states = cluster.partition_log(cluster.topic("t"), 0).states
    states.remove_from_isr(states.refresh(), (2,))
    assert recovery.advance().is_joining
    assert recovery.remaining_ms == METADATA_LEASE_MS


def test_replicas_join_at_the_same_time(cluster):
    replicas = out_of_sync_replicas(cluster.image())
    done = list(ClusterRecovery(cluster).run(replicas))
    assert [each.document()["in_sync"] for each in done] == [True] * 3
    assert cluster.clock.slept_ms == METADATA_LEASE_MS


def test_a_controller_does_not_wait_for_it(cluster):
    controller = Controller(cluster)
    waits = []

    def wait():
        waits.append(cluster.clock.slept_ms)
        threads = [each for each in threading.enumerate() if "replicate" in each.name]
        for thread in threads:
            thread.join()
        cluster.clock.advance_ms(METADATA_LEASE_MS / 2)
        return False

    assert controller.run_once(wait) == []
    assert out_of_sync_replicas(cluster.image()) == []
    assert waits[-1] == 0
