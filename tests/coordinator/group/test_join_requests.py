"""Processes that wait to join: one record takes them in; a removed member does not come back."""

import json

import pytest

from spark_log.coordinator.group.group_log import GroupLog
from tests.coordinator.group_support import SESSION_MS, FakeCluster, join
from tests.log.support import HookedStore

MEMBERS = f"{GroupLog.directory_of('g')}/members"


@pytest.fixture
def store(memory_store):
    return HookedStore(memory_store)


@pytest.fixture
def cluster(store, clock):
    return FakeCluster(store, clock, t=4)


def overtaken(store, call):
    """Let others change the group just before the next append."""

    def overtake(path, append):
        call()
        append()

    store.once("put_if_absent", overtake)


def waiting(cluster, store, *topics, **how):
    """A member that has written its request and not yet made its append."""
    member = cluster.coordinator()

    def stop(path, call):
        raise KeyboardInterrupt

    store.once("put_if_absent", stop)
    with pytest.raises(KeyboardInterrupt):
        join(member, *topics, **how)
    return member


def names(cluster):
    return [each.partition("-")[0] for each in cluster.coordinator().describe().members]


def test_who_loses_a_race_takes_in_all_who_wait(cluster, store):
    waiting(cluster, store, "t", client_id="a")
    waiting(cluster, store, "t", client_id="b")
    late = cluster.coordinator()
    overtaken(store, lambda: cluster.member("t", client_id="first"))
    join(late, "t", client_id="late")
    assert sorted(names(cluster)) == ["a", "b", "first", "late"]
    assert late.describe().generation == 2, "one record for all three"


def test_who_was_taken_in_appends_nothing(cluster, store):
    member = cluster.coordinator()

    def others_join():
        cluster.member("t", client_id="first")
        overtaken(store, lambda: cluster.member("t", client_id="second"))
        cluster.member("t", client_id="third")

    overtaken(store, others_join)
    assert join(member, "t", client_id="waits").generation == 3
    assert sorted(names(cluster)) == ["first", "second", "third", "waits"]


def test_the_first_waits_for_others_and_takes_them_in(cluster, store, clock):
    cluster.limits["group.initial.rebalance.delay.ms"] = "3000"
    waiting_ids: list[str] = []
    sleep_ms = clock.sleep_ms

    def others_come(duration_ms):
        sleep_ms(duration_ms)
        if not waiting_ids:
            waiting_ids.append("a")
            clock.sleep_ms = sleep_ms
            cluster.limits["group.initial.rebalance.delay.ms"] = "0"
            waiting(cluster, store, "t", client_id="a")

    clock.sleep_ms = others_come
    began_ms = clock.monotonic_ms()
    join(cluster.coordinator(), "t", session_ms=45_000, client_id="first")
    assert clock.monotonic_ms() - began_ms >= 6000, "another one came: it waited again"
    assert cluster.coordinator().describe().generation == 1
    assert sorted(names(cluster)) == ["a", "first"]


def test_a_group_with_members_is_joined_at_once(cluster, clock):
    cluster.member("t")
    cluster.limits["group.initial.rebalance.delay.ms"] = "3000"
    began_ms = clock.monotonic_ms()
    cluster.member("t")
    assert clock.monotonic_ms() == began_ms


def test_a_join_without_others_lists_no_requests(cluster, store):
    cluster.member("t")
    listed: list[str] = []

    def note(path, call):
        listed.append(path)
        return call()

    store.on("list", note)
    cluster.member("t")
    assert MEMBERS not in listed


def test_who_was_removed_does_not_come_back(cluster, store):
    """Its request may be still there: its file was not deleted, or a put of it came late."""
    member = cluster.member("t", client_id="gone")
    path = f"{MEMBERS}/{member.member_id}"
    request = store.inner.open_buffer(path).to_pybytes()
    assert "join" in json.loads(request)
    cluster.member("t", client_id="remover").remove([member.member_id])
    store.inner.put(path, request)
    overtaken(store, lambda: cluster.member("t", client_id="second"))
    cluster.member("t", client_id="third")
    assert sorted(names(cluster)) == ["remover", "second", "third"]


def test_who_may_have_been_removed_already_joins_as_another(cluster, store):
    member = cluster.coordinator()

    def join_and_leave():
        cluster.member("t").leave()

    overtaken(store, join_and_leave)
    join(member, "t")
    assert list(member.describe().members) == [member.member_id]
    assert [file.name for file in store.inner.list(MEMBERS)] == [member.member_id]


def test_a_request_of_a_process_that_died_is_deleted(cluster, store, clock):
    dead = waiting(cluster, store, "t", client_id="dead")
    assert not dead.member_id
    clock.advance_ms(SESSION_MS + 1000)
    overtaken(store, lambda: cluster.member("t", client_id="first"))
    cluster.member("t", client_id="second")
    assert sorted(names(cluster)) == ["first", "second"]
    assert len(list(store.inner.list(MEMBERS))) == 2


def test_a_static_member_is_replaced_only_by_itself(cluster, store):
    """Its request may be that of a process that died, whose successor has its place."""
    waiting(cluster, store, "t", instance_id="i")
    successor = cluster.member("t", instance_id="i")
    overtaken(store, lambda: cluster.member("t", client_id="first"))
    cluster.member("t", client_id="second")
    assert successor.heartbeat().member_id == successor.member_id


def test_those_that_would_be_refused_are_left_out(cluster, store):
    waiting(cluster, store, "t", client_id="other", assignors=["sticky"])
    waiting(cluster, store, "t", client_id="c1")
    waiting(cluster, store, "t", client_id="c2")
    cluster.limits["group.max.size"] = "3"
    overtaken(store, lambda: cluster.member("t", client_id="first"))
    cluster.member("t", client_id="second")
    assert sorted(names(cluster)) == ["c1", "first", "second"]


def test_a_file_that_is_no_request_is_left_out(cluster, store):
    store.inner.put(f"{MEMBERS}/x", b"no json")
    store.inner.put(f"{MEMBERS}/y", b'{"beat": 1, "join": {"generation": "?"}}')
    overtaken(store, lambda: cluster.member("t", client_id="first"))
    cluster.member("t", client_id="second")
    assert sorted(names(cluster)) == ["first", "second"]
