"""A topic is converted to the files of its table, several partitions at a time."""

import threading

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import ConversionProgress, TopicConversion
from spark_log.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    UnknownTopicOrPartitionError,
)
from spark_log.util import SYSTEM_CLOCK
from tests.table.support import DELTA, TableRoot

PARTITIONS = 3


@pytest.fixture
def root(tmp_path):
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", PARTITIONS, topic_configs=DELTA)])
    found = TableRoot(url, SYSTEM_CLOCK)
    for partition in range(PARTITIONS):
        found.fill(5, partition)
    return found


def conversion_of(root, partitions=None, *, threads=2):
    return TopicConversion(root.cluster, root.topic, partitions, threads=threads)


def test_partitions_are_converted_at_the_same_time_and_each_is_committed(root):
    meeting = threading.Barrier(PARTITIONS)
    met: set[int] = set()

    def on_progress(done_bytes):
        if threading.get_ident() not in met:
            met.add(threading.get_ident())
            meeting.wait(60)  # all partitions are being converted

    conversion = conversion_of(root, threads=PARTITIONS)
    found = list(conversion.convert(on_progress))
    assert [each.error for each in found] == [None] * PARTITIONS
    assert conversion.running == set()
    number = root.newest.number
    assert number >= 1
    assert conversion.commit().number == number, "nothing is left"
    for partition in range(PARTITIONS):
        assert root.table_rows(partition) == root.log_rows(partition)
        assert root.findings(partition) == []


def test_what_was_converted_is_not_converted_again(root):
    next(conversion_of(root, threads=1).convert())  # it dies before its first commit
    progress = ConversionProgress(root.cluster, [root.topic])
    assert progress.read() == (10, 30)
    assert root.newest.number == -1
    files = set(root.directory.glob("t-0/*.parquet"))
    first, *_ = conversion_of(root, threads=1).convert()
    assert first.report.merged_segments == 0
    assert set(root.directory.glob("t-0/*.parquet")) == files
    assert root.newest.ends() == {0: 10, 1: 10, 2: 10}
    assert progress.read([]) == (10, 30), "no partition is listed again"
    assert progress.read() == (30, 30)


def test_the_last_commit_has_what_a_killed_conversion_left(root):
    next(conversion_of(root, [2]).convert())
    conversion = conversion_of(root, [0])
    list(conversion.convert())
    assert conversion.commit().ends() == {0: 10, 1: 0, 2: 10}


def test_a_partition_that_fails_does_not_stop_the_others(root):
    for file in root.directory.glob("t-1/*.log"):
        file.write_bytes(file.read_bytes()[:-50])
    found = list(conversion_of(root).convert())
    errors = {each.partition.partition: each.error for each in found if each.error}
    assert errors.keys() == {1}
    assert isinstance(errors[1], CorruptRecordError)
    assert root.newest.ends() == {0: 10, 1: 0, 2: 10}


def test_mistakes(root):
    with pytest.raises(UnknownTopicOrPartitionError, match="7"):
        conversion_of(root, [0, 7])
    root.set(table_format="none")
    with pytest.raises(InvalidConfigurationError, match=r"configs alter t --add-config table\.fo"):
        conversion_of(root)


def test_a_topic_that_is_deleted_meanwhile(root):
    conversion = conversion_of(root)
    root.admin.delete_topics(["t"])
    with pytest.raises(UnknownTopicOrPartitionError, match="t"):
        list(conversion.convert())
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted while it was converted"):
        conversion.commit()
