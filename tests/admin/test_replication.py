"""`Admin` elects leaders, and moves partitions to other brokers."""

import pytest

from spark_log import ElectionType, PartitionReassignment, TopicPartition
from spark_log.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentInProgressError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from tests.replication.support import Disks, values_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def disks(tmp_path):
    disks = Disks(tmp_path)
    disks.create(partitions=2)
    disks.send(b"one", b"two")
    return disks


class TestPreferredElection:
    def test_makes_the_first_replica_the_leader_again(self, disks):
        disks.leave(1)
        disks.replicate()
        assert disks.partition().isr == (2, 0, 1)
        results = disks.admin.elect_leaders(ElectionType.PREFERRED, [T0, T1])
        error = results[T0]  # alone it would be fewer than min.insync.replicas
        assert isinstance(error, PreferredLeaderNotAvailableError)
        assert isinstance(results[T1], ElectionNotNeededError)

    def test_of_all_partitions_tells_of_those_that_need_it(self, disks):
        assert disks.admin.elect_leaders(ElectionType.PREFERRED) == {}
        disks.leave(1)
        results = disks.admin.elect_leaders(ElectionType.PREFERRED)
        assert list(results) == [T0]

    def test_of_an_unknown_partition_is_an_error_of_its_own(self, disks):
        unknown = TopicPartition("t", 7), TopicPartition("unknown", 0)
        results = disks.admin.elect_leaders(ElectionType.PREFERRED, unknown)
        assert all(isinstance(results[tp], UnknownTopicOrPartitionError) for tp in unknown)


class TestUncleanElection:
    @pytest.fixture
    def lost(self, disks):
        """Return disks of which the only one that is in sync with ``u`` is lost."""
        disks.create(topic="u", **{"min.insync.replicas": "1"})
        disks.leave(0, 2, topic="u")
        disks.admin.fence_broker(1)
        assert disks.partition("u").leader == -1
        return disks

    def test_is_refused_where_the_topic_does_not_allow_it(self, lost):
        partitions = [TopicPartition("u", 0)]
        (error,) = lost.admin.elect_leaders(ElectionType.UNCLEAN, partitions).values()
        assert isinstance(error, EligibleLeadersNotAvailableError)

    def test_of_a_partition_with_a_leader_is_not_needed(self, disks):
        (error,) = disks.admin.elect_leaders(ElectionType.UNCLEAN, [T0]).values()
        assert isinstance(error, ElectionNotNeededError)


class TestReassignment:
    def test_moves_a_partition_with_its_records(self, disks):
        disks.admin.register_broker(3, disks.path(3))
        disks.admin.alter_partition_reassignments({T0: [3, 0]})
        assert disks.admin.list_partition_reassignments() == {
            T0: PartitionReassignment((3, 0, 1, 2), (3,), (1, 2))
        }
        disks.replicate()
        assert disks.admin.list_partition_reassignments() == {}
        state = disks.partition()
        assert (state.replicas, set(state.isr)) == ((3, 0), {3, 0})
        assert values_of(disks.replica(3)) == disks.values() == [b"one", b"two"]

    def test_gives_more_and_fewer_replicas(self, disks):
        disks.admin.alter_partition_reassignments({T0: [1]})
        assert disks.partition().replicas == (1,)
        disks.admin.alter_partition_reassignments({T0: [1, 2, 0]})
        disks.replicate()
        assert disks.partition().isr == (1, 2, 0)

    def test_may_be_told_to_keep_their_number(self, disks):
        with pytest.raises(InvalidReplicationFactorError, match="t-0 has 3 replicas"):
            disks.admin.alter_partition_reassignments(
                {T0: [1, 2]}, allow_replication_factor_change=False
            )

    def test_begins_for_all_partitions_or_for_none(self, disks):
        with pytest.raises(InvalidReplicaAssignmentError):
            disks.admin.alter_partition_reassignments({T0: [1, 2], T1: [1, 9]})
        assert disks.partition().replicas == (1, 2, 0)

    def test_can_be_cancelled(self, disks):
        disks.admin.register_broker(3, disks.path(3))
        disks.admin.alter_partition_reassignments({T0: [3]})
        disks.admin.alter_partition_reassignments({T0: None})
        assert disks.partition().replicas == (1, 2, 0)
        with pytest.raises(NoReassignmentInProgressError):
            disks.admin.alter_partition_reassignments({T0: None})

    def test_of_an_unknown_partition_is_refused(self, disks):
        with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 7"):
            disks.admin.alter_partition_reassignments({TopicPartition("t", 7): [1]})

    def test_is_listed_for_some_partitions(self, disks):
        disks.admin.register_broker(3, disks.path(3))
        disks.admin.alter_partition_reassignments({T0: [3], T1: [3]})
        assert list(disks.admin.list_partition_reassignments()) == [T0, T1]
        assert list(disks.admin.list_partition_reassignments([T1])) == [T1]
