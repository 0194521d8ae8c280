"""A process whose versions alternate with those of others pauses, and nobody else does."""

from unittest.mock import Mock

import pytest

from spark_log import OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.offsets.commit_throttle import CommitThrottle
from spark_log.util.clock import ManualClock, SystemClock

P0 = TopicPartition("t", 0)
AS_PLANNED = Mock(uniform=lambda least, most: (least + most) / 2)


def test_a_process_that_commits_alone_never_pauses():
    throttle = CommitThrottle(AS_PLANNED)
    assert throttle.pause_ms(0) == 0
    for version in range(10):
        throttle.on_appended(version, took_ms=4, now_ms=version * 4)
        assert throttle.pause_ms(version * 4) == 0


def test_a_pause_is_a_quarter_of_the_time_that_the_others_versions_take():
    throttle = CommitThrottle(AS_PLANNED)
    throttle.on_appended(7, took_ms=4, now_ms=100)
    throttle.on_appended(14, took_ms=4, now_ms=200)
    assert throttle.pause_ms(200) == 6 * 4 / 4
    assert throttle.pause_ms(203) == 3
    assert throttle.pause_ms(300) == 0, "who commits later than that has not to wait"


def test_a_pause_ends_with_the_others_commits():
    throttle = CommitThrottle(AS_PLANNED)
    for version in (7, 14, 15):
        throttle.on_appended(version, took_ms=4, now_ms=version)
    assert throttle.pause_ms(15) == 0


@pytest.mark.parametrize("draw", [0.5, 1.5])
def test_pauses_are_spread_and_bounded(draw):
    throttle = CommitThrottle(Mock(uniform=lambda least, most: draw))
    throttle.on_appended(0, took_ms=1, now_ms=0)
    throttle.on_appended(100_000, took_ms=1, now_ms=0)
    assert throttle.pause_ms(0) == CommitThrottle.max_pause_ms * draw


def test_commits_pause_between_those_of_another_process(cluster, monkeypatch):
    pauses = []
    monkeypatch.setattr(SystemClock, "sleep_ms", lambda _, duration_ms: pauses.append(duration_ms))
    clock = ManualClock(cluster.clock.time_us())
    table, other = OffsetsTable(cluster), OffsetsTable(Cluster(cluster.root, clock=clock))

    def commit(by, offset):
        by.commit("g", {P0: OffsetAndMetadata(offset)}, generation=1)

    for offset in range(3):
        commit(table, offset)
    assert not pauses
    for offset in range(3, 20):
        commit(other, offset)
    assert not pauses
    commit(table, 20)
    commit(table, 21)
    assert len(pauses) == 1
    assert 0 < pauses[0] <= CommitThrottle.max_pause_ms * 1.5
