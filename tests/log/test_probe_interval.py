"""Pauses between two probes of a log's end: short while records arrive, and never for nothing."""

import pytest

from spark_log.log.probe_interval import LOCAL_PROBES, REMOTE_PROBES, ProbeInterval
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


def test_an_object_store_is_asked_ten_times_a_second_at_most():
    assert len(pauses(REMOTE_PROBES, 10_000)) < 150


def test_more_partitions_are_probed_more_seldom():
    probes = ProbeInterval(1, 50)
    assert probes.pause_ms(1e6) == 50
    assert probes.pause_ms(1e6, partitions=6) == pytest.approx(100)
    assert probes.pause_ms(0, partitions=6) == 1


@pytest.mark.parametrize(("is_mapped", "probes"), [(True, LOCAL_PROBES), (False, REMOTE_PROBES)])
def test_the_interval_suits_the_store(memory_store, is_mapped, probes):
    assert ProbeInterval.of(HookedStore(memory_store, is_mapped=is_mapped)) == probes
