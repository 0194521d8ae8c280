"""New topics and partitions get replicas on the registered brokers."""

import pytest

from spark_log.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
)
from spark_log.metadata import MetadataImage, partition_records, topic_records, validate_new_topic
from spark_log.metadata.brokers import fence_broker_records
from spark_log.metadata.records import ConfigRecord, PartitionChangeRecord, RegisterBrokerRecord
from spark_log.types import NewPartitions, NewTopic

TOPIC_ID = "t" * 22


@pytest.fixture
def image():
    """Return the metadata of a cluster with the brokers 0 to 3."""
    image = MetadataImage()
    for broker_id in (1, 2, 3):
        image.replay(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id="i",
                broker_epoch=broker_id,
                root=f"/{broker_id}",
                fenced=False,
            )
        )
    return image


def replay(image, records):
    for record in records:
        image.replay(record)
    return image


def create(image, *args, **kwargs):
    topic = NewTopic("a", *args, **kwargs)
    validate_new_topic(topic)
    return replay(image, topic_records(topic, TOPIC_ID, image)).topic("a").partitions


def add(image, new):
    records = partition_records(image.topic("a"), new, image)
    return replay(image, records).topic("a").partitions


def set_default_factor(image, value):
    image.replay(
        ConfigRecord(
            resource_type="broker",
            resource_name="",
            name="default.replication.factor",
            value=str(value),
        )
    )


class TestNewTopic:
    def test_replicas_are_in_sync_and_the_first_one_leads(self, image):
        partitions = create(image, 4, 3)
        for partition in partitions.values():
            assert len(set(partition.replicas)) == 3
            assert partition.isr == partition.replicas
            assert partition.leader == partition.replicas[0]
            assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert {partition.leader for partition in partitions.values()} == {0, 1, 2, 3}

    @pytest.mark.parametrize("factor", [None, -1])
    def test_without_a_factor_it_is_the_clusters(self, image, factor):
        set_default_factor(image, 2)
        assert len(create(image, 1, factor)[0].replicas) == 2

    def test_a_factor_overrides_the_clusters(self, image):
        set_default_factor(image, 2)
        assert len(create(image, 1, 4)[0].replicas) == 4

    def test_on_the_root_alone_every_partition_is_there(self):
        partitions = create(MetadataImage(), 3)
        assert {each.replicas for each in partitions.values()} == {(0,)}

    def test_a_factor_above_the_number_of_brokers_is_refused(self, image):
        with pytest.raises(InvalidReplicationFactorError, match="4 brokers are registered"):
            create(image, 1, 5)

    @pytest.mark.parametrize("factor", [0, -2, 1.5, "2", True])
    def test_a_factor_that_is_not_a_positive_number_is_refused(self, image, factor):
        with pytest.raises(InvalidReplicationFactorError, match="give at least 1"):
            create(image, 1, factor)

    def test_an_assignment_is_used_as_it_is(self, image):
        partitions = create(image, replica_assignment={0: [2, 0], 1: [0, 3]})
        assert [partitions[number].replicas for number in (0, 1)] == [(2, 0), (0, 3)]
        assert [partitions[number].leader for number in (0, 1)] == [2, 0]

    def test_a_fenced_broker_of_an_assignment_is_neither_in_sync_nor_the_leader(self, image):
        replay(image, fence_broker_records(image, 2, fenced=True))
        partition = create(image, replica_assignment={0: [2, 0, 1]})[0]
        assert (partition.replicas, partition.isr, partition.leader) == ((2, 0, 1), (0, 1), 0)

    @pytest.mark.parametrize(
        ("numbers", "assignment", "message"),
        [
            ((), {0: [0, 7]}, "broker 7 is not registered"),
            ((), {1: [0]}, "without a gap"),
            ((3,), {0: [0], 1: [1]}, "3 partitions, but replicas are assigned to 2 partitions"),
            ((1, 2), {0: [0]}, "1 replica is assigned"),
            ((), [[0]], r"by \[\[0\]\], a list; give a dict .* such as {0: \[0, 1\]"),
            ((), {0: 2}, r"partition 0: its replicas are 2; give a list of brokers' ids"),
            ((), {0: [[0]]}, r"partition 0: broker \[0\] is not registered"),
        ],
    )
    def test_an_assignment_that_is_not_possible_is_refused(
        self, image, numbers, assignment, message
    ):
        with pytest.raises(InvalidReplicaAssignmentError, match=message):
            create(image, *numbers, replica_assignment=assignment)

    def test_an_assignment_of_no_partition_is_refused(self, image):
        with pytest.raises(InvalidPartitionsError, match="0 partitions; give 1 to"):
            create(image, replica_assignment={})


class TestNewPartitions:
    @pytest.mark.parametrize(
        ("assignments", "message"),
        [
            (7, "replicas are assigned by 7; give one list of brokers' ids for each new partition"),
            ([7], "partition 1: its replicas are 7; give a list of brokers' ids"),
            (["0"], "partition 1: its replicas are '0'; give a list of brokers' ids"),
        ],
    )
    def test_assignments_that_are_no_lists_are_refused(self, image, assignments, message):
        create(image, 1)
        with pytest.raises(InvalidReplicaAssignmentError, match=message):
            add(image, NewPartitions(2, assignments))

    def test_they_have_as_many_replicas_as_the_others(self, image):
        before = dict(create(image, 2, 3))
        partitions = add(image, 5)
        assert [len(partitions[number].replicas) for number in range(5)] == [3] * 5
        assert [partitions[number] for number in (0, 1)] == [before[0], before[1]]

    def test_replicas_that_a_reassignment_adds_do_not_count(self, image):
        create(image, 1, 2)
        replicas = image.topic("a").partitions[0].replicas
        added = next(broker for broker in range(4) if broker not in replicas)
        image.replay(
            PartitionChangeRecord(
                topic_id=TOPIC_ID,
                partition_id=0,
                replicas=(*replicas, added),
                adding_replicas=(added,),
            )
        )
        assert len(add(image, 2)[1].replicas) == 2

    def test_an_assignment_is_used_as_it_is(self, image):
        create(image, 1, 2)
        partitions = add(image, NewPartitions(3, [[3, 1], [1, 0]]))
        assert [partitions[number].replicas for number in (1, 2)] == [(3, 1), (1, 0)]

    @pytest.mark.parametrize(
        ("assignments", "message"),
        [
            ([[0, 1]], "assigned to 1 partition, but 2 partitions would be new"),
            ([[0, 1], [0]], "1 replica is assigned, but other partitions of the topic have 2"),
            ([[0, 1], [0, 9]], "partition 2: broker 9 is not registered"),
        ],
    )
    def test_an_assignment_that_is_not_possible_is_refused(self, image, assignments, message):
        create(image, 1, 2)
        with pytest.raises(InvalidReplicaAssignmentError, match=message):
            add(image, NewPartitions(3, assignments))


def test_the_same_topic_gets_the_same_replicas_when_it_is_decided_again(image):
    topic = NewTopic("a", 8, 3)
    assert topic_records(topic, TOPIC_ID, image) == topic_records(topic, TOPIC_ID, image)
