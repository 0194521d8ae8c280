"""The calls of a polling consumer to its membership in a group."""

import threading

import pytest

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.consumer.group.group_membership import GroupMembership
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.errors import UnknownMemberIdError

ALL = {TopicPartition("t", number) for number in range(4)}
LONG_S = 30


class Members:
    """Creates memberships, and waits until they see a change."""

    def __init__(self, root):
        self.cluster = Cluster(root)
        self.coordinator = GroupCoordinator(self.cluster, "g")
        self.changed = threading.Condition()
        self.made = []

    def new(self):
        config = ConsumerConfig(client_id=f"m{len(self.made)}")  # range assigns in this order
        self.made.append(GroupMembership(self.cluster, "g", config, self._tell))
        return self.made[-1]

    def ask(self, member, *topics):
        """Return the assigned partitions and release revoked ones; nothing if it was expired."""
        try:
            share = member.current_assignment(set(topics or ("t",)), self.cluster.image())
            if share.revoking:
                member.release(share.revoking)
        except UnknownMemberIdError:
            member.leave()
            return set()
        return set(share.assigned)

    def wait(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, LONG_S)

    def _tell(self):
        with self.changed:
            self.changed.notify_all()


@pytest.fixture
def members(tmp_path):
    root = tmp_path / "root"
    Admin(root).create_topics([NewTopic("t", 4), NewTopic("u", 1)])
    members = Members(root)
    yield members
    for member in members.made:
        member.leave()


def test_it_joins_by_itself_and_releases_what_it_was_told_to(members):
    a, b = members.new(), members.new()
    assert members.ask(a) == ALL
    assert members.ask(b) == set()
    members.wait(lambda: members.ask(a) == {TopicPartition("t", 0), TopicPartition("t", 1)})
    members.ask(a)
    members.wait(lambda: members.ask(b) == {TopicPartition("t", 2), TopicPartition("t", 3)})


def test_other_topics_are_another_subscription(members):
    a = members.new()
    members.ask(a)
    assert members.ask(a, "t", "u") == ALL | {TopicPartition("u", 0)}


def test_who_was_expired_reads_nothing_and_then_is_a_new_member(members):
    a = members.new()
    members.ask(a)
    (before,) = members.coordinator.describe().members
    members.coordinator.remove([before])
    members.wait(a.poll)
    assert members.ask(a) == set(), "its positions count no more: all is to be begun again"
    assert members.ask(a) == ALL
    assert members.coordinator.describe().members.keys() != {before}


def test_who_left_is_no_member(members):
    a = members.new()
    members.ask(a)
    a.leave()
    a.leave()
    assert a.is_lost()
    assert members.coordinator.describe().state == "Empty"
    assert members.ask(a) == ALL
