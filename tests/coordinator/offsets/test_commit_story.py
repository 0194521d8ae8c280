"""The debug log tells which version has a commit, why one is tried again, and what expires."""

import logging

import pytest

from spark_log import OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import TOMBSTONE, OffsetsTable, Row
from spark_log.errors import IllegalGenerationError
from spark_log.util.clock import ManualClock

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
WEEK_MS = 7 * 24 * 3600 * 1000


@pytest.fixture
def table(cluster):
    return OffsetsTable(cluster)


@pytest.fixture
def story(caplog):
    caplog.set_level(logging.DEBUG, "spark_log.coordinator")
    return caplog


def test_a_commit_names_its_version(table, story):
    table.commit("g", {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(2)})
    (told,) = story.messages
    assert told.startswith("__consumer_offsets: version 1 has 1 commits, of g: 2 offsets, after ")


def test_a_version_that_another_process_made_first_is_told(cluster, table, story):
    table.commit("g", {P0: OffsetAndMetadata(1)}, generation=1)
    other = OffsetsTable(Cluster(cluster.root, clock=ManualClock(cluster.clock.time_us())))

    def decide(positions):
        if other.generation("g") == 1:
            other.fence("g", 2)
        return [Row(key, TOMBSTONE) for key in positions]

    with pytest.raises(IllegalGenerationError):
        table.change("g", decide, generation=1)
    assert (
        "checking the commits again: __consumer_offsets: version 2 was made by another process "
        "first"
    ) in story.messages


def test_what_expires_and_what_is_compacted_is_told(table, clock, story):
    table.commit("g", {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(2)})
    clock.advance_ms(2 * WEEK_MS)
    table.maintain()
    assert "group g: committed offsets expire: t-0, t-1" in story.messages
    assert "__consumer_offsets: checkpoint of version 2" in story.messages
    assert any("are compacted into" in each for each in story.messages)
