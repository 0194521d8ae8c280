"""Appends to an object store are acknowledged by metadata that were read a short time ago."""

import pytest

from spark_log import UnknownTopicOrPartitionError
from spark_log.cluster import Cluster, remove_data
from spark_log.metadata import METADATA_LEASE_MS, RemoveTopicRecord
from spark_log.metadata.metadata_log import METADATA_DIRECTORY
from tests.log.support import HookedStore
from tests.producer.support import by_hand, new_root, run
from tests.sleeping_clock import SleepingClock
from tests.store_calls import counted_calls


class Sending:
    """A producer that takes its root for one on an object store."""

    def __init__(self, tmp_path):
        self.clock = SleepingClock()
        self.root = new_root(tmp_path, ("t", 2))
        self.producer = by_hand(self.root, self.clock, retries=0, linger_ms=0)
        self.producer.cluster.store = remote(self.producer.cluster)
        for partition in range(2):
            self.send(partition)

    def send(self, partition=0):
        """Send a record; return its error, and how often the metadata log was looked at."""
        with counted_calls() as calls:
            sent = self.producer.send("t", b"x", partition=partition)
            run(self.producer, self.clock, until_ms=100)
        looks = sum(count for (_, path), count in calls.items() if path == METADATA_DIRECTORY)
        return sent.exception(0), looks


def remote(cluster):
    return HookedStore(cluster.store, is_mapped=False)


@pytest.fixture
def sending(tmp_path):
    return Sending(tmp_path)


def test_one_look_is_enough_for_the_appends_of_the_lease(sending):
    for _ in range(3):
        sending.clock.advance_ms(METADATA_LEASE_MS // 4)
        assert sending.send() == (None, 0)
    sending.clock.advance_ms(METADATA_LEASE_MS // 4)
    assert sending.send() == (None, 1)
    assert sending.send() == (None, 0)


def test_no_append_is_acknowledged_after_the_deletion_of_its_topic(sending):
    """The deletion outlasts the lease: this fails if it does not wait."""
    other = Cluster(sending.root, clock=sending.clock)
    topic = other.topic("t")
    other.store = remote(other)
    other.metadata.commit(lambda image: [RemoveTopicRecord(topic_id=topic.topic_id)])
    remove_data(other, [topic])
    error, _ = sending.send()
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert sending.clock.slept_ms == METADATA_LEASE_MS


def test_behind_an_end_that_was_known_for_longer_each_append_looks(sending):
    """A cleaner may have freed the name if file.delete.delay.ms was lowered meanwhile."""
    sending.clock.advance_ms(METADATA_LEASE_MS)
    assert sending.send(partition=0) == (None, 1)
    assert sending.send(partition=1) == (None, 1), "although the metadata were just read"
    assert sending.send(partition=1) == (None, 0)


def test_on_a_local_file_system_each_append_looks(tmp_path):
    sending = Sending(tmp_path)
    sending.producer.cluster.store = sending.producer.cluster.store.inner
    assert [sending.send()[1] for _ in range(3)] == [1, 1, 1]
