"""Metadata records on storage: JSON that later versions must read; newer ones are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.errors import CorruptRecordError
from spark_log.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
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
        UnregisterBrokerRecord(broker_id=1, broker_epoch=4),
        '{"type":"UnregisterBrokerRecord","version":0,"data":{"brokerId":1,"brokerEpoch":4}}',
    ),
]

numbers = st.integers(0, 2**31 - 1)
brokers = st.lists(numbers, max_size=4).map(tuple)
records = st.one_of(
    st.builds(TopicRecord, name=st.text(), topic_id=st.text()),
    st.builds(
        PartitionRecord,
        topic_id=st.text(),
        partition_id=numbers,
        replicas=brokers,
        isr=brokers,
        leader=numbers,
        leader_epoch=numbers,
        partition_epoch=numbers,
    ),
    st.builds(
        ConfigRecord,
        resource_type=st.text(),
        resource_name=st.text(),
        name=st.text(),
        value=st.none() | st.text(),
    ),
    st.builds(RemoveTopicRecord, topic_id=st.text()),
    st.builds(ProducerIdsRecord, next_producer_id=st.integers(0, 2**63 - 1)),
    st.builds(
        RegisterBrokerRecord,
        broker_id=numbers,
        incarnation_id=st.text(),
        broker_epoch=numbers,
        root=st.text(),
        rack=st.none() | st.text(),
        fenced=st.booleans(),
        in_controlled_shutdown=st.booleans(),
    ),
    st.builds(
        BrokerRegistrationChangeRecord,
        broker_id=numbers,
        broker_epoch=numbers,
        fenced=st.integers(-1, 1),
        in_controlled_shutdown=st.integers(0, 1),
    ),
    st.builds(UnregisterBrokerRecord, broker_id=numbers, broker_epoch=numbers),
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

    def test_fields_that_a_newer_version_added_are_passed_over(self):
        document = json.loads(TopicRecord(name="a", topic_id="b").to_json())
        document["data"]["newField"] = {"anything": 1}
        assert from_json(json.dumps(document).encode()) == TopicRecord(name="a", topic_id="b")


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
