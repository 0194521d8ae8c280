"""The debug log tells how a group rebalances: who joined, who decided, who has which partitions."""

import logging

import pytest

from spark_log.errors import LogEndOffsetMismatchError, StorageError
from tests.coordinator.group_support import (
    HEARTBEAT_MS,
    SESSION_MS,
    FakeCluster,
    join,
    live,
    settle,
)
from tests.log.support import HookedStore, failing


@pytest.fixture
def store(memory_store):
    return HookedStore(memory_store)


@pytest.fixture
def cluster(store, clock):
    return FakeCluster(store, clock, t=2)


@pytest.fixture
def story(caplog):
    caplog.set_level(logging.DEBUG, "spark_log.coordinator")
    caplog.set_level(logging.DEBUG, "spark_log.log.state_log")
    return caplog


def test_a_join_names_the_member_the_generation_and_the_assignment(cluster, story):
    a = cluster.member("t")
    assert "group g: consumer-000 asks to join, in generation 0" in story.messages
    assert "group g: joined as consumer-000 in generation 1, members: 1" in story.messages
    cluster.member("t")
    assert (
        "__consumer_groups/g: appended at offset 1: generation 2 by join of consumer-001: "
        "consumer-000 has t-0, revoking t-1; consumer-001 has nothing, waiting for t-1"
    ) in story.messages
    story.clear()
    a.heartbeat()
    assert story.messages == [
        "__consumer_groups/g: read offset 1: generation 2 by join of consumer-001"
    ]


def test_a_lost_race_is_told_and_the_change_is_decided_again(cluster, store, story):
    a, b = cluster.member("t"), cluster.member("t")
    settle(a, b)
    story.clear()
    store.once("put_if_absent", failing(LogEndOffsetMismatchError("taken")))
    b.leave()
    offset = story.messages[0].partition("offset ")[2].partition(" ")[0]
    assert story.messages == [
        f"__consumer_groups/g: offset {offset} is taken by another process: "
        "deciding again (lost race 1)",
        f"__consumer_groups/g: appended at offset {offset}: generation 4 by leave of "
        "consumer-001: consumer-000 has t-0, t-1",
        "group g: consumer-001 has left",
    ]


def test_a_silent_member_is_told_before_it_is_removed_and_then_by_whom_and_why(
    cluster, clock, story
):
    a, b = cluster.member("t"), cluster.member("t")
    settle(a, b)
    live(clock, SESSION_MS / 2, a)
    assert (
        "__consumer_groups/g/members: silent for a quarter of session.timeout.ms: consumer-001"
    ) in story.messages
    live(clock, SESSION_MS, a)
    (record,) = (each for each in story.records if "removes" in each.getMessage())
    assert (record.levelname, record.getMessage()) == (
        "INFO",
        "group g: consumer-000 removes consumer-001, which wrote no heartbeat for "
        f"session.timeout.ms ({SESSION_MS})",
    )


def test_heartbeats_that_fail_in_a_row_are_one_warning(cluster, store, clock, story):
    a = cluster.coordinator()
    join(a, "t")
    store.on("put", failing(StorageError("down")))
    for _ in range(3):
        clock.advance_ms(HEARTBEAT_MS)
        a.heartbeat()
    failures = [
        each.levelname for each in story.records if "a heartbeat failed" in each.getMessage()
    ]
    assert failures == ["WARNING", "DEBUG", "DEBUG"]
