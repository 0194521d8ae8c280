"""Metadata records on storage: JSON that later versions must read; newer ones are refused."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.errors import CorruptRecordError
from spark_log.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    StripesRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    from_json,
)

AT_REST = [
    (
        TopicRecord(name="flights", topic_id="BAmGwfbUQVSsLzdzBSFxhA"),
        '{"type":"TopicRecord","version":0,'
        '"data":{"name":"flights","topicId":"BAmGwfbUQVSsLzdzBSFxhA"}}',
    ),
    (
        PartitionRecord(topic_id="id", partition_id=3),
        '{"type":"PartitionRecord","version":0,"data":{"topicId":"id","partitionId":3,'
        '"replicas":[0],"isr":[0],"leader":0,"leaderEpoch":0,"partitionEpoch":0}}',
    ),
    (
        PartitionRecord(topic_id="id", partition_id=0, replicas=(1, 2), isr=(1, 2), leader=1),
        '{"type":"PartitionRecord","version":1,"data":{"topicId":"id","partitionId":0,'
        '"replicas":[1,2],"isr":[1,2],"leader":1,"leaderEpoch":0,"partitionEpoch":0}}',
    ),
    (
        PartitionRecord(
            topic_id="id",
            partition_id=0,
            replicas=(1, 2),
            isr=(1,),
            leader=1,
            joining=(2,),
            directories=(0, 1),
            adding_replicas=(2,),
            removing_replicas=(1,),
            eligible_leader_replicas=(2,),
            last_known_elr=(1,),
        ),
        '{"type":"PartitionRecord","version":1,"data":{"topicId":"id","partitionId":0,'
        '"replicas":[1,2],"isr":[1],"leader":1,"leaderEpoch":0,"partitionEpoch":0,"joining":[2],'
        '"directories":[0,1],"addingReplicas":[2],"removingReplicas":[1],'
        '"eligibleLeaderReplicas":[2],"lastKnownElr":[1]}}',
    ),
    (
        StripesRecord(topic_id="id", first_stripe=4, moving_to=2),
        '{"type":"StripesRecord","version":0,"data":{"topicId":"id","firstStripe":4,"movingTo":2}}',
    ),
    (
        PartitionChangeRecord(topic_id="id", partition_id=3, isr=(2,), leader=2, joining=()),
        '{"type":"PartitionChangeRecord","version":0,"data":{"topicId":"id","partitionId":3,'
        '"isr":[2],"leader":2,"joining":[]}}',
    ),
    (
        PartitionChangeRecord(
            topic_id="id",
            partition_id=3,
            leader=-1,
            replicas=(1, 2),
            directories=(0, 4),
            adding_replicas=(2,),
            removing_replicas=(),
            eligible_leader_replicas=(1,),
            last_known_elr=(2,),
        ),
        '{"type":"PartitionChangeRecord","version":0,"data":{"topicId":"id","partitionId":3,'
        '"leader":-1,"replicas":[1,2],"directories":[0,4],"addingReplicas":[2],'
        '"removingReplicas":[],"eligibleLeaderReplicas":[1],"lastKnownElr":[2]}}',
    ),
    (
        ConfigRecord(
            resource_type="topic", resource_name="flights", name="segment.bytes", value="1048576"
        ),
        '{"type":"ConfigRecord","version":0,"data":{"resourceType":"topic",'
        '"resourceName":"flights","name":"segment.bytes","value":"1048576"}}',
    ),
    (
        ConfigRecord(resource_type="topic", resource_name="µ", name="a", value=None),
        '{"type":"ConfigRecord","version":0,"data":{"resourceType":"topic",'
        '"resourceName":"\\u00b5","name":"a","value":null}}',
    ),
    (
        FeatureLevelRecord(name="table.version", feature_level=1, release="0.4.0"),
        '{"type":"FeatureLevelRecord","version":0,"data":{"name":"table.version",'
        '"featureLevel":1,"release":"0.4.0"}}',
    ),
    (
        UserScramCredentialRecord(
            name="alice",
            mechanism=1,
            salt=b"salt",
            stored_key=b"\0\xff",
            server_key=b"key",
            iterations=4096,
        ),
        '{"type":"UserScramCredentialRecord","version":0,"data":{"name":"alice","mechanism":1,'
        '"salt":"c2FsdA==","storedKey":"AP8=","serverKey":"a2V5","iterations":4096}}',
    ),
    (
        RemoveUserScramCredentialRecord(name="alice", mechanism=2),
        '{"type":"RemoveUserScramCredentialRecord","version":0,'
        '"data":{"name":"alice","mechanism":2}}',
    ),
    (
        RemoveTopicRecord(topic_id="id"),
        '{"type":"RemoveTopicRecord","version":0,"data":{"topicId":"id"}}',
    ),
    (
        ProducerIdsRecord(next_producer_id=1000),
        '{"type":"ProducerIdsRecord","version":0,'
        '"data":{"brokerId":0,"brokerEpoch":-1,"nextProducerId":1000}}',
    ),
    (
        RegisterBrokerRecord(
            broker_id=1, incarnation_id="id", broker_epoch=4, root="s3://zone-a/log", rack="a"
        ),
        '{"type":"RegisterBrokerRecord","version":0,"data":{"brokerId":1,"incarnationId":"id",'
        '"brokerEpoch":4,"root":"s3://zone-a/log","rack":"a","fenced":true,'
        '"inControlledShutdown":false}}',
    ),
    (
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=-1),
        '{"type":"BrokerRegistrationChangeRecord","version":0,'
        '"data":{"brokerId":1,"brokerEpoch":4,"fenced":-1,"inControlledShutdown":0}}',
    ),
    (
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=1, failed=True),
        '{"type":"BrokerRegistrationChangeRecord","version":0,"data":{"brokerId":1,'
        '"brokerEpoch":4,"fenced":1,"inControlledShutdown":0,"failed":true}}',
    ),
    (
        RegisterControllerRecord(controller_epoch=3, incarnation_id="id", host="node"),
        '{"type":"RegisterControllerRecord","version":0,'
        '"data":{"controllerEpoch":3,"incarnationId":"id","host":"node"}}',
    ),
    (
        UnregisterBrokerRecord(broker_id=1, broker_epoch=4),
        '{"type":"UnregisterBrokerRecord","version":0,"data":{"brokerId":1,"brokerEpoch":4}}',
    ),
]

numbers = st.integers(0, 2**31 - 1)
brokers = st.lists(numbers, max_size=4).map(tuple)
topic_names = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1)
topic_ids = st.text(string.ascii_letters + string.digits + "-_", min_size=1)


def built(kind, **fields):
    """Records of these fields. Hypothesis' builds gives values to their names in JSON, too."""
    return st.fixed_dictionaries(fields).map(lambda values: kind(**values))


