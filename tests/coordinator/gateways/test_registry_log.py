"""The gateways of a root, as programs without a gateway read them."""

import pytest

from spark_log.cluster import Cluster
from spark_log.coordinator import (
    GATEWAY_REGISTRY,
    GatewayLife,
    GatewayRegistryLog,
    RegisteredGateway,
    gateway_heartbeats,
    read_gateways,
)

SECOND_US = 1_000_000


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path / "root", create=True)


def register(cluster, **fields):
    log = GatewayRegistryLog(cluster.store, GATEWAY_REGISTRY, cluster.clock)
    wanted = RegisteredGateway(-1, f"incarnation-{fields['port']}", "a.example", **fields)
    return log.commit(lambda registry: registry.register(wanted)).incarnation(wanted.incarnation_id)


def test_a_root_without_gateways_has_none_and_nothing_is_written(cluster, tmp_path):
    before = sorted((tmp_path / "root").rglob("*"))
    assert read_gateways(cluster.store, cluster.clock) == ()
    assert sorted((tmp_path / "root").rglob("*")) == before


def test_gateways_are_read_with_all_that_they_registered_and_their_counters(cluster):
    first = register(cluster, port=1, rack="eu-1a", version="0.3.0", session_timeout_ms=5)
    second = register(cluster, port=2)
    gateway_heartbeats(cluster.store).beat(first.heartbeat_name, 7)
    found = read_gateways(cluster.store, cluster.clock)
    assert [each.gateway for each in found] == [first, second]
    assert (first.rack, first.version, first.session_timeout_ms) == ("eu-1a", "0.3.0", 5)
    assert [each.counter for each in found] == [7, 0]
    assert found[0].beat_us > found[1].beat_us == 0


@pytest.mark.parametrize(
    ("timeout_ms", "silent_s", "is_live"),
    [
        (9_000, 0, True),
        (9_000, 60, True),
        (9_000, 61, False),
        (90_000, 90, True),
        (90_000, 91, False),
    ],
)
def test_a_gateway_is_live_for_its_session_timeout_or_a_minute(timeout_ms, silent_s, is_live):
    gateway = RegisteredGateway(1, "a", "a.example", 1, session_timeout_ms=timeout_ms)
    life = GatewayLife(gateway, 1, beat_us=1_000 * SECOND_US)
    assert life.is_live((1_000 + silent_s) * SECOND_US) is is_live


def test_a_sign_of_life_after_the_observers_time_is_no_silence():
    life = GatewayLife(RegisteredGateway(1, "a", "a.example", 1), 1, beat_us=9 * SECOND_US)
    assert life.silent_us(1) == 0
