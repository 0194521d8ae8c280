"""The registry of gateways: who is in it, who takes part, and where clients are directed."""

import random
from contextlib import suppress
from itertools import count

import pytest

from spark_log.cluster import Cluster
from spark_log.config import GatewayConfig
from spark_log.coordinator import GatewayRegistry, GatewayRegistryLog, RegisteredGateway
from spark_log.errors import DuplicateBrokerRegistrationError, StorageError
from spark_log.gateway.registry import (
    RegistryMember,
    coordinator,
    leader,
    led_together,
    rack_of_client,
)
from tests.log.support import HookedStore, failing

INTERVAL_MS, TIMEOUT_MS, DELAY_MS = 2_000, 9_000, 6_000


@pytest.fixture
def root(tmp_path, clock):
    return Cluster(tmp_path / "root", create=True, clock=clock)


def member(root, port, **config):
    return RegistryMember(root, GatewayConfig.parse(config), host="127.0.0.1", port=port)


def ids(registry):
    return [(each.gateway_id, each.is_active) for each in registry.gateways]


def pass_time(clock, duration_ms, *living):
    """Let time pass, in which these members live."""
    for _ in range(duration_ms // 1_000):
        clock.advance_ms(1_000)
        for each in living:
            each.tick()


def test_the_first_gateway_takes_part_at_once_and_others_after_their_trial(root, clock):
    first, second = member(root, 1), member(root, 2)
    assert first.join().gateway_id == 1_001
    assert second.join().gateway_id == 1_002
    assert ids(first.tick()) == [(1_001, True), (1_002, False)]
    pass_time(clock, DELAY_MS - 1_000, first, second)
    assert ids(second.tick()) == [(1_001, True), (1_002, False)]
    pass_time(clock, 1_000, first, second)
    assert ids(first.tick()) == [(1_001, True), (1_002, True)]


def test_a_silent_gateway_is_removed_and_nobody_who_counts(root, clock):
    first, second, third = (member(root, port) for port in (1, 2, 3))
    for each in (first, second, third):
        each.join()
    pass_time(clock, 10_000, first, second, third)
    pass_time(clock, TIMEOUT_MS - 1_000, first, third)
    assert len(first.tick().gateways) == 3
    pass_time(clock, INTERVAL_MS, first, third)
    assert ids(first.tick()) == ids(third.tick()) == [(1_001, True), (1_003, True)]
    pass_time(clock, 10 * TIMEOUT_MS, first, third)
    assert ids(first.tick()) == [(1_001, True), (1_003, True)]


def test_a_gateway_that_was_paused_joins_again_and_waits_for_its_trial(root, clock, caplog):
    first, paused = member(root, 1), member(root, 2)
    first.join()
    paused.join()
    pass_time(clock, 10_000, first, paused)
    pass_time(clock, TIMEOUT_MS + INTERVAL_MS, first)
    assert ids(first.tick()) == [(1_001, True)]
    assert ids(paused.tick()) == [(1_001, True), (1_002, False)]
    assert "it joins again" in caplog.text
    pass_time(clock, DELAY_MS, first, paused)
    assert ids(first.tick()) == [(1_001, True), (1_002, True)]


def test_an_observer_that_was_paused_removes_nobody(root, clock):
    first, second = member(root, 1), member(root, 2)
    first.join()
    second.join()
    pass_time(clock, 10_000, first, second)
    first.tick()
    clock.advance_ms(100 * TIMEOUT_MS)  # the whole machine slept: both counters stand still
    assert len(first.tick().gateways) == 2


def test_a_gateway_that_was_paused_knows_that_others_may_do_its_work(root, clock):
    first, second = member(root, 1), member(root, 2, **{"broker.session.timeout.ms": 5_000})
    assert not first.is_known_alive
    first.join()
    second.join()
    first.tick()
    assert first.is_known_alive
    clock.advance_ms(4_999)
    assert first.is_known_alive
    clock.advance_ms(1)  # the second one may remove it by now
    assert not first.is_known_alive
    working = first._log  # noqa: SLF001 - it shows life, and cannot read the registry
    store = HookedStore(root.store)
    first._log = GatewayRegistryLog(store, "registry", clock)  # noqa: SLF001
    store.on("list", failing(StorageError("no answer")))
    for _ in range(2):
        with pytest.raises(StorageError):
            first.tick()
    first._log = working  # noqa: SLF001
    first.tick()
    assert first.is_known_alive  # it has written that it lives
    first.leave()
    assert not first.is_known_alive


def test_a_late_sign_of_life_counts_after_a_renewal(root, clock):
    first = member(root, 1)
    first.join()
    clock.advance_ms(TIMEOUT_MS - 1)
    store = HookedStore(root.store)
    first._heartbeats.store = store  # noqa: SLF001 - its put takes a time

    def put(path, call):
        clock.advance_ms(INTERVAL_MS)
        return call()

    store.once("put", put)
    assert first.tick().gateways[0].renewals == 1  # another gateway may have looked before it
    assert first.is_known_alive


def test_a_removal_that_arrives_after_its_gateway_has_shown_life_removes_nobody(root, clock):
    """Others would act on it at once, and the gateway would read it a heartbeat later."""
    first, second = member(root, 1), member(root, 2)
    first.join()
    second.join()
    pass_time(clock, TIMEOUT_MS, first)
    assert len(first.registry.gateways) == 2
    store = HookedStore(root.store)
    first._log = GatewayRegistryLog(store, "registry", clock)  # noqa: SLF001
    arrived = []

    def put(path, call):
        for _ in range(3):
            second.tick()
        assert second.is_known_alive
        arrived.append(path)
        return call()

    store.once("put_if_absent", put)
    pass_time(clock, INTERVAL_MS, first)
    assert arrived
    assert second.is_known_alive
    assert [each.renewals for each in first.tick().gateways] == [0, 1]
    pass_time(clock, TIMEOUT_MS + INTERVAL_MS, first)
    assert len(first.registry.gateways) == 1, "it is silent again"


def test_a_gateway_coordinates_when_the_others_know_that_it_is_active(root, clock):
    first, second = member(root, 1), member(root, 2)
    first.join()
    second.join()
    assert first.may_coordinate  # it was the first one
    pass_time(clock, DELAY_MS - 1_000, first, second)
    term = first.term
    clock.advance_ms(1_000)
    assert ids(second.tick()) == [(1_001, True), (1_002, True)]
    for _ in range(2):
        assert not second.may_coordinate
        assert ids(first.registry) == [(1_001, True), (1_002, False)]  # it has not read it
        second.tick()
    first.tick()
    assert first.term > term  # what it has accepted before may be late
    assert not second.may_coordinate
    second.tick()
    assert second.may_coordinate
    assert first.may_coordinate


def test_a_gateway_does_not_wait_for_others_that_have_gone_or_stand_still(root, clock):
    first, second, third = (member(root, port) for port in (1, 2, 3))
    first.join()
    second.join()
    pass_time(clock, DELAY_MS, second, first)
    assert not second.may_coordinate
    first.leave()
    second.tick()
    assert second.may_coordinate
    third.join()
    pass_time(clock, DELAY_MS, second, third)
    third.tick()  # the second one stands still, before it has read that the third one is active
    assert ids(third.registry) == [(1_001, True), (1_002, True)]  # it has the id of the first one
    assert not third.may_coordinate
    pass_time(clock, TIMEOUT_MS - 1_000, third)
    assert not third.may_coordinate
    pass_time(clock, 1_000, third)
    assert third.may_coordinate
    assert not second.is_known_alive


def test_a_gateway_waits_for_one_that_does_not_say_what_it_has_read(root, clock):
    """Gateways of earlier releases do not."""
    first, second = member(root, 1), member(root, 2)
    beat = first._heartbeats.beat  # noqa: SLF001
    first._heartbeats.beat = lambda name, count, join=None, seen=None: beat(  # noqa: SLF001
        name, count
    )
    first.join()
    second.join()
    pass_time(clock, DELAY_MS, first, second)
    pass_time(clock, TIMEOUT_MS - 1_000, first, second)
    assert not second.may_coordinate
    pass_time(clock, 1_000, first, second)
    assert second.may_coordinate
    assert len(first.registry.gateways) == 2


def test_a_gateway_that_stood_still_after_it_looked_removes_nobody(root, clock):
    first, second = member(root, 1), member(root, 2)
    first.join()
    second.join()
    pass_time(clock, TIMEOUT_MS, first)
    first.tick()
    assert len(first.registry.gateways) == 2
    look = first._monitor.expired_members  # noqa: SLF001

    def stands_still(timeouts_ms):
        found = look(timeouts_ms)
        store = HookedStore(root.store)
        first._log = GatewayRegistryLog(store, "registry", clock)  # noqa: SLF001

        def pause(path, call):
            clock.advance_ms(INTERVAL_MS)
            return call()

        store.once("list", pause)
        return found

    first._monitor.expired_members = stands_still  # noqa: SLF001
    clock.advance_ms(1_000)
    assert len(first.tick().gateways) == 2
    first._monitor.expired_members = look  # noqa: SLF001
    clock.advance_ms(1_000)
    assert len(first.tick().gateways) == 1


def test_a_gateway_is_removed_after_its_own_timeout(root, clock):
    first, second = member(root, 1), member(root, 2, **{"broker.session.timeout.ms": 5_000})
    first.join()
    second.join()
    pass_time(clock, TIMEOUT_MS - 1_000, second)
    assert len(second.registry.gateways) == 2
    pass_time(clock, 2_000, second)
    assert len(second.registry.gateways) == 1


class ClaimedGroups:
    """Gateways that come, go, stand still in the middle of a tick, and coordinate groups.

    Attributes:
        moves: the number of times that a group had another coordinator than before.
    """

    def __init__(self, root, clock, seed):
        self.moves = 0
        self._root, self._clock, self._random = root, clock, random.Random(seed)
        self._members, self._busy = [], []
        self._ports = count(1)
        self._owners = {}

    def run(self, steps):
        for _ in range(steps):
            self._step()

    def _step(self):
        self._clock.advance_ms(self._random.choice((10, 200, 500)))
        self._check()
        idle = [each for each in self._members if each not in self._busy]
        chance = self._random.random()
        if len(self._members) < 4 and chance < 0.05:
            idle.append(self._new())
        elif len(self._members) > 1 and chance < 0.06 and idle:
            gone = self._random.choice(idle)
            if self._random.random() < 0.5:
                self._busy_with(gone, gone.leave)
            self._members.remove(gone)
            idle.remove(gone)
        for each in idle:
            # Others may have begun or ended meanwhile.
            is_idle = each in self._members and each not in self._busy
            if is_idle and self._random.random() < 0.4:
                self._busy_with(each, each.tick)
                self._check()

    def _busy_with(self, each, call):
        self._busy.append(each)
        # The log may be trimmed while the process stands still: a gateway goes on at its next tick.
        with suppress(StorageError):
            call()
        self._busy.remove(each)

    def _new(self):
        found = member(
            self._root,
            next(self._ports),
            **{
                "broker.session.timeout.ms": self._random.choice((3_000, 5_000)),
                "broker.heartbeat.interval.ms": 400,
                "broker.join.delay.ms": 500,
            },
        )
        found.join()
        store = HookedStore(self._root.store)
        found._heartbeats.store = store  # noqa: SLF001 - its ticks stand still there
        log = GatewayRegistryLog(store, "registry", self._clock)
        found._log = log  # noqa: SLF001
        for operation in ("put", "open_buffer", "put_if_absent"):
            store.on(operation, self._stand_still)
        self._members.append(found)
        return found

    def _stand_still(self, _, call):
        self._pause()
        answer = call()
        self._pause()
        return answer

    def _pause(self):
        if self._random.random() < 0.02 and len(self._busy) < 3:
            self.run(self._random.choice((3, 30)))

    def _check(self):
        for name in "abcdef":
            owners = [each for each in self._members if self._coordinates(each, name)]
            assert len(owners) <= 1, (name, owners)
            if owners and self._owners.get(name) is not owners[0]:
                self._owners[name], self.moves = owners[0], self.moves + 1

    def _coordinates(self, each, name):
        if not (each.may_coordinate and each.gateway.is_active):
            return False
        found = coordinator(each.registry.active or (each.gateway,), "group", name)
        return found.incarnation_id == each.gateway.incarnation_id


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_at_each_moment_one_gateway_at_most_coordinates_a_group(root, clock, seed):
    groups = ClaimedGroups(root, clock, seed)
    groups.run(200)
    assert groups.moves > 10


def test_a_restarted_gateway_takes_its_own_place_and_nothing_moves(root, clock):
    first, second = member(root, 1), member(root, 2)
    first.join()
    second.join()
    pass_time(clock, 10_000, first, second)
    again = member(root, 1)
    assert again.join().gateway_id == 1_001
    assert ids(again.tick()) == [(1_001, True), (1_002, True)]
    assert len(second.tick().gateways) == 2


def test_a_gateway_that_leaves_is_gone_at_once(root):
    first, second = member(root, 1), member(root, 2)
    first.join()
    second.join()
    first.leave()
    assert ids(second.tick()) == [(1_002, True)]  # nobody else is there: no trial


def test_an_id_of_another_gateway_is_refused(root):
    member(root, 1, **{"broker.id": 7}).join()
    with pytest.raises(DuplicateBrokerRegistrationError, match=r"127\.0\.0\.1:1; give another"):
        member(root, 2, **{"broker.id": 7}).join()
    assert member(root, 1, **{"broker.id": 7}).join().gateway_id == 7


def test_gateways_that_join_at_the_same_time_get_ids_of_their_own(root, tmp_path, clock):
    other = Cluster(tmp_path / "root", clock=clock)
    members = [member(root if port % 2 else other, port) for port in range(1, 9)]
    assert len({each.join().gateway_id for each in members}) == 8


def test_a_root_that_fails_changes_nothing_and_the_next_tick_continues(root, clock):
    first = member(root, 1)
    first.join()
    store = HookedStore(root.store)
    first._log = GatewayRegistryLog(store, "registry", clock)  # noqa: SLF001 - a store that fails
    store.on("list", failing(StorageError("no answer")))
    with pytest.raises(StorageError):
        first.tick()
    store.hooks.clear()
    assert ids(first.tick()) == [(1_001, True)]


# --- where clients are directed ------------------------------------------------------------------


def gateways(*racks):
    return tuple(
        RegisteredGateway(1_001 + number, f"i{number}", "h", number, rack, True)
        for number, rack in enumerate(racks)
    )


PARTITIONS = [(f"topic-{number}", partition) for number in range(50) for partition in range(20)]


def test_partitions_are_spread_evenly():
    found = [leader(gateways("", "", "", ""), *each).gateway_id for each in PARTITIONS]
    assert all(200 < found.count(each) < 300 for each in set(found))
    assert len(set(found)) == 4


def test_only_the_partitions_of_a_gateway_that_goes_move():
    before, after = gateways("", "", "", ""), gateways("", "", "")
    for each in PARTITIONS:
        if leader(before, *each) != before[3]:
            assert leader(before, *each) == leader(after, *each)


def test_a_client_finds_gateways_of_its_rack_or_any_if_there_is_none():
    all_of = gateways("a", "a", "b", "")
    assert {leader(all_of, *each, rack="a").rack for each in PARTITIONS} == {"a"}
    assert {leader(all_of, *each, rack="b") for each in PARTITIONS} == {all_of[2]}
    assert {leader(all_of, *each, rack="c") for each in PARTITIONS} == set(all_of)
    assert {leader(all_of, *each) for each in PARTITIONS} == set(all_of)


@pytest.mark.parametrize(
    ("stripes", "count", "most"), [(4, 4, 1), (4, 2, 1), (4, 6, 2), (1, 3, 3), (8, 3, 1)]
)
def test_few_gateways_lead_the_partitions_of_a_stripe(stripes, count, most):
    all_of = gateways(*[""] * count)
    for topic in range(20):
        leaders: list[set[int]] = [set() for _ in range(stripes)]
        for partition in range(100):
            together = led_together(partition, stripes, count)
            leaders[partition % stripes].add(leader(all_of, f"topic-{topic}", together).gateway_id)
        assert max(map(len, leaders)) <= most


def test_each_partition_of_a_topic_without_stripes_has_a_gateway_of_its_own():
    assert [led_together(partition, 0, 4) for partition in range(100)] == [*range(100)]


def test_the_coordinator_is_the_same_for_all_clients_and_groups_are_spread():
    all_of = gateways("a", "b", "c")
    found = [coordinator(all_of, "group", f"g{number}") for number in range(300)]
    assert set(found) == set(all_of)
    assert found != [coordinator(all_of, "transaction", f"g{number}") for number in range(300)]


@pytest.mark.parametrize(
    ("client_id", "rack"),
    [
        ("orders,rack=eu-1a", "eu-1a"),
        ("az=b", "b"),
        ("MM2 rack=b|source", "b"),
        ("x,az=c,more", "c"),
        ("a-rack=b", ""),
        ("rack=", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_the_rack_is_in_the_client_id(client_id, rack):
    assert rack_of_client(client_id) == rack


def test_a_record_is_read_as_it_was_written():
    record = GatewayRegistry().register(RegisteredGateway(-1, "i", "h", 9092, "r"))
    assert record is not None
    (found,) = (
        GatewayRegistry()
        .replay(type(record).model_validate_json(record.model_dump_json()))
        .gateways
    )
    assert found == RegisteredGateway(1_001, "i", "h", 9092, "r", True)
    assert "1001 at h:9092" in str(record)
