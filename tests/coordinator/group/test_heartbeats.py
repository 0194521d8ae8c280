"""Heartbeats: which members are dead, by one observer's clock."""

import threading

import pytest

from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.group.heartbeats import HeartbeatMonitor, Heartbeats
from spark_log.errors import StorageError
from tests.log.support import HookedStore, failing

TIMEOUT_MS = 4000


@pytest.fixture
def store(memory_store):
    return HookedStore(memory_store)


@pytest.fixture
def heartbeats(store):
    return Heartbeats.of_group(store, "g")


@pytest.fixture
def watch(heartbeats, clock):
    return HeartbeatMonitor(heartbeats, clock)


def look(watch, clock, duration_ms, *, every_ms=500):
    """Check for some time, and return whether the member was dead at any check."""
    dead = False
    for _ in range(int(duration_ms // every_ms)):
        clock.advance_ms(every_ms)
        dead = dead or bool(watch.expired_members({"m": TIMEOUT_MS}))
    return dead


def test_who_raises_the_counter_lives(heartbeats, watch, clock):
    for count in range(1, 20):
        heartbeats.beat("m", count)
        assert not look(watch, clock, 3500)


def test_who_stands_still_for_the_timeout_is_dead_and_no_sooner(heartbeats, watch, clock):
    heartbeats.beat("m", 1)
    watch.expired_members({"m": TIMEOUT_MS})
    assert not look(watch, clock, TIMEOUT_MS - 500)
    assert look(watch, clock, 500)


def test_who_never_beat_is_dead_in_time(watch, clock):
    watch.expired_members({"m": TIMEOUT_MS})
    assert look(watch, clock, TIMEOUT_MS)


def test_a_late_put_of_an_older_heartbeat_is_no_sign_of_life(heartbeats, watch, clock):
    heartbeats.beat("m", 7)
    watch.expired_members({"m": TIMEOUT_MS})
    look(watch, clock, TIMEOUT_MS / 2)
    heartbeats.beat("m", 6)
    assert look(watch, clock, TIMEOUT_MS / 2)


def test_who_slept_did_not_see_the_others_stand_still(heartbeats, watch, clock):
    """The machine was suspended with all members on it: none is dead when it wakes up."""
    heartbeats.beat("m", 1)
    watch.expired_members({"m": TIMEOUT_MS})
    clock.advance_ms(3_600_000)
    assert not watch.expired_members({"m": TIMEOUT_MS})
    assert look(watch, clock, TIMEOUT_MS), "but who stays silent from then on is"


def test_heartbeats_that_cannot_be_read_expire_nobody(heartbeats, watch, clock, store):
    heartbeats.beat("m", 1)
    watch.expired_members({"m": TIMEOUT_MS})
    store.on("open_buffer", failing(StorageError("down")))
    assert not look(watch, clock, 3 * TIMEOUT_MS)
    store.hooks.clear()
    assert not look(watch, clock, TIMEOUT_MS)
    assert look(watch, clock, 500)


def test_damage_is_no_sign_of_life(heartbeats, watch, clock, memory_store):
    heartbeats.beat("m", 1)
    watch.expired_members({"m": TIMEOUT_MS})
    (path,) = (file.path for file in memory_store.list(f"{GroupLog.directory_of('g')}/members"))
    memory_store.put(path, b"{")
    assert look(watch, clock, TIMEOUT_MS)


def test_a_member_may_have_any_name(heartbeats, memory_store):
    heartbeats.beat("../x/é", 3)
    assert heartbeats.counter("../x/é") == 3
    assert len(list(memory_store.list(f"{GroupLog.directory_of('g')}/members"))) == 1
    heartbeats.forget(["../x/é"])
    assert heartbeats.counter("../x/é") == 0


def test_many_members_are_read_at_once_where_a_read_is_a_request(memory_store, clock):
    members = {f"m{number}": TIMEOUT_MS for number in range(32)}
    at_once = threading.Barrier(16)
    store = HookedStore(memory_store, is_mapped=False)
    heartbeats = Heartbeats.of_group(store, "g")
    for member_id in members:
        heartbeats.beat(member_id, 1)

    def read(path, call):
        at_once.wait(timeout=60)  # an error unless 16 requests are under way
        return call()

    store.on("open_buffer", read)
    watch = HeartbeatMonitor(heartbeats, clock)
    assert not watch.expired_members(members)
    heartbeats.beat("m7", 2)
    clock.advance_ms(TIMEOUT_MS / 4)
    assert not watch.expired_members(members)
    assert watch.silent == members.keys() - {"m7"}