records = st.one_of(
    built(TopicRecord, name=topic_names, topic_id=topic_ids),
    built(
        PartitionRecord,
        topic_id=st.text(),
        partition_id=numbers,
        replicas=brokers,
        isr=brokers,
        leader=numbers,
        leader_epoch=numbers,
        partition_epoch=numbers,
        joining=brokers,
        directories=brokers,
        adding_replicas=brokers,
        removing_replicas=brokers,
        eligible_leader_replicas=brokers,
        last_known_elr=brokers,
    ),
    built(
        PartitionChangeRecord,
        topic_id=st.text(),
        partition_id=numbers,
        isr=st.none() | brokers,
        leader=st.none() | st.integers(-1, 2**31 - 1),
        replicas=st.none() | brokers,
        joining=st.none() | brokers,
        directories=st.none() | brokers,
        adding_replicas=st.none() | brokers,
        removing_replicas=st.none() | brokers,
        eligible_leader_replicas=st.none() | brokers,
        last_known_elr=st.none() | brokers,
    ),
    built(
        ConfigRecord,
        resource_type=st.text(),
        resource_name=st.text(),
        name=st.text(),
        value=st.none() | st.text(),
    ),
    built(RemoveTopicRecord, topic_id=st.text()),
    built(ProducerIdsRecord, next_producer_id=st.integers(0, 2**63 - 1)),
    built(
        RegisterBrokerRecord,
        broker_id=numbers,
        incarnation_id=st.text(),
        broker_epoch=numbers,
        root=st.text(),
        rack=st.none() | st.text(),
        fenced=st.booleans(),
        in_controlled_shutdown=st.booleans(),
    ),
    built(
        BrokerRegistrationChangeRecord,
        broker_id=numbers,
        broker_epoch=numbers,
        fenced=st.integers(-1, 1),
        in_controlled_shutdown=st.integers(0, 1),
        failed=st.booleans(),
    ),
    built(
        RegisterControllerRecord,
        controller_epoch=numbers,
        incarnation_id=st.text(),
        host=st.text(),
    ),
    built(UnregisterBrokerRecord, broker_id=numbers, broker_epoch=numbers),
)


