"""Offsets of a query: the JSON of Spark's Kafka connector, with the ids of topics."""

import json
from dataclasses import replace

import pytest

from spark_log import TopicPartition
from spark_log.datasource.options.offsets import parse_offsets
from spark_log.datasource.stream.stream_offset import StreamOffset
from spark_log.errors import InvalidOptionError

ID = "BAmGwfbUQVSsLzdzBSFxhA"
OTHER = "7sYJIPNEQJG7V6uYl0hVvQ"
OFFSET = StreamOffset(
    {TopicPartition("t", 10): 7, TopicPartition("t", 2): 23, TopicPartition("a.b", 0): 0},
    {"t": ID, "a.b": OTHER},
)


def read_as_kafka_does(text):
    """Parse the connector's JSON: an object of objects of whole numbers."""
    found = {}
    for topic, partitions in json.loads(text).items():
        for partition, offset in partitions.items():
            assert isinstance(offset, int)
            found[TopicPartition(topic, int(partition))] = offset
    return found


def test_comes_back_from_the_checkpoint_as_it_went_in():
    text = json.dumps(OFFSET.to_document())
    assert StreamOffset.from_document(json.loads(text)) == OFFSET


def test_reads_as_the_connectors_json_and_nothing_but_the_offsets_is_in_it():
    assert read_as_kafka_does(json.dumps(OFFSET.to_document())) == OFFSET.offsets


def test_an_offset_can_be_given_as_starting_offsets():
    assert parse_offsets(json.dumps(OFFSET.to_document()), "startingOffsets") == OFFSET.offsets


def test_equal_offsets_are_equal_text_whatever_the_order_they_came_in():
    turned = StreamOffset(
        dict(reversed([*OFFSET.offsets.items()])), dict(reversed([*OFFSET.topic_ids.items()]))
    )
    assert json.dumps(turned.to_document()) == json.dumps(OFFSET.to_document())
    assert json.dumps(OFFSET.to_document()) == (
        f'{{"a.b": {{"0": 0}}, "t": {{"2": 23, "10": 7}}, "a.b@{OTHER}": {{}}, "t@{ID}": {{}}}}'
    )


@pytest.mark.parametrize("text", ['{"t":{"10":7,"2":23},"a.b":{"0":0}}', '{"t": {"2": 23}}'])
def test_what_kafkas_source_wrote_is_read_and_tells_no_ids(text):
    read = StreamOffset.from_document(json.loads(text))
    assert read.offsets == read_as_kafka_does(text)
    assert read.topic_ids == {}


def test_the_end_of_a_first_batch_notes_where_it_begins():
    begins = {TopicPartition("t", 2): 0, TopicPartition("t", 10): 5}
    first = replace(OFFSET, batch_starts=begins)
    text = json.dumps(first.to_document())
    assert '"t@from[2:0,10:5]": {}' in text
    assert '"a.b@from[]": {}' in text, "the topic was found later"
    read = StreamOffset.from_document(json.loads(text))
    assert read.batch_starts == begins
    assert read == OFFSET, "batch_starts does not count for equality"
    assert read_as_kafka_does(text) == OFFSET.offsets
    assert OFFSET.batch_starts is None


def test_notes_of_another_kind_are_passed_over():
    noted = {"t": {"0": 1}, "t@lag_ms[0:5]": {}, "t@what a later version may write": {}}
    assert StreamOffset.from_document(noted) == StreamOffset({TopicPartition("t", 0): 1})


@pytest.mark.parametrize(
    "document",
    [
        {"index": 3},
        {"logOffset": 3},
        [1],
        3,
        {"t": {"0": -1}},
        {"t": {"0": "1"}},
        {"t": {"a": 1}},
        {"t": {"0": True}},
    ],
)
def test_another_sources_offset_is_refused_with_what_to_do(document):
    with pytest.raises(InvalidOptionError, match="another checkpointLocation") as caught:
        StreamOffset.from_document(document)
    assert caught.value.key == "checkpointLocation"


class TestATopicOfTheSameName:
    def test_is_another_where_the_id_is_another(self):
        assert OFFSET.is_recreated("t", OTHER)
        assert not OFFSET.is_recreated("t", ID)

    def test_is_taken_to_be_the_same_where_an_id_is_not_known(self):
        assert not StreamOffset(OFFSET.offsets).is_recreated("t", ID)
        assert not OFFSET.is_recreated("t", None)


def test_by_topic_is_in_order_of_partitions():
    assert OFFSET.by_topic() == {
        "a.b": {TopicPartition("a.b", 0): 0},
        "t": {TopicPartition("t", 2): 23, TopicPartition("t", 10): 7},
    }
