"""Pauses between two probes of a log's end: short while records arrive, and never for nothing."""

import pytest

from spark_log.log.read.probe_interval import LOCAL_PROBES, REMOTE_PROBES, REST_MS, ProbeInterval
from tests.log.support import HookedStore


def pauses(probes, for_ms, partitions=1):
    """Return the pauses of a reader that gets no record for some milliseconds."""
    found: list[float] = []
    while sum(found) < for_ms:
        found.append(probes.pause_ms(sum(found), partitions))
    return found


def test_a_reader_probes_often_at_first_and_then_seldom():
    slept_ms = pauses(LOCAL_PROBES, 1_000)
    assert slept_ms[0] == LOCAL_PROBES.min_ms
    assert max(slept_ms) == LOCAL_PROBES.max_ms
    assert len(slept_ms) < 450, "no hot spin"


def test_a_record_is_read_late_by_a_tenth_of_the_time_that_it_took_to_come():
    slept_ms = pauses(ProbeInterval(0.2, 1e9), 1_000)
    for count, pause_ms in enumerate(slept_ms):
        assert pause_ms <= max(0.2, 0.1 * sum(slept_ms[:count]) + 1e-6)


def test_an_object_store_is_asked_ten_times_a_second_at_most_and_once_a_second_at_rest():
    assert len(pauses(REMOTE_PROBES, REST_MS)) < 100
    assert REMOTE_PROBES.pause_ms(REST_MS) == 1_000


def test_partitions_at_rest_share_the_requests_of_ten():
    assert REMOTE_PROBES.pause_ms(REST_MS, partitions=10) == 1_000
    assert REMOTE_PROBES.pause_ms(REST_MS, partitions=50) == 5_000


def test_more_partitions_are_probed_more_seldom():
    probes = ProbeInterval(1, 50)
    assert probes.pause_ms(1e6) == 50
    assert probes.pause_ms(1e6, partitions=6) == pytest.approx(100)
    assert probes.pause_ms(0, partitions=6) == 1


@pytest.mark.parametrize(("is_mapped", "probes"), [(True, LOCAL_PROBES), (False, REMOTE_PROBES)])
def test_the_interval_suits_the_store(memory_store, is_mapped, probes):
    assert ProbeInterval.of(HookedStore(memory_store, is_mapped=is_mapped)) == probes


def test_the_time_between_probes_at_rest_can_be_chosen(memory_store):
    remote = HookedStore(memory_store, is_mapped=False)
    assert ProbeInterval.of(remote, 50).pause_ms(REST_MS) == 50
    assert max(pauses(ProbeInterval.of(remote, 50), 1_000)) == 50
    assert ProbeInterval.of(memory_store, 50) == LOCAL_PROBES
