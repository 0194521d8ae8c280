"""Plans of reassignments: Kafka's JSON files, proposals, and how far a plan is."""

from random import Random

import pytest

from spark_log.errors import (
    BrokerIdNotRegisteredError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    UnknownTopicOrPartitionError,
)
from spark_log.metadata import MetadataImage
from spark_log.metadata.partitions import (
    cancel_reassignment,
    current_assignment,
    format_reassignment,
    parse_reassignment,
    parse_topics_to_move,
    propose_assignment,
    reassign_partition,
    verify_reassignment,
)
from spark_log.metadata.partitions.reassignment_plan import PartitionReassignmentState
from spark_log.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from spark_log.types import TopicPartition

FOO_0, FOO_1, BAR_0, QUUX_0 = (
    TopicPartition(topic, number)
    for topic, number in (("foo", 0), ("foo", 1), ("bar", 0), ("q", 0))
)
REPLICAS = {FOO_0: (1, 2, 3), FOO_1: (2, 3, 4), BAR_0: (3, 4, 1)}


@pytest.fixture
def image():
    """Return the metadata of topics on brokers 1 to 4, two in each of two racks; 5 has no rack."""
    image = MetadataImage()
    for broker_id, rack in enumerate(["a", "a", "b", "b", None], start=1):
        image.replay(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=f"i{broker_id}",
                broker_epoch=broker_id,
                root=f"/{broker_id}",
                rack=rack,
                fenced=False,
            )
        )
    for name in ("foo", "bar"):
        image.replay(TopicRecord(name=name, topic_id=f"id-{name}"))
    for tp, replicas in REPLICAS.items():
        image.replay(
            PartitionRecord(
                topic_id=f"id-{tp.topic}",
                partition_id=tp.partition,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
            )
        )
    return image


def replay(image, records):
    for record in records:
        image.replay(record)


def propose(image, topics, brokers, **how):
    return propose_assignment(image, topics, brokers, random=Random(3), **how)


def plan(*partitions):
    return f'{{"version":1,"partitions":[{",".join(partitions)}]}}'


class TestTopicsToMove:
    def test_are_in_the_order_of_the_file(self):
        text = '{"topics": [{"topic": "foo"}, {"topic": "bar"}], "version":1}'
        assert parse_topics_to_move(text) == ["foo", "bar"]
        assert parse_topics_to_move('{"topics": [{"topic": "foo"}]}') == ["foo"]

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ('{"topics": [{"topic": "foo"}, {"topic": "foo"}]}', "named twice: ['foo']"),
            ('{"topics": []}', "is empty"),
            ("{}", "is empty"),
            ('{"topics": [{"topic": 7}]}', "topics.0.topic: Input should be a valid string"),
            ('{"topics": [{}]}', "topics.0.topic: Field required"),
            ('{"version": 2, "topics": [{"topic": "a"}]}', "version: Input should be 1"),
            ("{invalid_json", '"version": 1}: Invalid JSON: key must be a string'),
            ("[]", "not of the form "),
        ],
    )
    def test_mistakes_are_refused_with_their_place(self, text, why):
        with pytest.raises(InvalidReplicaAssignmentError) as caught:
            parse_topics_to_move(text)
        assert why in caught.value.message


class TestReassignmentFile:
    def test_has_the_replicas_of_partitions(self):
        text = plan(
            '{"topic":"foo","partition":0,"replicas":[1,2,3],"log_dirs":["any","any","any"]}',
            '{"topic":"bar","partition":0,"replicas":[3,4]}',
        )
        assert parse_reassignment(text) == {FOO_0: (1, 2, 3), BAR_0: (3, 4)}

    def test_is_written_as_kafka_writes_it_and_read_again(self):
        text = format_reassignment({FOO_1: (4, 5), FOO_0: (6,), BAR_0: [7, 8]})
        assert text == (
            '{"version":1,"partitions":['
            '{"topic":"bar","partition":0,"replicas":[7,8],"log_dirs":["any","any"]},'
            '{"topic":"foo","partition":0,"replicas":[6],"log_dirs":["any"]},'
            '{"topic":"foo","partition":1,"replicas":[4,5],"log_dirs":["any","any"]}]}'
        )
        assert parse_reassignment(text) == {BAR_0: (7, 8), FOO_0: (6,), FOO_1: (4, 5)}

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            (plan(), "the list of partitions to reassign is empty"),
            (
                plan(
                    '{"topic":"foo","partition":0,"replicas":[0,1]}',
                    '{"topic":"foo","partition":0,"replicas":[2,3,4]}',
                ),
                "named twice: ['foo-0']",
            ),
            (
                plan('{"topic":"foo","partition":0,"replicas":[0,1,0]}'),
                "partition foo-0: its list of replicas has brokers twice: [0]",
            ),
            (plan('{"topic":"foo","partition":0,"replicas":[]}'), "replicas is empty"),
            (
                plan('{"topic":"foo","partition":0,"replicas":[1,2],"log_dirs":["any"]}'),
                "partition foo-0: 2 replicas, but 1 log directories",
            ),
            (
                plan('{"topic":"foo","partition":0,"replicas":[1],"log_dirs":["/tmp/a"]}'),
                "partition foo-0: log directories ['/tmp/a']; a broker has one only, give 'any'",
            ),
            (plan('{"topic":"foo","replicas":[1]}'), "partitions.0.partition: Field required"),
            (
                plan('{"topic":"foo","partition":0,"replicas":["1"]}'),
                "partitions.0.replicas.0: Input should be a valid integer",
            ),
            ('{"version":2,"partitions":[]}', "version: Input should be 1"),
            ("{invalid_json", "Invalid JSON: key must be a string at line 1 column 2"),
        ],
    )
    def test_mistakes_are_refused_with_their_place(self, text, why):
        with pytest.raises(InvalidReplicaAssignmentError) as caught:
            parse_reassignment(text)
        assert why in caught.value.message


