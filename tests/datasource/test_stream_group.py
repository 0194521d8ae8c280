"""A query's progress as committed offsets of a group."""

import logging

import pytest

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.datasource.stream.group_progress import GroupProgress
from spark_log.datasource.stream.stream_offset import StreamOffset
from spark_log.errors import CommitFailedError
from tests.datasource.streams import at, create_again, topic_id

PAUSE_MS = 10_000
"""Minimum time between two reports after one that failed."""

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def root(tmp_path):
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", num_partitions=2)])
    return url


@pytest.fixture
def progress(root, clock):
    return GroupProgress(Cluster(root, clock=clock), "g")


def committed(root, group="g"):
    found = OffsetsTable(Cluster(root)).fetch(group)
    return {tp: position.offset for tp, position in found.items()}


def rows(root):
    return OffsetsTable(Cluster(root)).history("g").num_rows


def ids(root):
    return {"t": topic_id(root, "t")}


def test_what_was_processed_is_committed(root, progress):
    assert progress.report(at(root, 5, 7), ids(root))
    assert committed(root) == {P0: 5, P1: 7}


def test_only_what_moved_is_committed_again(root, progress):
    progress.report(at(root, 5, 7), ids(root))
    for _ in range(3):
        assert progress.report(at(root, 5, 8), ids(root))
    assert rows(root) == 3
    assert committed(root) == {P0: 5, P1: 8}


def test_a_topic_that_is_gone_or_was_created_again_is_left_out(root, progress):
    former = at(root, 5, 7)
    create_again(root, "t", 2)
    assert progress.report(former, ids(root))
    assert progress.report(former, {})
    assert committed(root) == {}
    progress.report(at(root, 1, 0), ids(root))
    assert committed(root) == {P0: 1, P1: 0}


def test_the_offsets_of_a_checkpoint_of_kafkas_source_are_committed_too(root, progress):
    progress.report(StreamOffset({P0: 3}), ids(root))
    assert committed(root) == {P0: 3}


def test_a_commit_takes_the_groups_current_generation(root, clock, progress):
    table = OffsetsTable(Cluster(root, clock=clock))
    assert table.generation("g") == 0
    table.commit("g", {P0: OffsetAndMetadata(100)}, generation=4, member_id="m")
    table.commit("other", {P0: OffsetAndMetadata(1)}, generation=9)
    assert table.generation("g") == 4
    clock.advance_ms(1)
    progress.report(at(root, 5, 7), ids(root))
    found = table.fetch("g")[P0]
    assert (found.offset, found.generation, found.member_id) == (5, 4, "")


def test_a_generation_that_began_since_is_found_at_once(root, clock, progress):
    progress.report(at(root, 5, 7), ids(root))
    OffsetsTable(Cluster(root, clock=clock)).commit("g", {P0: OffsetAndMetadata(100)}, generation=2)
    progress.report(at(root, 6, 7), ids(root))
    assert committed(root) == {P0: 6, P1: 7}


def test_nothing_is_reported_to_a_group_with_members_until_they_are_gone(
    root, clock, progress, caplog
):
    member = GroupCoordinator(Cluster(root, clock=clock), "g")
    member.join(["t"])
    assert not progress.report(at(root, 5, 7), ids(root))
    assert "could not be reported to group 'g': group 'g' has members" in caplog.text
    assert committed(root) == {}
    member.leave()
    clock.advance_ms(PAUSE_MS)
    assert progress.report(at(root, 5, 7), ids(root))
    assert committed(root) == {P0: 5, P1: 7}


def test_a_report_that_fails_is_warned_of_and_tried_again(
    root, clock, progress, monkeypatch, caplog
):
    caplog.set_level(logging.WARNING, logger="spark_log")
    calls = []

    def refuse(*_, **__):
        calls.append(1)
        raise CommitFailedError("others came first")

    with monkeypatch.context() as patched:
        patched.setattr(OffsetsTable, "commit", refuse)
        assert not progress.report(at(root, 5, 7), ids(root))
        assert not progress.report(at(root, 6, 7), ids(root)), "too early"
        assert len(calls) == 1
    assert "progress could not be reported to group 'g': others came first" in caplog.text
    clock.advance_ms(PAUSE_MS)
    assert progress.report(at(root, 6, 7), ids(root))
    assert committed(root) == {P0: 6, P1: 7}
