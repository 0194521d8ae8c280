"""Spark's calls of the streaming source, without Spark."""

import json
import pickle
import warnings

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from spark_log import Admin, IgnoredOptionWarning, InvalidOptionError, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.datasource.read.schema import READ_SCHEMA
from spark_log.datasource.stream.stream_reader import LogStreamReader
from tests.datasource.streams import append, at, topic_id

ALL = ReadAllAvailable()


@pytest.fixture
def root(tmp_path):
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", num_partitions=2)])
    append(url, "t", 0, range(5))
    return url


def reader(root, **options):
    given = {"path": root, "subscribe": "t", "startingOffsets": "earliest", **options}
    return LogStreamReader(READ_SCHEMA, parse_read_options(given, is_stream=True))


def asked(read, start):
    """Ask for the latest offset like Spark, which stores the text."""
    return json.dumps(read.latestOffset(json.loads(start), ALL))


def test_warns_of_options_without_effect_once_and_not_where_it_is_only_made(root):
    """Spark makes a reader in two processes of the driver, and asks one of them for offsets."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = reader(root, header="true", **{"kafka.bootstrap.servers": "host:9092"})
    with pytest.warns(IgnoredOptionWarning) as caught:
        read.latestOffset(read.initialOffset(), ALL)
    expected = "format spark_log ignores header, kafka.bootstrap.servers"
    assert [str(each.message) for each in caught] == [expected]


def committed(root):
    found = OffsetsTable(Cluster(root)).fetch("g")
    return {tp.partition: each.offset for tp, each in found.items()}


def test_is_pickled_to_the_tasks_without_what_the_driver_knows(root):
    read = reader(root, **{"group.id": "g"})
    unused = pickle.dumps(read)
    (split,) = read.partitions({"t": {"0": 1}}, asked_document(read))
    again, split = pickle.loads(pickle.dumps((read, split)))
    assert pickle.dumps(read) == unused
    values = [value for batch in again.read(split) for value in batch.column("value").to_pylist()]
    assert values == [b"1", b"2", b"3", b"4"]


def asked_document(read):
    return read.latestOffset(read.initialOffset(), ALL)


def test_answers_with_the_very_text_of_the_start_where_nothing_came(root):
    read = reader(root)
    end = asked(read, json.dumps(read.initialOffset()))
    assert asked(read, end) == asked(read, end) == end
    noted = at(root, 5, 0).to_document() | {"t@from[0:0,1:0]": {}}
    assert end == json.dumps(noted), "with the start of the first batch"


def test_answers_a_checkpoint_of_kafkas_source_with_a_text_of_its_own(root):
    assert asked(reader(root), '{"t":{"0":5,"1":0}}') == (
        f'{{"t": {{"0": 5, "1": 0}}, "t@{topic_id(root, "t")}": {{}}}}'
    )


def test_refuses_the_checkpoint_of_another_source(root):
    with pytest.raises(InvalidOptionError, match="If a query on another source wrote it"):
        asked(reader(root), '{"seqNum":3,"index":-1}')


def test_tells_spark_of_the_limit_and_of_the_latest_offset(root):
    read = reader(root, maxOffsetsPerTrigger="2")
    assert read.getDefaultReadLimit() == ReadMaxRows(2)
    end = read.latestOffset(read.initialOffset(), ReadMaxRows(2))
    assert end["t"] == {"0": 2, "1": 0}
    assert read.reportLatestOffset()["t"] == {"0": 5, "1": 0}


def test_stops_at_what_was_there_when_it_was_told_to(root):
    read = reader(root)
    read.prepareForTriggerAvailableNow()
    append(root, "t", 0, range(5))
    assert read.latestOffset(read.initialOffset(), ALL)["t"] == {"0": 5, "1": 0}


class TestTheGroup:
    def test_is_told_of_what_lies_before_the_start_that_spark_asks_from(self, root):
        read = reader(root, **{"group.id": "g"})
        end = asked(read, json.dumps(read.initialOffset()))
        assert committed(root) == {}, "no batch has been processed"
        asked(read, end)
        assert committed(root) == {0: 5, 1: 0}

    def test_is_told_by_a_commit_too(self, root):
        read = reader(root, **{"group.id": "g"})
        read.commit(asked_document(read))
        assert committed(root) == {0: 5, 1: 0}

    def test_is_told_first_of_all_by_a_restart(self, root):
        asked(reader(root, **{"group.id": "g"}), json.dumps(at(root, 3, 0).to_document()))
        assert committed(root) == {0: 3, 1: 0}

    def test_is_nobodys_business_without_its_id(self, root, tmp_path):
        read = reader(root)
        asked(read, asked(read, json.dumps(read.initialOffset())))
        assert not (tmp_path / "root" / "__consumer_offsets").exists()

    def test_is_found_among_kafkas_options(self, root):
        asked(reader(root, **{"kafka.group.id": "g"}), json.dumps(at(root, 3, 0).to_document()))
        assert OffsetsTable(Cluster(root)).fetch("g")[TopicPartition("t", 0)].offset == 3
