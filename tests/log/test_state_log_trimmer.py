"""The log of a state stays short, whatever its writers do."""

import pytest

from spark_log.config import TopicConfig
from spark_log.coordinator.group import group_decisions
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.errors import StorageError
from tests.log.support import HookedStore, failing


@pytest.fixture
def store(memory_store):
    return HookedStore(memory_store)


@pytest.fixture
def log(store, clock):
    return GroupLog(store, "g", clock)


def rise(group):
    return group_decisions.raise_generation(group, group.generation + 1)


def files(store):
    return [file.name for file in store.inner.list(GroupLog.directory_of("g"))]


def test_a_trim_keeps_a_long_log_small(store, clock):
    log = GroupLog(store, "g", clock, TopicConfig.parse({"file.delete.delay.ms": 1000}))
    most = 0
    for _ in range(500):
        log.commit(rise)
        clock.advance_ms(100)
        most = max(most, len(files(store)))
    assert log.state.generation == 500
    assert most < 2 * GroupLog.trim_every + 30
    new = GroupLog(store, "g", clock)
    new.replay()
    assert new.state.generation == 500


def test_a_trim_lists_a_busy_log_seldom(store, clock):
    """Its files cannot be deleted yet, and there are many of them."""
    log = GroupLog(store, "g", clock, TopicConfig.parse({"file.delete.delay.ms": 80_000}))
    for number in range(8 * GroupLog.trim_every):
        log.commit(rise)
        if number == GroupLog.trim_every:
            store.calls.clear()
    assert not [path for path in store.called("put_if_absent") if path.endswith(".start")]
    clock.advance_ms(10_000)
    for _ in range(GroupLog.trim_every):
        log.commit(rise)
    assert [path for path in store.called("put_if_absent") if path.endswith(".start")]


def test_a_trim_frees_nothing_that_writers_rely_on(store, log, clock):
    """Names are deleted only ``file.delete.delay.ms`` after the log start has passed them."""
    for _ in range(130):
        log.commit(rise)
    assert sum(name.endswith(".log") for name in files(store)) == 130


def test_a_trim_that_fails_does_not_fail_the_change(store, log, caplog):
    for _ in range(63):
        log.commit(rise)
    store.on("delete", failing(StorageError("down")))

    def no_markers(path, call):
        if path.endswith(".start"):
            raise StorageError("down")
        return call()

    store.on("put_if_absent", no_markers)
    assert log.commit(rise).generation == 64
    assert "not trimmed" in caplog.text
