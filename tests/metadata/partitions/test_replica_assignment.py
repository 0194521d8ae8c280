"""Explicit assignments of replicas: what Kafka's ReplicationControlManager accepts and refuses."""

import pickle

import pytest

from spark_log.errors import InvalidReplicaAssignmentError
from spark_log.metadata.partitions.placement import UsableBroker
from spark_log.metadata.partitions.replica_assignment import validate_replica_assignment

BROKERS = [UsableBroker(3, "a", fenced=True), *(UsableBroker(number) for number in range(3))]


class TestAccepted:
    def test_replicas_are_in_the_order_of_partitions_and_as_given(self):
        assignment = {1: [2, 0], 0: (1, 2)}
        assert validate_replica_assignment(assignment, BROKERS) == [(1, 2), (2, 0)]

    def test_a_fenced_broker_beside_one_that_is_not(self):
        assert validate_replica_assignment({0: [3, 1]}, BROKERS) == [(3, 1)]

    def test_partitions_that_are_added_continue_the_existing_ones(self):
        assignment = {4: [0], 3: [1]}
        accepted = validate_replica_assignment(
            assignment, BROKERS, first_partition=3, replication_factor=1
        )
        assert accepted == [(1,), (0,)]


class TestRefused:
    @pytest.mark.parametrize(
        ("assignment", "partition", "message"),
        [
            (
                {0: [1], 1: []},
                1,
                "partition 1: no replica is assigned; give the ids of its brokers, the preferred "
                "leader first",
            ),
            (
                {0: [1, 7]},
                0,
                "partition 0: broker 7 is not registered; registered are [0, 1, 2, 3]",
            ),
            (
                {0: ["1"]},
                0,
                "partition 0: broker '1' is not registered; registered are [0, 1, 2, 3]",
            ),
            (
                {0: [2, 1, 2]},
                0,
                "partition 0: broker 2 is assigned twice; give each broker at most one replica",
            ),
            (
                {0: [1, 2], 1: [1]},
                1,
                "partition 1: 1 replica is assigned, but other partitions of the topic have 2; "
                "give all partitions the same number",
            ),
            (
                {0: [3]},
                0,
                "partition 0: brokers [3] are all fenced; unfence one, or add one that can lead",
            ),
            (
                {0: [1], 2: [1]},
                -1,
                "replicas are assigned to partitions [0, 2]; assign them to every partition from 0 "
                "on, without a gap",
            ),
            (
                {},
                -1,
                "replicas are assigned to partitions []; assign them to every partition from 0 "
                "on, without a gap",
            ),
        ],
    )
    def test_the_error_says_what_is_wrong(self, assignment, partition, message):
        with pytest.raises(InvalidReplicaAssignmentError) as caught:
            validate_replica_assignment(assignment, BROKERS)
        assert caught.value.message == message
        assert pickle.loads(pickle.dumps(caught.value)).partition == partition

    def test_added_partitions_with_another_number_of_replicas(self):
        with pytest.raises(InvalidReplicaAssignmentError, match=r"other partitions .* have 2"):
            validate_replica_assignment({3: [1]}, BROKERS, first_partition=3, replication_factor=2)

    @pytest.mark.parametrize("partitions", [[0, 1], [4], [-1, 0]])
    def test_added_partitions_that_do_not_continue_the_existing_ones(self, partitions):
        assignment = {partition: [1] for partition in partitions}
        with pytest.raises(InvalidReplicaAssignmentError, match="from 3 on, without a gap"):
            validate_replica_assignment(assignment, BROKERS, first_partition=3)

    def test_replicas_when_no_broker_is_registered(self):
        with pytest.raises(InvalidReplicaAssignmentError, match=r"registered are \[\]"):
            validate_replica_assignment({0: [0]}, [])