class TestAtRest:
    @pytest.mark.parametrize(("record", "text"), AT_REST)
    def test_a_record_is_this_json(self, record, text):
        assert record.to_json() == text.encode()
        assert from_json(text.encode()) == record

    @given(records)
    def test_what_was_written_is_what_is_read(self, record):
        again = from_json(record.to_json())
        assert again == record
        assert type(again) is type(record)

    def test_every_kind_of_record_is_among_them(self):
        assert {type(record) for record, _ in AT_REST} == set(MetadataRecord.__subclasses__())

    def test_fields_that_a_newer_version_added_are_kept_for_a_checkpoint(self):
        document = json.loads(TopicRecord(name="a", topic_id="b").to_json())
        document["data"]["newField"] = {"anything": 1}
        record = from_json(json.dumps(document).encode())
        assert isinstance(record, TopicRecord)
        assert (record.name, record.topic_id) == ("a", "b")
        assert json.loads(record.to_json()) == document


class TestPartition:
    def test_one_on_the_root_alone_can_be_read_by_older_versions(self):
        assert PartitionRecord(topic_id="id", partition_id=0).stored_version == 0

    @pytest.mark.parametrize("replicas", [(1,), (0, 1), (1, 0)])
    def test_older_versions_refuse_one_that_is_on_other_brokers(self, replicas):
        assert PartitionRecord(topic_id="i", partition_id=0, replicas=replicas).stored_version == 1

    def test_the_directories_of_replicas_are_in_their_order(self):
        partition = PartitionRecord(
            topic_id="id", partition_id=0, replicas=(7, 1, 2), directories=(0, 3, 1)
        )
        assert [partition.directory_of(broker) for broker in (1, 2, 7)] == [3, 1, 0]
        with pytest.raises(ValueError, match="not in tuple"):
            partition.directory_of(3)

    def test_without_directories_all_replicas_have_the_first_one(self):
        partition = PartitionRecord(topic_id="id", partition_id=0, replicas=(7, 1))
        assert [partition.directory_of(broker) for broker in (7, 1)] == [0, 0]


class TestRefused:
    @pytest.mark.parametrize("change", [{"version": 1}, {"type": "BrokerRegistrationRecord"}])
    def test_what_is_newer_is_refused_rather_than_passed_over(self, change):
        document = json.loads(TopicRecord(name="a", topic_id="b").to_json()) | change
        with pytest.raises(
            CorruptRecordError, match="newer than this spark-log; upgrade"
        ) as caught:
            from_json(json.dumps(document).encode())
        assert f"{document['type']} version {document['version']}" in caught.value.message

    @pytest.mark.parametrize(
        "value",
        [
            b"",
            b"{",
            b"\xff\xfe",
            b"null",
            b"[]",
            b"7",
            b'"text"',
            b"{}",
            b'{"type":"TopicRecord"}',
            b'{"type":"TopicRecord","version":0}',
            b'{"type":"TopicRecord","version":"0","data":{"name":"a","topicId":"b"}}',
            b'{"type":"TopicRecord","version":0,"data":null}',
            b'{"type":"TopicRecord","version":0,"data":{"name":"a"}}',
            b'{"type":"TopicRecord","version":0,"data":{"name":1,"topicId":"b"}}',
            b'{"type":"PartitionRecord","version":0,"data":{"topicId":"a","partitionId":"x"}}',
            b'{"type":["TopicRecord"],"version":0,"data":{}}',
            b'{"type":{},"version":0,"data":{}}',
            None,
        ],
    )
    def test_what_is_no_record_is_corrupt(self, value):
        with pytest.raises(CorruptRecordError):
            from_json(value)

    @given(st.binary(max_size=60))
    def test_noise_is_corrupt_and_nothing_else(self, noise):
        with pytest.raises(CorruptRecordError):
            from_json(noise)