class TestCurrent:
    def test_has_all_partitions_of_the_topics(self, image):
        assert current_assignment(image, ["foo"]) == {FOO_0: (1, 2, 3), FOO_1: (2, 3, 4)}
        assert current_assignment(image, ["foo", "bar"]) == REPLICAS

    def test_a_topic_that_does_not_exist_is_refused(self, image):
        with pytest.raises(UnknownTopicOrPartitionError, match="'quux'"):
            current_assignment(image, ["foo", "quux"])


class TestProposal:
    def test_has_as_many_replicas_as_before_on_the_given_brokers_only(self, image):
        proposed = propose(image, ["foo", "bar"], [1, 2, 4])
        assert list(proposed) == [FOO_0, FOO_1, BAR_0]
        assert all({*replicas} == {1, 2, 4} for replicas in proposed.values())

    def test_is_spread_over_racks(self, image):
        for seed in range(20):
            proposed = propose_assignment(
                image, ["foo"], [1, 2, 3, 4], random=Random(seed), replication_factor=2
            )
            assert all(len({(each - 1) // 2 for each in pair}) == 2 for pair in proposed.values())

    def test_ignores_racks_if_asked_to(self, image):
        pairs = [
            {*replicas}
            for seed in range(20)
            for replicas in propose_assignment(
                *(image, ["foo"], [1, 2, 3, 4]),
                random=Random(seed),
                replication_factor=2,
                is_rack_aware=False,
            ).values()
        ]
        assert {1, 2} in pairs

    def test_with_racks_for_some_brokers_only_is_refused(self, image):
        with pytest.raises(InvalidReplicaAssignmentError, match=r"brokers \[5\] have no rack"):
            propose(image, ["foo"], [1, 2, 3, 5])
        assert propose(image, ["foo"], [1, 2, 5], is_rack_aware=False).keys() == {FOO_0, FOO_1}

    def test_another_number_of_replicas(self, image):
        proposed = propose(image, ["foo"], [1, 2, 3, 4], replication_factor=4)
        assert [len(replicas) for replicas in proposed.values()] == [4, 4]

    def test_counts_the_replicas_that_a_reassignment_leads_to(self, image):
        replay(image, reassign_partition(image, "id-foo", 0, [4]))
        assert len(propose(image, ["foo"], [1, 2])[FOO_0]) == 1

    def test_never_begins_with_a_fenced_broker(self, image):
        image.replay(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1))
        proposed = propose(image, ["foo"], [1, 2], replication_factor=2)
        assert {*proposed.values()} == {(2, 1)}

    def test_too_few_brokers_or_unknown_ones_or_topics_are_refused(self, image):
        with pytest.raises(InvalidReplicationFactorError, match="3, but 2 brokers are given"):
            propose(image, ["foo"], [1, 2])
        with pytest.raises(BrokerIdNotRegisteredError, match="broker 9 is not registered"):
            propose(image, ["foo"], [1, 2, 9])
        with pytest.raises(UnknownTopicOrPartitionError, match="'quux'"):
            propose(image, ["foo", "quux"], [1, 2, 3])

    @pytest.mark.parametrize("brokers", [[1, 1, 2], [4, 2, 3, 1, 4]])
    def test_a_broker_twice_is_refused(self, image, brokers):
        with pytest.raises(InvalidReplicaAssignmentError, match=rf"twice: \[{brokers[0]}\]"):
            propose(image, ["foo"], brokers)

    def test_a_broker_that_is_being_unregistered_is_refused(self, image):
        image.replay(
            BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=3, in_controlled_shutdown=1)
        )
        with pytest.raises(InvalidReplicaAssignmentError, match=r"being unregistered: \[3\]"):
            propose(image, ["foo"], [1, 2, 3])


class TestVerify:
    def test_tells_what_is_in_progress_done_and_never_was(self, image):
        wanted = {FOO_1: (2, 3, 4), FOO_0: (1, 2, 4), QUUX_0: (1,)}
        replay(image, reassign_partition(image, "id-foo", 0, [1, 2, 4]))
        states = verify_reassignment(image, wanted)
        assert list(states) == [FOO_0, FOO_1, QUUX_0]
        assert states == {
            FOO_0: PartitionReassignmentState((1, 2, 4, 3), (1, 2, 4), done=False),
            FOO_1: PartitionReassignmentState((2, 3, 4), (2, 3, 4), done=True),
            QUUX_0: PartitionReassignmentState((), (1,), done=True),
        }
        assert [state.is_complete for state in states.values()] == [False, True, False]

    def test_tells_that_a_cancelled_one_is_not_complete(self, image):
        replay(image, reassign_partition(image, "id-foo", 0, [4]))
        replay(image, cancel_reassignment(image, "id-foo", 0))
        (state,) = verify_reassignment(image, {FOO_0: (4,)}).values()
        assert state == PartitionReassignmentState((1, 2, 3), (4,), done=True)
        assert not state.is_complete
